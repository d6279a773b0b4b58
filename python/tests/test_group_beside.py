"""A group beside training: threads, stores that go, leaving, and what is told."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, Ranks, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import start, started, together, wire  # noqa: E402
from tensorshelf._group.drains import BUSY, NoDrain  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def two(tmp_path):
    return Ranks(tmp_path, 2)


def test_a_slow_rank_does_not_hold_up_the_others(two):
    went_on = threading.Event()

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            if rank.rank == 1:
                assert went_on.wait(30)
            rank.step(auto, 2)
            if rank.rank == 0:
                assert shelf.step == 1  # it could not commit yet
                rank.values += 1
                went_on.set()
            auto.wait()
            return shelf.step

    assert two.run(body) == [2, 2]


def test_no_message_is_sent_by_the_trainers_thread(two, monkeypatch):
    senders = set()
    looked_at = threading.Barrier(2)  # what a rank that closes sends is sent by its trainer
    for name in ("put", "take", "count"):
        method = getattr(wire.Wire, name)

        def noted(self, *args, _method=method, **options):
            senders.add(threading.current_thread().name.split("-")[0])
            return _method(self, *args, **options)

        monkeypatch.setattr(wire.Wire, name, noted)

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            if rank.rank == 0:
                senders.clear()
            rank.step(auto, 2)
            auto.wait()
            found = set(senders)
            looked_at.wait(30)
            auto.close()
            return found

    first, _ = two.run(body)
    assert first == {"tensorshelf"}


def test_a_store_that_is_gone_is_told(two, monkeypatch):
    def gone(*_: object, **__: object) -> bytes:
        raise RuntimeError("connection reset by peer")

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            auto._commits._started.member._wire.take = gone
            errors = []
            for number in (2, 3):
                try:
                    rank.step(auto, number)
                    auto.wait()
                except ts.ShelfError as error:
                    errors.append(error)
            return errors, shelf.prepared.step

    for errors, prepared in two.run(body):
        assert [type(each) for each in errors] == [ts.UnresolvedError] * 2
        assert all("connection reset by peer" in str(each) for each in errors)
        assert all("come through to rank" in str(each) for each in errors)
        assert all(f" on {socket.gethostname()}" in str(each) for each in errors)
        assert prepared == 2
    assert [first for first, _ in two.run(trained(0))] == [2, 2]


def test_a_store_that_goes_with_saves_under_way_holds_up_no_step(two):
    """One is prepared, and the pipeline waits for the decision on it, for one more."""
    begun = threading.Barrier(2)

    def body(rank: Rank):
        go = threading.Event()

        def gone(*_: object, **__: object) -> bytes:
            assert go.wait(30)
            raise RuntimeError("connection reset by peer")

        errors: list[Exception] = []
        with contextlib.suppress(ts.errors.UnresolvedError), rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            begun.wait(30)
            auto._commits._started.member._wire.take = gone
            rank.step(auto, 2)
            rank.step(auto, 3)
            go.set()
            for number in (4, 5, 6):
                auto._commits._started.member._thread.join(0.1)
                try:
                    auto.wait()
                except ts.ShelfError as error:
                    errors.append(error)
                try:
                    rank.step(auto, number)
                except ts.ShelfError as error:
                    errors.append(error)
        return errors

    for errors in two.run(body):
        assert len(errors) >= 4
        assert {type(error) for error in errors} == {ts.errors.UnresolvedError}


def test_a_store_that_goes_behind_the_vote_ends_what_the_drain_promised(two):
    """Else its thread would do nothing more, for a decision that never comes."""

    class Promises(NoDrain):
        def __init__(self) -> None:
            self.told: list[str] = []

        def offer(self, number: int, step: int) -> int:
            self.told.append("promised")
            return BUSY

        def over(self) -> None:
            self.told.append("over")

    def gone(*_: object, **__: object) -> bytes:
        raise RuntimeError("connection reset by peer")

    def body(rank: Rank):
        promises = Promises()
        with contextlib.suppress(ts.errors.UnresolvedError), rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            auto._commits._started.member._drains = promises
            auto._commits._started.member._wire.take = gone
            rank.step(auto, 1)
            auto.wait()
        return promises.told

    assert two.run(body) == [["promised", "over"]] * 2


def test_a_store_that_goes_wakes_who_waits_in_the_pipeline(two):
    """A step for which there is no slot before the saves in front of it are decided."""

    def body(rank: Rank):
        go = threading.Event()

        def gone(*_: object, **__: object) -> bytes:
            assert go.wait(30)
            raise RuntimeError("connection reset by peer")

        with contextlib.suppress(ts.errors.UnresolvedError), rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            auto._commits._started.member._wire.take = gone
            later = threading.Timer(0.5, go.set)  # step() waits by then
            later.start()
            try:
                for number in range(2, 9):
                    rank.step(auto, number)
                    auto.gate()
            except ts.ShelfError as error:
                return error

    for error in two.run(body):
        assert type(error) in (ts.errors.UnresolvedError, ts.errors.ClosedError)


def test_a_decision_that_comes_behind_close_is_the_next_starts(two):
    """Who closed was told that it is undecided, and may have let the shelf go."""

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            closed = threading.Event()
            waiting, thread = (
                auto._commits._started.member._wire,
                auto._commits._started.member._thread,
            )
            take = waiting.take

            def late(*key: Any, **options: Any) -> bytes:
                told = take(*key, **options)
                assert closed.wait(30)
                return told

            waiting.take = late
            rank.step(auto, 2)
            with pytest.raises(ts.UnresolvedError):
                auto.close()
            closed.set()
            thread.join(30)
            return shelf.step, shelf.prepared and shelf.prepared.step

    assert two.run(body, timeout=0.5) == [(1, 2), (1, 2)]
    assert [first for first, _ in two.run(trained(0))] == [2, 2]


def test_the_thread_of_who_gives_up_ends(two):
    """One that waits in the store when the interpreter ends would end it by SIGABRT."""
    looked_at = threading.Event()

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            if rank.rank == 1:  # it votes on nothing, and does not leave
                return looked_at.wait(60)
            thread = auto._commits._started.member._thread
            rank.step(auto, 1)
            with pytest.raises(ts.UnresolvedError):
                auto.close()
            thread.join(20)
            looked_at.set()
            return not thread.is_alive()

    assert two.run(body, timeout=0.5) == [True, True]


def test_who_closes_when_the_store_is_gone_hears_that_nothing_was_decided(two):
    """All saves end, and not the first alone: nobody else tells of them."""
    looked_at = threading.Event()

    def gone(*_: Any) -> None:
        raise RuntimeError("the store is gone")

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            if rank.rank == 1:  # it votes on nothing, and does not leave
                return looked_at.wait(60)
            commits = auto._commits
            for number in (1, 2):
                rank.step(auto, number)
            commits._started.wire.put = gone
            under_way = list(commits._started.member._under_way)
            with pytest.raises(ts.UnresolvedError):
                auto.close()
            looked_at.set()
            return [save.done() for save in under_way]

    assert two.run(body, timeout=0.5) == [[True, True], True]


def test_a_rank_that_fails_waits_for_others_a_short_while_alone(two, monkeypatch):
    monkeypatch.setattr(together, "MOMENT", 0.1)
    ended = threading.Event()

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            if rank.rank == 0:
                rank.step(auto, 1)
                raise ValueError("the trainer's")
            return ended.wait(20)

    def noted(rank: Rank):
        try:
            return body(rank)
        finally:
            ended.set()

    error, in_time = two.run(noted)
    assert type(error) is ValueError
    assert in_time


SERVER = """
import sys, torch.distributed
store = torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server():
    """The process of a store."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


def test_a_store_that_is_stopped_stops_nobody(two, server):
    """torch waits for its answer for good, and hears no signal meanwhile."""
    port = int(server.stdout.readline())
    saved = threading.Barrier(2, action=lambda: server.send_signal(signal.SIGSTOP))

    def body(rank: Rank):
        rank.group._store = torch.distributed.TCPStore("127.0.0.1", port, None, False)
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            saved.wait(30)
            rank.step(auto, 2)
            with pytest.raises(ts.UnresolvedError, match="not voted on the save of step 2"):
                auto.wait()
            with pytest.raises(ts.UnresolvedError, match="not voted on the save of step 2"):
                auto.close()
            return shelf.step

    try:
        assert two.run(body, timeout=2) == [1, 1]
    finally:
        server.send_signal(signal.SIGCONT)


def test_a_start_over_a_store_that_is_stopped_says_so(two, server):
    """As above; and Ctrl-C would not be heard."""
    port = int(server.stdout.readline())
    stores = [torch.distributed.TCPStore("127.0.0.1", port, None, False) for _ in range(2)]
    server.send_signal(signal.SIGSTOP)

    def body(rank: Rank):
        rank.group._store = stores[rank.rank]
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            with pytest.raises(ts.UnresolvedError, match="store did not answer within 1 s"):
                auto.resume()

    try:
        two.run(body, timeout=1)
    finally:
        server.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL])
def test_a_store_that_stops_within_a_start_is_told(two, server, monkeypatch, sent):
    """Or dies: torch connects anew for minutes then."""
    port = int(server.stdout.readline())
    stores = [torch.distributed.TCPStore("127.0.0.1", port, None, False) for _ in range(2)]
    agree = start.agree_on_start

    def stops(*args: Any) -> Any:
        server.send_signal(sent)
        return agree(*args)

    monkeypatch.setattr(started, "agree_on_start", stops)

    def body(rank: Rank):
        rank.group._store = stores[rank.rank]
        with rank.open() as shelf, pytest.raises(ts.UnresolvedError):
            rank.autosave(shelf).resume()

    try:
        assert two.run(body, timeout=1) == [None, None]
    finally:
        server.send_signal(signal.SIGCONT)
