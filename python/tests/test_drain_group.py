"""Ranks of a group drain their parts, and fetch what all of them have."""

import pathlib
import threading
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, Ranks

import tensorshelf as ts

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def drained(
    remote: pathlib.Path, steps: list[list[int]], last: int = 6
) -> Callable[[Rank], ts.DrainInfo]:
    """A body: each rank drains the steps that it is told, and at its end what is the newest."""

    def body(rank: Rank) -> ts.DrainInfo:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain(remote))
            first = auto.resume()
            for number in range(first + 1, first + last + 1):
                rank.step(auto, number)
                auto.wait()
                if number in steps[rank.rank]:
                    assert auto.drain.wait()
            assert auto.drain.wait()
            auto.close()
            return auto.drain.info()

    return body


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
    infos = two.run(drained(remote, [[2, 4], [3]]))
    assert [info.step for info in infos] == [6, 6]
    assert sorted(path.name for path in remote.iterdir()) == ["rank-0", "rank-1"]
    assert [(found.step, found.ranks) for found in ts.drained(remote)] == [(6, 2)]
    assert fetched(remote, tmp_path) == [6, 6]
    two.run(drained(remote, [[], []], last=1))
    assert two.shelves() == [(7, 7.0), (7, 8.0)]
    assert ts.drained(remote)[-1].step == 7


def test_fetched_parts_are_merged(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    two.run(drained(remote, [[], []]))
    fetched(remote, tmp_path)
    made = ts.merge([two.path(0), two.path(1)], tmp_path / "whole.shelf")
    assert made.step == 6
    with ts.open(tmp_path / "whole.shelf", "r") as whole:
        assert np.array_equal(whole["values"].numpy(), np.full(1000, 6.0))


def test_what_all_have_stays_until_there_is_a_newer(two: Ranks, tmp_path: pathlib.Path) -> None:
    """Rank 1 is at step 2 while rank 0 has drained 3, 4 and 5."""
    remote = tmp_path / "remote"
    rank_0_is_done = threading.Event()

    def body(rank: Rank) -> None:
        with rank.open() as shelf:
            auto = rank.autosave(shelf, drain=ts.Drain(remote, timeout=0.0))
            auto.resume()
            for number in range(1, 6):
                rank.step(auto, number)
                auto.wait()
                if rank.rank == 0 or number <= 2:
                    assert auto.drain.wait(60)
                if rank.rank == 1 and number == 2:
                    auto.drain._give_up()  # it is stuck from here on
                    auto.drain._thread.join()
            if rank.rank == 0:
                auto.drain.close(60)
                rank_0_is_done.set()
            assert rank_0_is_done.wait(60)
            auto.close()

    assert two.run(body) == [None, None]
    own = [found.step for found in ts.drained(remote / "rank-0")]
    assert own == [2, 3, 4, 5]
    assert [found.step for found in ts.drained(remote)] == [2]
    assert fetched(remote, tmp_path) == [2, 2]
    with pytest.raises(ts.UnknownName):
        ts.fetch(remote, tmp_path / "x.shelf", rank=0, step=5)


def test_a_rank_is_asked_for(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    two.run(drained(remote, [[], []]))
    with pytest.raises(ts.BadArgument, match="Say whose part to fetch"):
        ts.fetch(remote, tmp_path / "x.shelf")
    with pytest.raises(ts.BadArgument, match="nothing of rank 2"):
        ts.fetch(remote, tmp_path / "x.shelf", rank=2)
    assert not (tmp_path / "x.shelf").exists()


def test_of_a_part_alone_nothing_is_fetched(two: Ranks, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    two.run(drained(remote, [[], []]))
    for path in (remote / "rank-1" / "manifests").iterdir():
        path.unlink()
    assert ts.drained(remote) == []
    with pytest.raises(ts.ShelfNotFound):
        ts.fetch(remote, tmp_path / "x.shelf", rank=0)
    assert ts.fetch(remote / "rank-0", tmp_path / "x.shelf").step == 6  # by its own place
