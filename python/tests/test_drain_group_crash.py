"""Two ranks that drain to one place die at any change of it, both or one alone: what lies there is
a whole version of both, never older than what was told, and the next job goes on from there."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from drain_remotes import Below, Crash, Remote, fresh_names, use

import tensorshelf as ts
from tensorshelf._drain import joint, roll
from tensorshelf._drain.catalog import joints_at, manifests_at
from tensorshelf._drain.options import Drain
from tensorshelf._drain.rank_site import RankSite
from tensorshelf._drain.stage import Spool
from tensorshelf._group.part import Part

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

# What ranks do, one thing behind the other: (0, "put", 3) puts rank 0's part of step 3, "look" sees
# whether it is a version by now, "collect" deletes what need not stay.
Play = list[tuple[Any, ...]]


def whole(step: int) -> Play:
    """Both put it, and it becomes a version."""
    puts: Play = [(0, "put", step), (1, "put", step)]
    return [*puts, (0, "look"), (0, "collect"), (1, "look"), (1, "collect")]


PLAYS: dict[str, Play] = {
    "in step": [*whole(1), *whole(2), *whole(3)],
    "rank 1 is slow": [
        (0, "put", 1),
        (0, "look"),
        (1, "put", 1),
        (0, "look"),
        (0, "put", 2),
        (0, "collect"),
        (1, "look"),
        (1, "put", 2),
        (1, "collect"),
        (0, "look"),
        (0, "collect"),
        (1, "look"),
        (1, "collect"),
    ],
    "rank 0 is slow": [
        *whole(1),
        (1, "put", 2),
        (1, "look"),
        (0, "put", 2),
        (1, "collect"),
        (0, "look"),
        (1, "look"),
        (1, "collect"),
        (0, "collect"),
        (1, "collect"),
    ],
    "they skip different ones": [
        *whole(1),
        (0, "put", 2),
        (0, "look"),
        (1, "put", 3),  # by itself, for somebody waits
        (1, "collect"),
        (0, "floor", 4),
        (1, "floor", 4),
        *whole(4),
    ],
}


class Job:
    """One start of both."""

    def __init__(self, folder: pathlib.Path, shelves: list[ts.Shelf], **options: Any) -> None:
        self._folder = folder
        self._shelves = shelves
        drain = Drain("nowhere", threads=1, **options)
        self.sites = [_site(drain, shelf, rank) for rank, shelf in enumerate(shelves)]
        self.told = 0

    def begin(self, rank: int) -> None:
        self._tell(self.sites[rank].begin())

    def act(self, rank: int, what: str, step: int = 0) -> None:
        site, shelf = self.sites[rank], self._shelves[rank]
        if what == "put":
            save(shelf, rank, step)
            spool = Spool(str(self._folder))
            try:
                site.ready()
                site.put(site.stage(shelf._core, shelf.version, spool), spool, abs(step - 2))
            finally:
                spool.close()
        elif what == "look":
            for made in site.look()[0]:
                self._tell(made)
        elif what == "floor":
            site.floor = step
        else:
            site.collect()

    def _tell(self, made: Any) -> None:
        self.told = max(self.told, 0 if made is None else made.step)


def _site(drain: Drain, shelf: ts.Shelf, rank: int) -> RankSite:
    def nothing(nbytes: int) -> None: ...

    return RankSite(
        drain, shelf.info().shelf_id, rank, 2, wait=nothing, on_read=nothing, on_sent=nothing
    )


def save(shelf: ts.Shelf, rank: int, step: int) -> None:
    part = Part("job", rank, 2, 1, step)
    values = np.full(1000, 10 * step + rank)  # two pieces
    shelf.save({"group": part.state(), "values": values, "frozen": np.arange(600)}, step=step)


@pytest.fixture
def shelves(tmpfs: pathlib.Path) -> Iterator[list[ts.Shelf]]:
    with ts.open(tmpfs / "0.shelf") as one, ts.open(tmpfs / "1.shelf") as other:
        yield [one, other]


def played(job: Job, play: Play, dies: int | None = None, remote: Remote | None = None) -> None:
    """``dies``: that rank alone does, at the first change from ``crash_at`` on that it makes."""
    dead = False
    for rank, *what in [(0, "begin"), (1, "begin"), *play]:
        if dead and rank == dies:
            continue
        if remote is not None:
            remote.may_crash = rank == dies
        try:
            job.begin(rank) if what == ["begin"] else job.act(rank, *what)
        except Crash:
            if remote is None:
                raise
            dead = True
        if remote is not None:
            check(remote.now(), None, job.told)


class OneDies(Remote):
    """The changes of one rank fail."""

    may_crash = True

    def _change(self) -> None:
        number, self.changes = self.changes, self.changes + 1
        if self.may_crash and self.crash_at is not None and number >= self.crash_at:
            raise Crash


def check(objects: dict[str, bytes], paths: Iterator[str] | None, told: int) -> None:
    """What is listed is whole, for both; with ``paths`` it is fetched."""
    remote = Remote(objects)
    joints = joints_at(remote).look()
    assert max((each.manifest.step or 0 for each in joints), default=0) >= told
    for entry in joints:
        for rank, part in enumerate(entry.manifest.parts):
            path = f"rank-{rank}/{part.name.path}"
            assert path in objects, f"{path} lacks"
    for rank in (0, 1):
        for manifest in parts_of(objects, rank):
            for stored in manifest.stored:
                assert f"rank-{rank}/{stored.path}" in objects
    if paths is None or not joints:
        return
    for entry in {joints[0].name: joints[0], joints[-1].name: joints[-1]}.values():
        for rank in (0, 1):
            path = next(paths)
            ts.fetch("nowhere", path, rank=rank, step=entry.manifest.step)
            with ts.open(path, "r") as shelf:
                assert shelf.step == entry.manifest.step
                expected = 10 * (shelf.step or 0) + rank
                assert (shelf.load("values")["values"] == expected).all()
            pathlib.Path(path).unlink()


def parts_of(objects: dict[str, bytes], rank: int) -> list[Any]:
    looked = manifests_at(Below(Remote(objects), f"rank-{rank}")).look()
    return [entry.manifest for entry in looked]


@pytest.mark.parametrize("name", PLAYS)
@pytest.mark.parametrize("options", [{}, {"keep": 2, "keep_every": 2}])
def test_both_die_at_each_change(
    tmpfs: pathlib.Path,
    shelves: list[ts.Shelf],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    options: dict[str, Any],
) -> None:
    play, names = PLAYS[name], fresh_names(tmpfs)
    crash_at, total, seen = 0, 1, set()
    while crash_at < total:
        remote = Remote()
        remote.crash_at = crash_at if total > 1 else None
        use(monkeypatch, remote)
        job = Job(tmpfs, shelves, **options)
        if total == 1:
            played(job, play)
            total = remote.changes
            ended(remote.now())
            continue
        with pytest.raises(Crash):
            played(job, play)
        for objects in remote.images():
            key = (job.told, tuple(sorted(objects)))
            if key not in seen:
                seen.add(key)
                use(monkeypatch, Remote(objects))
                check(objects, names if len(seen) % 5 == 0 else None, job.told)
        if crash_at % 3 == 0:
            goes_on(monkeypatch, tmpfs, shelves, remote.now(), job.told, options)
        crash_at += 1
    print(f"{crash_at} crashes, {len(seen)} images")
    assert crash_at > 20


def ended(objects: dict[str, bytes]) -> None:
    """Every part there is named, and every piece."""
    named = [entry.manifest.parts for entry in joints_at(Remote(objects)).look()]
    for rank in (0, 1):
        start = f"rank-{rank}/"
        paths = {f"{start}{parts[rank].name.path}" for parts in named}
        assert {path for path in objects if path.startswith(f"{start}manifests/")} == paths
        pieces = {start + s.path for made in parts_of(objects, rank) for s in made.stored}
        assert {path for path in objects if path.startswith(f"{start}chunks/")} == pieces


def goes_on(
    monkeypatch: pytest.MonkeyPatch,
    folder: pathlib.Path,
    shelves: list[ts.Shelf],
    objects: dict[str, bytes],
    told: int,
    options: dict[str, Any],
) -> None:
    """The next job, which names what both had put, and leaves nothing behind."""
    remote = Remote(objects)
    use(monkeypatch, remote)
    job = Job(folder, shelves, **options)
    played(job, [(0, "floor", 9), (1, "floor", 9), *whole(9)])
    assert job.told == 9
    assert max(told, 9) == joints_at(remote).look()[-1].manifest.step
    ended(remote.now())


@pytest.mark.parametrize("name", PLAYS)
@pytest.mark.parametrize("dies", [0, 1])
def test_one_dies_and_the_other_goes_on(
    tmpfs: pathlib.Path,
    shelves: list[ts.Shelf],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    dies: int,
) -> None:
    alive = Remote()
    use(monkeypatch, alive)
    played(Job(tmpfs, shelves), PLAYS[name])
    for crash_at in range(alive.changes):
        remote = OneDies()
        remote.crash_at = crash_at
        use(monkeypatch, remote)
        job = Job(tmpfs, shelves)
        played(job, PLAYS[name], dies, remote)
        check(remote.now(), fresh_names(tmpfs) if crash_at % 10 == 0 else None, job.told)
        if crash_at % 5 == 0:
            goes_on(monkeypatch, tmpfs, shelves, remote.now(), job.told, {})


class Interrupted(Remote):
    """In the middle of what one rank does the other looks, and then both die."""

    other: Any = None  # what that does
    dead = False

    def _change(self) -> None:
        if self.dead:
            raise Crash
        number, self.changes = self.changes, self.changes + 1
        if number == self.crash_at:
            self.other()
            self.dead = True
            raise Crash


@pytest.mark.parametrize("name", PLAYS)
def test_what_is_seen_and_not_durable_yet_counts_for_nothing(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(roll, "_THREADS", 1)  # the other acts with the remote's lock
    crash_at, remote = 0, Interrupted()
    while not crash_at or remote.dead:
        remote = Interrupted()
        remote.crash_at = crash_at
        use(monkeypatch, remote)
        job = Job(tmpfs, shelves)
        try:
            for rank, *what in [(0, "begin"), (1, "begin"), *PLAYS[name]]:

                def looks(job: Job = job, other: int = 1 - rank) -> None:
                    job.act(other, "look")
                    job.act(other, "collect")

                remote.other = looks
                job.begin(rank) if what == ["begin"] else job.act(rank, *what)
        except Crash:
            for objects in remote.images():
                check(objects, None, job.told)
        crash_at += 1
    assert crash_at > 20


def test_parts_that_a_damaged_object_names_stay(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may mend it; and when it is gone they go."""
    remote = Remote()
    use(monkeypatch, remote)
    played(Job(tmpfs, shelves), whole(1))
    remote.settle()
    (path,) = [path for path in remote.durable if path.startswith("group/")]
    parts = {path for path in remote.now() if "/manifests/" in path}
    remote.durable[path] += b"x"
    job = Job(tmpfs, shelves)
    played(job, whole(2))
    assert parts <= remote.now().keys()
    remote.delete([path])
    for rank, *what in whole(3):
        job.act(rank, *what)
    ended(remote.now())


def test_a_part_that_is_gone_is_not_named(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 knows of those alone that lay there when it looked."""
    remote = Remote()
    use(monkeypatch, remote)
    job = Job(tmpfs, shelves)
    for step in (1, 2, 3):
        played(job, whole(step)) if step == 1 else [job.act(r, *what) for r, *what in whole(step)]
    names = job.sites[0]._names
    assert names is not None
    assert names.roll.call(("job", 2, 1, 1)) == [None, None]
    assert None not in names.roll.call(("job", 2, 1, 3))


def test_an_object_that_names_fewer_parts_than_ranks_is_damaged(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote()
    use(monkeypatch, remote)
    played(Job(tmpfs, shelves), whole(1))
    (entry,) = joints_at(remote).look()
    for parts in (entry.manifest.parts[:1], [*entry.manifest.parts, *entry.manifest.parts[:1]]):
        data = dataclasses.replace(entry.manifest, parts=parts).encode()
        with pytest.raises(ts.CorruptError, match="there is damaged"):
            joint.decode(data, "there")


def test_a_part_that_is_put_twice_is_named_once(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there, and that it is durable could not be told: the rank put it again."""
    remote = Remote()
    use(monkeypatch, remote)
    job = Job(tmpfs, shelves)
    played(job, whole(1))
    save(shelves[0], 0, 2)
    spool = Spool(str(tmpfs))
    staged = job.sites[0].stage(shelves[0]._core, shelves[0].version, spool)
    settle = remote.settle

    def fails(below: str = "") -> None:
        if "/manifests/" in remote.puts[-1]:
            raise ts.errors.IoError("the remote failed", "Try again.")
        settle(below)

    with monkeypatch.context() as patched:
        patched.setattr(remote, "settle", fails)
        with pytest.raises(ts.errors.IoError):
            job.sites[0].put(staged, spool, None)
    first = [path for path in remote.puts if path.startswith("rank-0/manifests/")][-1]
    played_on: Play = [(1, "put", 2), (1, "look")]
    for rank, *what in played_on:
        job.act(rank, *what)
    job.sites[0].put(staged, spool, None)
    spool.close()
    for rank, *what in [(0, "look"), (1, "look"), (0, "collect"), (1, "collect")]:
        job.act(rank, *what)
    assert job.told == 2
    assert first not in remote.now()
    again = Job(tmpfs, shelves)
    again.begin(0)
    assert [each.manifest.step for each in joints_at(remote).look()] == [2]
