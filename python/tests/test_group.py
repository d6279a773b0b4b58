"""Ranks that save together: all have a version, or none, and a start goes on from one."""

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
from tensorshelf._group import (  # noqa: E402
    coordinate,
    member,
    together,
)
from tensorshelf._group.posted import Posted  # noqa: E402

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


def test_a_third_save_waits_for_the_first_whatever_is_in_flight(two):
    """One that is prepared, and one that is copied behind it: more would find nothing to do."""
    gone_on = threading.Event()

    def body(rank: Rank):
        with rank.open(in_flight=3) as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            if rank.rank == 0:
                rank.group.timeout = 1.0
                for number in (1, 2):
                    rank.step(auto, number)
                with pytest.raises(ts.UnresolvedError):
                    rank.step(auto, 3)
                undecided = rank.group.info().undecided
                rank.group.timeout = 30.0
                gone_on.set()
                return undecided
            assert gone_on.wait(30)
            for number in (1, 2):
                rank.step(auto, number)
            return 2

    assert two.run(body) == [2, 2]


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
        assert coordinate.checked(Posted(vote, of), steps).kind == kind


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
