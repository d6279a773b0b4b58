"""What is given as a medium or a mirror, and is taken, refused or left as it is."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from test_older_copies import IN_MIRROR, lose

import tensorshelf as ts
from tensorshelf import _open

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

MIB = 1 << 20


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "run.mirror"


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "run.part"


def commit(shelf: ts.Shelf, *steps: int) -> None:
    for step in steps:
        shelf.x = np.full(10, step)
        shelf.persist(step=step)


def test_a_newer_mirror_stays_as_it_is(shelf_path: Path, mirror: Path) -> None:
    """Where roots of the shelf rot, and nothing shows that the mirror is of the same history."""
    with ts.open(shelf_path, keep=2) as shelf:
        commit(shelf, 1, 2, 3)
    with ts.open(shelf_path, mirror=mirror) as shelf:
        commit(shelf, 4, 5)
    lose(shelf_path, 5, 4)
    lose(shelf_path, 4, 4)
    lose(mirror, 3, 4, IN_MIRROR)
    before = mirror.read_bytes()
    with ts.open(shelf_path, mirror=mirror) as shelf:
        assert shelf.info().recovery.degraded
        assert shelf.step == 3
        assert not [each for each in shelf.info().media if each.mirrors is not None]
    assert mirror.read_bytes() == before
    with ts.open(mirror, "r") as shelf:
        assert shelf.step == 5


def test_a_mirror_that_helps_in_nothing_is_not_said_to_have_helped(
    shelf_path: Path, mirror: Path
) -> None:
    with ts.open(shelf_path, keep=1, mirror=mirror) as shelf:
        commit(shelf, 1, 2, 3)
    lose(shelf_path, 2, 3)
    lose(mirror, 2, 3, IN_MIRROR)
    for mode in ("r", "a"):
        with ts.open(shelf_path, mode, mirror=mirror) as shelf:
            assert shelf.step == 3
            notes = " ".join(shelf.info().recovery.notes)
            assert "version 2" in notes
            assert "read from its mirror" not in notes


def test_two_links_to_one_file_are_one_medium(shelf_path: Path, part: Path, tmp_path: Path) -> None:
    with ts.open(shelf_path, also=part) as shelf:
        commit(shelf, 1)
    link = tmp_path / "link.part"
    link.hardlink_to(part)
    for given in ({"also": [part, link]}, {"also": part, "mirror": link}):
        with pytest.raises(ts.BadArgument, match="twice"):
            ts.open(shelf_path, **given)
    with ts.open(shelf_path, also=link) as shelf:
        assert shelf.step == 1


def test_rolled_back_to_before_it_a_medium_is_named_still(
    shelf_path: Path, mirror: Path, part: Path
) -> None:
    with ts.open(shelf_path, keep=1, tier="block") as shelf:
        commit(shelf, 1)
    with ts.open(shelf_path, mirror=mirror, also=part, tier="block") as shelf:
        commit(shelf, 2)
        shelf.rollback(1)
        numbers = [each.number for each in shelf.info().media]
    with ts.open(shelf_path, tier="block") as shelf:
        assert [each.number for each in shelf.info().media if not each.retired] == numbers
    for path in (mirror, part):
        away = path.rename(path.with_suffix(".away"))
        with pytest.raises(ts.MediumMissing):
            ts.open(shelf_path, tier="block")
        away.rename(path)
    with ts.open(mirror, "r") as shelf:
        assert (shelf.x.numpy() == 1).all()


@pytest.mark.parametrize("size", [128 * 1024 + 4096, 4 * MIB])
def test_a_file_of_zeros_is_somebodys(shelf_path: Path, part: Path, size: int) -> None:
    content = bytes(size - 8) + (b"\0" * 8 if size > MIB else b"somebody")
    part.write_bytes(content)
    with pytest.raises(ts.NotAShelf):
        ts.open(shelf_path, also=part, tier="block")
    assert part.read_bytes() == content


def test_a_mirror_that_was_given_up_is_no_medium(
    shelf_path: Path, mirror: Path, tmp_path: Path
) -> None:
    with ts.open(shelf_path, mirror=mirror) as shelf:
        commit(shelf, 1)
    given_up = mirror.rename(tmp_path / "given.up")
    with ts.open(shelf_path, without=1) as shelf:
        commit(shelf, 2)
    with ts.open(shelf_path, mirror=tmp_path / "other.mirror") as shelf:
        commit(shelf, 3)
    before = given_up.read_bytes()
    with pytest.raises(ts.NotAShelf):
        ts.open(shelf_path, also=given_up)
    assert given_up.read_bytes() == before


def test_a_cap_holds_as_many_tensors_with_a_mirror(
    shelf_path: Path, mirror: Path, tmp_path: Path
) -> None:
    def fill(path: Path, mirrored: Path | None) -> int:
        with ts.open(path, size="8MiB", tier="block", mirror=mirrored) as shelf:
            with pytest.raises(ts.ShelfFull, match="is capped at"):  # noqa: PT012
                for number in range(1000):
                    shelf.create(f"t{number}", 16 * 1024, "uint8")
            return len(shelf)

    alone = fill(tmp_path / "alone.shelf", None)
    assert fill(shelf_path, mirror) >= alone - 1  # a page that names the mirror is its own


def test_a_cap_is_of_what_a_mirror_mirrors_where_that_is_found(
    shelf_path: Path, mirror: Path, tmp_path: Path
) -> None:
    """As where it is given: behind its heads it has as much as the shelf."""

    def fill(path: Path, mirrored: Path | None) -> int:
        ts.open(path, size="8MiB", tier="block", mirror=mirrored).close()
        with ts.open(path, size="8MiB", tier="block") as shelf:
            with pytest.raises(ts.ShelfFull, match="is capped at"):  # noqa: PT012
                for number in range(1000):
                    shelf.create(f"t{number}", 16 * 1024, "uint8")
            return len(shelf)

    alone = fill(tmp_path / "alone.shelf", None)
    assert fill(shelf_path, mirror) >= alone - 1


def test_of_a_medium_and_its_mirror_a_reader_may_lack_one(
    shelf_path: Path, part: Path, mirror: Path, tmp_path: Path
) -> None:
    with ts.open(shelf_path, also=part, mirror={1: mirror}) as shelf:
        shelf.create("x", 10, "int64", on=part)[:] = 7
        shelf.persist(step=1)

    def value(mirrored: Path) -> int:
        with ts.open(shelf_path, "r", also=part, mirror={1: mirrored}) as shelf:
            return int(shelf.x[0])

    moved = mirror.rename(tmp_path / "moved")
    assert value(mirror) == 7
    part.unlink()
    assert value(moved) == 7


def test_the_log_names_a_mirror_that_is_not_there(
    shelf_path: Path, mirror: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For reading, which does without: as where its path was mistyped."""
    with ts.open(shelf_path, mirror=mirror) as shelf:
        commit(shelf, 1)
    mirror.unlink()
    with ts.open(shelf_path, "r", mirror=mirror) as shelf:
        assert shelf.step == 1
    assert f"its mirror {mirror} is not there" in caplog.text


def test_a_mirror_that_lacks_one_opening_stands_for_a_shelf_without_roots(
    shelf_path: Path, mirror: Path
) -> None:
    """A crash may have taken that one from it alone."""
    with ts.open(shelf_path, mirror=mirror) as shelf:
        commit(shelf, 1)
    away = mirror.rename(mirror.with_name("away"))
    ts.open(shelf_path, without=1).close()
    away.rename(mirror)
    for version in (0, 1):
        lose(shelf_path, version, 2)
    with ts.open(shelf_path, "r", mirror=mirror) as shelf:
        assert shelf.step == 1


def test_room_on_a_removed_medium_is_not_free(shelf_path: Path, part: Path) -> None:
    with ts.open(shelf_path, also=part, tier="block") as shelf:
        shelf.create("x", MIB, "uint8", on=part)
        shelf.persist()
        shelf.move("x", shelf_path)
        shelf.remove_medium(part)
        shelf.persist()
        assert shelf.free == shelf.info().free_bytes < MIB


def test_a_reader_without_the_mirror_promises_what_the_shelf_does(
    shelf_path: Path, mirror: Path
) -> None:
    with ts.open(shelf_path, mirror=mirror, tier="block") as shelf:
        commit(shelf, 1)
    with ts.open(shelf_path, "r", tier="block") as shelf:
        promised = shelf.info().promises.survives
    mirror.unlink()
    with ts.open(shelf_path, "r", tier="block") as shelf:
        assert shelf.info().promises.survives == promised


def test_a_limit_is_the_first_size_that_goes_elsewhere(shelf_path: Path, part: Path) -> None:
    with ts.open(shelf_path, also=part, tier="block", place="2MiB") as shelf:
        shelf.create("below", 2 * MIB - 1, "uint8")
        shelf.create("at_it", 2 * MIB, "uint8")
        assert shelf.below.media == (0,)
        assert shelf.at_it.media == (0, 1)


def test_rules_name_media_by_any_way_to_them(
    shelf_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    also = [tmp_path / "one.part", tmp_path / "two.part"]
    rules = {"by_home": "~/one.part", "by_number": 2}
    with ts.open(shelf_path, also=also, tier="block", place=rules) as shelf:
        shelf.by_home = np.ones(10)
        shelf.by_number = np.ones(10)
        assert shelf.by_home.media == (1,)
        assert shelf.by_number.media == (2,)


def test_too_many_media_are_refused_before_any_is_made(shelf_path: Path, tmp_path: Path) -> None:
    also = [tmp_path / f"{number}.part" for number in range(8)]
    with pytest.raises(ts.ShelfFull, match="8 media are given"):
        ts.open(shelf_path, also=also, tier="block")
    assert not any(path.exists() for path in also)


def test_what_a_medium_lacks_is_told_with_its_path(
    shelf_path: Path, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr(_open, "_warn_of_fallbacks", lambda notes, whose="": told.append(whose))
    ts.open(shelf_path, also=part, tier="block").close()
    assert told == ["", f"{part}: "]


def test_what_a_medium_lacks_is_told_once(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_open, "_warned", set())
    note = "the file could be mapped, and is not"

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _open._warn_of_fallbacks((note,), f"{part}: ")
        _open._warn_of_fallbacks((note,), f"{part}: ")
    assert [str(each.message) for each in caught] == [f"{part}: {note}"]
