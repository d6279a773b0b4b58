"""What saving costs a training over how often it saves: gradients added up, and intervals.

As in FastPersist's figure of gradient accumulation and DataStates' of checkpoint intervals. A stack
of linear layers with AdamW trains by one thread of torch's; all it would resume from is saved, made
durable, by each way in turn. In the background are autosave(), DCP's async_save and a clone that a
thread saves: they wait for their last save before the next. In the foreground are the same
autosave() where nothing overlaps, and torch.save.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import baselines
import torch

import tensorshelf as ts

OUT = Path(__file__).resolve().parent.parent / "out" / "bench"
ACCUMULATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
INTERVALS = (1, 2, 5, 10, 25)
ITERATIONS = 50
BACKWARDS_PER_CELL = 24  # at least, and three steps


class Trainer:
    """Four linear layers, AdamW, and data that stay the same."""

    def __init__(self, width: int, batch: int) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        self._data = torch.randn(batch, width)
        self.backward(1)
        self.optimizer.step()

    def backward(self, times: int) -> None:
        self.optimizer.zero_grad()
        for _ in range(times):
            self.model(self._data).square().mean().backward()

    @property
    def state(self) -> baselines.State:
        """The tensors, as a dictionary: what the others save."""
        state = dict(self.model.state_dict())
        for at, kept in self.optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{at}.{name}": tensor for name, tensor in kept.items()}
        return state

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.state.values())


class Way(NamedTuple):
    """How a training is saved."""

    save: Callable[[int], object]  # behind a step of that number
    gate: Callable[[], object]  # before the optimizer's step
    drain: Callable[[], object]


def nothing(*_: object) -> None:
    """Of a way that has none."""


@contextlib.contextmanager
def autosaved(path: Path, tier: str, trainer: Trainer, *, overlap: bool) -> Iterator[Way]:
    with (
        ts.open(path, mode="w", tier=tier, in_flight=2) as shelf,
        shelf.autosave(model=trainer.model, optimizer=trainer.optimizer, overlap=overlap) as auto,
    ):

        def alone(step: int) -> None:
            auto.step(step)
            auto.wait()

        yield Way(auto.step if overlap else alone, auto.gate, auto.wait)


def foreground(save: baselines.Save, trainer: Trainer) -> Way:
    return Way(lambda _: save(trainer.state), nothing, nothing)


def background(save: Callable[[baselines.State], Future[Any]], trainer: Trainer) -> Way:
    last: list[Future[Any]] = []

    def drain() -> None:
        while last:
            last.pop().result()

    def begin(_: int) -> None:
        drain()
        last.append(save(trainer.state))

    return Way(begin, nothing, drain)


@contextlib.contextmanager
def ways(parent: Path, tier: str, trainer: Trainer) -> Iterator[dict[str, Way]]:
    """Each to files of its own, which are there already."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent)))
        stack.enter_context(baselines.process_group())
        found = {
            name: stack.enter_context(
                autosaved(folder / f"{overlap}.shelf", tier, trainer, overlap=overlap)
            )
            for name, overlap in (("autosave", True), ("autosave, no overlap", False))
        }
        behind = baselines.background(folder)
        found["DCP async_save"] = background(behind["DCP async_save, thread"], trainer)
        found["clone, thread"] = background(behind["clone, torch.save in a thread"], trainer)
        found["torch.save"] = foreground(baselines.torch_save(folder / "state.pt"), trainer)
        for way in found.values():
            for step in (1, 2, 3):
                way.save(step)
                way.drain()
        yield found


# ---- gradients added up


def accumulated(
    parent: Path, tier: str, trainer: Trainer, rounds: int, most: int
) -> dict[int, Any]:
    """Seconds of a step of so many backwards, with a save each, by way; and without ("unsaved").

    The last save's drain is part of what is measured.
    """
    results: dict[int, Any] = {}
    for times in ACCUMULATIONS[:most]:
        count = max(3, BACKWARDS_PER_CELL // times)
        with ways(parent, tier, trainer) as found:
            found["unsaved"] = Way(nothing, nothing, nothing)
            samples: dict[str, list[float]] = {name: [] for name in found}
            for number, (name, way) in itertools.product(range(rounds), found.items()):
                trainer.backward(1)  # whose caches another way left
                begin = time.perf_counter()
                for step in range(count):
                    trainer.backward(times)
                    way.gate()
                    trainer.optimizer.step()
                    way.save(10 + count * number + step)
                way.drain()
                samples[name].append((time.perf_counter() - begin) / count)
        results[times] = {name: statistics.median(each) for name, each in samples.items()}
        plain = results[times]["unsaved"]
        cells = (f"{n} {each / plain:.2f}" for n, each in results[times].items() if n != "unsaved")
        print(f"  {times:4} backwards, {plain * 1e3:.0f} ms: {', '.join(cells)}", flush=True)
    return results


# ---- intervals


class Cell(NamedTuple):
    """What saving every so many iterations cost."""

    blocked: float  # seconds of a save in which the trainer stands still
    total: float  # seconds of all iterations, with the final drain


def spaced(parent: Path, tier: str, trainer: Trainer, rounds: int, most: int) -> dict[int, Any]:
    """By interval and way."""
    results: dict[int, Any] = {}
    for every in INTERVALS[:most]:
        with ways(parent, tier, trainer) as found:
            found["unsaved"] = Way(nothing, nothing, nothing)
            samples: dict[str, list[Cell]] = {name: [] for name in found}
            for number, (name, way) in itertools.product(range(rounds), found.items()):
                samples[name].append(iterated(trainer, way, every, 10 + ITERATIONS * number))
        results[every] = {
            name: Cell(*map(statistics.median, zip(*each, strict=True)))._asdict()
            for name, each in samples.items()
        }
        plain = results[every]["unsaved"]["total"]
        cells = (
            f"{name} {trainer.nbytes / cell['blocked'] / 1e9:.1f} GB/s, {cell['total'] / plain:.2f}"
            for name, cell in results[every].items()
            if name != "unsaved"
        )
        print(f"  every {every:2}: {'; '.join(cells)}", flush=True)
    return results


def iterated(trainer: Trainer, way: Way, every: int, first: int) -> Cell:
    blocked = 0.0

    def stands(call: Callable[[], object]) -> None:
        nonlocal blocked
        since = time.perf_counter()
        call()
        blocked += time.perf_counter() - since

    trainer.backward(1)
    begin = time.perf_counter()
    for step in range(first, first + ITERATIONS):
        trainer.backward(1)
        stands(way.gate)
        trainer.optimizer.step()
        if (step - first + 1) % every == 0:
            stands(lambda step=step: way.save(step))  # type: ignore[misc]
    way.drain()
    return Cell(blocked / (ITERATIONS // every), time.perf_counter() - begin)


# ---- what is shown

STYLES: dict[str, dict[str, Any]] = {
    "autosave": {"color": "#0f766e", "marker": "o", "linewidth": 2.4},
    "autosave, no overlap": {"color": "#0f766e", "marker": "s", "linestyle": (0, (3, 2))},
    "DCP async_save": {"color": "#c2410c", "marker": "^"},
    "clone, thread": {"color": "#7c3aed", "marker": "v"},
    "torch.save": {"color": "#66727f", "marker": "x"},
}


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """A row of pictures for each medium."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(results), 3, figsize=(12.6, 3.3 * len(results)), squeeze=False, layout="constrained"
    )
    for (steps, blocked, total), (medium, of) in zip(axes, results.items(), strict=True):
        for name, style in STYLES.items():
            at = of["accumulation"]
            over = [row[name] / row["unsaved"] for row in at.values()]
            options = {"markersize": 4, "linewidth": 1.4, **style}
            steps.plot(list(at), over, label=name, **options)
            at = of["interval"]
            rate = [of["interval bytes"] / row[name]["blocked"] / 1e9 for row in at.values()]
            blocked.plot(list(at), rate, **options)
            over = [row[name]["total"] / row["unsaved"]["total"] for row in at.values()]
            total.plot(list(at), over, **options)
        sizes = [of[f"{what} bytes"] / 1e6 for what in ("accumulation", "interval")]
        steps.set_title(f"{medium}, {sizes[0]:.0f} MB each step", loc="left", fontsize=10)
        steps.set_ylabel("step, over unsaved")
        steps.set_xlabel("backwards a step")
        steps.set_xscale("log", base=2)
        steps.set_xticks(ACCUMULATIONS, [str(each) for each in ACCUMULATIONS])
        blocked.set_title(f"{medium}, {sizes[1]:.0f} MB", loc="left", fontsize=10)
        blocked.set_ylabel("GB/s while the trainer is blocked")
        total.set_title(f"{medium}, {ITERATIONS} iterations and drain", loc="left", fontsize=10)
        total.set_ylabel("end to end, over unsaved")
        for axis in (blocked, total):
            axis.set_xlabel("iterations between saves")
            axis.set_xscale("log")
            axis.set_xticks(INTERVALS, [str(each) for each in INTERVALS])
            axis.minorticks_off()
        for axis in (steps, blocked, total):
            axis.set_yscale("log")
            axis.grid(axis="y", color="#e3e8ed")
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
        for axis in (steps, total):
            axis.axhline(1, color="#1f2933", linewidth=0.8)
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter("{x:g}")
            axis.tick_params(axis="y", which="minor", labelsize=7)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(STYLES), frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def run(mapped: Path, block: Path, quick: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore", ts.TierWarning)  # the titles name the media
    warnings.simplefilter("ignore", UserWarning)  # of DCP: one process, and saved over
    logging.getLogger("tensorshelf").setLevel(logging.ERROR)  # that saves outlast steps, it draws
    torch.set_num_threads(1)
    rounds, most = (1, 2) if quick else (3, len(ACCUMULATIONS))
    results: dict[str, dict[str, Any]] = {}
    for medium, folder, tier in (("mapped", mapped, "pmem"), ("block", block, "block")):
        trainer = Trainer(512, 64)
        print(f"\n  {medium}: steps with a save of {trainer.nbytes / 1e6:.1f} MB over unsaved ones")
        of: dict[str, Any] = {"accumulation bytes": trainer.nbytes}
        of["accumulation"] = accumulated(folder, tier, trainer, rounds, most)
        trainer = Trainer(1024, 256)
        print(f"\n  {medium}: {trainer.nbytes / 1e6:.1f} MB over blocked time; end to end")
        of["interval bytes"] = trainer.nbytes
        of["interval"] = spaced(folder, tier, trainer, rounds, most)
        results[medium] = of
    draw(results, OUT / "sweeps.png")
    print("written: out/bench/sweeps.png")
    return results
