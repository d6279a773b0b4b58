"""What votes and decisions say of drains."""

import pathlib

import pytest

pytest.importorskip("torch")

from torch.distributed import HashStore

import tensorshelf as ts
from tensorshelf import _core
from tensorshelf._drain.meeting import Meeting
from tensorshelf._drain.options import Drain
from tensorshelf._drain.standing import Standing
from tensorshelf._group import coordinate, relay
from tensorshelf._group.drains import BUSY, NOT_DUE, NoDrain, Offers
from tensorshelf._group.posted import BOX, Posted, decision_key
from tensorshelf._group.wire import Wire

YES, NO = _core.GroupMessageKind.yes, _core.GroupMessageKind.no


@pytest.mark.parametrize(
    ("offers", "expected", "busy"),
    [
        ([4, 6], 4, ()),  # rank 0's
        ([6, 4], 6, ()),
        ([4, BUSY], BUSY, (1,)),
        ([BUSY, 4], BUSY, (0,)),
        ([NOT_DUE, 4], NOT_DUE, ()),
        ([NOT_DUE, BUSY], BUSY, (1,)),
        ([4], BUSY, ()),  # one was not heard
    ],
)
def test_one_offer_of_all(offers: list[int], expected: int, busy: tuple[int, ...]) -> None:
    found = Offers([[0], [1]])
    for rank, offer in enumerate(offers):
        found.heard(6, rank, offer)
    found.heard(6, 9, 1)  # nobody
    assert found.of_all(6) == expected
    assert found.busy(6) == busy
    assert found.of_all(7) == BUSY
    found.decided(6)
    assert found.of_all(6) == BUSY


class Noted(NoDrain):
    def __init__(self) -> None:
        self.lagging: list[tuple[int, ...]] = []

    def lag(self, ranks: tuple[int, ...]) -> None:
        self.lagging.append(ranks)


@pytest.mark.parametrize(
    ("votes", "told", "lagging"),
    [
        ([(YES, 5), (YES, 6)], 5, [()]),
        ([(YES, NOT_DUE), (YES, 6)], BUSY, [()]),
        ([(YES, 5), (YES, BUSY)], BUSY, [(1,)]),
        ([(YES, 5), (NO, BUSY)], BUSY, []),
    ],
)
def test_a_commit_tells_what_is_drained(
    votes: list[tuple[_core.GroupMessageKind, int]], told: int, lagging: list[tuple[int, ...]]
) -> None:
    store, drains = HashStore(), Noted()
    members = [[0], [1]]
    coordinator = _core.Coordinator(2, (1, 5))
    made = coordinate.Coordination(Wire(store, ""), coordinator, members, drains)
    for rank, (kind, offer) in enumerate(votes):
        vote = _core.GroupMessage(kind, (1, 6), rank, b"")
        made.take(Posted(vote, 7, drains=offer).pack())
    for rank in (0, 1):
        decision = store.get(decision_key(6, rank))
        assert Posted.unpack(decision).drains == told
    assert drains.lagging == lagging
    assert made._offers.of_all(6) == BUSY  # nothing of what was decided is kept
    assert not made._compared._found


@pytest.mark.parametrize(
    ("offers", "expected"), [([6, 6], 6), ([6, BUSY], BUSY), ([BUSY, 6], BUSY)]
)
def test_a_relay_has_one_offer_of_its_ranks(offers: list[int], expected: int) -> None:
    store = HashStore()
    relaying = relay.Relaying(Wire(store, ""), _core.Relay(2, 3, (1, 5)), [4, 7])
    for rank, offer in zip([4, 7], offers, strict=True):
        vote = _core.GroupMessage(YES, (1, 6), rank, b"")
        relaying.take(Posted(vote, 7, drains=offer).pack())
    assert Posted.unpack(store.get(f"{BOX}/1")).drains == expected


def test_a_drain_that_ended_before_the_decision_pins_nothing(tmp_path: pathlib.Path) -> None:
    with ts.open(tmp_path / "a.shelf", "w", size="8MB") as shelf:
        meeting = Meeting(Standing(shelf._core, "nowhere", 0), Drain("nowhere"), 0)
        meeting.rest(0)
        assert meeting.offer(1, 1) == 1
        meeting.end()
        meeting.agreed(1)
        meeting.over()
        pinned = meeting.turn(idle=False)[1] is not None  # the shelf waits for a pin to close
    assert not pinned


def test_a_drain_that_has_not_taken_what_was_agreed_on_is_busy(tmp_path: pathlib.Path) -> None:
    """What is agreed on next would take the place of that, on this rank alone."""
    with ts.open(tmp_path / "a.shelf", "w", size="8MB") as shelf:
        meeting = Meeting(Standing(shelf._core, "nowhere", 0), Drain("nowhere"), 0)
        meeting.rest(0)
        assert meeting.offer(1, 1) == 1
        meeting.agreed(1)
        meeting.over()
        offered = meeting.offer(2, 2)
        agreed = meeting.turn(idle=False)[1]
        floor = None if agreed is None else agreed.floor
        del agreed  # and with it the pin, for which the shelf waits to close
    assert (offered, floor) == (BUSY, 1)


def test_a_drain_does_nothing_else_between_its_offer_and_the_decision(
    tmp_path: pathlib.Path,
) -> None:
    with ts.open(tmp_path / "a.shelf", "w", size="8MB") as shelf:
        meeting = Meeting(Standing(shelf._core, "nowhere", 1), Drain("nowhere"), 1)
        meeting.rest(0)
        assert meeting.offer(1, 1) == 1
        assert meeting.turn(idle=False) == (False, None)
        meeting.over()
        assert meeting.turn(idle=False) == (True, None)


class Unpinned:
    """A shelf of which nothing can be pinned."""

    version = 3

    def pin(self, version: int, copies: bool) -> None:
        assert copies  # a save that needs its slot waits for the drain
        raise ts.CorruptError(f"version {version} is damaged", "Look at the drive.")


def test_what_cannot_be_pinned_is_passed_over(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ts.open(tmp_path / "a.shelf", "w", size="8MB") as shelf:
        standing = Standing(shelf._core, "nowhere", 0)
        monkeypatch.setattr(standing, "opened", Unpinned)
        meeting = Meeting(standing, Drain("nowhere"), 0)
        meeting.rest(0)
        meeting.offer(1, 1)
        meeting.agreed(1)  # the group's thread goes on with saves
        meeting.over()
        assert meeting.offer(2, 2) == 2  # it is free for the next one
        meeting.over()
        assert meeting.turn(idle=False)[1] is None
    assert "version 3 is damaged" in caplog.text
