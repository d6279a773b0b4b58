"""Shelves in pools of libpmemobj: files, pool sets, and what is refused there."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
from support import check

import tensorshelf as ts

pytestmark = [
    pytest.mark.skipif(
        not ts.build_info().libraries["libpmemobj"], reason="this build has no libpmemobj"
    ),
    pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning"),
]


@pytest.fixture
def pool_set(tmpfs: pathlib.Path) -> pathlib.Path:
    """Two replicas of one part each, which are not there yet."""
    path = tmpfs / "run.set"
    path.write_text(f"PMEMPOOLSET\n32M {tmpfs}/a\nREPLICA\n32M {tmpfs}/b\n")
    return path


def fill(shelf: ts.Shelf) -> None:
    shelf.x = np.arange(1000)
    shelf.persist(step=3)


@pytest.mark.parametrize("mode", ["a", "x", "w"])
def test_tier_makes_a_pool_that_auto_finds(tmpfs: pathlib.Path, mode: str) -> None:
    with ts.open(tmpfs / "p", mode=mode, tier="pool", size="64MiB") as shelf:
        assert shelf.info().promises.medium == "pool"
        fill(shelf)
    for mode in ("a", "r", "r+"):
        with ts.open(tmpfs / "p", mode=mode) as shelf:
            assert shelf.info().promises.medium == "pool"
            np.testing.assert_array_equal(shelf.x, np.arange(1000))
    with ts.open(tmpfs / "p", mode="r+") as shelf:
        view = shelf.x.numpy(copy=False)
        np.testing.assert_array_equal(view, np.arange(1000))
        del view


def test_a_pool_keeps_its_length_and_is_not_cut_again_and_again(tmpfs: pathlib.Path) -> None:
    with ts.open(tmpfs / "p", tier="pool", size="64MiB") as shelf:
        fill(shelf)
        versions = {shelf.compact().version for _ in range(3)}
    assert len(versions) == 1


@pytest.mark.parametrize("mode", ["a", "x", "w"])
def test_a_pool_set_becomes_a_shelf(pool_set: pathlib.Path, mode: str) -> None:
    with ts.open(pool_set, mode=mode) as shelf:
        assert "2 replicas" in str(shelf.info())
        fill(shelf)
    with ts.open(pool_set, mode="r") as shelf:
        assert shelf.step == 3
    assert pool_set.read_text().startswith("PMEMPOOLSET")


def test_a_pool_needs_its_size(tmpfs: pathlib.Path) -> None:
    with pytest.raises(ts.BadArgument) as caught:
        ts.open(tmpfs / "p", tier="pool")
    error = check(caught, ts.BadArgument, "bad_argument", ValueError)
    assert "size=" in error.remedy
    with pytest.raises(ts.ShelfFull) as full, ts.open(tmpfs / "p", tier="pool", size="16MiB") as s:
        s.create("large", (64 << 20,), np.uint8)
    assert "does not grow" in check(full, ts.ShelfFull, "shelf_full", OSError).what


def test_a_set_without_parts_and_one_that_has_them(pool_set: pathlib.Path) -> None:
    with pytest.raises(ts.ShelfNotFound) as missing:
        ts.open(pool_set, mode="r+")
    assert (
        "none of its parts"
        in check(missing, ts.ShelfNotFound, "shelf_not_found", FileNotFoundError).what
    )
    ts.open(pool_set).close()
    with pytest.raises(ts.ShelfExists) as there:
        ts.open(pool_set, mode="x")
    assert "has parts" in check(there, ts.ShelfExists, "shelf_exists", FileExistsError).what


def test_a_lost_replica_is_named(pool_set: pathlib.Path) -> None:
    with ts.open(pool_set) as shelf:
        fill(shelf)
    (pool_set.parent / "b").unlink()
    with pytest.raises(ts.CorruptError) as caught:
        ts.open(pool_set, mode="r")
    error = check(caught, ts.CorruptError, "corrupt", ts.ShelfError)
    assert f"of replica 1 the part {pool_set.parent}/b is not there" in error.what
    assert f"`pmempool sync {pool_set}`" in error.remedy


def test_what_is_no_pool_set_is_told_as_that(tmpfs: pathlib.Path) -> None:
    described = tmpfs / "s.set"

    def made(text: str) -> ts.ShelfError:
        described.write_text(f"PMEMPOOLSET\n{text}")
        with pytest.raises(ts.ShelfError) as caught:
            ts.open(described, "x")
        return caught.value

    small = made(f"1M {tmpfs}/p0\n")
    assert (type(small), "each part 2 MiB" in small.remedy) == (ts.ShelfFull, True)
    twice = made(f"32M {tmpfs}/p0\n32M {tmpfs}/p0\n")
    assert type(twice) is ts.NotAShelf
    assert f"names {tmpfs}/p0 twice" in twice.what
    described.write_text(f"PMEMPOOLSET\n32M {tmpfs}/p0\n32M {tmpfs}/p1\n")
    ts.open(described, "x").close()
    with pytest.raises(ts.NotAShelf, match="one part of several"):
        ts.open(tmpfs / "p0")


def test_one_opening_at_a_time(tmpfs: pathlib.Path) -> None:
    with ts.open(tmpfs / "p", tier="pool", size="16MiB") as shelf:
        fill(shelf)
        for mode in ("r", "r+"):
            with pytest.raises(ts.ShelfBusy) as caught:
                ts.open(tmpfs / "p", mode=mode)
            check(caught, ts.ShelfBusy, "shelf_busy", BlockingIOError)
        program = f"import tensorshelf as ts; ts.open({str(tmpfs / 'p')!r}, mode='r')"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        assert "one place at a time" in done.stderr


def test_other_tiers_take_no_pool(tmpfs: pathlib.Path, pool_set: pathlib.Path) -> None:
    ts.open(tmpfs / "p", tier="pool", size="16MiB").close()
    for path in (tmpfs / "p", pool_set):
        with pytest.raises(ts.UnsupportedError) as caught:
            ts.open(path, mode="r+", tier="block")
        check(caught, ts.UnsupportedError, "unsupported", RuntimeError)
    ts.open(tmpfs / "plain").close()
    with pytest.raises(ts.NotAShelf) as plain:
        ts.open(tmpfs / "plain", tier="pool")
    check(plain, ts.NotAShelf, "not_a_shelf", ValueError)
