"""A shelf whose maker was killed when it had its name, and its media had not, is replaced again."""

import contextlib
import ctypes
import ctypes.util
import fcntl
from pathlib import Path
from typing import Any

import pytest

import tensorshelf as ts

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def left_beside(path: Path, pid: int = 4211, replaces: bytes = b"") -> Path:
    """What its maker calls a file that has no name yet, and is to replace what lies there."""
    try:
        hash_of = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0").XXH3_64bits
    except OSError:
        pytest.skip("no libxxhash to load")
    hash_of.restype = ctypes.c_uint64
    medium_id = (replaces or path.read_bytes())[40:56]
    mark = hash_of(medium_id, ctypes.c_size_t(len(medium_id))) & 0xFFFFFFFF
    return path.with_name(f".{path.name}.{pid}.01234567{mark:08x}.tmp")


def make(shelf_path: Path, step: int, **given: Any) -> None:
    with ts.open(shelf_path, "w", **given) as shelf:
        shelf.create("w", (10,), "float32", on=1)[:] = step
        shelf.persist(step=step)


def stop_half_way(shelf_path: Path, *media: Path, **given: Any) -> dict[Path, bytes]:
    """Shelf 2 has its name, its media have not: in their places lies what is returned."""
    make(shelf_path, 1, **given)
    old = {path: path.read_bytes() for path in media}
    make(shelf_path, 2, **given)
    for path in media:
        path.rename(left_beside(path, replaces=old[path]))
        path.write_bytes(old[path])
    return old


def test_all_media_that_were_left_get_their_names(shelf_path: Path, tmp_path: Path) -> None:
    part, mirror = tmp_path / "run.part", tmp_path / "run.mirror"
    given: dict[str, Any] = {"also": part, "mirror": mirror}
    old = stop_half_way(shelf_path, part, mirror, **given)
    left = set(tmp_path.glob(".run.*.tmp"))
    assert len(left) == 2
    for mode in ("r", "a"):
        with pytest.raises(ts.ShelfError):
            ts.open(shelf_path, mode, **given)
    assert set(tmp_path.glob(".run.*.tmp")) == left
    make(shelf_path, 3, **given)
    with ts.open(shelf_path, **given) as shelf:
        assert (shelf.step, float(shelf.w[0])) == (3, 3.0)
        assert not shelf.verify().damage
    assert not list(tmp_path.glob(".run.*.tmp"))
    for path in (part, mirror):  # of another shelf, without a word of how it came there
        path.write_bytes(old[path])
        with pytest.raises(ts.NotAShelf, match="not the one that is replaced"):
            ts.open(shelf_path, "w", **given)


def test_a_name_is_given_though_another_medium_is_refused(shelf_path: Path, tmp_path: Path) -> None:
    """Whoever goes on may be killed too, or come to an error: the shelf is whole by then."""
    part, others = tmp_path / "run.part", tmp_path / "others"
    stop_half_way(shelf_path, part, also=part)
    left = left_beside(part).read_bytes()
    make(tmp_path / "another", 1, also=others)
    with pytest.raises(ts.NotAShelf, match="not the one that is replaced"):
        ts.open(shelf_path, "w", also=[part, others])
    assert part.read_bytes() == left
    with ts.open(shelf_path, "r", also=part) as shelf:
        assert (shelf.step, float(shelf.w[0])) == (2, 2.0)


def test_it_lies_where_links_lead(shelf_path: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    part, link = tmp_path / "there" / "run.part", tmp_path / "link"
    link.symlink_to(part)
    stop_half_way(shelf_path, part, also=link)
    left = left_beside(part)
    assert left.exists()
    make(shelf_path, 3, also=link)
    assert link.is_symlink()
    assert not left.exists()
    with ts.open(shelf_path, "r", also=link) as shelf:
        assert float(shelf.w[0]) == 3.0


def test_others_beside_it_are_in_nobodys_way(shelf_path: Path, tmp_path: Path) -> None:
    part = tmp_path / "run.part"
    stop_half_way(shelf_path, part, also=part)
    with contextlib.ExitStack() as made_now:
        for pid in range(1, 20):  # in whichever order a directory lists them
            if pid % 2 == 0:
                left_beside(part, pid).mkdir()
                continue
            locked = made_now.enter_context(left_beside(part, pid).open("w"))
            fcntl.flock(locked, fcntl.LOCK_EX)
        make(shelf_path, 3, also=part)
    with ts.open(shelf_path, "r", also=part) as shelf:
        assert float(shelf.w[0]) == 3.0


def test_a_link_of_such_a_name_is_none(shelf_path: Path, tmp_path: Path) -> None:
    """Though it leads to the very medium that the shelf lacks."""
    part, away = tmp_path / "run.part", tmp_path / "away"
    old = stop_half_way(shelf_path, part, also=part)
    link = left_beside(part)
    link.rename(away)
    link.symlink_to(away)
    with pytest.raises(ts.NotAShelf, match="not the one that is replaced"):
        make(shelf_path, 3, also=part)
    assert link.is_symlink()
    assert not part.is_symlink()
    assert part.read_bytes() == old[part]


def test_what_is_left_for_another_place_is_none(shelf_path: Path, tmp_path: Path) -> None:
    """Of this shelf, but made to replace another medium than the one that lies there."""
    part = tmp_path / "run.part"
    old = stop_half_way(shelf_path, part, also=part)
    left_beside(part).rename(left_beside(part, replaces=bytes(56)))
    with pytest.raises(ts.NotAShelf, match="not the one that is replaced"):
        make(shelf_path, 3, also=part)
    assert part.read_bytes() == old[part]


def test_what_another_shelf_left_is_none(shelf_path: Path, tmp_path: Path) -> None:
    """Made for the place and by the shelf before, which is another one by now."""
    part = tmp_path / "run.part"
    old = stop_half_way(shelf_path, part, also=part)
    left = left_beside(part)
    with ts.open(shelf_path, "w") as shelf:
        shelf.persist(step=5)
    with pytest.raises(ts.NotAShelf, match="not the one that is replaced"):
        ts.open(shelf_path, "w", also=part)
    assert left.exists()
    assert part.read_bytes() == old[part]


def test_no_medium_gets_its_name_before_the_shelf(shelf_path: Path, tmp_path: Path) -> None:
    """Else the old shelf has lost its media where the new one cannot take its place."""
    part = tmp_path / "run.part"
    make(shelf_path, 1, also=part)
    with shelf_path.open("r+b") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        with pytest.raises(ts.ShelfBusy):
            ts.open(shelf_path, "w", also=part)
    with ts.open(shelf_path, also=part) as shelf:
        assert (shelf.step, float(shelf.w[0])) == (1, 1.0)


def test_one_that_is_made_now_is_its_makers(shelf_path: Path, tmp_path: Path) -> None:
    part = tmp_path / "run.part"
    stop_half_way(shelf_path, part, also=part)
    with left_beside(part).open("r+b") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        with pytest.raises(ts.ShelfBusy, match="made by another process now"):
            ts.open(shelf_path, "w", also=part)
