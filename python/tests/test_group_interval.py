"""every="auto" in a group: all ranks save the same steps, by an interval that the slowest needs."""

import contextlib
import random
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, Ranks  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._auto.interval import Interval  # noqa: E402
from tensorshelf._group import member, routes, schedule  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def two(tmp_path):
    return Ranks(tmp_path, 2)


@pytest.fixture
def wishes(monkeypatch):
    """By rank: the interval that it would have at its n-th save, where ranks are threads."""
    here = threading.local()
    found: dict[int, Any] = {}

    def after(self, every, *, load_seconds, alone):
        assert not alone
        if not hasattr(here, "saves"):
            here.saves = 0
        here.saves += 1
        return found[int(threading.current_thread().name)](here.saves)

    monkeypatch.setattr(Interval, "after", after)
    return found


def saved(rank: Rank, steps: int, *, forced: tuple[int, ...] = ()) -> tuple[list[int], int | None]:
    """The steps that were saved, of so many from where the rank resumed, and the shelf's."""
    threading.current_thread().name = str(rank.rank)
    found = []
    with rank.open() as shelf:
        auto = rank.autosave(shelf, every="auto", mtbi=60.0)
        first = auto.resume()
        for step in range(first + 1, first + steps + 1):
            rank.values += 1
            if auto.step(step, force=step in forced) is not None:
                found.append(step)
        auto.wait()
        return found, shelf.step


def test_an_interval_holds_behind_the_second_save_after_it_was_told():
    told = schedule.Schedule()
    assert told.every(0) == 1
    told.told(1, 5)
    told.told(2, 0)  # nothing of it
    told.told(3, 7)
    assert [told.every(begun) for begun in range(2, 7)] == [1, 5, 5, 7, 7]


def test_all_save_at_the_interval_of_the_slowest(two, wishes):
    wishes.update({0: lambda _: 2, 1: lambda _: 5})
    steps = [1, 2, 3, 5, 10, 15, 20]
    assert two.run(lambda rank: saved(rank, 21)) == [(steps, 20)] * 2
    steps = [21, 22, 23, 25, 30]  # each start begins anew
    assert two.run(lambda rank: saved(rank, 13)) == [(steps, 30)] * 2


def test_what_is_saved_anyway_counts_on_all(two, wishes):
    wishes.update({0: lambda _: 5, 1: lambda _: 3})
    steps = [1, 2, 3, 5, 7, 10, 12]
    assert two.run(lambda rank: saved(rank, 12, forced=(7, 12))) == [(steps, 12)] * 2


@pytest.mark.parametrize("relayed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_ranks_that_are_apart_save_the_same_steps(tmp_path, monkeypatch, wishes, seed, relayed):
    """Whatever each would have, which changes, and whoever is ahead."""
    ranks = Ranks(tmp_path, 4)
    if relayed:
        monkeypatch.setattr(routes, "_WORTH", -100)
        ranks.nodes = ["a", "b", "b", "b"]
    for rank in range(4):
        chosen = random.Random(10 * seed + rank)
        wishes[rank] = lambda _, chosen=chosen: chosen.choice((1, 2, 3, 4, 7))
    order = random.Random(seed)
    late = {(order.randrange(4), order.randrange(1, 60)) for _ in range(30)}
    step = ts.Autosave.step

    def delayed(self, n, *, force=False):
        if (int(threading.current_thread().name), n) in late:
            self._commits._started.member._thread.join(0.005)
        return step(self, n, force=force)

    monkeypatch.setattr(ts.Autosave, "step", delayed)
    found = ranks.run(lambda rank: saved(rank, 60))
    assert found == [found[0]] * 4
    steps, last = found[0]
    assert len(steps) < 60
    assert ranks.shelves() == [(last, rank + last) for rank in range(4)]


def test_ranks_measure_and_agree(two):
    """By what they do, without anything patched."""
    found = two.run(lambda rank: saved(rank, 25))
    assert found == [found[0]] * 2
    assert found[0][0][:3] == [1, 2, 3]


def test_who_would_save_at_another_interval_mixes_nothing(two, wishes, monkeypatch):
    wishes.update({0: lambda _: 2, 1: lambda _: 2})
    every = schedule.Schedule.every

    def wrong(self, begun):
        found = every(self, begun)
        return 3 if found == 2 and threading.current_thread().name == "1" else found

    monkeypatch.setattr(schedule.Schedule, "every", wrong)

    def body(rank: Rank):
        threading.current_thread().name = str(rank.rank)
        errors = []
        with contextlib.suppress(ts.ShelfError), rank.open() as shelf:
            auto = rank.autosave(shelf, every="auto", mtbi=60.0)
            auto.resume()
            for step in range(1, 10):
                rank.values += 1
                try:
                    auto.step(step)
                    auto.wait()
                except ts.ShelfError as error:
                    errors.append(error)
        return errors

    for errors in two.run(body, timeout=20):
        assert errors
        assert {type(error) for error in errors} == {ts.errors.GroupError}
        assert "all ranks save the same steps" in str(errors[0])
    assert two.shelves() == [(3, 3.0), (3, 4.0)]


def test_a_start_behind_a_crash_goes_on_from_one_step(two, wishes, monkeypatch):
    """All die when all have prepared, and have heard nothing, while they save every third step."""
    wishes.update({0: lambda _: 3, 1: lambda _: 1})
    do = member.Member._do

    def dies(self, save, todo):
        if save.step == 6:
            raise RuntimeError("the rank dies here")
        do(self, save, todo)

    monkeypatch.setattr(member.Member, "_do", dies)

    def body(rank: Rank):
        with contextlib.suppress(ts.errors.UnresolvedError):
            saved(rank, 8)

    two.run(body, timeout=1)
    assert two.shelves() == [(3, 3.0), (3, 4.0)]
    monkeypatch.setattr(member.Member, "_do", do)
    assert two.run(lambda rank: saved(rank, 7)) == [([7, 8, 9, 12], 12)] * 2


def test_who_could_not_hear_of_the_interval_in_time_saves_with_the_others_again(two, wishes):
    """Steps that it passed meanwhile, and the others saved, are epochs that it votes against."""
    wishes.update({0: lambda saves: 3 if saves < 4 else 1, 1: lambda saves: 3 if saves < 4 else 1})
    unheard = threading.Event()
    settled = threading.Barrier(2)

    def body(rank: Rank):
        threading.current_thread().name = str(rank.rank)
        heard = []
        with rank.open(in_flight=1) as shelf:
            auto = rank.autosave(shelf, every="auto", mtbi=60.0)
            auto.resume()
            for step in (1, 2, 3):
                rank.step(auto, step)
                auto.wait()
            rank.group.timeout = 1.0 if rank.rank == 0 else 30.0
            for step in range(4, 18):
                if (rank.rank, step) == (1, 6):
                    assert unheard.wait(30)
                if (rank.rank, step) == (0, 14):  # it has passed step 13
                    rank.group.timeout = 30.0
                    unheard.set()
                    auto._commits._started.member.wait_decided()
                try:
                    rank.step(auto, step)
                    if rank.rank == 1 or step > 13:
                        auto.wait()
                except ts.ShelfError as error:
                    heard.append((step, type(error)))
                if step == 15:
                    settled.wait(30)
            return heard, shelf.step

    (late, step0), (told, step1) = two.run(body)
    assert [each for each in late if each[0] <= 13] == [
        (step, ts.errors.UnresolvedError) for step in (9, 12, 13)
    ]
    assert [step for step, _ in told] == [9, 12, 13]
    assert {error for _, error in told} == {ts.errors.GroupError}
    assert step0 == step1 == 17
    assert two.shelves() == [(17, 17.0), (17, 18.0)]


def test_what_was_passed_before_a_resume_is_no_epoch_behind_that(two, wishes):
    wishes.update({0: lambda saves: 1, 1: lambda saves: 1})

    def unheard(*, but: int = 0) -> None:
        raise ts.UnresolvedError("nobody voted", "Look for them.")

    def body(rank: Rank) -> tuple[list[int], int | None]:
        threading.current_thread().name = str(rank.rank)
        saved = []
        with rank.open() as shelf:
            auto = rank.autosave(shelf, every="auto", mtbi=60.0)
            auto.resume()
            if rank.rank == 0:
                auto._commits._started.member.wait_decided = unheard
                with pytest.raises(ts.UnresolvedError):
                    auto.step(1)
            auto.resume()
            for step in (1, 2):
                rank.step(auto, step)
                auto.wait()
                saved.append(step)
            return saved, shelf.step

    assert two.run(body) == [([1, 2], 2)] * 2
