"""What ranks go on from when they start, and which starts are refused."""

import contextlib
import socket
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, Ranks, damage, trained  # noqa: E402
from test_group_deaths import left_undecided  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import member  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def suppressed(call):
    def body():
        with contextlib.suppress(ts.ShelfError):
            call()

    return body


@pytest.fixture
def two(tmp_path):
    return Ranks(tmp_path, 2)


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


def test_the_store_of_an_older_start_serves_the_next(two, monkeypatch):
    """What that agreed on was for other parts: rank 1 would commit by it what rank 0 has not. A
    launcher that starts a job anew in place goes on with one store.
    """
    older = torch.distributed.HashStore()

    def body(rank: Rank):
        rank.group._store, rank.group._number = older, 1000
        with rank.open() as shelf:
            return rank.autosave(shelf).resume()

    left_undecided(two, monkeypatch, who_votes={0, 1}, at=3)
    assert two.run(body) == [3, 3]  # agreed to commit
    left_undecided(two, monkeypatch, who_votes={1}, at=4)
    assert two.run(body) == [3, 3]
    assert [first for first, _ in two.run(trained(0))] == [3, 3]


def test_a_resume_that_a_rank_did_not_come_to_is_no_start(two):
    """That rank comes to the next, which is its first."""
    alone = threading.Event()

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            if rank.rank == 0:
                rank.group.timeout = 0.2
                with pytest.raises(ts.UnresolvedError, match="did not come"):
                    auto.resume()
                rank.group.timeout = 30.0
                alone.set()
            assert alone.wait(30)
            first = auto.resume()
            rank.step(auto, first + 1)
            auto.close()
            return shelf.step

    assert two.run(body, timeout=30) == [1, 1]


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
        assert "1 of 3 ranks did not come: 1" in str(error)


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


def test_ctrl_c_while_a_second_resume_waits_leaves_an_end_that_does_not_wait(two, monkeypatch):
    closes = member.Member.close

    def interrupted(self, seconds, wire):
        if not interrupts:
            interrupts.append(seconds)
            raise KeyboardInterrupt
        return closes(self, seconds, wire)

    interrupts: list[float] = []
    monkeypatch.setattr(member.Member, "close", interrupted)
    gone = threading.Event()

    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            if rank.rank == 1:
                gone.wait(30)  # it votes for nothing
                return
            rank.step(auto, 1)
            with pytest.raises(KeyboardInterrupt):
                auto.resume()
            with pytest.raises(ts.UnresolvedError, match="wait for the others"):
                auto.resume()
            ends = threading.Thread(target=suppressed(auto.close), daemon=True)
            ends.start()
            ends.join(20)
            gone.set()
            assert not ends.is_alive()

    for error in two.run(body, timeout=0.5):
        assert error is None
