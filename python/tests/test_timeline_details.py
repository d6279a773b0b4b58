"""Details of what autosave tells of its time, one fact each."""

import itertools
import json
import pathlib
from typing import Any

import pytest

import tensorshelf as ts
from tensorshelf._auto.report import _table, write_report
from tensorshelf._auto.timeline import Save, Span, Timeline

pytest.importorskip("msgpack")


def test_a_step_worked_without_all_of_its_gates() -> None:
    timeline = Timeline()
    timeline.stepped(1, 0.0, 1.0, saved=False)
    timeline.waited(2.0, 3.0)  # of one optimizer
    timeline.waited(4.0, 6.0)  # and of another
    timeline.stepped(2, 11.0, 12.0, saved=False)
    assert list(timeline.worked) == [7.0]


def test_a_report_tells_no_more_than_was_measured() -> None:
    row = _table([Span("gate", 1, 0.0, 1.0), Span("gate", 1, 0.0, 3.0)])
    assert "<td>gate<td>2<td>2 s<td>2.9 s<td>3 s" in row


def test_a_save_that_failed_is_no_durable_one(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    timeline = Timeline()
    timeline._saves.append(Save(1, 0, {"sealing": 1.0}, []))
    write_report(tmp_path / "r", timeline, None, shelf.info(), 0)
    assert "No save became durable." in (tmp_path / "r").read_text("utf-8")


class Landing:
    """A commit that is done when it is asked for the so-manieth time."""

    nbytes = 4

    def __init__(self, asked: int) -> None:
        times = "released", "copied", "staged", "launched", "sealing", "written", "durable"
        self.times = {name: float(at) for at, name in enumerate(times)}
        self.copies = [(0, 1234, 0.25, 0.75)]
        self._left = itertools.chain([False] * asked, itertools.repeat(True))

    def done(self) -> bool:
        return next(self._left)


@pytest.mark.parametrize("asked", [0, 1, 2, 3])
def test_a_trace_names_each_thread_whenever_its_save_lands(
    tmp_path: pathlib.Path, asked: int
) -> None:
    timeline = Timeline()
    commit: Any = Landing(asked)
    timeline.saved(1, commit, ("w",))
    timeline.write(tmp_path / "t")
    events = json.loads((tmp_path / "t").read_text("utf-8"))["traceEvents"]
    used = {event["tid"] for event in events if event["ph"] == "X"}
    assert (1234 in used) == (asked == 0)
    assert used <= {event["tid"] for event in events if event["name"] == "thread_name"}
