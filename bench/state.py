"""A small model's state, saved at each iteration: the shelf beside np.savez on the same medium.

k-means over 60,000 points: their labels (int32, 240 kB) and ten centers of 784 (float64, 63 kB).
Each save comes after a trainer's iteration has swept through memory, so that caches are cold, and
in rotation with the others; medians. On tmpfs, where nothing is durable, np.savez writes its file
in place; on a drive it is made atomic and durable as in compare.py. "copies alone" are np.copyto of
both arrays into memory of the process: no store that copies what it is given can be faster.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from compare import replace_durably

import tensorshelf as ts

POINTS, CENTERS, PIXELS = 60_000, 10, 784
SWEPT_BYTES = 256 << 20  # by an iteration: what it reads and writes goes through every cache

State = dict[str, np.ndarray]


def savers(shelf: ts.Shelf, path: Path, durable: bool) -> dict[str, Callable[[State, int], None]]:
    def to_shelf(state: State, step: int) -> None:
        for name, values in state.items():
            shelf[name] = values
        shelf.persist(step=step)

    def savez(target: Path, state: State) -> None:
        with open(target, "wb") as file:
            np.savez(file, **state)

    def to_file(state: State, step: int) -> None:
        if durable:
            replace_durably(path, lambda temporary: savez(temporary, state))
        else:
            savez(path, state)

    copies = {"labels": np.zeros(POINTS, np.int32), "centers": np.zeros((CENTERS, PIXELS))}

    def copy_alone(state: State, step: int) -> None:
        for name, values in state.items():
            np.copyto(copies[name], values)

    return {"tensorshelf": to_shelf, "np.savez": to_file, "copies alone": copy_alone}


def measure(directory: Path, tier: str, durable: bool, rounds: int) -> dict[str, float]:
    random = np.random.default_rng(0)
    swept = np.zeros(SWEPT_BYTES // 8)
    seconds: dict[str, list[float]] = {}
    path = directory / "state.npz"
    with ts.open(directory / "state.shelf", mode="w", tier=tier) as shelf:
        chosen = savers(shelf, path, durable)
        names = list(chosen)
        for number in range(-2, rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:  # another order each round
                state = {
                    "labels": random.integers(0, CENTERS, POINTS, dtype=np.int32),
                    "centers": random.random((CENTERS, PIXELS)),
                }
                swept += 1
                begin = time.perf_counter()
                chosen[name](state, number + 3)
                elapsed = time.perf_counter() - begin
                if number >= 0:
                    seconds.setdefault(name, []).append(elapsed)
    path.unlink()
    (directory / "state.shelf").unlink()
    return {name: statistics.median(samples) for name, samples in seconds.items()}


def run(mapped: Path, block: Path, quick: bool) -> dict[str, dict[str, float]]:
    warnings.simplefilter("ignore", ts.TierWarning)  # the titles name the media
    results = {}
    for title, directory, tier, durable in (
        (f"mapped, {mapped}; np.savez in place", mapped, "pmem", False),
        ("block, a file on this disk; np.savez made durable", block, "block", True),
    ):
        row = measure(directory, tier, durable, 3 if quick else 41)
        results[title] = row
        lead = row["np.savez"] / row["tensorshelf"]
        cells = ", ".join(f"{name} {value * 1e3:.3f} ms" for name, value in row.items())
        most = row["np.savez"] / row["copies alone"]
        print(f"  {title}: {cells}; lead {lead:.2f}x, of {most:.2f}x by copies alone")
    return results
