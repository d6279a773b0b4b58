"""FastPersist's micro-benchmark: one tensor made durable, over the shape of what it goes through.

Sizes of 16 to 512 MB; memory for staging of 2 to 128 MB, in one buffer (single) or two halves
(double), for the shelf and for DeepSpeed's FastFileWriter alike. fio with requests of that size,
one or two in flight, is what the drive takes so; torch.save is what people do. Everything goes to
one folder on a drive and is durable when its time ends; in rotation, medians.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import baselines
import numpy as np
import torch
from fio import fio_seconds

import tensorshelf as ts

OUT = Path(__file__).resolve().parent.parent / "out" / "bench"
MB = 1 << 20
SIZES = (16, 32, 64, 128, 256, 512)
BUFFERS = (2, 4, 8, 16, 32, 64, 128)
WAYS = ("single", "double")

Seconds = dict[str, float]


class Shape(NamedTuple):
    megabytes: int  # of all buffers together
    way: str

    @property
    def count(self) -> int:
        return 1 if self.way == "single" else 2

    @property
    def each(self) -> int:
        """Bytes of one buffer."""
        return self.megabytes * MB // self.count

    def __str__(self) -> str:
        return f"{self.way} {self.megabytes} MB"


SHAPES = [Shape(size, way) for way in WAYS for size in BUFFERS]


class OurSave:
    """One tensor of a shelf on a drive, saved by way of buffers of a shape."""

    def __init__(self, path: Path, size: int, shape: Shape | None) -> None:
        options = ts.BlockOptions()
        if shape is not None:
            options = ts.BlockOptions(buffer=shape.each, queue_depth=shape.count)
        self._shelf = ts.open(path, tier="block", block=options)
        if "w" not in self._shelf:
            self._shelf["w"] = np.zeros(size, np.uint8)
            self._shelf.persist()
        self._tensor = self._shelf["w"]

    def __call__(self, state: baselines.State) -> None:
        self._tensor[...] = state["w"]
        self._shelf.persist()

    def close(self) -> None:
        self._shelf.close()


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(folder: Path, size: int, shape: Shape | None, rounds: int) -> Seconds:
    """Medians of one size through buffers of one shape; None: what each takes by itself."""
    state = {"w": torch.zeros(size, dtype=torch.uint8)}
    ours = OurSave(folder / f"{size}.shelf", size, shape)
    calls: dict[str, Callable[[], object]] = {"tensorshelf": lambda: ours(state)}
    seconds: dict[str, Callable[[], float]] = {}
    target = folder / f"{size}.fio"
    if shape is None:
        seconds["fio"] = lambda: fio_seconds(target, size)
        save = baselines.torch_save(folder / f"{size}.pt")
        calls["torch.save"] = lambda: save(state)
    else:
        block = min(shape.each, size)
        seconds["fio"] = lambda: fio_seconds(target, size, block=block, depth=shape.count)
        found = baselines.fast_file_writer(folder, shape.megabytes * MB, double=shape.count == 2)
        if found is not None:
            calls["DeepSpeed"] = lambda: found[1](state)
    seconds |= {name: lambda call=call: timed(call) for name, call in calls.items()}  # type: ignore[misc]
    samples: dict[str, list[float]] = {name: [] for name in seconds}
    for number, name in itertools.product(range(-1, rounds), seconds):
        state["w"].add_(1)
        took = seconds[name]()
        if number >= 0:
            samples[name].append(took)
    ours.close()
    return {name: statistics.median(each) for name, each in samples.items()}


# ---- what is shown


def show(results: dict[int, dict[str, Seconds]]) -> None:
    names = ("tensorshelf", "fio", "DeepSpeed")
    for size, shapes in results.items():
        alone = shapes["by itself"]
        best = min(row["fio"] for row in shapes.values())
        fastest = min(row["tensorshelf"] for row in shapes.values())
        print(f"\n{size} MB, GB/s; torch.save {rate(size, alone['torch.save']):.2f}", flush=True)
        print(
            "  buffers".ljust(18) + "".join(name.rjust(13) for name in names) + "   over DeepSpeed"
        )
        for shape, row in shapes.items():
            cells = (
                f"{rate(size, row[name]):13.2f}" if name in row else "-".rjust(13) for name in names
            )
            over = f"{row['DeepSpeed'] / row['tensorshelf']:12.1f}x" if "DeepSpeed" in row else ""
            print(f"  {shape:16}{''.join(cells)}{over}")
        print(
            f"  ours at the best shape {best / fastest:.2f} of fio at its best; "
            f"over torch.save {alone['torch.save'] / fastest:.1f}x, "
            f"where fio allows {alone['torch.save'] / best:.1f}x"
        )


def rate(megabytes: int, seconds: float) -> float:
    return megabytes * MB / seconds / 1e9


COLOURS = {"tensorshelf": "#0f766e", "DeepSpeed": "#c2410c", "fio": "#8aa4bd"}


def draw(results: dict[int, dict[str, Seconds]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(3, len(results))
    lines = -(-len(results) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(3.9 * columns, 3.0 * lines), squeeze=False, sharex=True
    )
    for axis in axes.flat[len(results) :]:
        axis.set_axis_off()
    for axis, (size, shapes) in zip(axes.flat, results.items(), strict=False):
        for name, way in itertools.product(COLOURS, WAYS):
            at = [
                (int(shape.split()[1]), rate(size, row[name]))
                for shape, row in shapes.items()
                if shape.startswith(way) and name in row
            ]
            axis.plot(
                *zip(*at, strict=True) if at else ([], []),
                color=COLOURS[name],
                linestyle="-" if way == "double" else (0, (3, 2)),
                marker="o" if way == "double" else "s",
                markersize=3.5,
                linewidth=2.2 if name == "tensorshelf" else 1.2,
                label=f"{name}, {way}",
            )
        alone = shapes["by itself"]
        axis.axhline(
            rate(size, alone["torch.save"]), color="#66727f", linewidth=1, label="torch.save"
        )
        axis.set_title(f"{size} MB", loc="left", fontsize=10)
        axis.set_xscale("log", base=2)
        axis.set_xticks(BUFFERS, [str(each) for each in BUFFERS])
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", color="#e3e8ed")
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("GB/s, durable")
    for axis in axes[-1]:
        axis.set_xlabel("buffers, MB together")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.24 / lines))
    figure.savefig(path, dpi=130)
    plt.close(figure)


def run(block: Path, quick: bool) -> dict[str, Any]:
    sizes = SIZES[:2] if quick else SIZES
    shapes = SHAPES[::3] if quick else SHAPES
    rounds = 1 if quick else 3
    results: dict[int, dict[str, Seconds]] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=block) as folder:
            rows = {"by itself": measure(Path(folder), size * MB, None, rounds)}
            for shape in shapes:
                if sys.stdout.isatty():
                    print(f"  {size} MB, {shape} ...", end="\r", flush=True)
                rows[str(shape)] = measure(Path(folder), size * MB, shape, rounds)
        results[size] = rows
    show(results)
    draw(results, OUT / "writes.png")
    print("written: out/bench/writes.png")
    return {f"{size} MB": rows for size, rows in results.items()}
