"""Ranks of a group drain their parts, and fetch what all of them have."""

import pathlib
import shutil
import threading
import time
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("msgpack")

from drain_remotes import Remote, use
from group_ranks import Rank, Ranks, trained

import tensorshelf as ts
from tensorshelf._drain.rank import RankWork
from tensorshelf._drain.rank_site import RankSite

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def drained(
    remote: pathlib.Path, waits: Collection[int] = (), last: int = 6, **options: Any
) -> Callable[[Rank], ts.DrainInfo]:
    """A body: all ranks wait for the drain at these steps, and at their end."""

    def body(rank: Rank) -> ts.DrainInfo:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain(remote, **options))
            first = auto.resume()
            for number in range(first + 1, first + last + 1):
                rank.step(auto, number)
                auto.wait()
                if number in waits:
                    assert auto.drain.wait()
            auto.close()
            return auto.drain.info()

    return body


class OneStuck(Remote):
    """What one rank puts waits."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._start = f"rank-{rank}/"
        self.goes_on = threading.Event()

    def put(self, path: str, data: bytes) -> None:
        if path.startswith(self._start):
            self.waiting.set()
            self.goes_on.wait()
        super().put(path, data)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)  # between two looks


def is_free(auto: ts.Autosave) -> bool:
    """Whether its drain would copy the next version."""
    return auto.drain.meeting._floor is not None


@pytest.fixture
def two(tmp_path: pathlib.Path) -> Ranks:
    return Ranks(tmp_path, 2)


def fetched(remote: pathlib.Path, folder: pathlib.Path, step: int | None = None) -> list[int]:
    """The steps of what both ranks fetch; their shelves go where those of the job were."""
    found = []
    for rank in (0, 1):
        path = folder / f"run.{rank}.shelf"
        path.unlink(missing_ok=True)
        ts.fetch(remote, path, rank=rank, step=step, in_flight=2)
        with ts.open(path, "r") as shelf:
            assert shelf["values"].numpy()[0] == rank + float(shelf.step or 0)
            found.append(shelf.step or 0)
    return found


def test_a_group_goes_on_from_what_was_fetched(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    infos = two.run(drained(remote, [2, 4]))
    assert [info.step for info in infos] == [6, 6]
    assert [info.lagging for info in infos] == [(), None]
    assert sorted(path.name for path in remote.iterdir()) == ["group", "rank-0", "rank-1"]
    assert [(found.step, found.ranks) for found in ts.drained(remote)] == [(6, 2)]
    assert fetched(remote, tmp_path) == [6, 6]
    two.run(drained(remote, last=1))
    assert two.shelves() == [(7, 7.0), (7, 8.0)]
    assert ts.drained(remote)[-1].step == 7


def test_fetched_parts_are_merged(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    two.run(drained(remote))
    fetched(remote, tmp_path)
    made = ts.merge([two.path(0), two.path(1)], tmp_path / "whole.shelf")
    assert made.step == 6
    with ts.open(tmp_path / "whole.shelf", "r") as whole:
        assert np.array_equal(whole["values"].numpy(), np.full(1000, 6.0))


def test_one_object_names_what_stays(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    two.run(drained(remote, range(1, 10), last=9, keep=2, keep_every=4))
    found = ts.drained(remote)
    assert [(each.step, each.milestone) for each in found] == [
        (4, True),
        (8, True),
        (9, False),
    ]
    assert all(each.nbytes > 2 * 8000 for each in found)  # of both
    for rank in (0, 1):
        assert steps_of(remote, rank) == [4, 8, 9]
    assert fetched(remote, tmp_path, step=4) == [4, 4]


def test_the_best_is_by_the_metric_of_rank_0(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"

    def body(rank: Rank) -> None:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain(remote, best="min"))
            auto.resume()
            for number in range(1, 6):
                metric = abs(number - 2) if rank.rank == 0 else abs(number - 4)
                auto.step(number, metric=metric)
                auto.wait()
                assert auto.drain.wait()

    two.run(body)
    assert [(each.step, each.metric) for each in ts.drained(remote)] == [(2, 0.0), (5, 3.0)]
    assert steps_of(remote, 0) == steps_of(remote, 1) == [2, 5]


def steps_of(remote: pathlib.Path, rank: int) -> list[int | None]:
    """Of a rank's own parts, by its own place."""
    return [found.step for found in ts.drained(remote / f"rank-{rank}")]


@pytest.mark.parametrize("slow", [0, 1])
def test_all_drain_the_same_versions_however_slow_one_is(
    two: Ranks, monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    """The slow one is in the middle of version 1 while 2 to 6 are saved."""
    remote = OneStuck(slow)
    use(monkeypatch, remote)
    parts: list[list[int]] = [[], []]
    put = RankSite.put

    def noted(self: RankSite, staged: Any, *rest: Any) -> None:
        parts[staged.group.rank].append(staged.step)
        put(self, staged, *rest)

    monkeypatch.setattr(RankSite, "put", noted)

    def body(rank: Rank) -> ts.DrainInfo:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain("nowhere", keep=9))
            auto.resume()
            until(lambda: is_free(auto))
            for number in range(1, 7):
                rank.step(auto, number)
                auto.wait()
                if number == 1:
                    assert remote.waiting.wait(60)
            if rank.rank == 0:
                until(lambda: auto.drain.info().lagging == (slow,))
                assert ts.drained("nowhere") == []
            both.wait(60)
            remote.goes_on.set()
            until(lambda: auto.drain.info().drained == 1)  # else 6 may overtake it
            auto.close()
            return auto.drain.info()

    both = threading.Barrier(2)
    infos = two.run(body)
    assert parts == [[1, 6], [1, 6]]
    assert [found.step for found in ts.drained("nowhere")] == [1, 6]
    assert [(info.drained, info.skipped, info.step) for info in infos] == [(2, 4, 6)] * 2


def test_who_was_busy_is_named_no_more_once_all_is_drained(
    two: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though no save comes behind that, whose votes would say so."""
    remote = OneStuck(1)
    use(monkeypatch, remote)
    seen = threading.Barrier(2)

    def body(rank: Rank) -> tuple[int, ...] | None:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain("nowhere"))
            auto.resume()
            until(lambda: is_free(auto))
            rank.step(auto, 1)
            auto.wait()
            assert remote.waiting.wait(60)
            rank.step(auto, 2)  # while rank 1 is busy
            auto.wait()
            if rank.rank == 0:
                until(lambda: auto.drain.info().lagging == (1,))
            seen.wait(60)
            remote.goes_on.set()
            assert auto.drain.wait()
            return auto.drain.info().lagging

    assert two.run(body) == [(), None]


def test_a_stuck_rank_holds_up_the_drain_alone(
    two: Ranks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remote = OneStuck(1)
    use(monkeypatch, remote)

    def body(rank: Rank) -> ts.DrainInfo:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain("nowhere", timeout=0.2))
            auto.resume()
            until(lambda: is_free(auto))
            for number in range(1, 21):  # more than the shelf has slots
                rank.step(auto, number)
                auto.wait()
            auto.close()
            return auto.drain.info()

    infos = two.run(body)
    assert [info.version for info in infos] == [None, None]
    assert infos[0].lagging == (1,)
    assert infos[0].lag_versions == 20
    assert "version 20 is not at nowhere, which has none (of ranks 1)" in caplog.text
    assert two.shelves() == [(20, 20.0), (20, 21.0)]
    remote.goes_on.set()


def test_a_part_that_one_has_put_alone_may_be_named_till_it_is_not_pending(
    two: Ranks, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are told by the next version: what is older none will name, and each deletes it."""
    free, decided = threading.Barrier(2), threading.Event()
    looks = RankWork._looks_at
    monkeypatch.setattr(  # who looks is busy
        RankWork, "_looks_at", lambda self, now: decided.is_set() and looks(self, now)
    )

    def body(rank: Rank) -> int:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain(tmp_path / "remote", every=3))
            auto.resume()
            for number in (1, 2, 3):
                rank.step(auto, number)
                auto.wait()
                if (number, rank.rank) == (2, 0):
                    assert not auto.drain.wait(0.1)  # rank 1 does not
                    until(lambda: auto.drain.meeting._floor == 2)
                elif number < 3:
                    until(lambda: is_free(auto))
                free.wait(60)
            decided.set()
            assert auto.drain.wait()
            return auto.drain._copier._work._site.floor

    assert two.run(body) == [2, 2]


def test_a_part_of_a_history_that_was_lost_is_not_waited_for(
    two: Ranks, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = OneStuck(1)
    remote.goes_on.set()
    use(monkeypatch, remote)
    two.run(drained("nowhere"))  # type: ignore[arg-type]
    before = [two.path(rank).read_bytes() for rank in (0, 1)]
    remote.goes_on.clear()

    def alone(rank: Rank) -> None:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain("nowhere", timeout=0.1))
            auto.resume()
            rank.step(auto, 7)
            auto.wait()
            if rank.rank == 0:
                until(lambda: auto.drain.info().lagging == (1,))
            put.wait(60)

    put = threading.Barrier(2)
    two.run(alone)
    for rank in (0, 1):
        two.path(rank).write_bytes(before[rank])

    def again(rank: Rank) -> int | None:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain("nowhere", timeout=5.0))
            assert auto.resume() == 6
            until(lambda: is_free(auto))
            return auto.drain.info().on_its_way

    found = two.run(again)
    remote.goes_on.set()
    assert found == [None, None]


def test_the_next_job_names_what_all_had_put(two: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 died before it did; and what two jobs ago was not whole goes."""
    remote = Remote()
    use(monkeypatch, remote)
    two.run(drained("nowhere"))  # type: ignore[arg-type]
    gone = [path for path in remote.now() if path.startswith("group/")]
    remote.delete(gone)
    assert [found.step for found in ts.drained("nowhere")] == [6]  # as all have it
    two.run(lambda rank: resumed(rank))
    assert [path[:6] for path in remote.now() if path not in gone].count("group/") == 1
    assert [found.step for found in ts.drained("nowhere")] == [6]


def resumed(rank: Rank) -> None:
    with rank.open() as shelf:
        auto = rank.autosave(shelf, drain=ts.Drain("nowhere"))
        auto.resume()
        assert auto.drain.wait()
        assert auto.drain.info().sent_bytes == 0


# ---- what is refused


@pytest.mark.parametrize(
    ("drain", "words"),
    [
        (None, "rank 1 has no drain=, and rank 0 Drain(every=1, keep=1, keep_every=None, best="),
        ({"keep": 2}, "rank 1 has Drain(every=1, keep=2, "),
        ({"best": "max"}, "best='max'), and rank 0 Drain(every=1, keep=1, keep_every=None, best='"),
    ],
)
def test_other_options_are_refused(
    two: Ranks, tmp_path: pathlib.Path, drain: dict[str, Any] | None, words: str
) -> None:
    def body(rank: Rank) -> None:
        options: dict[str, Any] | None = {"best": "min"} if rank.rank == 0 else drain
        with rank.open() as shelf:
            made = None if options is None else ts.Drain(tmp_path / "remote", **options)
            rank.autosave(shelf, drain=made).resume()

    for error in two.run(body):
        assert isinstance(error, ts.BadArgument)
        assert words in str(error)


def test_a_rank_is_asked_for(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    two.run(drained(remote))
    with pytest.raises(ts.BadArgument, match="Say whose part to fetch"):
        ts.fetch(remote, tmp_path / "x.shelf")
    with pytest.raises(ts.BadArgument, match="nothing of rank 2"):
        ts.fetch(remote, tmp_path / "x.shelf", rank=2)
    assert not (tmp_path / "x.shelf").exists()


def test_a_part_that_lacks_or_is_damaged_is_told(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    two.run(drained(remote))
    (path,) = (remote / "rank-1" / "manifests").iterdir()
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"step":6', b'"step":7'))
    with pytest.raises(ts.CorruptError, match=r"rank-1/manifests/.* is damaged"):
        ts.fetch(remote, tmp_path / "x.shelf", rank=1)
    other, *_ = (remote / "rank-0" / "manifests").iterdir()
    shutil.copy(other, path)  # whole, and another than the one that is named
    with pytest.raises(ts.CorruptError, match=r"rank-1/manifests/.* is damaged"):
        ts.fetch(remote, tmp_path / "x.shelf", rank=1)
    path.unlink()
    with pytest.raises(ts.CorruptError, match="names a piece that is not there"):
        ts.fetch(remote, tmp_path / "x.shelf", rank=1)
    with pytest.raises(ts.UnknownName, match=r"no version of step 5 lies there.*Those are of.* 6"):
        ts.fetch(remote, tmp_path / "x.shelf", rank=1, step=5)
    assert ts.fetch(remote, tmp_path / "x.shelf", rank=0).step == 6


def test_what_lies_there_without_an_object_of_the_group_is_fetched(
    two: Ranks, tmp_path: pathlib.Path
) -> None:
    """As older releases left it: what all have, and nothing of a part alone."""
    remote = tmp_path / "remote"
    two.run(drained(remote))
    shutil.rmtree(remote / "group")
    assert [(found.step, found.ranks) for found in ts.drained(remote)] == [(6, 2)]
    assert fetched(remote, tmp_path) == [6, 6]
    with pytest.raises(ts.BadArgument, match="nothing of rank 2"):
        ts.fetch(remote, tmp_path / "x.shelf", rank=2)
    for path in (remote / "rank-1" / "manifests").iterdir():
        path.unlink()
    assert ts.drained(remote) == []
    with pytest.raises(ts.ShelfNotFound):
        ts.fetch(remote, tmp_path / "x.shelf", rank=0)
    assert ts.fetch(remote / "rank-0", tmp_path / "x.shelf").step == 6  # by its own place


def test_nobody_drains_before_all_have_agreed(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    two.run(trained(2))

    def body(rank: Rank) -> tuple[bool, int]:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain(remote))
            waited = auto.drain.wait()
            auto.close()
            return waited, auto.drain.info().skipped  # it was not to be drained

    assert two.run(body) == [(True, 0), (True, 0)]
    assert ts.drained(remote) == []


def test_a_floor_holds_once_what_it_came_with_is_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is below may be the pending part, and go with pieces that the next one counts on."""
    puts, put = [], RankSite.put

    def noted(self: RankSite, staged: Any, *more: Any) -> None:
        puts.append((staged.group.number, self.floor))
        put(self, staged, *more)

    monkeypatch.setattr(RankSite, "put", noted)
    Ranks(tmp_path, 2).run(drained(tmp_path / "remote", waits=range(1, 7)))
    assert len(puts) >= 4
    assert all(floor < number for number, floor in puts)
    assert max(floor for _, floor in puts) > 0


@pytest.mark.parametrize(
    ("error", "reads"),
    [
        (ts.StaleError("it was overtaken", "Take the newest."), True),
        (ts.CorruptError("it is damaged", "Look at the drive."), False),
    ],
)
def test_what_was_overtaken_is_no_sign_of_damage(
    tmp_path: pathlib.Path, error: ts.ShelfError, reads: bool
) -> None:
    """A rank that cannot read is busy to all others."""

    def fails(*_: Any) -> None:
        raise error

    work = object.__new__(RankWork)
    work._reads = True
    work._spool_folder = str(tmp_path)
    work._standing = SimpleNamespace(set_on_its_way=lambda version: None, opened=lambda: None)
    work._site = SimpleNamespace(stage=fails)
    with pytest.raises(type(error)):
        work._read(1)
    assert work._reads is reads
