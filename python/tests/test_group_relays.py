"""Ranks whose votes go by relays: what holds of a group holds, and errors name the rank itself."""

import contextlib
import socket
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, Ranks, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf import _core  # noqa: E402
from tensorshelf._group import coordinate, relay, routes  # noqa: E402
from tensorshelf._group.awaited import Awaited  # noqa: E402
from tensorshelf._group.posted import BOX, END, LEAVES, Posted, decision_key, relay_box  # noqa: E402
from tensorshelf._group.taker import Taker  # noqa: E402
from tensorshelf._group.wire import Wire  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

KINDS = _core.GroupMessageKind


@pytest.fixture
def five(tmp_path, monkeypatch):
    """Two nodes with a relay each, behind ranks 1 and 2."""
    monkeypatch.setattr(routes, "_WORTH", -100)
    ranks = Ranks(tmp_path, 5)
    ranks.nodes = ["a", "b", "c", "b", "c"]
    return ranks


# ---- who has a relay


@pytest.mark.parametrize(
    ("nodes", "members"),
    [
        ("aaaa", "0 1 2 3"),
        ("abcd", "0 1 2 3"),
        ("abab", "0 2 1,3"),
        ("abbcc", "0 1,2 3,4"),
        ("abcbca", "0 5 1,3 2,4"),
    ],
)
def test_nodes_with_several_ranks_have_one(monkeypatch, nodes, members):
    monkeypatch.setattr(routes, "_WORTH", -100)
    found = routes.Routes(list(nodes))
    assert [",".join(map(str, ranks)) for ranks in found.members] == members.split()
    for ranks in found.members:
        for rank in ranks:
            expected = BOX if len(ranks) == 1 else relay_box(ranks[0])
            assert found.box(rank) == expected


@pytest.mark.parametrize(
    ("nodes", "each", "relays"),
    [(1, 1000, 0), (1000, 1, 0), (4, 8, 0), (8, 8, 7), (125, 8, 124), (2, 64, 0), (3, 64, 2)],
)
def test_small_jobs_have_none(nodes, each, relays):
    found = routes.Routes([f"node {node}" for node in range(nodes) for _ in range(each)])
    assert sum(len(ranks) > 1 for ranks in found.members) == relays


# ---- saving


def test_all_go_on_from_the_last_save_of_all(five):
    boxes = []

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            first = auto.resume()
            boxes.append((rank.rank, auto._commits._started.station.box))
            versions = []
            for number in range(first + 1, first + 5):
                rank.values += 1
                versions.append(auto.step(number))
            auto.wait()
            return first, [commit.version for commit in versions]

    assert five.run(body) == [(0, [1, 2, 3, 4])] * 5
    assert sorted(boxes) == [
        (0, "votes"),
        (1, "votes/of-1"),
        (2, "votes/of-2"),
        (3, "votes/of-1"),
        (4, "votes/of-2"),
    ]
    assert five.run(trained(3)) == [(4, rank + 7.0) for rank in range(5)]
    assert five.shelves() == [(7, rank + 7.0) for rank in range(5)]


@pytest.mark.parametrize("who", [0, 1, 4])
def test_what_one_cannot_save_nobody_saves(five, who):
    def body(rank: Rank):
        heard = []
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            for number in range(1, 6):
                if (rank.rank, number) == (who, 3):
                    auto._run.state["unheard"] = object()  # nothing that can be stored
                try:
                    rank.step(auto, number)
                    auto.wait()
                except ts.ShelfError as error:
                    heard.append((number, error))
                auto._run.state.pop("unheard", None)
            return heard, shelf.step

    found = five.run(body)
    ((number, own),), _ = found[who]
    assert type(own) is ts.errors.NotStorable
    for rank, (heard, step) in enumerate(found):
        assert step == 5
        ((number, error),) = heard
        assert number == 3
        if rank != who:
            assert type(error) is ts.errors.GroupError
            assert error.rank == who
            assert f"rank {who} ({five.nodes[who]}) could not: {own}" in str(error)
            assert f"{five.path(who)} on {socket.gethostname()}" in str(error)


@pytest.mark.parametrize("apart", [0, 3])
def test_ranks_that_save_other_steps_save_nothing(five, apart):
    """On another node, or the same one as others of that step."""

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            auto.step(1 + (rank.rank == apart))
            try:
                auto.wait()
            except ts.ShelfError as error:
                return error, shelf.version

    for error, version in five.run(body):
        assert type(error) is ts.errors.GroupError
        assert "all ranks save the same steps" in str(error)
        step = 2 if error.rank == apart else 1
        said = f"rank {error.rank} ({five.nodes[error.rank]}) could not: it saved step {step}, and"
        assert said in str(error)
        assert version == 0


@pytest.mark.parametrize("leaves", [0, 1, 3])
def test_who_leaves_is_no_more_waited_for(five, leaves, monkeypatch):
    """Also by those of its node, though their relay went with it."""
    monkeypatch.setattr("tensorshelf._group.together._FAREWELL", 0.2)
    gone = threading.Event()

    def body(rank: Rank):
        errors = []
        with contextlib.ExitStack() as closing:
            shelf = closing.enter_context(rank.open())
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            if rank.rank == leaves:
                auto.close()
                gone.set()
                return shelf.step
            for number in (2, 3, 4, 5):
                try:
                    rank.step(auto, number)
                    auto.wait()
                except ts.ShelfError as error:
                    errors.append(error)
                if number == 2:
                    assert gone.wait(30)
            return errors, shelf.step

    found = five.run(body, timeout=20)
    assert found.pop(leaves) == 1
    for errors, step in found:
        assert [type(error) for error in errors] == [ts.errors.GroupError] * 4
        assert {error.rank for error in errors} == {leaves}
        assert all("closed" in str(error) for error in errors)
        assert step == 1


def test_all_that_take_votes_stay_till_their_ranks_have_left(five, monkeypatch):
    """A relay that ended before would leave those of its node undecided: what is decided comes to
    it when its rank has closed.
    """
    closed = threading.Event()  # rank 1's relay waits for rank 3, or takes no more
    take, post, decide = Wire.take, Wire.post, coordinate.Coordination.take

    def stays(self, key, **options):
        if key == "all left of 1":
            closed.set()
        return take(self, key, **options)

    def ends(self, box, value):
        post(self, box, value)
        if (box, value) == (relay_box(1), END):
            closed.set()

    def late(self, posted):
        assert not Posted.unpack(posted).is_last or closed.wait(30)
        decide(self, posted)

    monkeypatch.setattr(Wire, "take", stays)
    monkeypatch.setattr(Wire, "post", ends)
    monkeypatch.setattr(coordinate.Coordination, "take", late)

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            if rank.rank == 3:  # its relay is rank 1's, which closes
                assert closed.wait(30)
                rank.step(auto, 2)
                with pytest.raises(ts.errors.GroupError, match="closed"):
                    auto.wait()
            auto.close()
            return shelf.step

    assert five.run(body, timeout=20) == [1] * 5


def test_who_is_awaited_is_named(five):
    told = threading.Barrier(5)

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            idle = rank.group.info().awaited
            if rank.rank == 3:
                told.wait(30)
                return idle
            rank.step(auto, 2)
            while rank.rank < 2 and rank.group.info().awaited != ((1, 3), (3,))[rank.rank]:
                pass
            try:
                auto.wait()
            except ts.errors.UnresolvedError as error:
                told.wait(30)
                return idle, str(error)

    of_0, of_1, of_2, of_3, of_4 = five.run(body, timeout=0.5)
    assert of_0[0] == of_1[0] == of_2[0] == ()
    assert of_3 is of_4[0] is None
    assert "one or more of ranks 1, 3 (b) have not voted on the save of step 2" in of_0[1]
    assert "rank 3 (b) has not voted on the save of step 2" in of_1[1]
    assert "of the other ranks some have not voted" in of_2[1]  # those of its node have
    assert "of the other ranks some have not voted" in of_4[1]


def test_the_awaited_are_named_with_their_nodes():
    voters = [[0], [1], [2], [9], *([rank] for rank in range(10, 13)), [3, 4, 5], [6, 7, 8]]
    nodes = [f"n{rank // 3}" for rank in range(13)]
    missing: list[int] = []
    awaited = Awaited(nodes, voters, lambda: missing)
    for numbers, ranks, words in (
        ([], (), "of the other ranks some have"),
        ([1], (1,), "rank 1 (n0) has"),
        ([7], (3, 4, 5), "one or more of ranks 3, 4, 5 (n1) have"),
        ([1, 3], (1, 9), "ranks 1 (n0), 9 (n3) have"),
        ([2, 8], (2, 6, 7, 8), "rank 2 (n0) and one or more of ranks 6, 7, 8 (n2) have"),
        (
            [0, 1, 2, 3, 4, 5, 6],
            (0, 1, 2, 9, 10, 11, 12),
            "ranks 0, 1, 2 (n0), 9, 10 (n3) and 2 more have",
        ),
    ):
        missing[:] = numbers
        assert awaited.ranks() == ranks
        assert awaited.have() == words
    assert Awaited(nodes, [], None).ranks() is None


def test_what_a_relay_dies_with_the_next_start_decides(five, monkeypatch):
    """Behind the votes of its ranks, all of them."""
    take = relay.Relaying.take

    def dying(self, posted):
        if Posted.unpack(posted).message.kind == KINDS.commit and self._sent == 2:
            raise RuntimeError("the relay dies here")
        take(self, posted)

    monkeypatch.setattr(relay.Relaying, "take", dying)

    def body(rank: Rank):
        with contextlib.suppress(ts.errors.UnresolvedError), rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            rank.step(auto, 2)
            auto.wait()
            return shelf.step

    assert five.run(body, timeout=0.5) == [2, None, None, None, None]
    monkeypatch.setattr(relay.Relaying, "take", take)
    assert five.run(trained(1)) == [(2, rank + 3.0) for rank in range(5)]


def test_keys_are_taken_away(five):
    all_heard = threading.Barrier(5)

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            counts = []
            for number in range(1, 21):
                if number % 4 == 0 and rank.rank == 4:
                    auto._run.state["unheard"] = object()  # nothing that can be stored
                with contextlib.suppress(ts.ShelfError):
                    rank.step(auto, number)
                    auto.wait()
                auto._run.state.pop("unheard", None)
                all_heard.wait(30)
                counts.append(rank.group._store.num_keys())
                all_heard.wait(30)
            return counts

    for counts in five.run(body):
        assert max(counts[12:]) <= max(counts[3:8]) + 5


# ---- one relay


class Above:
    """A relay of ranks 4 and 7, and what it posts and puts."""

    def __init__(self) -> None:
        store = torch.distributed.HashStore()
        self._wire = Wire(store, "of/")
        self._posted = 0
        machine = _core.Relay(2, 1, (1, 0))
        self.relay = relay.Relaying(Wire(store, "of/"), machine, [4, 7])

    def take(
        self,
        kind: Any,
        number: int,
        rank: int,
        *,
        step: int = 1,
        cause: bytes = b"",
        every: int = 0,
    ) -> None:
        message = _core.GroupMessage(kind, (1, number), rank, cause)
        self.relay.take(Posted(message, step, every).pack())

    def posted(self) -> list[bytes]:
        found = []
        while self._wire.has(f"{BOX}/{self._posted + 1}"):
            self._posted += 1
            found.append(self._wire.next_of(BOX, self._posted))
        return found

    def told_bytes(self, number: int, rank: int) -> bytes:
        return self._wire.take(decision_key(number, rank))

    def told(self, number: int, rank: int) -> _core.GroupMessage:
        return Posted.unpack(self.told_bytes(number, rank)).message


def test_a_relay_sends_one_vote_up_and_every_decision_down():
    above = Above()
    above.take(KINDS.yes, 1, 4)
    assert above.posted() == []
    above.take(KINDS.yes, 1, 7)
    (posted,) = above.posted()
    vote = Posted.unpack(posted).message
    assert (vote.kind, vote.rank) == (KINDS.yes, 7)
    above.take(KINDS.commit, 1, 0)
    for rank in (4, 7):
        assert above.told(1, rank).kind == KINDS.commit
    above.take(KINDS.no, 2, 4, cause=b"no room")
    above.take(KINDS.yes, 2, 7)  # which is late: a no is sent already
    (posted,) = above.posted()
    vote = Posted.unpack(posted).message
    assert (vote.kind, vote.rank, vote.cause) == (KINDS.no, 4, b"no room")
    above.take(KINDS.abort, 2, 4, cause=b"no room")
    assert above.told(2, 7).cause == b"no room"


def test_a_relay_tells_what_was_decided_before_its_ranks_had_voted():
    above = Above()
    for number in (1, 2):
        above.take(KINDS.abort, number, 0, cause=b"no room")
    above.take(KINDS.yes, 1, 4)
    assert above.told(1, 4).cause == b"no room"
    above.take(KINDS.yes, 3, 4)
    above.take(KINDS.yes, 3, 7)
    assert Posted.unpack(above.posted()[-1]).message.epoch == (1, 3)


def test_a_relay_counts_no_vote_of_another_step():
    above = Above()
    above.take(KINDS.yes, 1, 4, step=10)
    above.take(KINDS.yes, 1, 7, step=20)
    (posted,) = above.posted()
    vote = Posted.unpack(posted).message
    assert (vote.kind, vote.rank) == (KINDS.no, 7)
    assert vote.cause == b"it saved step 20, and rank 4 step 10: all ranks save the same steps"


def test_a_relay_sends_the_largest_interval_up_and_the_one_of_all_down():
    above = Above()
    for rank, every in ((4, 7), (7, 3)):
        above.take(KINDS.yes, 1, rank, every=every)
    above.take(KINDS.commit, 1, 0, every=9)
    assert Posted.unpack(above.told_bytes(1, 7)).every == 9
    for rank in (7, 4):
        above.take(KINDS.yes, 2, rank, every=2)
    assert [Posted.unpack(posted).every for posted in above.posted()] == [7, 2]


def test_a_relay_counts_no_vote_of_another_nodes_rank():
    above = Above()
    for rank in (0, 4, 5):
        above.take(KINDS.yes, 1, rank)
    assert above.posted() == []


def test_a_relay_passes_on_that_a_rank_leaves():
    above = Above()
    above.take(KINDS.yes, 1, 4)
    above.take(KINDS.no, 1, 7, step=LEAVES, cause=b"closed")
    (posted,) = above.posted()
    assert Posted.unpack(posted).is_last
    assert Posted.unpack(posted).message.cause == b"closed"


def test_a_vote_that_is_none_ends_it_and_the_log_says_so(caplog):
    wire = Wire(torch.distributed.HashStore(), "start/")
    taken: list[bytes] = []

    def take(posted: bytes) -> None:
        taken.append(posted)
        raise ts.CorruptError("no vote", "See who sent it.")

    taker = Taker("relay", wire, "votes", take)
    wire.post("votes", b"x")
    taker._thread.join(20)
    assert not taker._thread.is_alive()
    assert taken == [b"x"]
    assert "the group's relay ends, and no save is decided any more: no vote" in caplog.text


def test_a_message_that_is_none_is_told(caplog):
    store = torch.distributed.HashStore()
    taken = []

    def take(posted: bytes) -> None:
        taken.append(posted)
        Posted.unpack(posted)

    taker = Taker("coordinator", Wire(store, ""), "box", take)
    Wire(store, "").post("box", b"short")
    taker._thread.join(60)
    assert not taker._thread.is_alive()
    assert taken == [b"short"]
    assert "no save is decided any more" in caplog.text
