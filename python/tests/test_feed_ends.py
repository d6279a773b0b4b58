"""What a feed keeps and leaves behind, and who is told, where a call ends otherwise than well."""

import contextlib
import dataclasses
import gc
import os
import pathlib
import subprocess
import sys
import time
import types
import weakref
from typing import Any

import numpy as np
import pytest
from support import Place
from test_feed import RESTING, net, plain
from test_feed_early import by_data, first_element

import tensorshelf as ts
from tensorshelf._auto.early import TooEarly
from tensorshelf._auto.report import write_report
from tensorshelf._auto.start import Sources, Start
from tensorshelf._auto.timeline import Timeline

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


def test_memory_stays_though_a_signal_ends_the_save(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may raise when the pipeline has begun to copy, and before that is noted."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    for step in (1, 2):
        plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
        auto.step(step)
        auto.wait()
    feed = auto._feed
    pipeline = feed._pipeline

    class Struck:
        def save(self, *of: Any) -> Any:
            pipeline.save(*of)
            raise KeyboardInterrupt

    monkeypatch.setattr(feed, "_pipeline", Struck())
    memory = weakref.ref(feed._plan.room)
    with pytest.raises(KeyboardInterrupt):
        auto.step(3)
    feed._plan = None  # as where the state takes another form next
    gc.collect()
    assert memory() is not None  # it is being copied
    monkeypatch.undo()
    auto.close()
    while shelf.step != 3:  # it is on its way
        time.sleep(0)


def test_an_autosave_whose_last_save_failed_is_replaced_at_the_next_try(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    first = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    for step in (1, 2):
        first.step(step)
        first.wait()
    first.step(3)
    model[3].weight.data.add_(1)  # behind step(), and past the gate
    with pytest.raises(ts.TornSave):
        shelf.autosave(model=model, optimizer=optimizer)
    with pytest.raises(ts.UnsupportedError, match="this autosave is closed"):
        first.step(4)
    second = shelf.autosave(model=model, optimizer=optimizer)
    assert second.resume() == 2
    second.step(3)
    second.close()
    assert shelf.step == 3


@pytest.mark.parametrize(
    ("cache", "text"),
    [(True, "survives power loss, if the drive honours flushes"), (False, "survives power loss")],
)
def test_report_and_start_say_the_condition(
    shelf: ts.Shelf, tmp_path: pathlib.Path, cache: bool, text: str
) -> None:
    pytest.importorskip("matplotlib")
    promises = dataclasses.replace(
        shelf.info().promises, volatile_cache=cache, survives="power loss"
    )
    info = dataclasses.replace(shelf.info(), promises=promises)
    start = Start.of(info, Sources((), ("w",), 0, np.zeros(3).nbytes))
    assert str(start).endswith(f"a version {text}")
    write_report(tmp_path / "run.html", Timeline(), None, info, 0)
    assert f"a version {text}." in (tmp_path / "run.html").read_text("utf-8")


@pytest.mark.parametrize("kind", [ts.UnresolvedError, KeyboardInterrupt])
def test_the_pipeline_is_closed_where_the_group_is_left_by_an_error(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    auto = shelf.autosave(x=np.zeros(3))
    auto.step(1)
    auto.wait()
    feed = auto._feed

    def fails() -> bool:
        raise kind("others did not decide")

    monkeypatch.setattr(feed._commits, "close", fails)
    closed = []
    monkeypatch.setattr(feed, "_pipeline", types.SimpleNamespace(close=lambda: closed.append(1)))
    with pytest.raises(kind, match="others did not decide"):
        feed.close()
    assert closed == [1]


@pytest.mark.parametrize("first", [KeyboardInterrupt, ts.UnresolvedError, ts.AbandonedError])
@pytest.mark.parametrize("second", [KeyboardInterrupt, ts.IoError])
def test_who_closes_hears_of_all_that_fails(
    shelf: ts.Shelf,
    monkeypatch: pytest.MonkeyPatch,
    first: type[BaseException],
    second: type[BaseException],
) -> None:
    auto = shelf.autosave(x=np.zeros(3))
    auto.step(1)
    auto.wait()
    feed = auto._feed

    def fails(error: BaseException) -> None:
        raise error

    monkeypatch.setattr(feed._commits, "close", lambda: fails(first("the group")))
    pipeline = types.SimpleNamespace(close=lambda: fails(second("the pipeline")))
    monkeypatch.setattr(feed, "_pipeline", pipeline)
    feed._too_early = TooEarly("x", 3)
    with pytest.raises((first, second)) as raised:
        feed.close()
    told = [str(raised.value), *getattr(raised.value, "__notes__", [])]
    interrupted = issubclass(second, KeyboardInterrupt) and not issubclass(first, KeyboardInterrupt)
    assert isinstance(raised.value, second if interrupted else first)
    for what in ("the group", "the pipeline", "step(3)"):
        assert any(what in text for text in told), told


def test_who_closes_again_waits_for_no_save_that_nobody_decides(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = shelf.autosave(x=np.zeros(3))
    auto.step(1)
    auto.wait()
    feed = auto._feed
    feed._newest = types.SimpleNamespace(done=lambda: False)  # type: ignore[assignment]
    decided = iter([KeyboardInterrupt(), True])

    def close() -> bool:
        answer = next(decided)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(feed._commits, "close", close)
    with pytest.raises(KeyboardInterrupt):
        feed.close()
    feed.close()


LET_GO = r"""
import os, sys, threading
import numpy as np, torch
import tensorshelf as ts

shelf = ts.open(sys.argv[1], in_flight=2)
shelf.y = np.zeros(4)
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
auto = shelf.autosave(
    model=model, optimizer=optimizer, signals=(), pipeline={"bytes_per_second": 1 << 20}
)
auto.step(1)
auto.wait()
auto.step(2)
inside, leave = threading.Event(), threading.Event()

def hold():
    with shelf.y._writing():
        inside.set()
        leave.wait()

threading.Thread(target=hold).start()
inside.wait()
pipeline, auto._feed._pipeline = auto._feed._pipeline, None
threading.Timer(0.2, leave.set).start()
del pipeline  # it waits for its thread, that for the writer, and the writer for the GIL
print("gone")
sys.stdout.flush()
os._exit(0)
"""


def test_a_pipeline_that_is_let_go_leaves_the_gil_to_whom_it_waits_for(
    tmp_path: pathlib.Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LET_GO, tmp_path / "run.shelf"],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "gone\n", done.stderr


def test_a_failure_is_told_by_the_next_step_though_that_saves_nothing(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, every=2)
    plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
    auto.step(2)
    auto.wait()
    del shelf["model.0.weight"]
    shelf.persist()
    commit = auto.step(4)
    assert commit is not None
    while not commit.done():
        pass
    auto.gate()  # which lets pass: nothing is copied any more
    with pytest.raises(ts.UnknownName):
        auto.step(5)
    assert auto.step(6) is not None
    auto.close()
    assert shelf.step == 6


@pytest.mark.parametrize("looked", [False, True])
def test_what_failed_before_anybody_waited_is_told_by_the_next_step(
    shelf: ts.Shelf, looked: bool
) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline={"check_one_in": 1})
    for step in range(1, 4):
        plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
        auto.step(step)
    auto.wait()
    for parameter in model.parameters():
        parameter.data.add_(1)
    del shelf[next(name for name in shelf if name.endswith("3.weight"))]
    shelf.persist()
    commit = auto.step(4)  # it fails behind the step, in the pipeline's thread
    assert commit is not None
    while not commit.done():
        pass
    if looked:
        assert "launched" not in commit.times
        assert auto._timeline.saves[-1].seconds is None
    with pytest.raises(ts.UnknownName):
        auto.step(5)
    auto.step(6)
    auto.close()
    assert shelf.step == 6


def test_a_shelf_that_is_let_go_waits_for_its_save(shelf: ts.Shelf) -> None:
    class Failing:
        waited = False

        def wait(self) -> None:
            Failing.waited = True
            raise ts.IoError("the flush failed", "look at the drive")

    model = net()
    auto = shelf.autosave(model=model, optimizer=torch.optim.AdamW(model.parameters()))
    for step in range(1, 4):
        commit = auto.step(step)
        assert commit is not None
        commit.wait()
    assert shelf._flight is commit._save  # so that letting go waits for it, and then asks
    auto.close()
    shelf._flight = Failing()  # type: ignore[assignment]
    shelf.__del__()
    assert Failing.waited


def test_the_first_failure_is_raised_by_who_closes(place: Place) -> None:
    """A save that lost its file, and then a change behind the step: of that there is no version."""
    shelf = ts.open(place[0], mode="w", tier=place[1])
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer)
    plain(lambda: model(torch.ones(1, 64)).square().sum(), optimizer)
    auto.step(1)
    auto.wait()
    os.unlink(place[0])
    with contextlib.suppress(ts.ShelfGone):
        auto.step(2)
    first_element(model.weight)
    with pytest.raises(ts.ShelfGone) as error:
        auto.step(3)
    assert not isinstance(error.value.__context__, ts.TornSave)
    auto.close()
    with contextlib.suppress(ts.ShelfGone):
        shelf.close()
    assert shelf.closed


def test_torn_saves_count_also_where_each_had_ended_before_the_next(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, on_error="warn", pipeline=RESTING)
    auto.step(1)
    auto.step(2)
    for step in (3, 4, 5, 6):
        commit = auto.step(step)
        if commit is None:
            continue  # which told of the one before
        for p in model.parameters():
            by_data(p)
        assert commit._save is not None
        with contextlib.suppress(ts.TornSave):
            commit._save.wait_staged()
    assert not auto._feed.overlap
    auto.close()


def test_two_torn_in_a_row_end_the_overlap(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(
        model=model, optimizer=optimizer, on_error="warn", pipeline=RESTING, every=1
    )
    for step in range(1, 12):
        auto.step(step)
        for p in model.parameters():
            by_data(p)
    auto.close()
    assert "2 saves in a row were abandoned" in caplog.text
    assert "autosave(overlap=False)" in caplog.text
    assert shelf.step == 11
    # From there on each save is of its moment.
    assert auto._flight.commit is None
