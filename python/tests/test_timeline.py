"""What autosave tells of its time: a trace, a report, a start, whether saves are hidden."""

import itertools
import json
import logging
import pathlib
import re
import sys
import time
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf._auto.measured import Costs, costs
from tensorshelf._auto.timeline import Save, Timeline
from tensorshelf._size import format_size

pytest.importorskip("msgpack")


def test_a_commit_says_when_it_got_how_far(shelf: ts.Shelf) -> None:
    shelf.a = np.zeros(10)
    before = time.monotonic()
    times = shelf.persist().times
    after = time.monotonic()
    assert list(times) == ["sealing", "written", "ordered", "flipped", "durable"]
    assert [before, *times.values(), after] == sorted([before, *times.values(), after])
    shelf.a[:] = 1
    commit = shelf.persist(wait=False)
    while not commit.done():
        time.sleep(0)
    assert len(commit.times) == 5
    with shelf.transaction() as transaction:
        shelf.a[:] = 2
    assert len(transaction.commit.times) == 5
    shelf.a[:] = 3
    shelf.prepare(id="x")
    decided = shelf.resolve("commit")
    assert decided is not None
    assert list(decided.times) == ["sealing", "flipped", "durable"]


def trained(shelf: ts.Shelf, steps: int, **options: Any) -> Any:
    auto = shelf.autosave(state={"w": np.zeros(50_000), "b": np.zeros(3)}, **options)
    for step in range(1, steps + 1):
        auto._run.state["state"]["w"] += 1
        auto.step(step)
        auto.gate()
    auto.wait()
    return auto


def test_a_trace_has_what_happened_in_lanes(reopen: OpenShelf, tmp_path: pathlib.Path) -> None:
    shelf = reopen(in_flight=2)
    auto = trained(shelf, 6, pipeline={"trace": True})
    file = tmp_path / "trace.json"
    auto.write_trace(file)
    events = json.loads(file.read_text())["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert list(lanes.values())[:3] == ["trainer", "pipeline", "commit"]
    spans = [event for event in events if event["ph"] == "X"]
    of: dict[str, list[str]] = {}
    for event in spans:
        assert event["dur"] >= 0
        of.setdefault(lanes[event["tid"]], []).append(event["name"])
    assert set(of["trainer"]) >= {"compute", "step()"}
    assert of["trainer"].count("step()") == 6
    assert of["pipeline"].count("copy") == 5  # the first save is no pipeline's
    assert [of["commit"].count(name) for name in ("write", "barrier", "flip")] == [6, 6, 6]
    copies = [name for lane, names in of.items() if lane.startswith("copies") for name in names]
    assert sorted(set(copies)) == sorted(n for n in shelf)
    assert len(copies) == 5 * len(shelf)
    for lane in of:  # nothing in a lane is within another of it: but for the gate in the trainer's
        ends = sorted(
            (event["ts"], event["ts"] + event["dur"])
            for event in spans
            if lanes[event["tid"]] == lane and event["name"] != "gate"
        )
        assert all(one[1] <= two[0] + 0.01 for one, two in itertools.pairwise(ends))
    auto.close()


def test_spans_of_a_lane_follow_each_other() -> None:
    timeline = Timeline()
    first = {"released": 1.0, "copied": 2.0, "staged": 3.0, "launched": 4.5}
    second = {"released": 4.0, "copied": 4.25, "staged": 5.0, "launched": 6.0}
    timeline._saves += [Save(1, 0, first, []), Save(2, 0, second, [])]
    spans = [(span.began, span.ended) for span in timeline.spans()]
    assert spans == [(1.0, 2.0), (2.0, 3.0), (3.0, 4.5), (4.5, 4.5), (4.5, 5.0), (5.0, 6.0)]


def test_copies_are_in_it_where_they_were_asked_for(
    reopen: OpenShelf, tmp_path: pathlib.Path
) -> None:
    auto = trained(reopen(in_flight=2), 4)
    auto.write_trace(tmp_path / "t")
    assert "copies" not in (tmp_path / "t").read_text()
    auto.close()


def test_a_failed_save_ends_where_it_failed(reopen: OpenShelf, tmp_path: pathlib.Path) -> None:
    shelf = reopen(in_flight=2)
    auto = trained(shelf, 3, on_error="warn")
    del shelf["/state/w" if "/state/w" in shelf else next(n for n in shelf if "w" in n)]
    shelf.persist()
    auto.step(4)
    auto.wait()
    saves = auto._timeline.saves
    assert [save.seconds is None for save in saves] == [False, False, False, True][: len(saves)]
    auto.write_trace(tmp_path / "t")
    auto.report(tmp_path / "r")
    auto.close()


def test_a_timeline_keeps_the_last_and_no_save(shelf: ts.Shelf) -> None:
    timeline = Timeline()
    for step in range(3000):
        timeline.stepped(step, step, step + 0.25, saved=step % 2 == 0)
    assert len(timeline.computed) == len(timeline.worked) == len(timeline.stalled) == 1000
    assert set(timeline.worked) == {0.75}
    timeline.waited(10.0, 10.5)
    timeline.stepped(0, 3000.25, 3001.0, saved=False)
    assert timeline.worked[-1] == 0.5
    shelf.a = np.zeros(3)
    commit = shelf.persist()
    timeline.saved(1, commit, ())
    assert [save.nbytes for save in timeline.saves] == [commit.nbytes]
    assert sys.getrefcount(commit) == 2


def test_a_report_is_one_file_with_pictures(reopen: OpenShelf, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    shelf = reopen(in_flight=2)
    auto = shelf.autosave(state={"w": np.zeros(10)})
    auto.report(tmp_path / "r.html")  # as when a job that is done is started again
    page = (tmp_path / "r.html").read_text()
    assert "No save became durable" in page
    assert "<svg" not in page
    auto.close()
    auto = trained(shelf, 8)
    auto.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") == 2
    assert not re.search(r'(src|href)="(?!#)', page)  # nothing is fetched
    for text in ("steps 1 to 8", "8 saves became durable", "barrier", str(auto.start)):
        assert text in page
    auto.close()


def test_a_report_without_matplotlib_says_what_it_needs(
    shelf: ts.Shelf, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = trained(shelf, 3)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ts.UnsupportedError, match="pip install matplotlib"):
        auto.report(tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
    auto.close()


def test_the_start_says_what_is_saved_when(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch")
    caplog.set_level(logging.INFO, "tensorshelf")
    shelf = reopen(in_flight=2)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with shelf.autosave(model=model, optimizer=optimizer) as auto:
        assert auto.start is None
        for step in range(1, 4):
            model(torch.randn(8, 4)).sum().backward()
            optimizer.step()
            auto.step(step)
        start = auto.start
    assert start is not None
    # Four parameters and their momenta; running mean and variance are changed by the forward.
    assert (len(start.sources.lazy), start.sources.lazy_nbytes) == (8, 2 * 4 * (16 + 4 + 4 + 4))
    assert len(start.sources.eager) == len(shelf) - 8
    assert start.slots == 3
    assert caplog.text.count(str(start)) == 1
    assert "8 tensors (224 B) copied behind step()" in str(start)
    eager = f"{len(start.sources.eager)} tensors ({format_size(start.sources.eager_nbytes)})"
    assert f"{eager} before it returns" in str(start)
    assert start.sources.eager_nbytes != start.sources.lazy_nbytes


def test_saves_that_hold_training_up_are_told_once(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hidden, save in ((True, 0.5), (False, 3.5)):
        caplog.clear()
        about = Costs(step=1.0, stall=0.0, save=save, nbytes=7 * 2**20)
        monkeypatch.setattr(
            "tensorshelf._auto.interval.costs", lambda _, at_least=1, about=about: about
        )
        auto = trained(shelf, 8) if shelf.version == 0 else resumed(shelf, 8)
        assert caplog.text.count("every=4 hides them") == (not hidden)
        if not hidden:
            assert "a save takes 3.5 s (2.0 MiB/s), and 1 step of training 1 s" in caplog.text
        auto.close()


def resumed(shelf: ts.Shelf, steps: int) -> Any:
    auto = shelf.autosave(state={"w": np.zeros(50_000), "b": np.zeros(3)})
    for step in range(auto.resume(), auto.resume() + steps):
        auto.step(step + 1)
        auto.wait()
    return auto


def test_costs_are_medians_of_the_last(shelf: ts.Shelf) -> None:
    timeline = Timeline()
    assert costs(timeline) is None
    shelf.a = np.zeros(1000)
    commit = shelf.persist()
    at = 0.0
    for number in range(100):
        timeline.stepped(number, at, at + number, saved=True)
        timeline.saved(number, commit, ())
        at += 3.0 * number
    measured = costs(timeline)
    assert measured is not None
    assert measured.stall == 89.5  # of 80 to 99
    assert measured.step == 2 * 88.5  # before each of those
    assert measured.nbytes == 8000
    assert measured.save == pytest.approx(commit.times["durable"] - commit.times["sealing"])
    assert costs(timeline, at_least=21) is None
    assert measured.is_hidden(1)
    assert not measured._replace(save=200.0).is_hidden(1)
    assert measured._replace(save=200.0).is_hidden(2)
    slow = measured.plan(1e6, 7.0)
    assert slow == ts.plan(
        mtbi=1e6,
        step_seconds=measured.step,
        stall_seconds=measured.stall,
        save_seconds=measured.stall + measured.save,
        load_seconds=7.0,
    )


def test_a_plan_says_what_bandwidth_hides_saves() -> None:
    given = {"mtbi": 3600.0, "step_seconds": 2.0, "stall_seconds": 0.0, "save_seconds": 0.1}
    plan = ts.plan(**given, every=1)
    assert (plan.needed_bytes_per_second, plan.hidden) == (None, None)
    plan = ts.plan(**given, every=1, nbytes=2**30)
    assert (plan.needed_bytes_per_second, plan.hidden) == (2**29, None)
    assert str(plan).endswith("saves are hidden from 512.0 MiB/s on")
    plan = ts.plan(**given, every=3, nbytes=2**30, forward_backward_seconds=1.5)
    assert plan.needed_bytes_per_second == pytest.approx(2**30 / 5.5)
    assert ts.plan(**given, every=1, nbytes=2**30, bytes_per_second=2.0**29).hidden is True
    slow = ts.plan(**given, every=1, nbytes=2**30, bytes_per_second=2.0**29 - 1)
    assert slow.hidden is False
    assert "saves are not hidden, which takes 512.0 MiB/s" in str(slow)


@pytest.mark.parametrize(
    "wrong",
    [{"nbytes": 0}, {"bytes_per_second": -1.0}, {"forward_backward_seconds": 0.0},
     {"forward_backward_seconds": 2.5}],
)  # fmt: skip
def test_a_plan_of_nothing_is_refused(wrong: Any) -> None:
    given = {"mtbi": 3600.0, "step_seconds": 2.0, "stall_seconds": 0.0, "save_seconds": 0.1}
    with pytest.raises(ts.BadArgument, match=next(iter(wrong))):
        ts.plan(**given, **wrong)
