"""Readers that stay: refresh(), wait_for() and follow() beside a writer."""

import math
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check

import tensorshelf as ts


def commit(shelf: ts.Shelf, step: int) -> None:
    shelf["w"] = np.full((300, 400), step, np.float32)
    shelf["b"] = np.full(7, step, np.int64)
    shelf.persist(step=step)


@pytest.fixture
def reader(shelf: ts.Shelf, place: Place) -> Any:
    """Of ``shelf``, whose first version it shows."""
    commit(shelf, 1)
    with ts.open(place[0], mode="r", tier=place[1]) as reader:
        yield reader


def test_refresh_goes_on_to_the_newest_version(shelf: ts.Shelf, reader: ts.Shelf) -> None:
    w = reader.w
    assert reader.refresh() is False
    assert (reader.version, reader.step) == (1, 1)
    commit(shelf, 2)
    commit(shelf, 3)
    assert reader.version == 1
    assert reader.refresh() is True
    assert (reader.version, reader.step) == (3, 3)
    assert (w.numpy() == 3).all()
    assert (reader.b.numpy() == 3).all()
    shelf["new"] = np.ones(3)
    del shelf["w"]
    shelf.persist(step=4)
    assert reader.refresh()
    assert sorted(reader) == ["b", "new"]
    with pytest.raises(ts.UnknownName):
        w.numpy()
    assert shelf.refresh() is False


def test_what_was_saved_is_loaded_from_each_version(shelf: ts.Shelf, reader: ts.Shelf) -> None:
    for step in (2, 3):
        shelf.save({"epoch": step, "weights": [np.full(1000, step)]}, step=step)
        assert reader.refresh()
        state = reader.load()
        assert state["epoch"] == step
        assert (state["weights"][0] == step).all()


def test_who_waits_gets_the_version(shelf: ts.Shelf, reader: ts.Shelf) -> None:
    assert reader.wait_for(1)
    assert reader.wait_for(2, timeout=0) is False
    assert reader.wait_for(timeout=0.01) is False
    thread = threading.Thread(target=lambda: [commit(shelf, step) for step in (2, 3)])
    thread.start()
    assert reader.wait_for(np.int64(3), timeout=600) is True
    thread.join()
    assert (reader.w.numpy() == 3).all()
    assert shelf.wait_for(3)


def test_following_gives_each_version_that_it_shows(shelf: ts.Shelf, reader: ts.Shelf) -> None:
    follower = reader.follow()
    commit(shelf, 2)
    assert next(follower).version == 2
    commit(shelf, 3)
    commit(shelf, 4)
    info = next(follower)
    assert (info.version, info.step) == (4, 4)
    assert (reader.at(info.version).w.numpy() == 4).all()
    assert list(reader.follow(timeout=0)) == []


def test_who_follows_rests_between_items(
    shelf: ts.Shelf, reader: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr("tensorshelf._follow.time.sleep", rests.append)
    follower = reader.follow(timeout=600, every=3600)
    for step in (2, 3, 4):
        commit(shelf, step)
        assert next(follower).step == step
    assert rests[0] == 0  # the first comes at once
    assert all(0 < rest <= 3600 for rest in rests[1:])
    rests.clear()
    restless = reader.follow(timeout=600, every=0)
    for step in (5, 6):
        commit(shelf, step)
        assert next(restless).step == step
    assert rests == [0, 0]


@pytest.mark.parametrize("every", [-1, float("nan"), math.inf, 2e9, "1", None, True])
def test_what_is_no_pace_is_refused_at_once(reader: ts.Shelf, every: Any) -> None:
    with pytest.raises(ts.BadArgument, match="every="):
        reader.follow(every=every)


def test_what_comes_within_a_loop_is_not_left_out(shelf: ts.Shelf, reader: ts.Shelf) -> None:
    commit(shelf, 2)
    seen = []
    for new in reader.follow(timeout=0):
        seen.append(new.version)
        if new.version < 4:
            commit(shelf, new.version + 1)
            reader.refresh()  # by the loop itself, or by another thread
    assert seen == [2, 3, 4]


def test_ctrl_c_ends_a_wait(reader: ts.Shelf) -> None:
    timer = threading.Timer(0.05, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        reader.wait_for(2)
    timer.join()
    assert reader.version == 1


def test_who_waits_leaves_other_threads_alone(shelf: ts.Shelf, reader: ts.Shelf) -> None:
    ended: list[Exception] = []

    def wait() -> None:
        try:
            reader.wait_for(2)
        except ts.ShelfError as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert (reader.w.numpy() == 1).all()
    reader.close()
    thread.join()
    assert isinstance(ended[0], ts.ClosedError)


@pytest.mark.parametrize("timeout", [-1, math.nan, "long", True, -math.inf])
def test_what_is_no_time(reader: ts.Shelf, timeout: Any) -> None:
    for call in (reader.wait_for, reader.follow):
        with pytest.raises(ts.BadArgument, match="timeout="):
            call(timeout=timeout)
    with pytest.raises(ts.BadArgument, match="version"):
        reader.wait_for(-1)


def test_the_writer_follows_nobody(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.UnsupportedError, match="open for writing") as caught:
        shelf.wait_for()
    check(caught, ts.UnsupportedError, "unsupported", RuntimeError)
    with pytest.raises(ts.UnsupportedError):
        next(shelf.follow())


def test_a_file_that_was_replaced_or_deleted(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.shelf"
    with ts.open(path) as shelf:
        commit(shelf, 1)
    with ts.open(path, "r") as reader:
        ts.open(path, "w").close()
        with pytest.raises(ts.ShelfGone, match="another file has taken the place") as caught:
            reader.refresh()
        assert "open it again" in caught.value.remedy
        path.unlink()
        with pytest.raises(ts.ShelfGone, match="deleted"):
            reader.wait_for(2)
        assert (reader.w.numpy() == 1).all()


WRITER = """
import sys
import numpy as np
import tensorshelf as ts

with ts.open(sys.argv[1], tier=sys.argv[2], keep=1) as shelf:
    print("open", flush=True)
    for step in range(1, 401):
        shelf["w"] = np.full((300, 400), step, np.float32)
        shelf["b"] = np.full(7, step, np.int64)
        shelf.persist(step=step)
"""


def test_readers_follow_a_process_that_writes_as_fast_as_it_can(
    reopen: OpenShelf, place: Place
) -> None:
    with reopen(keep=1) as shelf:
        commit(shelf, 0)
    path, tier = place
    with (
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), tier], stdout=subprocess.PIPE
        ) as writer,
        ts.open(path, mode="r", tier=tier) as reader,
    ):
        assert writer.stdout is not None
        writer.stdout.readline()
        seen = [reader.version]
        whole = 0
        for new in reader.follow(timeout=600):
            assert new.version > seen[-1]
            seen.append(new.version)
            try:
                old = reader.at(new.version)
                w, b = old.w.numpy(), old.b.numpy()
            except ts.StaleError:  # the writer was faster
                pass
            else:
                whole += 1
                assert (w == new.step).all()
                assert (b == new.step).all()
            if new.step == 400:
                break
        assert writer.wait() == 0
        assert whole > 0


def test_a_reader_goes_on_with_the_next_process_that_writes(
    reopen: OpenShelf, place: Place
) -> None:
    with reopen() as shelf:
        commit(shelf, 1)
    with ts.open(place[0], mode="r", tier=place[1]) as reader:
        for step in (2, 3, 4):
            with ts.open(place[0], tier=place[1]) as shelf:
                assert reader.refresh() is False  # opening alone makes no version
                commit(shelf, step)
            assert reader.refresh()
            assert (reader.w.numpy() == step).all()


def test_versions_that_were_passed_over_are_not_shown(shelf: ts.Shelf, reader: ts.Shelf) -> None:
    versions = reader.follow(timeout=0.05)
    for step in (2, 3, 4):
        commit(shelf, step)
    assert [new.version for new in versions] == [4]
    commit(shelf, 5)
    assert [new.version for new in reader.follow(timeout=0.05)] == [5]
