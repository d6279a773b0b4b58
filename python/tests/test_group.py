"""Ranks that save together: all have a version, or none, and a start goes on from one."""

import contextlib
import datetime
import gc
import signal
import socket
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, Ranks, damage, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf import _core  # noqa: E402
from tensorshelf._auto.flight import Flight  # noqa: E402
from tensorshelf._group import (  # noqa: E402
    coordinate,
    group_save,
    member,
    moments,
    offer,
    station,
    together,
    wire,
)
from tensorshelf._group.drains import BUSY, NoDrain  # noqa: E402
from tensorshelf._group.part import Part, part_of_mark, part_of_state  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def two(tmp_path):
    return Ranks(tmp_path, 2)


@pytest.mark.parametrize("members", [1, 2, 5])
def test_all_go_on_from_the_last_save_of_all(tmp_path, members):
    ranks = Ranks(tmp_path, members)
    assert ranks.run(trained(4)) == [(0, rank + 4.0) for rank in range(members)]
    assert ranks.run(trained(3)) == [(4, rank + 7.0) for rank in range(members)]
    assert ranks.shelves() == [(7, rank + 7.0) for rank in range(members)]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_each_save_is_a_version_of_every_rank(two, in_flight):
    def body(rank: Rank):
        with rank.open(in_flight=in_flight) as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            versions = []
            for number in range(1, 6):
                rank.values += 1
                versions.append(auto.step(number))
            auto.wait()
            return [(commit.version, commit.step) for commit in versions]

    expected = [(number, number) for number in range(1, 6)]
    assert two.run(body) == [expected, expected]


# ---- who cannot save


def failing(rank: Rank, number: int) -> list[Any]:
    """Rank 1 cannot save that step: what each step() raised, and what there is at the end."""
    with rank.open() as shelf:
        auto = rank.autosave(shelf)
        auto.resume()
        heard = []
        for step in range(1, 6):
            if rank.rank == 1 and step == number:
                auto._run.state["unheard"] = object()  # nothing that can be stored
            try:
                rank.step(auto, step)
                auto.wait()
            except ts.ShelfError as error:
                heard.append((step, error))
            auto._run.state.pop("unheard", None)
        return [*heard, (shelf.step, float(shelf["values"].numpy()[0]))]


@pytest.mark.parametrize("number", [1, 3])
def test_what_one_cannot_save_nobody_saves(two, number):
    (told, end0), (own, end1) = two.run(lambda rank: failing(rank, number))
    assert told[0] == own[0] == number
    assert type(own[1]) is ts.errors.NotStorable
    assert type(told[1]) is ts.errors.GroupError
    assert told[1].rank == 1
    assert told[1].code == "group_aborted"
    assert "rank 1 could not" in str(told[1])
    assert f"step {number}" in str(told[1])
    assert str(own[1]) in str(told[1])
    assert f"{two.path(1)} on {socket.gethostname()})" in str(told[1])
    assert (end0, end1) == ((5, 5.0), (5, 6.0))  # they went on


def test_a_first_save_that_comes_to_nothing_behind_a_step_is_told_and_the_next_is_made(
    two, monkeypatch
):
    """Its tensors are gone, which the plan of the next save has."""
    go_on = threading.Event()
    hear, wait = member.Member._hear, member.Member.wait_decided

    def held_up(self, save, vote, *more):
        if (self._rank, save.step) == (1, 1):
            assert go_on.wait(60)
        hear(self, save, vote, *more)

    def waiting(self, *, but=0):
        if self._rank == 0 and self.undecided():  # as the second save begins
            go_on.set()
        wait(self, but=but)

    monkeypatch.setattr(member.Member, "_hear", held_up)
    monkeypatch.setattr(member.Member, "wait_decided", waiting)

    def body(rank: Rank) -> Any:
        heard = []
        with rank.open(in_flight=1) as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            for step in (1, 2, 3):
                if (rank.rank, step) == (1, 1):
                    auto._run.state["unheard"] = object()  # nothing that can be stored
                try:
                    rank.step(auto, step)
                except ts.ShelfError as error:
                    heard.append((step, type(error)))
                auto._run.state.pop("unheard", None)
            auto.wait()
            return heard, float(shelf["values"].numpy()[0])

    assert two.run(body) == [
        ([(3, ts.errors.GroupError)], 3.0),
        ([(1, ts.errors.NotStorable)], 4.0),
    ]


def test_a_first_save_that_others_refuse_at_once_is_told(two, monkeypatch):
    """Before it is planned, its tensors are gone already."""
    submit = together.Together._submit

    def decided(self, pending):
        save = submit(self, pending)
        save._end.wait(30)
        return save

    monkeypatch.setattr(together.Together, "_submit", decided)
    (told, end), _ = two.run(lambda rank: failing(rank, 1))
    assert told[0] == 1
    assert type(told[1]) is ts.errors.GroupError
    assert end == (5, 5.0)


def test_what_was_aborted_is_not_told_as_committed(two):
    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            if rank.rank == 1:
                auto._run.state["unheard"] = object()  # nothing that can be stored
            with contextlib.suppress(ts.ShelfError):
                rank.step(auto, 2)
                auto.wait()
            return rank.group.info().epoch, rank.group.info().step, shelf.step

    assert two.run(body) == [(1, 1, 1), (1, 1, 1)]


def test_the_version_before_stands_where_the_last_save_fails(two):
    two.run(lambda rank: failing(rank, 5))
    assert two.shelves() == [(4, 4.0), (4, 5.0)]
    assert [start for start, _ in two.run(trained(1))] == [4, 4]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_what_is_not_saved_is_told_though_the_next_save_was_begun(two, monkeypatch, in_flight):
    begun = [threading.Event(), threading.Event()]
    wait_prepared, begin = member.GroupSave.wait_prepared, together.Together.begin

    def torn(self):
        wait_prepared(self)
        if self.step == 3:
            assert all(each.wait(30) for each in begun)
            if self.part.rank == 1:
                raise ts.TornSave("'values' changed", "Look at it.")

    def noted(self, shelf, step):
        if step == 4:  # what becomes of step 3 is not known yet
            begun[self._group.rank].set()
        begin(self, shelf, step)

    monkeypatch.setattr(member.GroupSave, "wait_prepared", torn)
    monkeypatch.setattr(together.Together, "begin", noted)

    def body(rank: Rank):
        with rank.open(in_flight=in_flight) as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            heard = []
            for number in range(1, 6):
                try:
                    rank.step(auto, number)
                    if number != 3:
                        auto.wait()
                except ts.ShelfError as error:
                    heard.append(error)
            return [type(error) for error in heard], str(heard[:1]), shelf.step

    (told, text, step0), (own, _, step1) = two.run(body)
    assert told[0] is ts.errors.GroupError
    assert "at step 3" in text
    assert own[0] is ts.TornSave
    assert step0 == step1 == 5


def test_ranks_that_hear_of_it_at_different_steps_save_the_same_ones(two, monkeypatch):
    """Who hears of a failure at the next step saves that step, as the others do that had not
    heard of it yet. Else all epochs from then on are of different steps.
    """
    wait_prepared, do = member.GroupSave.wait_prepared, member.Member._do
    gone_on = threading.Event()

    def torn(self):
        wait_prepared(self)
        if (self.part.rank, self.step) == (1, 3):
            raise ts.TornSave("'values' changed", "Look at it.")

    def late(self, save, todo):
        if (save.part.rank, save.step) == (0, 3):
            assert gone_on.wait(30)
        do(self, save, todo)

    monkeypatch.setattr(member.GroupSave, "wait_prepared", torn)
    monkeypatch.setattr(member.Member, "_do", late)

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            heard = []
            for number in range(1, 8):
                try:
                    rank.step(auto, number)
                except ts.ShelfError as error:
                    heard.append((number, type(error)))
                if number == 3 and rank.rank == 1:
                    while not auto._flight.has_landed():
                        pass
                if number == 4 and rank.rank == 0:
                    gone_on.set()
                if number != 3 and (number != 4 or rank.rank == 1):
                    try:
                        auto.wait()
                    except ts.ShelfError as error:
                        heard.append((number, type(error)))
            return heard, shelf.step

    (told, step0), (own, step1) = two.run(body, timeout=5)
    assert step0 == step1 == 7
    assert ts.errors.GroupError in [error for _, error in told]
    assert own[0] == (4, ts.TornSave)
    assert max(number for number, _ in (*told, *own)) <= 5  # from then on all is saved


def test_a_torn_part_is_nobodys(two):
    def body(rank: Rank):
        weight = torch.nn.Parameter(torch.zeros(1 << 20))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        with rank.open(in_flight=2) as shelf:
            auto = shelf.autosave(
                group=rank.group,
                signals=(),
                model=torch.nn.ParameterList([weight]),
                optimizer=optimizer,
                pipeline={"check_one_in": 1},
            )
            auto.resume()
            auto.step(1)
            auto.step(2)
            auto.wait()
            heard = None
            with torch.no_grad():
                auto.step(3)
                if rank.rank == 0:
                    weight += 1  # behind the gate's back
            try:
                auto.wait()
            except ts.ShelfError as error:
                heard = error
            return heard, shelf.step

    (own, step0), (told, step1) = two.run(body)
    if own is None or (isinstance(own, ts.TornSave) and told is None):
        assert step0 == step1 == 3  # all was copied before it changed
    else:
        assert isinstance(own, ts.TornSave)
        assert isinstance(told, ts.errors.GroupError)
        assert told.rank == 0
        assert step0 == step1 == 2


def test_ranks_that_save_other_steps_save_nothing(two):
    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            auto.step(1 + rank.rank)
            try:
                auto.wait()
            except ts.ShelfError as error:
                return error, shelf.version

    for error, version in two.run(body):
        assert type(error) is ts.errors.GroupError
        assert "saved step" in str(error)
        assert "all ranks save the same steps" in str(error)
        assert f"rank {error.rank} (" in str(error)
        assert f" could not: it saved step {1 + error.rank}," in str(error)
        assert version == 0


@pytest.mark.parametrize("step", [4, 6])
def test_the_vote_on_an_earlier_or_a_later_step_is_a_no(step):
    steps: dict[int, tuple[int, int]] = {}
    kinds = _core.GroupMessageKind
    for rank, of, kind in ((0, 5, kinds.yes), (1, step, kinds.no), (2, 5, kinds.yes)):
        vote = _core.GroupMessage(kinds.yes, (1, 1), rank, b"")
        assert coordinate.checked(coordinate.with_step(of, vote), steps).kind == kind


def test_who_waits_for_a_slow_rank_in_vain_saves_with_it_again(two):
    """What a rank could not begin is an epoch for it too: else its saves meet others' of other
    steps from then on.
    """
    waited = threading.Event()

    def body(rank: Rank):
        rank.group.timeout = 0.5 if rank.rank == 0 else 30
        with rank.open(in_flight=1) as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            heard = []
            for number in (2, 3, 4):
                if (rank.rank, number) == (1, 2):
                    assert waited.wait(30)
                try:
                    rank.step(auto, number)
                    if number != 2:
                        auto.wait()
                except ts.ShelfError as error:
                    heard.append((number, type(error)))
                    waited.set()
                    rank.group.timeout = 30
            return heard, shelf.step

    assert two.run(body) == [
        ([(3, ts.errors.UnresolvedError)], 4),
        ([(3, ts.errors.GroupError)], 4),
    ]


def test_a_rank_that_leaves_a_save_out_votes_against_it(two):
    """It adds up gradients; and the steps behind it are saved by all again."""

    def body(rank: Rank):
        heard = []
        weight = torch.nn.Parameter(torch.zeros(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        with rank.open() as shelf:
            auto = shelf.autosave(
                group=rank.group,
                signals=(),
                model=torch.nn.ParameterList([weight]),
                optimizer=optimizer,
            )
            auto.resume()
            for number in range(1, 6):
                weight.sum().backward()
                if (rank.rank, number) != (1, 3):
                    optimizer.step()
                    optimizer.zero_grad()
                try:
                    auto.step(number)
                    auto.wait()
                except ts.ShelfError as error:
                    heard.append((number, error))
            return heard, shelf.step

    (told, step0), (own, step1) = two.run(body)
    assert [number for number, _ in told] == [number for number, _ in own] == [3]
    assert type(told[0][1]) is ts.errors.GroupError
    assert "gradients" in str(told[0][1])
    assert type(own[0][1]) is ts.UnsupportedError
    assert step0 == step1 == 5


def test_who_leaves_is_no_more_waited_for(two):
    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            if rank.rank == 1:
                return shelf.step
            errors = []
            for number in (2, 3, 4):
                try:
                    rank.step(auto, number)
                    auto.wait()
                except ts.ShelfError as error:
                    errors.append(error)
            return errors, shelf.step

    (errors, step), other = two.run(body)
    assert [type(error) for error in errors] == [ts.errors.GroupError] * 3
    assert {error.rank for error in errors} == {1}
    where = f"{two.path(1)} on {socket.gethostname()}"
    assert all(f"closed its shelf, or autosave ({where})" in str(error) for error in errors)
    assert step == other == 1


def test_a_save_behind_an_aborted_one_tells_what_aborted_that(two):
    begun = threading.Event()

    def body(rank: Rank):
        heard = []
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            if rank.rank == 1:
                assert begun.wait(30)
                auto._run.state["unheard"] = object()  # nothing that can be stored
            for number in (2, 3):
                try:
                    rank.step(auto, number)
                except ts.ShelfError as error:
                    heard.append(error)
                auto._run.state.pop("unheard", None)
            begun.set()
            try:
                auto.wait()
            except ts.ShelfError as error:
                heard.append(error)
            rank.step(auto, 4)
            auto.wait()
            return heard, shelf.step

    ((told,), step0), (_, step1) = two.run(body)
    assert type(told) is ts.errors.GroupError
    assert "at step 2" in str(told)
    assert not hasattr(told, "__notes__")  # that step 3 was abandoned is no other failure
    assert step0 == step1 == 4


def test_who_leaves_behind_an_aborted_save_is_no_more_waited_for(two):
    """Rank 1, which rank 0 had told that it could not save."""

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            heard = []
            for number in (1, 2)[: 2 - rank.rank]:
                if (rank.rank, number) == (0, 1):
                    auto._run.state["unheard"] = object()  # nothing that can be stored
                try:
                    rank.step(auto, number)
                    auto.wait()
                except ts.ShelfError as error:
                    heard.append(error)
                auto._run.state.pop("unheard", None)
            return heard

    (own, left), (told,) = two.run(body, timeout=5)
    assert type(own) is ts.errors.NotStorable
    assert type(told) is type(left) is ts.errors.GroupError
    assert left.rank == 1
    assert "closed" in str(left)


def test_who_leaves_without_a_vote_on_what_was_aborted_is_no_more_waited_for(two):
    """Its last vote is on an epoch before the one that rank 0 has voted on."""
    voted = threading.Event()

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            if rank.rank == 1:
                assert voted.wait(30)
                return
            auto._run.state["unheard"] = object()  # nothing that can be stored
            with pytest.raises(ts.errors.NotStorable):
                rank.step(auto, 1)
            auto._run.state.pop("unheard")
            rank.step(auto, 2)
            while rank.group.info().awaited != (1,):
                pass
            voted.set()
            with pytest.raises(ts.errors.GroupError, match="rank 1 could not: it has closed"):
                auto.wait()

    assert two.run(body, timeout=10) == [None, None]


# ---- deaths between the votes and the decision


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
        assert f"prepared, in {where}" in error.remedy
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
        patched.setattr(together, "_MOMENT", 0.1)
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

    def cut(*_: object) -> None:
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


# ---- what all go on from


def test_shelves_that_changed_places_are_refused(two):
    two.run(trained(1))
    first, second = two.path(0), two.path(1)
    first.rename(first.with_suffix(".moved"))
    second.rename(first)
    first.with_suffix(".moved").rename(second)
    for error in two.run(trained(1)):
        assert type(error) is ts.BadArgument
        assert "which holds the part of rank 1 of 2" in str(error)


def test_a_lost_shelf_is_told_by_its_rank(two):
    two.run(trained(1))
    two.path(1).unlink()
    for error in two.run(trained(1)):
        assert type(error) is ts.ShelfNotFound
        assert "no shelf that is here has the part of rank 1" in str(error)


def test_a_shelf_put_back_from_a_copy_is_told(two):
    two.run(trained(1))
    copy = two.path(1).read_bytes()
    two.run(trained(1))
    two.path(1).write_bytes(copy)
    for error in two.run(trained(1)):
        assert type(error) is ts.StaleError
        assert "rank 1" in str(error)


def test_a_damaged_shelf_is_told_where_nobody_has_a_copy(two):
    """It is not taken for a lost one, in whose place others would look for copies."""
    two.run(trained(1))
    with ts.open(two.path(1), "r") as shelf:
        record = np.array(shelf["__state__"].numpy(copy=True))
    damage(two.path(1), record)
    for error in two.run(trained(1)):
        assert type(error) is ts.CorruptError
        assert "'__state__'" in str(error)


def test_shelves_of_different_jobs_are_refused(two, tmp_path):
    two.run(trained(1))
    (tmp_path / "other").mkdir()
    other = Ranks(tmp_path / "other", 2)
    other.run(trained(1))
    other.path(1).rename(two.path(1))
    for error in two.run(trained(1)):
        assert type(error) is ts.BadArgument
        assert "different jobs" in str(error)


def test_a_job_of_another_size_is_refused(two, tmp_path):
    two.run(trained(1))
    for error in Ranks(tmp_path, 3).run(trained(1)):
        assert type(error) is ts.BadArgument
        assert "3 ranks" in str(error)


def test_a_run_that_no_group_saved_is_refused(two):
    with ts.open(two.path(1), size="64MiB", in_flight=2) as shelf:
        shelf.save({"values": np.zeros(1000)}, step=1)
    for error in two.run(trained(1)):
        assert type(error) is ts.BadArgument
        assert "no group saved" in str(error)
        assert "run.1.shelf" in str(error)
    host = socket.gethostname()
    assert f"rank 1, {two.path(1)} on {host}: " in str(two.run(trained(1))[0])


def test_what_somebody_else_prepared_stays(two):
    with ts.open(two.path(0), size="64MiB", in_flight=2) as shelf:
        shelf["a"] = np.ones(3)
        shelf.prepare(id="mine")
    own, told = two.run(trained(1))
    for error in (own, told):
        assert type(error) is ts.UnresolvedError
        assert "no group did that" in str(error)
    where = f"rank 0, {two.path(0)} on {socket.gethostname()}: "
    assert where in str(told)
    assert where not in str(own)
    with ts.open(two.path(0), "r+") as shelf:
        assert shelf.prepared.id == b"mine"


def test_the_store_of_an_older_start_is_refused(two, monkeypatch):
    """What that agreed on was for other parts: rank 1 would commit by it what rank 0 has not."""
    older = torch.distributed.HashStore()

    def body(rank: Rank):
        rank.group._store, rank.group._number = older, 1000
        with rank.open() as shelf:
            return rank.autosave(shelf).resume()

    left_undecided(two, monkeypatch, who_votes={0, 1}, at=3)
    assert two.run(body) == [3, 3]  # agreed to commit
    left_undecided(two, monkeypatch, who_votes={1}, at=4)
    for error in two.run(body):
        assert type(error) is ts.BadArgument
        assert "an older start" in str(error)
    assert [first for first, _ in two.run(trained(0))] == [3, 3]


def test_who_does_not_come_is_named(tmp_path):
    def body(rank: Rank):
        if rank.rank == 1:
            return
        with rank.open() as shelf:
            rank.autosave(shelf).resume()

    first, nobody, third = Ranks(tmp_path, 3).run(body, timeout=0.5)
    assert nobody is None
    for error in (first, third):
        assert type(error) is ts.UnresolvedError
        assert "1 of 3 ranks did not say what they hold: 1" in str(error)


def test_a_run_that_is_undecided_is_not_resumed_within_the_job(two, monkeypatch):
    heard = member.decision_key
    monkeypatch.setattr(
        member,
        "decision_key",
        lambda number, rank: f"never/{rank}" if number == 2 else heard(number, rank),
    )

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            rank.step(auto, 2)
            with pytest.raises(ts.UnresolvedError, match="wait for the others"):
                auto.resume()
            return shelf.prepared.step

    assert two.run(body, timeout=0.5) == [2, 2]
    monkeypatch.undo()
    assert [first for first, _ in two.run(trained(0))] == [2, 2]


# ---- beside training


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
            auto._commits._member._wire.take = gone
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
            auto._commits._member._wire.take = gone
            rank.step(auto, 2)
            rank.step(auto, 3)
            go.set()
            for number in (4, 5, 6):
                auto._commits._member._thread.join(0.1)
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
            auto._commits._member._drains = promises
            auto._commits._member._wire.take = gone
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
            auto._commits._member._wire.take = gone
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
            waiting, thread = auto._commits._member._wire, auto._commits._member._thread
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
            thread = auto._commits._member._thread
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
            commits._wire.put = gone
            under_way = list(commits._member._under_way)
            with pytest.raises(ts.UnresolvedError):
                auto.close()
            looked_at.set()
            return [save.done() for save in under_way]

    assert two.run(body, timeout=0.5) == [[True, True], True]


def test_a_rank_that_fails_waits_for_others_a_short_while_alone(two, monkeypatch):
    monkeypatch.setattr(together, "_MOMENT", 0.1)
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


def test_rank_0_stays_till_the_last_has_left(two, monkeypatch):
    """The store may lie at it."""
    put, left = wire.Wire.put, []

    def noted(self, key, value):
        if key == station.ALL_LEFT:
            left.append(self._store.add(self._prefix + station.LEFT, 0))
        put(self, key, value)

    monkeypatch.setattr(wire.Wire, "put", noted)
    two.run(trained(1))
    assert left == [2]


def test_who_saves_on_hears_that_rank_0_has_left(two):
    """Which decides on what others save for as long as they do."""

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            heard = []
            for number in (2, 3, 4)[: 3 * rank.rank]:
                try:
                    rank.step(auto, number)
                    auto.wait()
                except ts.ShelfError as error:
                    heard.append(error)
            return heard

    _, heard = two.run(body, timeout=5)
    assert [(type(error), error.rank) for error in heard] == [(ts.errors.GroupError, 0)] * 3


def test_a_decision_is_waited_for_longer_than_the_store_waits():
    store = torch.distributed.HashStore()
    store.set_timeout(datetime.timedelta(milliseconds=20))
    found: list[bytes] = []
    waiting = wire.Wire(store, "of/")
    thread = threading.Thread(target=lambda: found.append(waiting.take("it")), daemon=True)
    thread.start()
    thread.join(0.5)  # it ends here where the store's time is kept
    wire.Wire(store, "of/").put("it", b"told")
    thread.join(30)
    assert found == [b"told"]


def test_a_run_is_resumed_again_within_a_job(two):
    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            firsts = [auto.resume()]
            rank.step(auto, 1)
            rank.values += 100  # to be forgotten
            firsts.append(auto.resume())
            rank.step(auto, 2)
            auto.close()
            return firsts, float(rank.values[0])

    assert two.run(body) == [([0, 1], 2.0), ([0, 1], 3.0)]


def test_a_lost_group_in_the_middle_of_adding_up_is_told_as_on_error_says(two, monkeypatch, caplog):
    def failing(self, *, commit):
        raise ts.errors.IoError("the drive failed", "Look at it.")

    monkeypatch.setattr(member.Member, "_resolve", failing)

    def body(rank: Rank) -> None:
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with rank.open() as shelf:
            auto = rank.autosave(shelf, model=model, optimizer=optimizer, on_error="warn")
            auto.resume()
            for step in (1, 2):
                model(torch.ones(1, 4)).sum().backward()
                if step == 1:
                    optimizer.step()
                    optimizer.zero_grad()
                auto.step(step)
                auto.wait()

    assert two.run(body, timeout=1) == [None, None]
    assert "the drive failed" in caplog.text


def test_a_medium_that_fails_at_the_decision_is_told(two, monkeypatch):
    resolve = member.Member._resolve

    def failing_once(self, *, commit):
        if self._rank == 1 and self._machine.aborted is None and self._epochs_left == 0:
            raise ts.errors.IoError("the drive failed", "Look at it.")
        self._epochs_left -= 1
        return resolve(self, commit=commit)

    monkeypatch.setattr(member.Member, "_epochs_left", 1, raising=False)
    monkeypatch.setattr(member.Member, "_resolve", failing_once)

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            rank.step(auto, 2)
            try:
                auto.wait()
            except ts.ShelfError as error:
                return error
            return shelf.step

    step, error = two.run(body)
    assert step == 2
    assert "the drive failed" in str(error)
    monkeypatch.undo()
    assert [first for first, _ in two.run(trained(0))] == [2, 2]


def test_behind_a_medium_that_failed_at_the_decision_nothing_is_saved(two, monkeypatch):
    """The next start decides on what is prepared; a save behind that would wait for it for good."""
    resolve = member.Member._resolve

    def failing(self, *, commit):
        if self._rank == 1:
            raise ts.errors.IoError("the drive failed", "Look at it.")
        return resolve(self, commit=commit)

    monkeypatch.setattr(member.Member, "_resolve", failing)

    def body(rank: Rank):
        told = []
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            for number in (1, 2, 3) if rank.rank else (1,):
                try:
                    rank.step(auto, number)
                    auto.wait()
                except ts.ShelfError as error:
                    told.append((number, str(error).partition(".")[0]))
        return told

    own, told = two.run(body, timeout=2)
    assert own == []
    assert told == [(number, "the drive failed") for number in (1, 2, 3)]
    monkeypatch.undo()
    assert [first for first, _ in two.run(trained(0))] == [1, 1]


def test_a_shelf_that_is_let_go_leaves_the_group(two, monkeypatch):
    monkeypatch.setattr(together, "_FAREWELL", 0.1)  # one thread lets both go

    def body(rank: Rank):
        shelf = rank.open()
        auto = rank.autosave(shelf)
        auto.resume()
        rank.step(auto, 1)
        auto.wait()

    assert two.run(body) == [None, None]  # nothing was closed
    gc.collect()
    assert two.run(trained(1)) == [(1, 2.0), (1, 3.0)]


def test_info_says_who_is_awaited(two):
    seen = threading.Event()

    def body(rank: Rank):
        before = rank.group.info()
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 10)
            auto.wait()
            idle = rank.group.info()
            if rank.rank == 1:
                assert seen.wait(30)
            rank.step(auto, 20)
            if rank.rank == 0:
                while rank.group.info().awaited != (1,):
                    pass
                waiting = rank.group.info()
                seen.set()
            auto.wait()
            end = rank.group.info()
        return before, idle, waiting if rank.rank == 0 else None, end

    (before, idle, waiting, end), (_, other, _, _) = two.run(body)
    assert (before.job, before.generation, before.epoch, before.members) == (None, None, 0, 2)
    assert (idle.job, idle.generation) == (other.job, other.generation)
    assert (idle.epoch, idle.step, idle.undecided, idle.awaited) == (1, 10, 0, ())
    assert (waiting.epoch, waiting.step, waiting.undecided) == (1, 10, 1)
    assert (end.epoch, end.step) == (2, 20)
    assert other.awaited is None


def test_rank_0_names_who_has_not_voted(tmp_path):
    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            if rank.rank == 0:
                rank.step(auto, 1)
            try:
                auto.wait()
            except ts.ShelfError as error:
                return error
            finally:
                if rank.rank:
                    told.wait(30)
                told.set()

    told = threading.Event()
    error, *_ = Ranks(tmp_path, 3).run(body, timeout=0.5)
    assert type(error) is ts.UnresolvedError
    host = socket.gethostname()
    assert f"ranks 1, 2 ({host}) have not voted on the save of step 1 for 0.5 s" in str(error)


def test_ctrl_c_behind_the_pipeline_leaves_nothing_undecided(two, monkeypatch):
    submit = together.Together._submit

    def interrupted(self, pending):
        if self._group.rank == 1 and self._begun[1] == 3 and not interrupts:
            interrupts.append(3)
            raise KeyboardInterrupt
        return submit(self, pending)

    interrupts: list[int] = []
    monkeypatch.setattr(together.Together, "_submit", interrupted)

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            for number in range(1, 6):
                with contextlib.suppress(KeyboardInterrupt):
                    rank.step(auto, number)
                auto.wait()
            return shelf.step

    assert two.run(body, timeout=5) == [5, 5]
    assert interrupts == [3]


def test_a_save_ends_once():
    save = member.GroupSave(Part("j", 0, 1, 1, 1), 1, None, timeout=5, awaited=lambda: "nobody has")
    save.ended(ts.TornSave("'values' changed", "Look at it."))
    save.ended(ts.UnresolvedError("nobody voted", "Look at them."))
    with pytest.raises(ts.TornSave):
        save.wait()


def test_a_signal_may_wait_for_what_is_being_waited_for():
    save = member.GroupSave(Part("j", 0, 1, 1, 1), 1, None, timeout=5, awaited=lambda: "nobody has")
    save.ended(ts.TornSave("'values' changed", "Look at it."))
    ended = threading.Event()

    def handler(frame: Any, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is threading.Condition.__enter__.__code__:
            sys.setprofile(None)
            with contextlib.suppress(ts.TornSave):
                save.wait()

    def waits() -> None:
        sys.setprofile(handler)
        with contextlib.suppress(ts.TornSave):
            save.wait()
        sys.setprofile(None)
        ended.set()

    threading.Thread(target=waits, daemon=True).start()
    assert ended.wait(10)


class Told:
    """A save's end, as a Flight hears of it."""

    def __init__(self, error: Exception | None = None, *, done: bool = True) -> None:
        self._error = error
        self._done = done

    def staged(self) -> bool:
        return False

    def done(self) -> bool:
        return self._done

    def wait(self) -> None:
        if self._error is not None:
            raise self._error

    wait_staged = wait


def flight_of(*saves: Told) -> Flight:
    """Each begun behind the one before."""
    begun = iter(saves)
    feed: Any = SimpleNamespace(save=lambda *_: next(begun), note=lambda _: None)
    timeline: Any = SimpleNamespace(waited=lambda *_: None)
    flight = Flight(feed, timeline, deadline=1.0, all_heard=True)
    run: Any = SimpleNamespace(shelf=None, state=None)
    for step, _ in enumerate(saves):
        flight.begin(run, step)
    return flight


def torn(step: int) -> ts.TornSave:
    return ts.TornSave(f"'values' changed at step {step}", "Look at it.")


def test_what_the_gate_met_is_told_once():
    flight = flight_of(Told(torn(1)))
    flight.gate()
    with pytest.raises(ts.TornSave):
        flight.hear()
    flight.hear()
    flight.wait()


def test_all_that_failed_are_heard_though_others_were_begun_behind():
    flight = flight_of(Told(torn(1)), Told(torn(2)), Told(done=False))
    for step in (1, 2):
        with pytest.raises(ts.TornSave, match=f"step {step}"):
            flight.hear()
    flight.hear()


def test_a_wait_tells_of_all_that_failed():
    flight = flight_of(Told(torn(1)), Told(torn(2)), Told())
    with pytest.raises(ts.TornSave, match="step 1") as told:
        flight.wait()
    (note,) = told.value.__notes__
    assert "step 2" in note
    flight.wait()
    flight.hear()


# ---- what is refused


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


def test_torchrun_starts_a_job_anew_over_one_store(monkeypatch):
    prefixes = set()
    for job, restarts in (("a", "0"), ("a", "1"), ("b", "0")):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", job)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        group = ts.Group(torch.distributed.HashStore(), rank=0, members=1)
        prefixes.add(group._take(group.info).rpartition("/")[0])
    assert len(prefixes) == 3


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
    monkeypatch.setattr(group_save, "_TELL_AFTER", 0.1)
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
