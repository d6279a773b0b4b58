"""A shelf that cannot be made with all its media leaves what was there."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tensorshelf as ts


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """As a file system that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def new_bytes(tmp_path: Path) -> int:
    """What a new shelf's own file has, of which a mirror has more."""
    path = tmp_path / "new.shelf"
    ts.open(path, tier="block").close()
    size = path.stat().st_size
    path.unlink()
    return size


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_replaced_stays_where_a_mirror_has_no_room(
    shelf_path: Path, tmp_path: Path, new_bytes: int
) -> None:
    with ts.open(shelf_path) as shelf:
        shelf.x = np.arange(10)
        shelf.persist(step=7)
    before = names(tmp_path)
    with files_end_at(new_bytes), pytest.raises(ts.ShelfFull):
        ts.open(shelf_path, "w", tier="block", mirror=tmp_path / "mirror")
    assert names(tmp_path) == before
    with ts.open(shelf_path) as shelf:
        assert shelf.step == 7
        assert (shelf.x.numpy() == np.arange(10)).all()


@pytest.mark.parametrize("mode", ["x", "a", "w"])
def test_nothing_is_left_where_a_mirror_has_no_room(
    shelf_path: Path, tmp_path: Path, new_bytes: int, mode: str
) -> None:
    with files_end_at(new_bytes), pytest.raises(ts.ShelfFull):
        ts.open(shelf_path, mode, tier="block", mirror=tmp_path / "mirror")
    assert names(tmp_path) == []
    with ts.open(shelf_path, mode, tier="block", mirror=tmp_path / "mirror") as shelf:
        shelf.x = np.arange(10)
        shelf.persist()
    with ts.open(tmp_path / "mirror", "r") as shelf:
        assert (shelf.x.numpy() == np.arange(10)).all()


def test_a_mirror_holds_all_that_a_shelf_of_that_size_does(
    shelf_path: Path, tmp_path: Path
) -> None:
    with ts.open(shelf_path, size="4MiB", mirror=tmp_path / "mirror", tier="block") as shelf:
        shelf.create("x", (1 << 20,), np.uint8)
        most = shelf.info().capacity_bytes
        shelf.reserve(((4 << 20) - most) // 2 - (64 << 10))
        shelf.persist()
    with ts.open(shelf_path, size="4MiB") as shelf:  # its mirror is capped by that as well
        shelf.reserve(((4 << 20) - most) // 2 - (32 << 10))


def test_a_pool_is_made_with_its_mirror(shelf_path: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    with ts.open(shelf_path, tier="pool", size="32MiB", mirror=mirror) as shelf:
        shelf.x = np.arange(10)
        shelf.persist()
    with ts.open(mirror, "r") as shelf:
        assert (shelf.x.numpy() == np.arange(10)).all()
        shelf.snapshot(tmp_path / "copy", tier="pool", size="16MiB")
    with ts.open(tmp_path / "copy", "r") as shelf:
        assert (shelf.x.numpy() == np.arange(10)).all()
    assert (tmp_path / "copy").stat().st_size == 16 << 20
