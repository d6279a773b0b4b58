"""Details of what autosave tells of its time, one fact each."""

import dataclasses
import itertools
import json
import pathlib
from typing import Any

import pytest

import tensorshelf as ts
from tensorshelf._auto.interval import Interval
from tensorshelf._auto.measured import costs
from tensorshelf._auto.report import _table, _time, write_report
from tensorshelf._auto.timeline import Save, Span, Timeline

pytest.importorskip("msgpack")


def test_a_step_worked_without_all_of_its_gates() -> None:
    timeline = Timeline()
    timeline.stepped(1, 0.0, 1.0, saved=False)
    timeline.waited(2.0, 3.0)  # of one optimizer
    timeline.waited(4.0, 6.0)  # and of another
    timeline.stepped(2, 11.0, 12.0, saved=False)
    timeline.stepped(3, 20.0, 21.0, saved=False)  # which had none
    assert list(timeline.worked) == [7.0, 8.0]


def test_a_report_tells_no_more_than_was_measured() -> None:
    row = _table([Span("gate", 1, 0.0, 1.0), Span("gate", 1, 0.0, 3.0)])
    assert "<td>gate<td>2<td>2 s<td>2.9 s<td>3 s" in row


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.0, "2 s"), (1.0, "1 s"), (0.5, "500 ms"), (1e-3, "1 ms"), (5e-4, "500 us"), (0.0, "0 us")],
)
def test_a_time_is_told_in_what_it_is_measured_by(seconds: float, text: str) -> None:
    assert _time(seconds) == text


def test_a_report_tells_a_path_as_it_is(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    info = dataclasses.replace(shelf.info(), path="/a<b>&c")
    write_report(tmp_path / "r", Timeline(), None, info, 0)
    page = (tmp_path / "r").read_text("utf-8")
    assert page.count("/a&lt;b&gt;&amp;c, nothing saved") == 2
    assert "<b>" not in page


def test_a_report_counts_what_was_skipped(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    timeline = Timeline()
    timeline._saves.append(Save(1, 8, {"sealing": 1.0, "durable": 2.0}, []))
    write_report(tmp_path / "r", timeline, None, shelf.info(), 3)
    assert "1 saves became durable, of 8 B each; 3 were skipped" in (tmp_path / "r").read_text()


# ---- saves


def test_a_save_lasts_from_when_the_trainer_went_on() -> None:
    times = {"released": 1.0, "sealing": 2.0, "durable": 4.0}
    assert Save(1, 0, times, []).seconds == 3.0
    del times["released"]  # of a save that copied everything first
    assert Save(1, 0, times, []).seconds == 2.0
    del times["durable"]
    assert Save(1, 0, times, []).seconds is None


def measured(saves: int, *, seconds: float = 4.0, step: float = 1.0) -> Timeline:
    """Of so many saves, one behind each step."""
    timeline = Timeline()
    timeline.stepped(0, 0.0, 0.0, saved=False)
    for number in range(saves):
        begin = (number + 1) * step
        timeline.stepped(number, begin, begin, saved=True)
        timeline._saves.append(Save(number, 8, {"sealing": 0.0, "durable": seconds}, []))
    return timeline


def test_failed_saves_cost_nothing() -> None:
    timeline = measured(2)
    timeline._saves.append(Save(9, 0, {"sealing": 0.0}, []))
    found = costs(timeline)
    assert found is not None
    assert (found.save, found.nbytes, found.step) == (4.0, 8, 1.0)


@pytest.mark.parametrize("nothing", [{"seconds": 0.0}, {"step": 0.0}], ids=str)
def test_what_took_no_time_has_no_cost(nothing: dict[str, float]) -> None:
    assert costs(measured(9, **nothing)) is None


def test_whether_saves_are_hidden_is_told_once_enough_were_measured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timeline = measured(4)
    interval = Interval(timeline, mtbi=None)
    assert interval.after(1, load_seconds=0.0) == 1
    assert caplog.text == ""
    timeline = interval._timeline = measured(5)
    for _ in range(2):
        assert interval.after(1, load_seconds=0.0) == 1
    assert caplog.text.count("every=4 hides them") == 1


def test_a_save_that_failed_is_no_durable_one(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    timeline = Timeline()
    timeline._saves.append(Save(1, 0, {"sealing": 1.0}, []))
    write_report(tmp_path / "r", timeline, None, shelf.info(), 0)
    assert "No save became durable." in (tmp_path / "r").read_text("utf-8")


# ---- traces


def traced(timeline: Timeline, path: pathlib.Path) -> list[dict[str, Any]]:
    timeline.write(path)
    events: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["traceEvents"]
    return events


def test_a_trace_says_of_which_step_and_gate(tmp_path: pathlib.Path) -> None:
    timeline = Timeline()
    timeline.stepped(6, 0.0, 1.0, saved=False)
    timeline.waited(2.0, 2.5)
    timeline.stepped(7, 3.0, 4.0, saved=True)
    timeline._saves.append(Save(7, 8, {"sealing": 4.0, "written": 5.0}, [("w", 1234, 3.0, 3.5)]))
    events = [event for event in traced(timeline, tmp_path / "t") if event["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"], e["args"]) for e in events] == [
        ("compute", 1e6, 2e6, {"step": 7}),
        ("step()", 3e6, 1e6, {"step": 7}),
        ("gate", 2e6, 0.5e6, {}),
        ("write", 4e6, 1e6, {"step": 7}),
        ("w", 3e6, 0.5e6, {"step": 7}),
    ]


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
    events = traced(timeline, tmp_path / "t")
    used = {event["tid"] for event in events if event["ph"] == "X"}
    assert (1234 in used) == (asked == 0)
    assert used <= {event["tid"] for event in events if event["name"] == "thread_name"}
