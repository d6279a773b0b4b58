"""What a rank does at the place that it drains to, one thing behind the other."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from drain_remotes import Remote, use
from test_drain_group_crash import Job, parts_of, whole

import tensorshelf as ts
from tensorshelf._drain.catalog import joints_at

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Remote:
    made = Remote()
    use(monkeypatch, made)
    return made


@pytest.fixture
def shelves(tmpfs: pathlib.Path) -> Iterator[list[ts.Shelf]]:
    with ts.open(tmpfs / "0.shelf") as one, ts.open(tmpfs / "1.shelf") as other:
        yield [one, other]


def begun(folder: pathlib.Path, shelves: list[ts.Shelf], *play: Any, **options: Any) -> Job:
    job = Job(folder, shelves, **options)
    for rank in (0, 1):
        job.begin(rank)
    for rank, *what in play:
        job.act(rank, *what)
    return job


@contextlib.contextmanager
def waits_raise(site: Any, error: Exception) -> Iterator[None]:
    """Between what all have put and its name."""

    def wait(nbytes: int) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(site, "_wait", wait)
        yield


def steps_of(remote: Remote, rank: int) -> list[int | None]:
    return [part.step for part in parts_of(remote.now(), rank)]


def versions(remote: Remote) -> list[int | None]:
    return [entry.manifest.step for entry in joints_at(remote).look()]


def test_a_part_that_was_overtaken_is_told_when_it_is_a_version(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], remote: Remote
) -> None:
    job = begun(tmpfs, shelves, (0, "put", 1), (1, "put", 1), (1, "put", 2), (0, "look"))
    made, _ = job.sites[1].look()
    assert [each.step for each in made] == [1]
    assert job.sites[1].pending is not None  # step 2, which waits for rank 0's
    assert job.sites[1].look() == ([], ())


def test_a_rank_collects_again_behind_rank_0(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], remote: Remote
) -> None:
    puts = [(0, "put", 2), (1, "put", 2)]
    job = begun(tmpfs, shelves, *whole(1), *puts, (0, "look"), (1, "look"), keep=1)
    assert versions(remote) == [1, 2]
    assert not job.sites[1].collect()  # rank 0 still names step 1, and what that is made of stays
    assert steps_of(remote, 1) == [1, 2]
    assert job.sites[0].collect()
    assert job.sites[1].collect()
    assert steps_of(remote, 1) == [2]
    assert versions(remote) == [2]


@pytest.mark.parametrize("lost", [False, True])
def test_a_part_of_a_shelf_that_was_lost_is_not_waited_for(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], remote: Remote, lost: bool
) -> None:
    begun(tmpfs, shelves, *whole(1), (1, "put", 2))
    with ts.open(tmpfs / "new.shelf") as new:
        job = begun(tmpfs, [shelves[0], new if lost else shelves[1]])
        assert (job.sites[1].pending is None) == lost


def test_who_was_given_up_names_nothing(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], remote: Remote
) -> None:
    site = begun(tmpfs, shelves, (0, "put", 1), (1, "put", 1)).sites[0]
    given_up = ts.StaleError("given up", "Open it again.")
    with waits_raise(site, given_up), pytest.raises(ts.StaleError):
        site.look()
    assert versions(remote) == []


def test_a_part_that_was_seen_and_is_gone_is_not_named(
    tmpfs: pathlib.Path, shelves: list[ts.Shelf], remote: Remote
) -> None:
    site = begun(tmpfs, shelves, (0, "put", 1), (1, "put", 1)).sites[0]
    failed = ts.errors.IoError("the remote failed", "Try again.")
    with waits_raise(site, failed), pytest.raises(ts.errors.IoError):
        site.look()
    for path in [path for path in remote.now() if path.startswith("rank-1/manifests/")]:
        remote.delete([path])
    remote.settle()
    site.failed()
    assert site.look() == ([], (1,))
    assert versions(remote) == []
