"""Readers that follow a writer which persists as fast as it can: what they see, what it costs it.

The writer goes on all the time; the readers are stopped and go on in turns, so that its rate alone
and beside them is of one run. They have the lowest priority: there are two cores here, and the
figure is about what a writer and its readers share by the shelf, not by the scheduler. They follow
as ``follow()`` does by itself, and once more without a rest.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

READERS = 4
TENSORS = 16
_TURNS = 10  # alone, and beside the readers
_SLICE = 0.25  # the writer says so often how far it is
_PACES = {"at its pace": {}, "without a rest": {"every": 0.0}}

WRITER = f"""
import sys, time
import numpy as np
import tensorshelf as ts

with ts.open(sys.argv[1], "w", keep=8) as shelf:
    step = 0
    values = np.zeros(4096, np.float32)
    while True:
        end = time.perf_counter() + {_SLICE}
        commits = 0
        while time.perf_counter() < end:
            step += 1
            values[:] = step % (1 << 20)
            for i in range({TENSORS}):
                shelf[f"t{{i}}"] = values
            shelf.persist(step=step)
            commits += 1
        print(commits, flush=True)
"""

READER = f"""
import json, os, signal, sys
import tensorshelf as ts

os.nice(19)
counts = dict(whole=0, stale=0, torn=0, mixed=0, wrong=0)
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
with ts.open(sys.argv[1], "r") as reader:
    for new in reader.follow(timeout=1, **json.loads(sys.argv[2])):
        try:
            old = reader.at(new.version)
            values = [old[f"t{{i}}"].numpy() for i in range({TENSORS})]
        except ts.StaleError:
            counts["stale"] += 1
        else:
            if any((value != value[0]).any() for value in values):
                counts["torn"] += 1
            elif len({{value[0] for value in values}}) > 1:
                counts["mixed"] += 1
            else:
                counts["whole" if values[0][0] == new.step % (1 << 20) else "wrong"] += 1
        if ended:
            break
print(json.dumps(counts))
"""


def _rate(writer: subprocess.Popen[str], seconds: float) -> float:
    """Commits a second, the first slice left out."""
    assert writer.stdout is not None
    writer.stdout.readline()
    slices = [int(writer.stdout.readline()) for _ in range(max(2, round(seconds / _SLICE)))]
    return statistics.mean(slices) / _SLICE


def _beside(path: Path, seconds: float, turns: int, pace: dict[str, float]) -> dict[str, Any]:
    writer = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    readers: list[subprocess.Popen[str]] = []
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        readers += [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", READER, str(path), json.dumps(pace)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(READERS)
        ]
        time.sleep(1)  # they start
        alone, beside = [], []
        for _ in range(turns):
            for reader in readers:
                reader.send_signal(signal.SIGSTOP)
            alone.append(_rate(writer, seconds))
            for reader in readers:
                reader.send_signal(signal.SIGCONT)
            beside.append(_rate(writer, seconds))
        for reader in readers:
            reader.terminate()
        seen = [json.loads(reader.communicate()[0]) for reader in readers]
    finally:
        for process in (writer, *readers):
            process.kill()
            process.wait()
    return {
        "alone_per_second": statistics.median(alone),
        "beside_per_second": statistics.median(beside),
        "ratio": statistics.median(b / a for a, b in zip(alone, beside, strict=True)),
        **{what: sum(counts[what] for counts in seen) for what in seen[0]},
    }


def run(mapped: Path, block: Path, seconds: float) -> list[dict[str, Any]]:
    """Both media, at both paces, each a row that says how it stands to its goal.

    On each the readers follow for so many seconds, and rest for as long.
    """
    turns = max(2, min(_TURNS, round(seconds)))
    rows = []
    print(f"  {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} at its begin", flush=True)
    cases = [(medium, pace) for pace in _PACES for medium in (("mapped", mapped), ("block", block))]
    for (medium, parent), pace in cases:
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            path = Path(folder) / "followed.shelf"
            found = _beside(path, seconds / turns, turns, _PACES[pace])
        rows.append({"medium": medium, "readers": READERS, "pace": pace, "goal": 0.9, **found})
        print(
            f"  {medium:7} {READERS} readers {pace}: the writer {found['ratio']:.2f} of its rate "
            f"alone (to reach 0.90; {found['alone_per_second']:.0f} commits a second alone); "
            f"{found['whole']} versions read whole, {found['stale']} overtaken, "
            f"{found['torn']} torn, {found['mixed']} mixed, {found['wrong']} of another version",
            flush=True,
        )
    return rows
