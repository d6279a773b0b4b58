"""Media that mirror another, as users meet them."""

import contextlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorshelf as ts
from tensorshelf import _open

LARGE = np.arange(3 * (1 << 20) // 8)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "run.mirror"


def fill(path: Path, mirror: Path, step: int = 1, tier: str = "auto") -> None:
    with ts.open(path, mirror=mirror, tier=tier) as shelf:
        shelf.small = np.full(10, step)
        shelf.large = LARGE + step
        shelf.persist(step=step)


def test_a_mirror_is_as_large_as_what_it_mirrors(shelf_path: Path, mirror: Path) -> None:
    fill(shelf_path, mirror)
    with ts.open(shelf_path, "r") as shelf:
        first, copy = shelf.info().media
    heads = 0x20000  # before all of the other
    assert copy.capacity_bytes == first.capacity_bytes + heads == mirror.stat().st_size


@pytest.mark.parametrize("tier", ["auto", "block"])
def test_the_mirror_is_the_shelf_where_that_is_lost(
    shelf_path: Path, mirror: Path, tier: str
) -> None:
    fill(shelf_path, mirror, tier=tier)
    with ts.open(shelf_path, tier=tier) as shelf:  # found where it was
        info = shelf.info()
        assert [each.mirrors for each in info.media] == [None, 0]
        assert "mirrors medium 0" in repr(info)
        shelf.small = np.full(10, 2)
        shelf.persist(step=2)
    os.rename(shelf_path, shelf_path.with_suffix(".lost"))
    with pytest.raises(ts.ShelfNotFound, match=r"mode=\"r\" opens its mirror"):
        ts.open(shelf_path, mirror=mirror)
    assert not shelf_path.exists()
    with pytest.raises(ts.NotAShelf, match=r"snapshot\(\)"):
        ts.open(mirror, "r+")
    with ts.open(mirror, "r") as shelf:
        assert shelf.step == 2
        assert (shelf.small.numpy() == 2).all()
        assert (shelf.large.numpy() == LARGE + 1).all()
        assert shelf.verify().ok
        shelf.snapshot(shelf_path)
    with ts.open(shelf_path, "r+") as shelf:
        assert (shelf.large.numpy() == LARGE + 1).all()
        assert shelf.info().media[1:] == ()


def test_damage_is_read_from_the_mirror_and_mended(shelf_path: Path, mirror: Path) -> None:
    fill(shelf_path, mirror)
    damaged = shelf_path.read_bytes()
    value = (LARGE + 1).tobytes()[:64]
    at = damaged.index(value)
    shelf_path.write_bytes(damaged[:at] + b"rotten" + damaged[at + 6 :])
    with ts.open(shelf_path) as shelf:
        assert (shelf.large.numpy() == LARGE + 1).all()
        assert shelf.stats()["chunks_healed"] >= 1
        assert [each.healable for each in shelf.verify().damage] == [True]
        assert shelf.verify(repair=True).ok
        assert shelf.verify().ok


def test_a_mirror_that_is_deleted_meanwhile_is_named(shelf_path: Path, mirror: Path) -> None:
    fill(shelf_path, mirror)
    away = mirror.with_suffix(".away")
    with ts.open(shelf_path) as shelf:
        shelf.small = np.full(10, 2)
        mirror.rename(away)
        mirror.touch()
        with pytest.raises(
            ts.ShelfGone, match="medium 1, the mirror of medium 0: another"
        ) as caught:
            shelf.persist()
        assert "without=1" in caught.value.remedy
        away.rename(mirror)
        shelf.persist(step=2)
        mirror.unlink()
        shelf.small = np.full(10, 3)
        with pytest.raises(ts.ShelfGone, match=r"mirror of medium 0: .*run.mirror was deleted"):
            shelf.persist()
    with ts.open(shelf_path, without=1) as shelf:
        assert (shelf.small.numpy() == 2).all()
        shelf.persist()


def test_a_mirror_that_is_deleted_right_behind_a_commit_is_named(tmp_path: Path) -> None:
    """Who was asked just now is not asked again, but where something was written since."""
    for run in range(10):
        path, mirror = tmp_path / f"{run}.shelf", tmp_path / f"{run}.mirror"
        with ts.open(path, mirror=mirror) as shelf:
            shelf.x = np.full(10, 1)
            shelf.persist()
            x = shelf.x
            shelf.persist()
            x[:] = 2
            mirror.unlink()
            with pytest.raises(ts.ShelfGone, match="mirror of medium 0"):
                shelf.persist()


def test_a_missing_mirror_is_needed_or_given_up(shelf_path: Path, mirror: Path) -> None:
    fill(shelf_path, mirror)
    mirror.unlink()
    with pytest.raises(ts.MediumMissing, match=r"medium 1 .*without="):
        ts.open(shelf_path)
    with ts.open(shelf_path, "r", mirror=mirror) as shelf:
        assert shelf.info().media[1].absent
        assert "missing" in repr(shelf.info())
        assert (shelf.large.numpy() == LARGE + 1).all()
    mirror.touch()  # as truncated: not what is locked by another
    for given in (None, mirror):
        with pytest.raises(ts.MediumMissing, match=rf"missing: {mirror} is another, or empty"):
            ts.open(shelf_path, mirror=given)
    mirror.unlink()
    with ts.open(shelf_path, without=1) as shelf:
        shelf.persist()
        shelf.persist()
    with ts.open(shelf_path, mirror=mirror) as shelf:  # another one
        shelf.persist(step=9)
    with ts.open(mirror, "r") as shelf:
        assert shelf.step == 9
        assert (shelf.large.numpy() == LARGE + 1).all()


def test_a_further_medium_is_mirrored_by_its_number(
    shelf_path: Path, mirror: Path, tmp_path: Path
) -> None:
    part = tmp_path / "run.part"
    with ts.open(shelf_path, also=part, mirror={1: mirror}, place={"large": part}) as shelf:
        shelf.large = LARGE
        shelf.persist(step=1)
        assert [each.mirrors for each in shelf.info().media] == [None, None, 1]
        with pytest.raises(ts.BadArgument, match=r"medium 2, and tensors of .* lie on 0, 1"):
            shelf.create("x", (3,), "int64", on=2)
    part.unlink()
    with pytest.raises(ts.MediumMissing, match="its mirror"):
        ts.open(shelf_path)
    with ts.open(shelf_path, "r") as shelf:
        assert (shelf.large.numpy() == LARGE).all()
        assert shelf.verify().ok


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mirror": 7}, "no path"),
        ({"mirror": {"x": "y"}}, "no number"),
        ({"mirror": {9: "y"}}, "no number"),
        ({"without": "1"}, "no number"),
        ({"without": [True]}, "no number"),
    ],
)
def test_what_is_no_mirror(shelf_path: Path, given: dict[str, object], says: str) -> None:
    with pytest.raises(ts.BadArgument, match=says):
        ts.open(shelf_path, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["a", "w"])
@pytest.mark.parametrize("argument", ["mirror", "also"])
@pytest.mark.parametrize("size", [5, 3000, 4096, 0x11000, 0x20000])
def test_a_file_of_somebody_is_not_written_over(
    shelf_path: Path, argument: str, mode: str, size: int
) -> None:
    notes = shelf_path.with_suffix(".txt")
    before = (bytes(size - 5) + b"lost?")[-size:]
    notes.write_bytes(before)
    ts.open(shelf_path, "x").close()
    with pytest.raises(ts.NotAShelf, match="not empty"):
        ts.open(shelf_path, mode, **{argument: notes})  # type: ignore[arg-type]
    assert notes.read_bytes() == before


def test_nothing_is_held_of_a_mirror_that_is_opened_by_itself(
    shelf_path: Path, mirror: Path
) -> None:
    fill(shelf_path, mirror)
    with ts.open(mirror, "r") as shelf:
        with pytest.raises(ts.UnsupportedError, match="can be held") as refused:
            shelf.pin()
        assert "snapshot()" in refused.value.remedy
        shelf.snapshot(shelf_path.with_name("copy.shelf"))
    with ts.open(shelf_path, "r", mirror=mirror) as shelf, shelf.pin() as held:
        assert f"PinnedVersion {shelf.version} " in str(held)


def test_what_is_lost_is_read_from_the_mirror_that_is_given(shelf_path: Path, mirror: Path) -> None:
    fill(shelf_path, mirror)
    whole = shelf_path.read_bytes()
    damages = [None, whole[:100_000], os.urandom(len(whole)), b""]
    for damaged in damages:
        if damaged is None:
            shelf_path.unlink()
        else:
            shelf_path.write_bytes(damaged)
        with pytest.warns(ts.TierWarning, match="its mirror is read in its place"):
            shelf = ts.open(shelf_path, "r", mirror=mirror)
        with shelf:
            assert (shelf.large.numpy() == LARGE + 1).all()
            assert "its mirror is read" in str(shelf.info())
        with pytest.raises(ts.ShelfError) as caught:
            ts.open(shelf_path, "r+", mirror=mirror)
        assert 'mode="r" opens' in caught.value.remedy
        _open._warned.clear()
    shelf_path.write_bytes(whole)
    ts.open(shelf_path, "r+", mirror=mirror).close()


def test_an_older_copy_does_not_take_the_mirror(shelf_path: Path, mirror: Path) -> None:
    fill(shelf_path, mirror)
    older = shelf_path.read_bytes()
    fill(shelf_path, mirror, step=2)
    shelf_path.write_bytes(older)
    with pytest.raises(ts.MediumMissing, match="older copy"):
        ts.open(shelf_path, mirror=mirror)
    with ts.open(mirror, "r") as shelf:
        assert shelf.step == 2


def test_what_rots_on_the_mirror_is_found_and_mended(shelf_path: Path, mirror: Path) -> None:
    fill(shelf_path, mirror)
    with mirror.open("r+b") as file:
        file.seek(mirror.stat().st_size // 2)
        file.write(os.urandom(4096))
    with ts.open(shelf_path) as shelf:
        found = shelf.verify()
        assert [(each.tensor, each.in_mirror) for each in found.damage] == [("large", True)]
        assert (shelf.large.numpy() == LARGE + 1).all()
        assert shelf.verify(repair=True).ok
        assert shelf.verify().ok
    with ts.open(mirror, "r") as shelf:
        assert shelf.verify().ok


def test_what_a_scrub_finds_on_the_mirror_is_mended_there(shelf_path: Path, mirror: Path) -> None:
    fill(shelf_path, mirror)
    with mirror.open("r+b") as file:
        file.seek(mirror.stat().st_size // 2)
        file.write(os.urandom(4096))
    with ts.open(shelf_path) as shelf:
        scrub = shelf.scrub("1TiB", repair=True, passes=1)
        assert scrub.wait()
        found = scrub.report().last
        assert found is not None
        (damage,) = found.damage
        assert (damage.tensor, damage.in_mirror, damage.healed) == ("large", True, True)
        assert shelf.verify().ok
    with ts.open(mirror, "r") as shelf:
        assert shelf.verify().ok


@pytest.mark.parametrize("mode", ["w", "a", "x"])
def test_a_refused_medium_leaves_no_shelf_behind_and_loses_none(
    shelf_path: Path, mirror: Path, mode: str
) -> None:
    notes = shelf_path.with_suffix(".txt")
    notes.write_text("not a medium")
    wrong: list[dict[str, object]] = [
        {"also": notes},
        {"mirror": notes},
        {"mirror": {1: mirror}},
        {"also": shelf_path},
        {"also": mirror, "mirror": mirror},
    ]
    for given in wrong:
        with pytest.raises(ts.ShelfError):
            ts.open(shelf_path, mode, **given)  # type: ignore[arg-type]
        assert not shelf_path.exists()
        assert not mirror.exists()
    fill(shelf_path, mirror)
    if mode == "x":
        with pytest.raises(ts.ShelfExists):
            ts.open(shelf_path, mode, mirror=mirror)
    for given in wrong:
        with pytest.raises(ts.ShelfError):
            ts.open(shelf_path, mode, **given)  # type: ignore[arg-type]
    with ts.open(shelf_path) as shelf:
        assert shelf.step == 1


def test_another_shelf_is_no_medium(shelf_path: Path, mirror: Path) -> None:
    ts.open(mirror, "x").close()
    for mode in ("a", "w"):
        with pytest.raises(ts.NotAShelf, match="a shelf by itself") as caught:
            ts.open(shelf_path, mode, also=mirror)
        assert "wipe" not in caught.value.remedy


def test_who_holds_a_medium_is_told(shelf_path: Path, mirror: Path) -> None:
    with ts.open(shelf_path, also=mirror) as shelf:
        shelf.persist()
        with pytest.raises(ts.ShelfBusy, match="mirror is still open"):
            ts.open(shelf_path.with_suffix(".other"), also=mirror)


def test_a_mirror_finds_the_others_where_they_were(shelf_path: Path, mirror: Path) -> None:
    bulk = shelf_path.with_suffix(".bulk")
    with ts.open(shelf_path, also=bulk, mirror=mirror) as shelf:
        shelf.create("x", 10, "int32", on=1)[:] = 7
        shelf.persist()
    shelf_path.unlink()
    with ts.open(mirror, "r") as shelf:
        assert (shelf.x.numpy() == 7).all()


def test_a_reader_goes_to_another_process_without_its_mirror(
    shelf_path: Path, mirror: Path
) -> None:
    fill(shelf_path, mirror)
    mirror.unlink()
    reader = ts.open(shelf_path, "r", mirror=mirror)
    with reader, pickle.loads(pickle.dumps(reader)) as copy:
        assert copy.version == reader.version
    # And one that reads the mirror in the place of what is lost.
    bulk, other = shelf_path.with_suffix(".bulk"), shelf_path.with_suffix(".other")
    with ts.open(shelf_path, "w", also=bulk, mirror={1: other}) as shelf:
        shelf.create("x", (1000,), "int32", on=1)[:] = 7
        shelf.persist()
    bulk.rename(bulk.with_suffix(".gone"))
    moved = other.rename(other.with_suffix(".moved"))
    reader = ts.open(shelf_path, "r", mirror={1: moved})
    with reader, pickle.loads(pickle.dumps(reader)) as copy:
        assert (copy.x.numpy() == 7).all()


def test_a_repair_is_told_where_media_are(shelf_path: Path, mirror: Path) -> None:
    bulk = shelf_path.with_suffix(".bulk")
    with ts.open(shelf_path, "w", also=bulk, mirror={1: mirror}) as shelf:
        shelf.create("x", (1000,), "int32", on=1)[:] = 7
        shelf.persist()
    moved = bulk.rename(bulk.with_suffix(".moved"))
    other = mirror.rename(mirror.with_suffix(".other"))
    with pytest.raises(ts.MediumMissing, match="also="):
        ts.repair(shelf_path, mirror={1: other})
    with pytest.raises(ts.MediumMissing, match="without="):
        ts.repair(shelf_path, also=moved)
    assert not ts.repair(shelf_path, also=moved, mirror={1: other}).repaired
    other.unlink()
    found = ts.repair(shelf_path, also=moved, without=2)
    assert not found.damage


def test_what_a_further_medium_cannot_do_is_told(shelf_path: Path, mirror: Path) -> None:
    script = f"""
import warnings
import tensorshelf as ts
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    with ts.open({str(shelf_path)!r}, tier="auto", mirror={str(mirror)!r}) as shelf:
        notes = {{note for each in shelf.info().media for note in each.promises.notes}}
        remarks = {{said for each in shelf.info().media for said in each.promises.remarks}}
        shown = str(shelf.info())
assert all(said in shown for said in notes | remarks), shown
told = " ".join(str(each.message) for each in seen)
assert all(note in told for note in notes), told
assert not any(said in told for said in remarks), told
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_mirror_of_what_there_is_not(shelf_path: Path, mirror: Path) -> None:
    with pytest.raises(ts.BadArgument, match="does not have"):
        ts.open(shelf_path, mirror={3: mirror})
    assert not mirror.exists()
    fill(shelf_path, mirror)
    with contextlib.closing(ts.open(shelf_path)) as shelf:
        shelf.remove_medium(1)
        shelf.persist()
        assert shelf.info().media[1].retired
