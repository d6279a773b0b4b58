"""Chrome traces, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Times are those of ``time.monotonic()``, in microseconds. The trace of a rank of a group says
besides, under KEY, what aligns it with those of other ranks (joined.py).
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorshelf._group.moments import Epoch, Moments

KEY = "tensorshelf"
MICRO = 1e6

# A lane of the trace each, from the top; below them the threads that copied.
LANES = ("trainer", "pipeline", "commit")
TRAINER, PIPELINE, COMMIT, _GROUP, _SENT = range(1, 6)
_LANES_OF_GROUPS = ("group", "copies sent")

_TRIES = 20
_PHASES = (
    ("prepared", "began", "prepared"),
    ("copies sent", "prepared", "kept"),
    ("vote", "votes", "voted"),
    ("decided", "voted", "decided"),
)


def lane_name(pid: int, lane: int, name: str) -> dict[str, Any]:
    """Says how a lane is called."""
    about = {"ph": "M", "pid": pid, "tid": lane, "name": "thread_name"}
    return {**about, "args": {"name": name}}


def event(
    pid: int, name: str, lane: int, began: float, ended: float, args: dict[str, Any]
) -> dict[str, Any]:
    """Something that lasted, in seconds."""
    at = {"ph": "X", "pid": pid, "tid": lane, "ts": began * MICRO}
    return {**at, "dur": (ended - began) * MICRO, "name": name, "args": args}


def of_group(moments: Moments) -> list[dict[str, Any]]:
    """What a rank did for its group. Its number is that of the process."""
    rank = moments.rank
    about = {"ph": "M", "pid": rank, "tid": 0}
    name = f"rank {rank} on {moments.node}"
    events = [
        {**about, "name": "process_name", "args": {"name": name}},
        {**about, "name": "process_sort_index", "args": {"sort_index": rank}},
    ]
    events += [lane_name(rank, lane, name) for lane, name in enumerate(_LANES_OF_GROUPS, _GROUP)]
    for epoch in list(moments.epochs):
        events += _of_epoch(rank, epoch)
    return events


def _of_epoch(rank: int, epoch: Epoch) -> Iterator[dict[str, Any]]:
    times, of = dict(epoch.times), {"step": epoch.step, "epoch": epoch.number}
    for name, begin, end in (
        *_PHASES,
        ("flip" if epoch.made else "abandoned", "decided", "ended"),
    ):
        if begin in times and end in times:
            yield event(rank, name, _GROUP, times[begin], times[end], of)
    for keeper, nbytes, began, ended in list(epoch.sent):
        yield event(rank, f"to rank {keeper}", _SENT, began, ended, {**of, "nbytes": nbytes})


def about_group(moments: Moments) -> dict[str, Any]:
    """What aligns it. Each epoch that was committed was decided between its two times."""
    job, generation = moments.start
    return {
        "rank": moments.rank,
        "node": moments.node,
        "job": job,
        "generation": generation,
        "clock": _clock(),
        "wall": _wall(),
        "decided": [
            [epoch.number, epoch.times["votes"], epoch.times["decided"]]
            for epoch in list(moments.epochs)
            if epoch.made
        ],
    }


def _clock() -> str:
    """Which one ``time.monotonic()`` reads: all processes of a host share it, since its boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return f"of process {os.getpid()}, {time.time_ns()}"  # nobody else's


def _wall() -> float:
    """Seconds from time.monotonic() to Unix time, by the quickest of several looks at both."""
    found = []
    for _ in range(_TRIES):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        found.append((after - before, wall - (before + after) / 2))
    return min(found)[1]
