"""A shelf that cannot be made with all its media leaves what was there."""

import contextlib
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorshelf as ts

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


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
        assert shelf.info().capacity_bytes > most


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


def test_an_empty_file_is_claimed_by_a_whole_shelf_alone(
    shelf_path: Path, tmp_path: Path, new_bytes: int
) -> None:
    media = {"also": tmp_path / "part", "mirror": tmp_path / "mirror"}
    media["also"].touch()
    with files_end_at(new_bytes), pytest.raises(ts.ShelfFull):
        ts.open(shelf_path, "a", tier="block", **media)  # type: ignore[arg-type]
    assert names(tmp_path) == ["part"]
    with ts.open(shelf_path, "a", **media) as shelf:  # type: ignore[arg-type]
        shelf.x = np.arange(10)
        shelf.persist()
    with ts.open(shelf_path, "r") as shelf:
        assert len(shelf.info().media) == 3


@pytest.mark.parametrize("mode", ["x", "a", "w"])
def test_one_file_is_no_two_media_whatever_links_say(
    shelf_path: Path, tmp_path: Path, mode: str
) -> None:
    (tmp_path / "link").symlink_to(".")
    with pytest.raises(ts.BadArgument, match="given twice"):
        ts.open(shelf_path, mode, also=tmp_path / "part", mirror=tmp_path / "link" / "part")
    with pytest.raises(ts.BadArgument, match="is the shelf itself"):
        ts.open(shelf_path, mode, mirror=tmp_path / "link" / shelf_path.name)
    assert names(tmp_path) == ["link"]


@pytest.mark.parametrize("mode", ["x", "a", "w"])
def test_a_shelf_that_was_made_through_a_link_is_where_it_is(tmp_path: Path, mode: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "run").symlink_to("real/named.shelf")
    for path in (tmp_path / "linked" / "run.shelf", tmp_path / "run"):
        part = tmp_path / f"{path.name}.part"
        with ts.open(path, mode, also=part) as shelf:
            shelf.create("x", (10,), on=1)
            shelf.persist(step=1)
        for there in (path, path.resolve()):
            with ts.open(there) as shelf:
                assert shelf.x.shape == (10,)


def test_what_opens_the_old_mirror_for_a_moment_keeps_no_new_one_out(
    shelf_path: Path, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    with ts.open(shelf_path, mirror=mirror) as shelf:
        shelf.persist(step=1)
    done = threading.Event()

    def opens_it() -> None:
        while not done.wait(0.002):
            with contextlib.suppress(ts.ShelfError):
                ts.open(shelf_path, "r+", mirror=mirror).close()

    other = threading.Thread(target=opens_it)
    other.start()
    try:
        made = 0
        end = time.monotonic() + 60
        while made < 10 and time.monotonic() < end:
            try:
                with ts.open(shelf_path, "w", mirror=mirror) as shelf:
                    shelf.persist(step=made)
            except ts.ShelfBusy:  # the shelf itself, which then stays as it was
                continue
            made += 1
    finally:
        done.set()
        other.join()
    with ts.open(shelf_path, mirror=mirror) as shelf:
        assert shelf.step is not None
    assert made == 10


@pytest.mark.parametrize(
    ("given", "words"),
    [({"also": {1: "a"}}, "is a dict"), ({"place": "a.part"}, "one medium"), ({"place": []}, "")],
)
def test_slips_are_told(shelf_path: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ts.BadArgument) as caught:
        ts.open(shelf_path, **given)
    assert words in str(caught.value)
    assert not shelf_path.exists()
