"""compact() of a shelf that is half free, beside a trainer that persists: its step, and the file.

Of the tensors of a full shelf every second one is deleted. A trainer then computes, assigns some of
those that are left, and persists, step by step; the others it never assigns. In each round, on a
shelf of its own, its steps are timed alone first, and then while compact() runs in another thread
of the process: so steps alone and beside are of one run, in alternation.

"Content" is the slots of the tensors that are left, in whole pages. What the shelf says of them is
not counted, so the figure of the file is somewhat above what is asked for.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import tensorshelf as ts

TENSORS = 64
ASSIGNED_ONE_IN = 8  # of those that are left
SLOTS = 2
_PAGE = 4096
_COMPUTE = 0.15  # seconds of a step, of one core
_STEPS = 12  # alone, in a round
_GOALS = {"step": 1.1, "file": 1.05}

_SIDES = ("alone", "beside")

LEFT = range(1, TENSORS, 2)


class Trainer:
    """Of one shelf; a step of it is of some compute, some assignments, and a commit."""

    def __init__(self, shelf: ts.Shelf, rows: int) -> None:
        self._shelf = shelf
        self._values = np.zeros(rows, np.float32)
        self._work = np.linspace(0, 1, 1 << 16, dtype=np.float32)
        self.number = 0

    def step(self) -> float:
        """Its seconds."""
        begin = time.perf_counter()
        while time.perf_counter() < begin + _COMPUTE:
            np.tanh(self._work, out=self._work)
        self.number += 1
        self._values[:] = self.number
        for i in LEFT[::ASSIGNED_ONE_IN]:
            self._shelf[f"t{i}"] = self._values
        self._shelf.persist(step=self.number)
        return time.perf_counter() - begin


def _fill(shelf: ts.Shelf, rows: int) -> None:
    values = np.empty(rows, np.float32)
    for i in range(TENSORS):
        values[:] = -i
        shelf[f"t{i}"] = values
    shelf.persist()


def _thin(shelf: ts.Shelf) -> None:
    for i in range(0, TENSORS, 2):
        del shelf[f"t{i}"]
    for _ in range(SLOTS):  # until no version has them
        shelf.persist()


def _is_right(shelf: ts.Shelf, number: int) -> bool:
    assigned = set(LEFT[::ASSIGNED_ONE_IN])
    return all((shelf[f"t{i}"].numpy() == (number if i in assigned else -i)).all() for i in LEFT)


def _round(path: Path, tier: str, rows: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.TierWarning)
        shelf = ts.open(path, "w", tier=tier)
    with shelf:
        _fill(shelf, rows)
        _thin(shelf)
        trainer = Trainer(shelf, rows)
        for _ in range(SLOTS):  # every slot was written to once
            trainer.step()
        full = path.stat().st_size
        alone = [trainer.step() for _ in range(_STEPS)]
        with ThreadPoolExecutor(1) as pool:
            begin = time.perf_counter()
            compacting = pool.submit(shelf.compact)
            beside = [trainer.step()]
            while not compacting.done():
                beside.append(trainer.step())
            report = compacting.result()
            seconds = time.perf_counter() - begin
        if not _is_right(shelf, trainer.number):
            raise AssertionError("a tensor has another value than it was given")
        return {
            "alone": alone,
            "beside": beside,
            "seconds": seconds,
            "bytes_full": full,
            "bytes_file": path.stat().st_size,
            "bytes_moved": report.bytes_moved,
            "bytes_copied": report.bytes_copied,
        }


def _measured(folder: Path, tier: str, nbytes: int, rounds: int) -> dict[str, Any]:
    rows = nbytes // SLOTS // TENSORS // 4
    found = [_round(folder / "compact.shelf", tier, rows) for _ in range(rounds)]
    content = len(LEFT) * SLOTS * -(-rows * 4 // _PAGE) * _PAGE
    alone, beside = (statistics.median(s for r in found for s in r[side]) for side in _SIDES)
    files = [each["bytes_file"] / content for each in found]
    return {
        "alone_seconds": alone,
        "beside_seconds": beside,
        "step": beside / alone,
        "most_beside": max(s for r in found for s in r["beside"]) / alone,
        "file": max(files),
        "files": files,
        "content_bytes": content,
        "rounds": found,
    }


def run(mapped: Path, block: Path, nbytes: int, quick: bool) -> list[dict[str, Any]]:
    """Both media, each a row that says how it stands to its goals."""
    rows = []
    print(f"  {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} at its begin", flush=True)
    for medium, parent in (("mapped", mapped), ("block", block)):
        tier = "block" if medium == "block" else "auto"
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            found = _measured(Path(folder), tier, nbytes, 2 if quick else 5)
        rows.append({"medium": medium, "bytes": nbytes, "goals": _GOALS, **found})
        first = found["rounds"][0]
        seconds = statistics.median(each["seconds"] for each in found["rounds"])
        count = sum(len(each["beside"]) for each in found["rounds"])
        print(
            f"  {medium:7} the trainer's step {found['step']:.3f} of its step alone "
            f"(to reach {_GOALS['step']}; {found['alone_seconds'] * 1e3:.0f} ms alone, the longest "
            f"of {count} beside {found['most_beside']:.2f})\n"
            f"          the file {found['file']:.3f} of its content, at most, of "
            f"{len(found['files'])} rounds (to reach {_GOALS['file']}; "
            f"{first['bytes_full'] / 1e9:.2f} GB before, {first['bytes_file'] / 1e9:.2f} after), "
            f"{seconds:.1f} s, {first['bytes_copied'] / 1e9:.2f} GB copied",
            flush=True,
        )
    return rows
