"""Ranks that leave a group, saves that end, and what is told of both."""

import contextlib
import datetime
import gc
import socket
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, Ranks, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf import _core  # noqa: E402
from tensorshelf._auto.flight import Flight  # noqa: E402
from tensorshelf._group import coordinate, member, station, together, wire  # noqa: E402
from tensorshelf._group.part import Part  # noqa: E402
from tensorshelf._group.posted import LEAVES, Posted, decision_key  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def two(tmp_path):
    return Ranks(tmp_path, 2)


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


def test_a_second_rank_that_leaves_is_told_to_nobody():
    """Whoever heard of the first takes no decision any more: it would lie in the store for good."""
    store = torch.distributed.HashStore()
    made = coordinate.Coordination(
        wire.Wire(store, ""), _core.Coordinator(3, (1, 5)), [[0], [1], [2]]
    )
    no = _core.GroupMessageKind.no
    for rank, number in ((1, 6), (2, 6), (0, 7)):
        vote = _core.GroupMessage(no, (1, number), rank, b"closed")
        made.take(Posted(vote, LEAVES).pack())
    told = [store.check([decision_key(number, 0)]) for number in (6, 7, 8)]
    assert told == [True, False, False]


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


def test_what_failed_at_the_decision_is_not_drained(two, monkeypatch, tmp_path):
    resolve, agreed = member.Member._resolve, []

    def failing(self, *, commit):
        if self._rank == 1 and self.committed[0] == 1:
            raise ts.errors.IoError("the drive failed", "Look at it.")
        return resolve(self, commit=commit)

    monkeypatch.setattr(member.Member, "_resolve", failing)

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain(tmp_path / "remote", timeout=1.0))
            auto.resume()
            drains = auto._commits._started.member._drains
            agree = drains.agreed

            def noted(number):
                agreed.append((rank.rank, shelf.step))
                agree(number)

            drains.agreed = noted
            for step in (1, 2):
                rank.step(auto, step)
                with contextlib.suppress(ts.ShelfError):
                    auto.wait()
                if step == 1:
                    assert auto.drain.wait(60)
                    end = time.monotonic() + 60
                    while drains._floor is None:  # its thread is not free yet
                        assert time.monotonic() < end

    two.run(body)
    assert sorted(agreed) == [(0, 1), (0, 2), (1, 1)]


def waited(rank: Rank) -> Exception | int | None:
    """What a first save came to: the error of wait(), or the step."""
    with rank.open() as shelf:
        auto = rank.autosave(shelf, on_error="raise")
        auto.resume()
        rank.step(auto, 1)
        try:
            auto.wait()
        except ts.ShelfError as error:
            return error
        return shelf.step


def test_no_rank_votes_for_a_save_of_another_epoch(two, monkeypatch):
    """Not by an assert: there is none under ``python -O``."""
    submit = member.Member.submit

    def misplaced(self, save):
        if self._rank == 0:
            save.part = save.part._replace(number=save.part.number + 1)
        submit(self, save)

    monkeypatch.setattr(member.Member, "submit", misplaced)
    first, other = two.run(waited, timeout=1)
    assert isinstance(first, ts.UnresolvedError)
    assert "rank 0 is at epoch" in str(first)
    assert "a bug of tensorshelf" in str(first)
    assert isinstance(other, ts.UnresolvedError)  # nobody has it
    monkeypatch.undo()
    with ts.open(two.path(1), "r") as shelf:
        assert shelf.step is None


def test_what_was_not_committed_is_not_told_to_be(two, monkeypatch):
    resolve = member.Member._resolve

    def unheard(self, *, commit):
        return None if self._rank == 1 else resolve(self, commit=commit)

    monkeypatch.setattr(member.Member, "_resolve", unheard)
    step, error = two.run(waited, timeout=1)
    assert step == 1
    assert isinstance(error, ts.UnresolvedError)
    assert "had nothing to commit: that is a bug of tensorshelf" in str(error)
    monkeypatch.undo()
    assert [first for first, _ in two.run(trained(0))] == [1, 1]


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


class Interrupted:
    """What a rank's thread has its saves from: Ctrl-C comes as one is put there, before that, while
    the thread has begun with it, or behind that.
    """

    def __init__(self, saves: Any, when: str) -> None:
        self._saves, self._when, self._puts = saves, when, 0
        self._again = threading.Event()

    def get(self) -> Any:
        save = self._saves.get()
        if save is not None and save.step == 3 and self._when == "meanwhile":
            self._again.wait(30)
        return save

    def put(self, save: Any) -> None:
        if save is None or save.step != 3:
            self._saves.put(save)
            return
        self._puts += 1
        if self._puts == 1 and self._when == "before":
            raise KeyboardInterrupt
        self._saves.put(save)
        if self._puts > 1:
            self._again.set()
            return
        if self._when == "behind":
            save.wait_settled()
        raise KeyboardInterrupt


@pytest.mark.parametrize("when", ["before", "meanwhile", "behind"])
def test_ctrl_c_as_a_save_is_handed_over_loses_nothing(two, when):
    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            thread = auto._commits._started.member
            if rank.rank == 0:
                thread._saves = Interrupted(thread._saves, when)
            told = []
            for number in range(1, 7):
                try:
                    rank.step(auto, number)
                except KeyboardInterrupt as error:
                    told.append((number, type(error)))
            auto.wait()
            thread.wait_decided()
            auto.close()
            return told, shelf.step, thread._under_way

    assert two.run(body) == [([(3, KeyboardInterrupt)], 6, []), ([], 6, [])]


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
    feed: Any = SimpleNamespace(
        save=lambda *_: next(begun), note=lambda _: None, taken=lambda: None, lost=lambda: None
    )
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
