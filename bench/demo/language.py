"""Trains the transformer twice, once killed over and over, and compares what comes of it."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import tensorshelf as ts
from transformer import STEPS, Begun, Step, train, train_unsaved

KILLS = 12
BEHIND = 2  # versions that may be on their way, so that the last step told may be so far ahead
WARM_UP = 3  # steps that create tensors and are not counted
UNSAVED = 40  # steps of the training without saves


@dataclass
class Language:
    """What came of both runs."""

    unsaved: float = 0.0  # median seconds of a step of a training that saves nothing
    compute: float = 0.0  # of one that saves at every step, without auto.step(); uninterrupted
    save: float = 0.0  # median seconds of auto.step()
    timeline: str = ""  # of the uninterrupted run, an HTML page
    state_bytes: int = 0
    losses: list[float] = field(default_factory=list)  # of the run that was killed
    kills: list[int] = field(default_factory=list)  # the steps told before each
    again: int = 0  # steps that were computed again
    failures: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Of a step with its save to one of the training that saves nothing."""
        return (self.compute + self.save) / self.unsaved


def run(
    context: ForkServerContext, place: Path, seed: int, on_step: Callable[[str], None]
) -> Language:
    """Both runs; what went wrong is in ``failures``."""
    language = Language()
    whole, killed = place / "whole.shelf", place / "killed.shelf"
    place.mkdir(parents=True, exist_ok=True)
    steps = _live(context, train_unsaved, UNSAVED, None, lambda step: on_step("without saves"))[1]
    language.unsaved = median(step.compute for step in steps[WARM_UP:])
    page = place / "timeline.html"
    steps = _live(
        context, train, whole, None, lambda step: on_step(f"step {step} of {STEPS}"), page
    )[1]
    language.timeline = page.read_text("utf-8")
    language.compute = median(step.compute for step in steps[WARM_UP:])
    language.save = median(step.save for step in steps[WARM_UP:])
    rng = random.Random(f"{seed}/language")
    told = 0
    while told < STEPS:
        left = KILLS - len(language.kills)
        kill = None
        if left > 0:
            ahead = max(1, 2 * (STEPS - told) // (left + 1) - 1)
            delay = rng.uniform(0, language.compute + language.save)
            kill = (rng.randint(1, max(1, min(ahead, STEPS - told - left))), delay)
        begun, steps = _live(context, train, killed, kill, lambda step: None)
        if not told - BEHIND <= begun.step <= told + 1:
            language.failures.append(f"step {told} was done, and the run resumed at {begun.step}")
        language.again += max(0, told - begun.step)
        told = steps[-1].number if steps else begun.step
        if kill is None:
            break
        language.kills.append(told)
        on_step(f"kill {len(language.kills)} of {KILLS}, at step {told}")
    _compare(language, _final(whole), _final(killed))
    return language


def _live(
    context: ForkServerContext,
    trainer: Callable[..., None],
    what: Any,
    kill: tuple[int, float] | None,
    on_step: Callable[[int], None],
    *more: Any,
) -> tuple[Begun, list[Step]]:
    """Start a trainer; let it end, or kill it so many seconds after so many steps."""
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=trainer, args=(what, send, *more))
    process.start()
    send.close()
    begun, steps = None, []
    with receive:
        try:
            while True:
                told = receive.recv()
                if isinstance(told, Begun):
                    begun = told
                    continue
                steps.append(told)
                on_step(told.number)
                if kill is not None and len(steps) == kill[0]:
                    time.sleep(kill[1])
                    process.kill()
        except EOFError:
            pass
    process.join()
    if process.exitcode not in ((0, -9) if kill else (0,)) or begun is None:
        raise RuntimeError(f"the transformer's trainer ended with {process.exitcode}; see above")
    return begun, steps


def _final(path: Path) -> Any:
    with ts.open(path, mode="r") as shelf:
        return shelf.step, shelf.load()


def _compare(language: Language, whole: Any, killed: Any) -> None:
    for name, (step, state) in (("uninterrupted", whole), ("killed", killed)):
        if step != STEPS or len(state["record"]["losses"]) != STEPS:
            language.failures.append(f"the {name} run ended at step {step}")
            return
    language.losses = killed[1]["record"]["losses"]
    if language.losses != whole[1]["record"]["losses"]:
        language.failures.append("the losses of the killed run are others")
    for key, tensor in whole[1]["model"].items():
        found = killed[1]["model"][key]
        if tensor.numpy().tobytes() != found.numpy().tobytes():
            language.failures.append(f"{key} of the killed run differs")
    language.state_bytes = sum(
        np.asarray(part).nbytes
        for state in (killed[1]["model"], *killed[1]["optimizer"]["state"].values())
        for part in state.values()
    )
