"""Ranks that die between their votes and the decision, and what the next start makes of that."""

import socket
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, Ranks, damage, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import member, offer, together  # noqa: E402
from tensorshelf._group.part import Part, part_of_mark  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def two(tmp_path):
    return Ranks(tmp_path, 2)


def left_undecided(
    ranks: Ranks, monkeypatch, *, who_votes: set[int], at: int, apart: int = 0
) -> list[Any]:
    """No decision on that step is heard of; these have their parts of it prepared, each rank's of
    a step so much further than that of the rank before.
    """
    heard = member.decision_key
    monkeypatch.setattr(
        member,
        "decision_key",
        lambda number, rank: f"never/{number}/{rank}" if number == at else heard(number, rank),
    )

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            first = auto.resume()
            for number in range(first + 1, at):
                rank.step(auto, number)
            auto.wait()
            if rank.rank in who_votes:
                rank.step(auto, at + apart * rank.rank)
            try:
                auto.close()
            except ts.ShelfError as error:
                return error, shelf.prepared

    found = ranks.run(body, timeout=0.5)
    monkeypatch.undo()
    return found


def test_what_all_had_prepared_is_committed_by_the_next_start(two, monkeypatch):
    for error, prepared in left_undecided(two, monkeypatch, who_votes={0, 1}, at=3):
        assert type(error) is ts.errors.UnresolvedError
        assert "step 3" in str(error)
        assert "timeout" in error.remedy
        where = f"{two.path(part_of_mark(prepared.id).rank)} on {socket.gethostname()}"
        assert f"in {where}, is prepared" in error.remedy
        assert prepared.step == 3
        assert part_of_mark(prepared.id).number == 3
    assert two.shelves() == [(2, 2.0), (2, 3.0)]
    assert two.run(trained(0)) == [(3, 3.0), (3, 4.0)]
    assert two.shelves() == [(3, 3.0), (3, 4.0)]


def test_what_cannot_be_committed_without_a_copy_stays_prepared(two, monkeypatch):
    """That one rank has abandoned what the other has committed would be told by nobody."""
    left_undecided(two, monkeypatch, who_votes={0, 1}, at=3)
    resolve = ts.Shelf.resolve

    def damaged(self, decision):
        if "run.1." in self._path and decision == "commit":
            raise ts.CorruptError("a page is damaged", "Put it back.")
        return resolve(self, decision)

    with monkeypatch.context() as patched:
        patched.setattr(ts.Shelf, "resolve", damaged)
        patched.setattr(together, "MOMENT", 0.1)
        own = two.run(resumed_alone, timeout=0.5)[1]
    assert type(own) is ts.CorruptError
    with ts.open(two.path(1), "r") as shelf:
        assert (shelf.step, shelf.prepared.step) == (2, 3)
    assert two.run(trained(0)) == [(3, 3.0), (3, 4.0)]


def resumed_alone(rank: Rank) -> int:
    with rank.open() as shelf:
        return rank.autosave(shelf).resume()


def test_damage_far_behind_in_what_is_prepared_is_found(tmp_path, monkeypatch):
    """It is read piece by piece."""
    monkeypatch.setattr(offer, "_ROOM_BYTES", 1 << 20)
    values = np.arange(5 << 16)  # two pieces and a half
    path = tmp_path / "a.shelf"
    found = []
    for at in (None, 0, 1 << 17, 5 << 15):
        with ts.open(path, "w", size="64MiB") as shelf:
            shelf["values"] = values
            shelf.prepare(id=Part("j", 0, 1, 1, 1).mark())
        if at is not None:
            damage(path, values[at:])
        with ts.open(path, "a") as shelf:
            found.append(offer.held(shelf._core, str(path)).damaged)
    assert found == [False, True, True, True]


def test_what_one_had_not_prepared_is_dropped_by_the_next_start(two, monkeypatch):
    left_undecided(two, monkeypatch, who_votes={1}, at=3)
    with ts.open(two.path(1), "r+") as shelf:
        assert shelf.prepared.step == 3
    assert two.run(trained(0)) == [(2, 2.0), (2, 3.0)]
    with ts.open(two.path(1), "r+") as shelf:
        assert shelf.prepared is None


def test_parts_of_different_steps_are_dropped_by_the_next_start(two, monkeypatch):
    """The coordinator aborts what is of different steps, and all die before they hear of it."""
    for rank, (_, prepared) in enumerate(
        left_undecided(two, monkeypatch, who_votes={0, 1}, at=3, apart=1)
    ):
        assert prepared.step == 3 + rank
        assert part_of_mark(prepared.id).number == 3
    assert two.run(trained(1)) == [(2, 3.0), (2, 4.0)]
    assert two.shelves() == [(3, 3.0), (3, 4.0)]


def test_what_one_had_committed_the_others_follow(two, monkeypatch):
    left_undecided(two, monkeypatch, who_votes={0, 1}, at=3)
    with ts.open(two.path(0), "r+") as shelf:
        shelf.resolve("commit")
    assert two.run(trained(1)) == [(3, 4.0), (3, 5.0)]


def test_a_start_that_was_cut_short_begins_again(two, monkeypatch):
    left_undecided(two, monkeypatch, who_votes={0, 1}, at=3)

    def cut(*_: object, **more: object) -> None:
        raise RuntimeError("cut short")

    monkeypatch.setattr(member.Member, "__init__", cut)  # behind resolving
    assert [str(each) for each in two.run(trained(0))] == ["cut short"] * 2
    monkeypatch.undo()
    assert two.run(trained(1)) == [(3, 4.0), (3, 5.0)]


def test_a_start_that_left_nothing_committed_is_an_older_one(two, monkeypatch):
    """The shelves' versions would be in another order than their generations."""
    monkeypatch.setattr("tensorshelf._group.agree.secrets.randbits", lambda bits: 2**bits - 1)
    found = left_undecided(two, monkeypatch, who_votes={0, 1}, at=1)
    begun = {part_of_mark(prepared.id).generation for _, prepared in found}
    monkeypatch.setattr("tensorshelf._group.agree.secrets.randbits", lambda bits: 0)
    two.run(trained(1))
    with ts.open(two.path(0), "r") as shelf:
        assert shelf.step == 2
        assert shelf.load("group")["group"]["generation"] > max(begun)


def test_an_older_start_is_not_heard_of(two):
    generations = []
    for _ in range(3):
        two.run(trained(1))
        with ts.open(two.path(0), "r") as shelf:
            generations.append(shelf.load("group")["group"]["generation"])
    assert generations == sorted(set(generations))
