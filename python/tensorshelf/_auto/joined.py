"""Traces of all ranks of a group as one: offline, and without them."""

import itertools
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tensorshelf._auto.files import write_text
from tensorshelf._auto.trace import KEY, MICRO
from tensorshelf._group.checked import check_paths
from tensorshelf._numbers import is_finite, is_whole
from tensorshelf._options import encoded_path
from tensorshelf.errors import BadArgument, IoError, ShelfNotFound

_FAR = 1e12  # seconds from 1970: no time of day


@dataclass(frozen=True)
class JoinedTraces:
    """What join_traces() made."""

    ranks: tuple[int, ...]
    within: float | None  # seconds that a clock may be off by at most; None: nothing bounds it


class _Trace(NamedTuple):
    """The trace of one rank."""

    rank: int
    clock: str
    start: tuple[str, int]
    wall: float  # of day, at 0 of its clock
    decided: dict[int, tuple[float, float]]  # epochs: each between these two times
    path: str
    events: list[dict[str, Any]]


class _Shift(NamedTuple):
    """What is added to the times of a clock."""

    seconds: float
    within: float | None


def join_traces(
    paths: Iterable[str | os.PathLike[str]], to: str | os.PathLike[str]
) -> JoinedTraces:
    """Makes one trace of those that ``auto.write_trace()`` wrote on the ranks of a group.

        ts.join_traces(["trace.0.json", "trace.1.json"], "trace.json")

    Each rank is a process of it. Processes of one host have one clock. Those of other hosts are
    aligned by the times of day, as far as these agree with what is known of each epoch that was
    committed: it was decided behind the votes of all ranks, and before any heard of it. From this
    follows how far a clock may be off: ``within``. Clocks that drifted apart meanwhile, so that
    nothing agrees with all epochs, are put in the middle.

    Raises BadArgument where a file is no such trace, or they are of different starts of a job, or
    twice of a rank; ShelfNotFound where there is none; and IoError where one cannot be read, or
    ``to`` not be written.
    """
    check_paths(paths)
    traces = sorted((_read(path) for path in paths), key=lambda trace: trace.rank)
    _refuse_others(traces)
    shifts = _shifts(traces)
    events = [_moved(event, shifts[trace.clock]) for trace in traces for event in trace.events]
    joined = {"traceEvents": events, "displayTimeUnit": "ms"}
    write_text(to, json.dumps(joined, allow_nan=False))
    known = [shift.within for shift in shifts.values() if shift.within is not None]
    within = max(known) if len(known) == len(shifts) else None
    return JoinedTraces(tuple(trace.rank for trace in traces), within)


def _read(given: str | os.PathLike[str]) -> _Trace:
    path = os.fsdecode(encoded_path(given))
    try:
        found = json.loads(Path(path).read_text("utf-8"))
        json.dumps(found, allow_nan=False)  # it is to be written again
        return _checked(path, found[KEY], found["traceEvents"])
    except FileNotFoundError as error:
        raise ShelfNotFound(f"there is no {path}", "auto.write_trace() writes one.") from error
    except OSError as error:
        raise IoError(
            f"{path} cannot be read: {error.strerror}",
            "Give files that auto.write_trace() wrote.",
            error.errno or 0,
        ) from error
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise BadArgument(
            f"{path} is no trace of a rank of a group",
            "Give those that auto.write_trace() wrote, where autosave() had a group=.",
        ) from error


def _checked(path: str, about: Any, events: Any) -> _Trace:
    """Raises TypeError, or what comes of looking into what is no trace."""
    decided = {number: (begin, end) for number, begin, end in about["decided"]}
    start = about["job"], about["generation"]
    if abs(about["wall"]) > _FAR:
        raise ValueError("its time of day is none")
    times = [about["wall"], *(event.get("ts", 0) for event in events)]
    times += [time for both in decided.values() for time in both]
    whole = [about["rank"], about["generation"], *decided]
    if not (all(map(is_finite, times)) and all(map(is_whole, whole))):
        raise TypeError("it has what is no number")
    if not isinstance(about["clock"], str):
        raise TypeError("it has no clock")
    return _Trace(about["rank"], about["clock"], start, about["wall"], decided, path, events)


def _refuse_others(traces: list[_Trace]) -> None:
    if not traces:
        raise BadArgument("no trace is given", "Give those of all ranks.")
    for one, other in itertools.pairwise(traces):
        if one.rank == other.rank:
            raise BadArgument(
                f"{one.path} and {other.path} are both of rank {one.rank}", "Give one of each."
            )
        if one.start != other.start:
            raise BadArgument(
                f"{one.path} and {other.path} are of different starts of a job",
                "Give those that the ranks wrote in one run.",
            )


def _shifts(traces: list[_Trace]) -> dict[str, _Shift]:
    """To the clock of the first."""
    by_clock: dict[str, list[_Trace]] = {}
    for trace in traces:
        by_clock.setdefault(trace.clock, []).append(trace)
    first, *others = by_clock
    shifts = {first: _Shift(0.0, 0.0)}
    for clock in others:
        shifts[clock] = _shift(by_clock[first], by_clock[clock])
    return shifts


def _shift(ours: list[_Trace], theirs: list[_Trace]) -> _Shift:
    by_day = theirs[0].wall - ours[0].wall
    least, most = [], []
    for one, other in itertools.product(ours, theirs):
        for epoch in one.decided.keys() & other.decided.keys():
            (after, before), (their_after, their_before) = one.decided[epoch], other.decided[epoch]
            least.append(after - their_before)
            most.append(before - their_after)
    if not least:
        return _Shift(by_day, None)
    low, high = max(least), min(most)
    seconds = min(max(by_day, low), high) if low <= high else (low + high) / 2
    return _Shift(seconds, max(abs(seconds - low), abs(seconds - high)))


def _moved(event: dict[str, Any], shift: _Shift) -> dict[str, Any]:
    return event if "ts" not in event else {**event, "ts": event["ts"] + shift.seconds * MICRO}
