"""Shelves on several media, as users meet them."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import check

import tensorshelf as ts

MIB = 1 << 20
LARGE = np.arange(3 * MIB // 8)


@pytest.fixture
def shelf_path(tmp_path: Path) -> Path:
    return tmp_path / "run.shelf"


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "run.part"


def fill(path: Path, part: Path, step: int = 1) -> None:
    with ts.open(path, also=part, tier="block") as shelf:
        shelf.small = np.full(10, step)
        shelf.large = LARGE + step
        shelf.persist(step=step)


def test_small_tensors_lie_on_the_first_and_large_ones_go_round(
    shelf_path: Path, part: Path
) -> None:
    fill(shelf_path, part)
    with ts.open(shelf_path, "r") as shelf:  # found where it was
        info = shelf.info()
        assert [(each.number, each.path) for each in info.media] == [
            (0, str(shelf_path)),
            (1, str(part)),
        ]
        assert info.media[1].capacity_bytes > MIB
        assert info.capacity_bytes == sum(each.capacity_bytes for each in info.media)
        assert f"medium 1  {part}: block" in repr(info)
        assert (shelf.large.numpy() == LARGE + 1).all()
        assert shelf.verify().ok
        with pickle.loads(pickle.dumps(shelf)) as other:
            assert (other.small.numpy() == 1).all()


def test_a_medium_is_found_elsewhere_or_missed_by_name(
    shelf_path: Path, part: Path, tmp_path: Path
) -> None:
    fill(shelf_path, part)
    moved = tmp_path / "moved.part"
    part.rename(moved)
    with pytest.raises(ts.MediumMissing) as caught:
        ts.open(shelf_path)
    check(caught, ts.MediumMissing, "medium_missing", FileNotFoundError)
    assert f"last at {part}" in caught.value.what
    assert "also=" in caught.value.remedy
    with ts.open(shelf_path, "r", also=[moved]) as shelf:
        assert (shelf.large.numpy() == LARGE + 1).all()
    with ts.open(shelf_path, also=moved) as shelf:
        shelf.persist(step=2)
    with ts.open(shelf_path) as shelf:
        assert shelf.info().media[1].path == str(moved)


def test_what_the_others_have_is_salvaged(shelf_path: Path, part: Path) -> None:
    fill(shelf_path, part)
    part.unlink()
    with ts.open(shelf_path, "r", salvage=True) as shelf:
        assert (shelf.small.numpy() == 1).all()
        assert any("medium 1" in note for note in shelf.info().recovery.notes)
        with pytest.raises(ts.CorruptError):
            shelf.large.numpy()
        damaged = shelf.verify().damage
        assert {each.tensor for each in damaged} == {"large"}
        assert {each.medium for each in damaged} <= {0, 1}


def test_an_older_copy_and_another_shelf_s_are_refused(
    shelf_path: Path, part: Path, tmp_path: Path
) -> None:
    fill(shelf_path, part)
    older = shutil.copy(part, tmp_path / "older")
    fill(shelf_path, part, 2)
    with pytest.raises(ts.MediumMissing, match="older copy of medium 1"):
        ts.open(shelf_path, "r", also=older)
    fill(tmp_path / "other.shelf", tmp_path / "other.part")
    with pytest.raises(ts.MediumMissing, match=r"other\.part is medium 1 of the shelf"):
        ts.open(shelf_path, also=tmp_path / "other.part")
    (tmp_path / "text").write_text("words" * 2000)
    with pytest.raises(ts.NotAShelf, match="not empty"):
        ts.open(shelf_path, also=tmp_path / "text")
    with pytest.raises(ts.NotAShelf, match="medium 1 of the shelf"):
        ts.open(part)
    with ts.open(shelf_path) as shelf:
        assert (shelf.small.numpy() == 2).all()


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"opt.*": 1, "*": 0}, {"opt.m": {1}, "model.w": {0}}),
        (lambda name, nbytes: "stripe" if nbytes > 100 else None, {"opt.m": {0, 1}}),
        ("64 KiB", {"opt.m": {0, 1}, "tiny": {0}}),
    ],
)
def test_rules_say_where_tensors_lie(
    shelf_path: Path, part: Path, rules: object, expected: dict[str, set[int]]
) -> None:
    with ts.open(shelf_path, also=part, tier="block", place=rules) as shelf:  # type: ignore[arg-type]
        for name in expected:
            before = [each.free_bytes - each.capacity_bytes for each in shelf.info().media]
            shelf.create(name, 100 if name == "tiny" else 4 * MIB, "uint8")
            after = [each.free_bytes - each.capacity_bytes for each in shelf.info().media]
            size = 100 if name == "tiny" else MIB
            taken = {i for i in range(2) if before[i] - after[i] >= size}
            assert taken == expected[name]


def test_one_tensor_is_placed_by_call(shelf_path: Path, part: Path) -> None:
    with ts.open(shelf_path, also=part, tier="block") as shelf:
        before = shelf.info().media
        shelf.create("w", 4 * MIB, "uint8", on=part)
        assert shelf.info().media[1].capacity_bytes > 8 * MIB
        assert shelf.info().media[0].capacity_bytes < before[0].capacity_bytes + MIB
        shelf.create("both", 4 * MIB, "uint8", on=[shelf_path, part])
        assert shelf.info().media[0].capacity_bytes > 4 * MIB
        for wrong in (2, "elsewhere", [1, 1], 1.5):
            with pytest.raises(ts.BadArgument):
                shelf.create("x", 10, on=wrong)  # type: ignore[arg-type]
        assert list(shelf) == ["both", "w"]


def test_who_fails_to_place_creates_nothing(shelf_path: Path, part: Path) -> None:
    def fail(name: str, nbytes: int) -> None:
        raise ZeroDivisionError

    with ts.open(shelf_path, also=part, place=fail) as shelf:
        with pytest.raises(ZeroDivisionError):
            shelf.w = np.zeros(3)
        assert list(shelf) == []


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.touch()])
def test_media_are_added_later(shelf_path: Path, part: Path, make: Callable[[Path], None]) -> None:
    with ts.open(shelf_path) as shelf:
        shelf.first = LARGE
        shelf.persist()
    make(part)
    with ts.open(shelf_path, also=part) as shelf:
        shelf.create("second", 2 * MIB, "uint8", on=part)
        shelf.persist()
        with pytest.raises(ts.ShelfBusy):
            ts.open(shelf_path, also=part)
    with ts.open(shelf_path, "r") as shelf:
        assert sorted(shelf) == ["first", "second"]
        assert shelf.info().promises.survives in {"power loss", "process crash", "nothing"}
    with ts.open(shelf_path, "w", also=part) as shelf:
        assert list(shelf) == []
        assert len(shelf.info().media) == 2
    assert os.path.getsize(part) < MIB


def test_what_is_no_path_is_said(shelf_path: Path) -> None:
    with pytest.raises(ts.BadArgument, match="also="):
        ts.open(shelf_path, also=3)
    with pytest.raises(ts.BadArgument, match="place"):
        ts.open(shelf_path, place="much")
    assert not shelf_path.exists()


def test_a_tensor_moves_and_a_medium_goes(shelf_path: Path, part: Path) -> None:
    fill(shelf_path, part)
    with ts.open(shelf_path, tier="block") as shelf:
        before = shelf.large
        moved = shelf.move("large", on=0)
        assert (moved.numpy() == LARGE + 1).all()
        with pytest.raises(ts.UnknownName):
            before.numpy()
        assert (shelf.move("large", 0).numpy() == moved.numpy()).all()  # it is there already
        shelf.move("small", part)
        shelf.persist(step=2)
        shelf.remove_medium(part)
        assert shelf.info().media[1].retired
        with pytest.raises(ts.BadArgument):
            shelf.create("x", 10, on=1)
        with pytest.raises(ts.BadArgument):
            shelf.remove_medium(1)
        with pytest.raises(ts.BadArgument):
            shelf.remove_medium(shelf_path)
        shelf.discard()
        assert not shelf.info().media[1].retired
        shelf.remove_medium(1)
        shelf.persist(step=3)
    part.unlink()
    with ts.open(shelf_path) as shelf:
        assert len(shelf.info().media) == 1
        assert (shelf.small.numpy() == 1).all()
        assert (shelf.large.numpy() == LARGE + 1).all()


def test_a_medium_is_needed_as_long_as_an_older_version_is(shelf_path: Path, part: Path) -> None:
    with ts.open(shelf_path, also=part, tier="block", keep=1) as shelf:
        shelf.large = LARGE
        shelf.persist()
        shelf.remove_medium(part)
        shelf.persist()
    with ts.open(shelf_path, tier="block") as shelf:
        assert [each.retired for each in shelf.info().media] == [False, True]
        assert (shelf.at(1)["large"].numpy() == LARGE).all()
        shelf.other = LARGE
        shelf.persist()
    part.unlink()
    with ts.open(shelf_path) as shelf:
        assert len(shelf.info().media) == 1
