"""Shelves on several media, as users meet them."""

import contextlib
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import check

import tensorshelf as ts

MIB = 1 << 20
LARGE = np.arange(3 * MIB // 8)


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
        assert (shelf.small.media, shelf.large.media) == ((0,), (0, 1))
        assert ", on media 0, 1>" in repr(shelf.large)
        assert "on med" not in repr(shelf.small)
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


@pytest.mark.parametrize("given", [{"also": ""}, {"also": [b""]}, {"mirror": ""}])
def test_a_path_that_is_empty_is_no_medium(shelf_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(ts.BadArgument, match="path is empty"):
        ts.open(shelf_path, **given)
    assert not shelf_path.exists()


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


def test_a_wrong_path_costs_nothing(shelf_path: Path, part: Path, tmp_path: Path) -> None:
    fill(shelf_path, part)
    words = tmp_path / "words"
    words.write_text("words" * 2000)
    copy = shutil.copy(part, tmp_path / "copy")
    before = Path(copy).read_bytes()
    other = tmp_path / "other.part"
    fill(tmp_path / "other.shelf", other)
    untouched = other.read_bytes()
    wrong: list[tuple[type[ts.ShelfError], object]] = [
        (ts.NotAShelf, words),
        (ts.NotAShelf, other),  # another shelf's
        (ts.NotAShelf, tmp_path / "other.shelf"),
        (ts.ShelfError, tmp_path),  # a folder
        (ts.ShelfNotFound, tmp_path / "no" / "where"),
        (ts.BadArgument, [part, part]),
        (ts.ShelfFull, [tmp_path / f"{n}" for n in range(8)]),
    ]
    for error, also in wrong:
        with pytest.raises(error):
            ts.open(shelf_path, "w", also=also)
    assert other.read_bytes() == untouched
    assert not (tmp_path / "0").exists()
    assert words.read_text() == "words" * 2000
    for mode in ("r", "a"):
        with pytest.raises(ts.MediumMissing, match="both medium 1"):
            ts.open(shelf_path, mode, also=[part, copy])
    assert Path(copy).read_bytes() == before
    with ts.open(shelf_path) as shelf:
        assert (shelf.large.numpy() == LARGE + 1).all()


def test_media_that_move_with_their_shelf_are_found(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    fill(before / "run.shelf", before / "run.part")
    before.rename(after)
    with ts.open(after / "run.shelf") as shelf:
        assert (shelf.large.numpy() == LARGE + 1).all()
        assert shelf.info().media[1].path == str(after / "run.part")


def test_a_copy_writes_to_its_own_media(tmp_path: Path) -> None:
    before, copy = tmp_path / "before", tmp_path / "copy"
    before.mkdir()
    fill(before / "run.shelf", before / "run.part")
    shutil.copytree(before, copy)
    with ts.open(copy / "run.shelf") as shelf:
        shelf.large = -LARGE
        shelf.persist()
    with ts.open(before / "run.shelf", "r") as shelf:
        assert shelf.verify()
        assert (shelf.large.numpy() == LARGE + 1).all()


def test_an_older_copy_of_the_first_is_refused_to_write(
    shelf_path: Path, part: Path, tmp_path: Path
) -> None:
    fill(shelf_path, part)
    older = shutil.copy(shelf_path, tmp_path / "older.shelf")
    for step in range(2, 9):
        fill(shelf_path, part, step)
    with pytest.raises(ts.MediumMissing, match="moved or copied since"):
        ts.open(older)
    with pytest.raises(ts.MediumMissing, match="own medium is an older copy"):
        ts.open(older, also=part)


def test_a_shelf_that_moved_alone_is_told_where_its_media_are(
    shelf_path: Path, part: Path, tmp_path: Path
) -> None:
    fill(shelf_path, part)
    for name in ("copy.shelf", "folder/run.shelf"):
        moved = tmp_path / name
        moved.parent.mkdir(exist_ok=True)
        shutil.copy(shelf_path, moved)
        for mode in ("r", "a"):
            with pytest.raises(ts.MediumMissing, match="moved or copied since"):
                ts.open(moved, mode)
    shelf_path.unlink()
    with ts.open(moved, also=part) as shelf:
        shelf.persist()
    with ts.open(moved) as shelf:
        assert (shelf.large.numpy() == LARGE + 1).all()


def test_a_reader_goes_on_to_what_a_medium_grew_by(shelf_path: Path, part: Path) -> None:
    fill(shelf_path, part)
    with ts.open(shelf_path) as writer, ts.open(shelf_path, "r") as reader:
        writer.create("more", 8 * MIB, "uint8", on=1)[:] = 7
        writer.persist()
        assert reader.refresh()
        assert (reader.more.numpy() == 7).all()
        assert reader.verify()


def test_a_medium_is_kept_before_anything_lies_there(shelf_path: Path, part: Path) -> None:
    with ts.open(shelf_path, also=part, tier="block") as shelf:
        shelf.small = np.zeros(3)
        shelf.persist()
    with ts.open(shelf_path, tier="block") as shelf:
        assert len(shelf.info().media) == 2
        shelf.reserve(32 * MIB)
        shelf.persist()
        room = shelf.info().media[1].free_bytes
        assert room >= 32 * MIB
    with ts.open(shelf_path) as shelf:
        assert shelf.info().media[1].free_bytes == room


def test_what_was_cut_short_is_salvaged_as_what_is_missing(shelf_path: Path, part: Path) -> None:
    fill(shelf_path, part)
    os.truncate(part, 200_000)
    with pytest.raises(ts.TruncatedError, match=f"{part}: medium 1"):
        ts.open(shelf_path)
    with ts.open(shelf_path, "r", salvage=True) as shelf:
        assert (shelf.small.numpy() == 1).all()
        assert any("is cut short" in note for note in shelf.info().recovery.notes)
        assert {each.tensor for each in shelf.verify().damage} == {"large"}


def test_a_rule_that_names_what_was_removed_goes_on(shelf_path: Path, part: Path) -> None:
    with ts.open(shelf_path, also=part, tier="block", place={"*": part}) as shelf:
        shelf.large = LARGE
        shelf.persist()
        shelf.remove_medium(part)
        shelf.more = LARGE
        shelf.move("more", "stripe")
        shelf.persist()
        part.unlink()
        shelf.persist()  # which nothing of it is in
        assert ", removed" in repr(shelf.info())
    with ts.open(shelf_path) as shelf:
        assert (shelf.more.numpy() == LARGE).all()


def test_autosave_goes_on_with_what_was_moved(shelf_path: Path, part: Path) -> None:
    weights = np.ones(300_000)
    with ts.open(shelf_path, also=part, tier="block") as shelf:
        auto = shelf.autosave(weights=weights)
        auto.resume()
        for step in range(1, 5):
            weights += 1
            auto.step(step)
        auto.wait()
        (name,) = [name for name in shelf if "weights" in name]
        shelf.move(name, part)
        for step in range(5, 8):
            weights += 1
            auto.step(step)
        auto.close()
        shelf.move(name, part)
        assert not shelf._core.has_uncommitted()  # it lies there still
        assert (shelf[name].numpy() == 8).all()


@pytest.mark.parametrize("wrong", [-1, 9, 2**80, np.int64(5), True, None, {5}, "nowhere", 0.5])
def test_no_place_is_bad_argument(shelf_path: Path, part: Path, wrong: object) -> None:
    with ts.open(shelf_path, also=part, place=lambda name, nbytes: [wrong]) as shelf:
        if wrong is not None:
            with pytest.raises(ts.BadArgument):
                shelf.create("x", 3, on=wrong)  # type: ignore[arg-type]
        with pytest.raises(ts.BadArgument):
            shelf.x = np.zeros(3)
        assert list(shelf) == []
        assert shelf.create("y", 3, on=np.int64(1)).shape == (3,)


@pytest.mark.parametrize("rules", [1, {5: 1}, object()])
def test_no_rules_are_bad_argument(shelf_path: Path, part: Path, rules: object) -> None:
    with pytest.raises(ts.BadArgument):
        ts.open(shelf_path, also=part, place=rules)  # type: ignore[arg-type]
    assert not shelf_path.exists()


def test_an_opening_ends_whatever_also_says(shelf_path: Path, tmp_path: Path) -> None:
    with ts.open(shelf_path) as shelf:
        shelf.w = [1.0]
        shelf.persist()
    with pytest.raises(ts.ShelfNotFound, match="where"):
        ts.open(shelf_path, also=tmp_path / "no" / "where")
    zeros = tmp_path / "zeros"
    zeros.write_bytes(bytes(70_000) + b"words" + bytes(1 << 20))
    for mode in ("a", "w"):
        with pytest.raises(ts.NotAShelf):
            ts.open(shelf_path, mode, also=zeros)
    assert zeros.read_bytes()[70_000:70_005] == b"words"
    with ts.open(shelf_path) as shelf:
        assert shelf.w[0] == 1


def test_a_discarded_transaction_brings_a_medium_back(shelf_path: Path, part: Path) -> None:
    fill(shelf_path, part)
    with ts.open(shelf_path) as shelf:
        with contextlib.suppress(ZeroDivisionError), shelf.transaction():
            shelf.remove_medium(part)
            raise ZeroDivisionError
        assert not shelf.info().media[1].retired
        shelf.create("x", 10, on=part)
        shelf.persist()


def test_what_is_reserved_is_enough(shelf_path: Path, part: Path) -> None:
    with ts.open(shelf_path, also=part, tier="block", size="64MiB") as shelf:
        shelf.reserve(3 * MIB)
        before = [each.capacity_bytes for each in shelf.info().media]
        shelf.create("x", 3 * MIB, "uint8")
        after = [each.capacity_bytes for each in shelf.info().media]
        assert after[1] == before[1]


def test_heal_commits_nothing_where_a_medium_is_gone(shelf_path: Path, part: Path) -> None:
    with ts.open(shelf_path, also=part) as shelf:
        shelf.create("x", 10, on=part)
        shelf.persist()
        part.unlink()
        with pytest.raises(ts.ShelfGone):
            shelf.verify(repair=True)


def test_who_waits_hears_that_a_medium_is_gone(shelf_path: Path, part: Path) -> None:
    with ts.open(shelf_path, also=part) as shelf:
        shelf.create("x", 10, on=part)
        shelf.persist()
        with ts.open(shelf_path, "r") as reader:
            part.unlink()
            with pytest.raises(ts.ShelfGone, match=f"{part} was deleted"):
                reader.wait_for(5)
            with pytest.raises(ts.ShelfGone):
                next(reader.follow())


@pytest.mark.parametrize("waits", [False, True])
def test_who_has_not_looked_since_goes_on_past_a_medium_that_was_removed(
    shelf_path: Path, part: Path, waits: bool
) -> None:
    with ts.open(shelf_path, also=part, keep=0) as shelf:
        shelf.create("x", 10, on=part)
        shelf.persist()
        with ts.open(shelf_path, "r") as reader:
            shelf.remove_medium(part)
            shelf.persist()
            part.unlink()
            shelf.persist(step=5)
            assert reader.wait_for(shelf.version, 10) if waits else reader.refresh()
            assert (reader.step, reader.x.numpy().tolist()) == (5, [0.0] * 10)
            assert not reader.refresh()


def test_a_removed_medium_that_a_reader_holds_may_be_deleted(
    shelf_path: Path, tmp_path: Path
) -> None:
    part = tmp_path / "run.part"
    with ts.open(shelf_path, also=part, in_flight=2) as shelf:
        shelf.create("c", 1000, "int64", on=part)[:] = 1
        shelf.persist(step=1)
        reader = ts.open(shelf_path, "r")
        pinned = reader.pin()
        shelf.remove_medium(part)
        for step in range(2, 9):
            shelf.c[:] = step
            shelf.persist(step=step)
        part.unlink()
        shelf.c[:] = 9
        shelf.persist(step=9)
        assert (pinned.c.numpy() == 1).all()
        pinned.release()
        reader.close()
        shelf.c[:] = 10
        shelf.persist(step=10)
    with ts.open(shelf_path) as shelf:
        assert (shelf.c.numpy() == 10).all()


def test_a_path_that_is_too_long_to_be_remembered_is_told(shelf_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("f" * 200) / ("g" * 200) / ("h" * 200)
    folder.mkdir(parents=True)
    part = folder / "run.part"
    other = tmp_path / "other.part"
    with ts.open(shelf_path, also=[other, part]) as shelf:
        told = [note for note in shelf.info().recovery.notes if "is not remembered" in note]
        assert len(told) == 1
        assert told[0].startswith(f"{part}: a path of more than 512 bytes")
        shelf.persist()
    with pytest.raises(ts.MediumMissing, match="medium 2"):
        ts.open(shelf_path)
    with ts.open(shelf_path, also=part) as shelf:
        assert len(shelf.info().media) == 3
