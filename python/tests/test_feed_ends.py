"""What a feed keeps, and what it leaves behind, where a call of it ends otherwise than well."""

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
from test_feed import RESTING, net, plain

import tensorshelf as ts
from tensorshelf._auto.early import TooEarly
from tensorshelf._auto.report import write_report
from tensorshelf._auto.start import Sources, Start
from tensorshelf._auto.timeline import Timeline

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")


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
