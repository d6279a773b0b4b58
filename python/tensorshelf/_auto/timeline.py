"""What the trainer and the saves did when: for Perfetto, and for a report."""

import json
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tensorshelf._auto import trace
from tensorshelf._auto.files import write_text
from tensorshelf._auto.trace import COMMIT, PIPELINE, TRAINER
from tensorshelf._commit import Commit
from tensorshelf._group.moments import Moments

_MOST = 1000  # steps and saves that are kept

# (name, lane, from, to) of a save's times
_PHASES = (
    ("copy", PIPELINE, "released", "copied"),
    ("compare", PIPELINE, "copied", "staged"),
    ("wait for the save before", PIPELINE, "staged", "launched"),
    ("write", COMMIT, "sealing", "written"),
    ("barrier", COMMIT, "written", "ordered"),
    ("flip", COMMIT, "ordered", "flipped"),
    ("barrier of the flip", COMMIT, "flipped", "durable"),
)


class Span(NamedTuple):
    """Something that lasted, in seconds of ``time.monotonic()``."""

    name: str
    lane: int
    began: float
    ended: float
    step: int | None = None


class Save(NamedTuple):
    """A save that is durable, or has failed: then the times behind its failure lack."""

    step: int
    nbytes: int
    times: dict[str, float]
    copies: list[tuple[str, int, float, float]]  # tensor, thread, begin, end

    @property
    def seconds(self) -> float | None:
        """From when the trainer went on until it was durable."""
        if "durable" not in self.times:
            return None
        return self.times["durable"] - self.times.get("released", self.times["sealing"])


class Timeline:
    """The last steps and saves. Keeps no save alive but those on their way. For one thread."""

    def __init__(self) -> None:
        self.computed: deque[Span] = deque(maxlen=_MOST)  # between two calls of step()
        self.stalled: deque[Span] = deque(maxlen=_MOST)  # within a step() that saved
        self.gated: deque[Span] = deque(maxlen=_MOST)
        self.worked: deque[float] = deque(maxlen=_MOST)  # computed, in seconds without the gates
        self._saves: deque[Save] = deque(maxlen=_MOST)
        self._flying: deque[tuple[int, Commit, Sequence[str]]] = deque()
        self._last: float | None = None
        self._gate_seconds = 0.0  # since then

    def stepped(self, step: int, began: float, ended: float, *, saved: bool) -> None:
        if self._last is not None:
            self.computed.append(Span("compute", TRAINER, self._last, began, step))
            self.worked.append(began - self._last - self._gate_seconds)
        if saved:
            self.stalled.append(Span("step()", TRAINER, began, ended, step))
        self._last, self._gate_seconds = ended, 0.0
        self._land()

    def waited(self, began: float, ended: float) -> None:
        self.gated.append(Span("gate", TRAINER, began, ended))
        self._gate_seconds += ended - began

    def saved(self, step: int, commit: Commit, names: Sequence[str]) -> None:
        """A save that was begun, of sources of these names."""
        self._flying.append((step, commit, names))

    @property
    def saves(self) -> list[Save]:
        """Those that have ended."""
        self._land()
        return list(self._saves)

    def _land(self) -> None:
        while self._flying and self._flying[0][1].done():
            step, commit, names = self._flying.popleft()
            copies = [(names[at], who, begin, end) for at, who, begin, end in commit.copies]
            times = commit.times
            nbytes = commit.nbytes if "durable" in times else 0  # nobody has heard of it else
            self._saves.append(Save(step, nbytes, times, copies))

    def spans(self) -> Iterator[Span]:
        """All there is but for the copies of single tensors."""
        return self._spans_with(self.saves)

    def _spans_with(self, saves: Sequence[Save]) -> Iterator[Span]:
        yield from self.computed
        yield from self.stalled
        yield from self.gated
        ends: dict[int, float] = {}  # a save may begin before the one before has noted its end
        for save in saves:
            for name, lane, begin, end in _PHASES:
                if begin in save.times and end in save.times:
                    began = max(save.times[begin], ends.get(lane, 0.0))
                    ended = ends[lane] = max(save.times[end], began)
                    yield Span(name, lane, began, ended, save.step)

    def write(self, path: str | os.PathLike[str], group: Moments | None = None) -> None:
        """As a Chrome trace; ``group`` is what this rank of one did."""
        saves = self.saves  # once, for all that is told of them: one that lands meanwhile is none
        pid = os.getpid() if group is None else group.rank
        events = [trace.lane_name(pid, lane, name) for lane, name in enumerate(trace.LANES, 1)]
        events += [] if group is None else trace.of_group(group)
        copying = sorted({thread for save in saves for _, thread, _, _ in save.copies})
        events += [trace.lane_name(pid, thread, f"copies, thread {thread}") for thread in copying]
        for name, lane, began, ended, step in self._spans_with(saves):
            about = {} if step is None else {"step": step}
            events.append(trace.event(pid, name, lane, began, ended, about))
        for save in saves:
            for name, thread, began, ended in save.copies:
                events.append(trace.event(pid, name, thread, began, ended, {"step": save.step}))
        told: dict[str, Any] = {"traceEvents": events, "displayTimeUnit": "ms"}
        if group is not None:
            told[trace.KEY] = trace.about_group(group)
        write_text(path, json.dumps(told, allow_nan=False))
