"""What a group refuses, and keys and marks of its own."""

import contextlib
import datetime
import signal
import socket
import threading
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, Ranks  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import council, moments, offer, together, wire  # noqa: E402
from tensorshelf._group.part import Part, part_of_mark, part_of_state  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def two(tmp_path):
    return Ranks(tmp_path, 2)


def test_what_ranks_would_choose_by_themselves_is_refused(tmp_path):
    with ts.open(tmp_path / "a.shelf", size="16MiB") as shelf:
        group = ts.Group(torch.distributed.HashStore(), rank=0, members=1)
        with pytest.raises(ts.BadArgument, match="on_busy='skip'"):
            shelf.autosave(group=group, values=np.zeros(3), on_busy="skip")


def test_a_save_before_all_agreed_is_refused(tmp_path):
    with ts.open(tmp_path / "a.shelf", size="16MiB") as shelf:
        group = ts.Group(torch.distributed.HashStore(), rank=0, members=1)
        auto = shelf.autosave(group=group, values=np.zeros(3))
        with pytest.raises(ts.UnsupportedError, match="resume"):
            auto.step(1)


def test_one_rank_cannot_go_back(two):
    def body(rank: Rank):
        with rank.open(keep=2) as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            auto.rollback(1)

    for error in two.run(body):
        assert type(error) is ts.UnsupportedError
        assert "go back" in str(error)


def test_a_group_is_for_one_autosave(tmp_path):
    group = ts.Group(torch.distributed.HashStore(), rank=0, members=1)
    assert repr(group) == "<Group: rank 0 of 1>"
    with ts.open(tmp_path / "a.shelf", size="16MiB") as shelf:
        shelf.autosave(group=group, values=np.zeros(3))
        with pytest.raises(ts.UnsupportedError, match="a Group for each"):
            shelf.autosave(group=group, values=np.zeros(3))
        with pytest.raises(ts.BadArgument, match="no group"):
            shelf.autosave(group=3, values=np.zeros(3))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"rank": 0}, "some are not"),
        ({"store": object(), "rank": 0}, "some are not"),
        ({"store": object(), "rank": 2, "members": 2}, "rank=2 of members=2"),
        ({"store": object(), "rank": -1, "members": 2}, "rank=-1"),
        ({"timeout": 0}, "timeout=0"),
    ],
)
def test_a_group_that_cannot_be(given, text):
    with pytest.raises(ts.BadArgument, match=text):
        ts.Group(**given)


def test_a_group_of_no_process_group():
    with pytest.raises(ts.UnsupportedError, match="init_process_group"):
        ts.Group()


def test_a_signal_ends_a_wait_for_other_ranks(two):
    """It is heard between two looks at the store."""

    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    group = ts.Group(torch.distributed.HashStore(), rank=0, members=2, timeout=60)
    with ts.open(two.path(0), size="16MiB", in_flight=2) as shelf:
        auto = shelf.autosave(group=group, signals=(), values=np.zeros(3))
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with pytest.raises(Stopped):
                auto.resume()
        finally:
            signal.signal(signal.SIGALRM, before)


def test_what_waits_long_for_others_says_for_whom(two, monkeypatch, caplog):
    monkeypatch.setattr(council, "TELL_AFTER", 0.1)
    told = threading.Event()

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            if rank.rank == 1:
                assert told.wait(30)
            for number in range(1, 4):
                if rank.rank == 0 and number == 3:
                    threading.Timer(0.5, told.set).start()
                rank.step(auto, number)  # the third waits for the first
            auto.wait()
            return shelf.step

    assert two.run(body) == [3, 3]
    host = socket.gethostname()
    assert f"waiting: rank 1 ({host}) has not voted on the save of step 1" in caplog.text


def test_marks_are_read_as_they_were_written():
    part = Part("0" * 32, 4095, 4096, 2**62, 2**62)
    for each in (part, part._replace(alike=2**64 - 1)):
        assert part_of_mark(each.mark()) == each
        assert len(each.mark()) <= 256
    assert part_of_state(part.state()) == part
    for other in (
        b"",
        b"mine",
        part.mark() + b" 1",
        part.mark() + b" alike=x",
        b"tensorshelf.group j 1 2 3 x",
        b"\xff\xfe",
    ):
        assert part_of_mark(other) is None


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        7,
        {"job": "j"},
        {**Part("j", 0, 1, 1, 1).state(), "rank": -1},
        {**Part("j", 0, 1, 1, 1).state(), "number": True},
        {**Part("j", 0, 1, 1, 1).state(), "job": 3},
    ],
)
def test_a_state_that_says_nothing_of_its_part(found):
    with pytest.raises(ts.CorruptError, match="group"):
        part_of_state(found)


@pytest.mark.parametrize("aborted", [False, True])
def test_keys_are_taken_away(two, aborted):
    """A job of a million saves has no more keys than one of ten."""
    all_heard = threading.Barrier(2)

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            counts = []
            for number in range(1, 31):
                if aborted and number % 3 and rank.rank == 1:
                    auto._run.state["unheard"] = object()  # nothing that can be stored
                with contextlib.suppress(ts.ShelfError):
                    rank.step(auto, number)
                with contextlib.suppress(ts.ShelfError):
                    auto.wait()
                auto._run.state.pop("unheard", None)
                all_heard.wait(30)
                counts.append(rank.group._store.num_keys())
                all_heard.wait(30)
            assert shelf.step == 30
            return counts

    counts, _ = two.run(body)
    assert max(counts[20:]) <= max(counts[5:10]) + 2
    assert together._FAREWELL > 0
    assert datetime.timedelta(days=1) < wire._FOR_GOOD


def test_moments_are_kept_of_the_last_epochs_alone(monkeypatch):
    monkeypatch.setattr(moments, "_MOST", 2)
    found = moments.Moments(0, "here", ("job", 1))
    for number in (1, 2, 3):
        found.begin(number, number)
    assert [epoch.number for epoch in found.epochs] == [2, 3]


def test_what_is_prepared_and_cannot_be_loaded_is_damaged():
    def gone(version: int) -> None:
        raise ts.StaleError(f"version {version} is not there", "Take another.")

    assert offer._is_damaged(SimpleNamespace(at=gone), 3, "here")
