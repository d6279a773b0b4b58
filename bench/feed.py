"""The feed beside what else saves a run: whole saves, saves behind a trainer's back, and loading.

These measure ours and the others in rotation within one run, on the same path; medians. Whole saves
are made durable (fsync of files and folders), and once not. What saves take of a trainer's steps is
measured of ours alone. One state is a dictionary of float32 tensors in memory. The limits are a
plain copy by NumPy, of one thread, on a mapped medium, and fio (io_uring, O_DIRECT) on a drive, in
that rotation.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import baselines
import numpy as np
import torch
from feed_loads import loading
from feed_state import change, copy_seconds, medians, state_of, timed
from fio import fio_seconds

import tensorshelf as ts

# ---- whole saves


def whole(folder: Path, tier: str, nbytes: int, rounds: int, durable: bool) -> dict[str, float]:
    """Seconds of a save, from the call until the state is as safe as the store makes it."""
    state = state_of(nbytes)
    saves = baselines.synchronous(folder, durable=durable)
    room = [np.ones_like(tensor.numpy()) for tensor in state.values()] if tier == "pmem" else []
    samples: dict[str, list[float]] = {}
    step = itertools.count(1)
    with (
        ts.open(folder / "whole.shelf", mode="w", tier=tier) as shelf,
        ts.open(folder / "autosave.shelf", mode="w", tier=tier) as streamed_into,
        streamed_into.autosave(state=state, overlap=False) as auto,
    ):

        def streamed() -> None:
            auto.step(next(step))
            auto.wait()

        def limit() -> float:
            if tier == "pmem":
                return copy_seconds(state, room)
            return fio_seconds(folder / "fio", nbytes)

        saves |= {"shelf.save": lambda state: shelf.save(state), "autosave": lambda _: streamed()}
        seconds: dict[str, Callable[[], float]] = {
            name: lambda save=save: timed(lambda: save(state))  # type: ignore[misc]
            for name, save in saves.items()
        }
        seconds["limit"] = limit
        streamed()
        for number, (name, of) in itertools.product(range(-1, rounds), seconds.items()):
            change(state)
            took = of()
            if number >= 0:
                samples.setdefault(name, []).append(took)
    return medians(samples)


# ---- behind a trainer's back


class Loop:
    """A trainer in pure Python, in a thread: how fast it goes, and how long it stands still."""

    def __init__(self) -> None:
        self.turns = 0
        self.longest = 0.0
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of this thread
        last = time.perf_counter()
        while not self._over:
            sum(range(50))
            now = time.perf_counter()
            self.longest = max(self.longest, now - last)
            last = now
            self.turns += 1

    def watched(self, call: Callable[[], object]) -> tuple[float, float]:
        """Turns a second while it is called, and the longest pause."""
        self.longest, before = 0.0, self.turns
        seconds = timed(call)
        return (self.turns - before) / seconds, self.longest

    def end(self) -> None:
        self._over = True
        self._thread.join()


class Ours:
    """A commit, as a future."""

    def __init__(self, commit: ts.Commit) -> None:
        self.result = commit.wait


def behind(folder: Path, tier: str, nbytes: int, rounds: int) -> dict[str, dict[str, float]]:
    """Of each: what the call blocks, until saved, the loop's rate over before, its longest pause.

    Before and during are taken one behind the other: what else runs on this machine drifts.
    """
    state = state_of(nbytes)
    found: dict[str, dict[str, list[float]]] = {}
    step = itertools.count(2)
    with contextlib.ExitStack() as stack:
        stack.enter_context(baselines.process_group())
        model, optimizer = holder_of(state)
        calls: dict[str, Callable[[Any], Any]] = {}
        autos = []
        other = max(os.sched_getaffinity(0))  # than the loop's
        for name, options in (("autosave", {}), ("autosave, cpus=", {"cpus": [other]})):
            shelf = stack.enter_context(ts.open(folder / f"{name}.shelf", mode="w", tier=tier))
            auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=options)
            autos.append(stack.enter_context(auto))
            for _ in range(3):
                auto.step(next(step))
            auto.wait()
            calls[name] = lambda _, auto=auto: Ours(auto.step(next(step)))
        calls |= baselines.background(folder)
        for number, (name, call) in itertools.product(range(-1, rounds), calls.items()):
            for auto in autos:
                auto.wait()
            change(state)
            gc.collect()
            loop = Loop()
            stack.callback(loop.end)
            quiet, still = loop.watched(lambda: time.sleep(1.0))
            blocked: list[float] = []

            def save(call: Any = call, blocked: list[float] = blocked) -> None:
                begin = time.perf_counter()
                future = call(state)
                blocked.append(time.perf_counter() - begin)
                future.result()

            begin = time.perf_counter()
            rate, longest = loop.watched(save)
            took = time.perf_counter() - begin
            loop.end()
            if number < 0:
                continue
            of = found.setdefault(name, {})
            for key, value in (
                ("blocks", blocked[0]),
                ("saved after", took),
                ("rate", rate / quiet),
                ("pause", longest),
                ("pause before", still),
            ):
                of.setdefault(key, []).append(value)
    return {name: medians(of) for name, of in found.items()}


def holder_of(state: baselines.State) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model of these tensors, and an optimizer that keeps nothing."""
    model = torch.nn.ParameterDict({k: torch.nn.Parameter(v, False) for k, v in state.items()})
    return model, torch.optim.SGD(model.parameters(), 0.1)


# ---- steps


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def steps(folder: Path, tier: str, width: int, batch: int, rounds: int) -> dict[str, float]:
    """The median step with a save each, over that of the same training without, in blocks of ten.

    The trainer keeps to one core, the pipeline to the other.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    data = torch.randn(batch, width)

    def train() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    own = cores[-1:] if len(cores) > 1 else []
    number = itertools.count(1)
    saved: list[float] = []
    plain: list[float] = []
    with (
        ts.open(folder / "steps.shelf", mode="w", tier=tier, in_flight=2) as shelf,
        shelf.autosave(
            model=model, optimizer=optimizer, rng=ts.RNG(), pipeline={"cpus": own}
        ) as auto,
        on_core(cores[0]),
    ):
        for _ in range(5):
            train()
            auto.step(next(number))
        for _ in range(rounds):
            auto.wait()
            train()  # whose caches the wait left
            plain += [timed(train) for _ in range(10)]

            def both() -> None:
                train()
                auto.step(next(number))

            both()
            saved += [timed(both) for _ in range(10)]
        assert auto.start is not None
        nbytes = auto.start.sources.lazy_nbytes + auto.start.sources.eager_nbytes
        seconds = statistics.median(s.seconds for s in auto._timeline.saves if s.seconds)
    with_saves, without = statistics.median(saved), statistics.median(plain)
    return {
        "bytes": float(nbytes),
        "step": without,
        "step with a save": with_saves,
        "ratio": with_saves / without,
        "save": seconds,
    }


# ---- what a save takes of the trainer's time


def looks(folder: Path, tier: str, count: int, rounds: int) -> dict[str, float]:
    """Seconds of step() for a state of so many small tensors: parameters and three for each that
    AdamW keeps. The first save of all creates them; that of a run that is resumed was planned when
    it was.
    """
    params = [torch.nn.Parameter(torch.randn(16, 16)) for _ in range(count // 4)]
    model = torch.nn.ParameterList(params)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer.step()
    found: dict[str, float] = {}
    own: list[float] = []
    later: list[float] = []
    for name in ("creating", "first"):
        with (
            ts.open(folder / "looks.shelf", tier=tier, in_flight=2) as shelf,
            shelf.autosave(model=model, optimizer=optimizer) as auto,
        ):
            start = auto.resume()
            found[name] = timed(lambda begin=start: auto.step(begin + 1))
            for number in range(start + 2, start + 2 + 5 * rounds):
                auto.wait()
                optimizer.step()  # whose caches are the trainer's
                own.append(timed(lambda: (model.state_dict(), optimizer.state_dict())))
                later.append(timed(lambda number=number: auto.step(number)))
    found |= {"own state_dict": statistics.median(own), "later": statistics.median(later)}
    found["beyond, a tensor"] = (found["later"] - found["own state_dict"]) / count
    return found


# ---- all


def rates(title: str, seconds: dict[str, float], nbytes: int) -> None:
    limit = seconds.get("limit") or seconds.get("copy of memory")
    for name, each in sorted(seconds.items(), key=lambda item: item[1]):
        over = f"  {limit / each:5.2f} of the limit" if limit else ""
        print(f"  {title}  {name:<26} {nbytes / each / 1e9:6.2f} GB/s{over}", flush=True)


def run(mapped: Path, block: Path, quick: bool, only: str = "") -> dict[str, Any]:
    """``only``: of the figures those that have this in their names."""
    warnings.simplefilter("ignore", ts.TierWarning)  # the titles name the media
    warnings.simplefilter("ignore", UserWarning)  # of DCP: one process, and saved over
    logging.getLogger("tensorshelf").setLevel(logging.ERROR)
    torch.set_num_threads(2)
    gib = 1 << 26 if quick else 1 << 30
    rounds = 2 if quick else 3
    results: dict[str, Any] = {}
    for title, parent, tier in (("mapped", mapped, "pmem"), ("block", block, "block")):

        def measured(
            name: str, measure: Callable[..., Any], *args: Any, parent: Path = parent
        ) -> Any:
            """None where it is not asked for."""
            if only not in name:
                return None
            with tempfile.TemporaryDirectory(dir=parent) as folder:  # empty: room is scarce
                results[name] = measure(Path(folder), *args)
            return results[name]

        for durable in (True, False):
            name = f"{title}, save of {gib >> 20} MiB{'' if durable else ', nothing synced'}"
            if found := measured(name, whole, tier, gib, rounds, durable):
                rates(name, found, gib)
        name = f"{title}, behind a trainer, {gib >> 20} MiB"
        if found := measured(name, behind, tier, gib, rounds):
            for who, of in found.items():
                cells = ", ".join(f"{key} {value:.4g}" for key, value in of.items())
                print(f"  {name}  {who:<30} {cells}", flush=True)
        for cold in (False, True) if tier == "block" else (False,):
            size = 2 * gib
            name = f"{title}, load of {size >> 20} MiB{', cold' if cold else ''}"
            if found := measured(name, loading, tier, size, rounds, cold):
                rates(name, found, size)
        for count in (500, 10_000):
            name = f"{title}, step() with {count} tensors"
            if found := measured(name, looks, tier, count, rounds):
                cells = ", ".join(f"{key} {value * 1e6:.4g} us" for key, value in found.items())
                print(f"  {name}  {cells}", flush=True)
        for width, batch, blocks in ((256, 512, 15), (512, 1024, 15), (1024, 2048, 5)):
            name = f"{title}, steps of {width} x {batch}"
            if found := measured(name, steps, tier, width, batch, 3 if quick else blocks):
                cells = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
                print(f"  {name}  {cells}", flush=True)
    return results
