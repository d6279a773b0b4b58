"""Older copies of a shelf's own file, beside media that have more."""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import tensorshelf as ts

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

LARGE = np.arange(3 * (1 << 20) // 8)


def fill(path: Path, step: int, **media: Path) -> None:
    with ts.open(path, tier="block", **media) as shelf:  # type: ignore[arg-type]
        shelf.small = np.full(10, step)
        shelf.large = LARGE + step
        shelf.persist(step=step)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "run.mirror"


@pytest.fixture
def older(shelf_path: Path, mirror: Path) -> Path:
    """A shelf at step 2 whose own file was put back from a copy made at step 1."""
    fill(shelf_path, 1, mirror=mirror)
    copy = shelf_path.read_bytes()
    fill(shelf_path, 2, mirror=mirror)
    shelf_path.write_bytes(copy)
    return shelf_path


@pytest.mark.parametrize("given", [True, False], ids=["given", "found"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_one_is_not_shown_beside_a_newer_mirror(
    older: Path, mirror: Path, mode: str, given: bool
) -> None:
    with pytest.raises(ts.MediumMissing, match="version 2, and version 1 is") as caught:
        ts.open(older, mode, mirror=mirror if given else None)
    assert f'mode="r" opens {mirror}' in caught.value.remedy
    with ts.open(mirror, "r") as shelf:
        assert shelf.step == 2
        assert (shelf.large.numpy() == LARGE + 2).all()
        shelf.snapshot(older.with_suffix(".whole"))
    with ts.open(older.with_suffix(".whole")) as shelf:
        assert (shelf.large.numpy() == LARGE + 2).all()
    os.rename(mirror, mirror.with_suffix(".away"))
    with ts.open(older, "r") as shelf:
        assert shelf.step == 1
        assert (shelf.large.numpy() == LARGE + 1).all()


def test_one_is_not_called_whole(older: Path, mirror: Path) -> None:
    with pytest.raises(ts.MediumMissing, match="older copy"):
        ts.repair(older, mirror=mirror)


def test_one_is_shown_by_salvage(older: Path, mirror: Path) -> None:
    with ts.open(older, "r", mirror=mirror, salvage=True) as shelf:
        assert shelf.step == 1


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_one_is_not_shown_beside_other_media(shelf_path: Path, tmp_path: Path, mode: str) -> None:
    part = tmp_path / "run.part"
    fill(shelf_path, 1, also=part)
    older = shelf_path.read_bytes()
    for step in range(2, 9):
        fill(shelf_path, step, also=part)
    shelf_path.write_bytes(older)
    with pytest.raises(ts.MediumMissing, match="own medium is an older copy: version 8 wrote"):
        ts.open(shelf_path, mode)


def test_readers_open_beside_a_writer_and_its_mirror(shelf_path: Path, mirror: Path) -> None:
    with ts.open(shelf_path, mirror=mirror) as writer:
        for step in range(1, 100):
            writer.small = np.full(10, step)
            writer.persist(step=step)
            with ts.open(shelf_path, "r") as shelf, ts.open(mirror, "r") as alone:
                assert (shelf.step, alone.step) == (step, step)


def test_links_lead_to_where_the_shelf_is(tmp_path: Path) -> None:
    folder, linked = tmp_path / "real", tmp_path / "linked"
    folder.mkdir()
    linked.symlink_to(folder)
    fill(folder / "run.shelf", 1, also=tmp_path / "elsewhere.part")
    (tmp_path / "run").symlink_to(folder / "run.shelf")
    for path in (linked / "run.shelf", tmp_path / "run"):
        with ts.open(path) as shelf:
            assert (shelf.large.numpy() == LARGE + 1).all()
            shelf.small = np.full(10, 2)
            shelf.persist()
    with ts.open(folder / "run.shelf", "r") as shelf:
        assert (shelf.small.numpy() == 2).all()
    shutil.copy(folder / "run.shelf", tmp_path / "copy.shelf")
    with pytest.raises(ts.MediumMissing, match="moved or copied since"):
        ts.open(tmp_path / "copy.shelf", "r")


PAGE = 4096


IN_MIRROR = 0x20000


def lose(path: Path, version: int, slots: int, begin: int = 0) -> None:
    """Both copies of the root of that version."""
    with path.open("r+b") as file:
        for copy in (0x10000, 0x30000):
            file.seek(begin + copy + version % slots * PAGE)
            file.write(bytes(PAGE))


def test_a_mirror_that_was_given_up_is_no_measure(shelf_path: Path, mirror: Path) -> None:
    with ts.open(shelf_path, mirror=mirror, keep=2) as shelf:
        for step in range(1, 8):
            shelf.x = np.full(10, step)
            shelf.persist(step=step)
    lose(shelf_path, 7, 4)
    lose(shelf_path, 6, 4)
    lose(mirror, 5, 4, IN_MIRROR)  # so that no root is the same on both
    with ts.open(shelf_path) as shelf:
        assert shelf.info().recovery.degraded
        assert shelf.step == 5
        shelf.persist(step=9)
    for mode in ("r", "r+"):
        with ts.open(shelf_path, mode) as shelf:
            assert (shelf.step, shelf.x[0]) == (9, 5)
    with ts.open(mirror, "r") as shelf:
        assert (shelf.step, shelf.x[0]) == (7, 7)


def test_all_roots_that_are_lost_are_read_from_the_mirror(shelf_path: Path, mirror: Path) -> None:
    with ts.open(shelf_path, mirror=mirror, keep=2) as shelf:
        for step in range(1, 8):
            shelf.x = np.full(10, step)
            shelf.persist(step=step)
    lose(shelf_path, 7, 4)
    lose(shelf_path, 6, 4)
    for mode in ("r", "r+", "r"):
        with ts.open(shelf_path, mode) as shelf:
            assert [each.step for each in shelf.versions] == [5, 6, 7]
            assert [shelf.at(version).x[0] for version in (5, 6, 7)] == [5, 6, 7]
            assert not shelf.info().recovery.degraded


def test_an_older_mirror_does_not_stand_for_a_shelf_with_a_damaged_chunk(
    shelf_path: Path, mirror: Path
) -> None:
    fill(shelf_path, 1, mirror=mirror)
    away = mirror.rename(mirror.with_suffix(".away"))
    with ts.open(shelf_path, without=1) as shelf:
        shelf.large = LARGE + 2
        shelf.persist(step=2)
    away.rename(mirror)
    content = bytearray(shelf_path.read_bytes())
    content[content.index((LARGE + 2)[-2:].tobytes())] ^= 1
    shelf_path.write_bytes(content)
    for mode in ("r", "r+"):
        with pytest.raises(ts.CorruptError, match="'large'") as caught:
            ts.open(shelf_path, mode, verify="open", mirror=mirror)
        assert "Or go on from its mirror" not in caught.value.remedy
    shelf_path.write_bytes(b"lost")
    with ts.open(shelf_path, "r", mirror=mirror) as shelf:  # all that is left
        assert shelf.step == 1


def test_a_mirror_that_was_given_up_long_ago_does_not_stand_for_lost_roots(
    shelf_path: Path, mirror: Path
) -> None:
    fill(shelf_path, 1, mirror=mirror)
    away = mirror.rename(mirror.with_suffix(".away"))
    for step in (2, 3):
        with ts.open(shelf_path, without=1) as shelf:
            shelf.small = np.full(10, step)
            shelf.persist(step=step)
    away.rename(mirror)
    for version in (2, 3):
        lose(shelf_path, version, 2)
    with pytest.raises(ts.CorruptError, match="no root verifies"):
        ts.open(shelf_path, "r", mirror=mirror)
    with ts.open(mirror, "r") as shelf:  # who wants that says so
        assert shelf.step == 1


def test_a_mirror_that_is_not_there_is_told_to_who_reads(
    shelf_path: Path, mirror: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(shelf_path, 1, mirror=mirror)
    with ts.open(shelf_path, "r", mirror=mirror) as shelf:
        assert shelf.version == 1
    assert not caplog.records
    with ts.open(shelf_path, "r", mirror=f"{mirror}or") as shelf:
        assert shelf.version == 1
    assert f"its mirror {mirror}or is not there" in caplog.text


def test_a_medium_that_is_given_and_lost_is_read_from_its_mirror(
    shelf_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    part, mirror = tmp_path / "run.part", tmp_path / "part.mirror"
    with ts.open(shelf_path, also=part, mirror={1: mirror}) as shelf:
        shelf.create("w", (50,), "float32", on=1)[:] = 1.0
        shelf.persist()
    part.unlink()
    with ts.open(shelf_path, "r", also=part, mirror={1: mirror}) as shelf:
        assert (shelf.w.numpy() == 1).all()
    assert f"its medium {part} is not there" in caplog.text
    with pytest.raises(ts.ShelfNotFound, match=r"run\.part"):
        ts.open(shelf_path, "r", also=part)


def test_an_older_copy_of_what_is_mirrored_is_read_with_its_mirror(
    shelf_path: Path, tmp_path: Path
) -> None:
    part, mirror = tmp_path / "run.part", tmp_path / "part.mirror"
    for step in (1, 2):
        with ts.open(shelf_path, also=part, mirror={1: mirror}, tier="block") as shelf:
            shelf.large = LARGE + step
            shelf.persist(step=step)
        if step == 1:
            older = part.read_bytes()
    part.write_bytes(older)
    with pytest.raises(ts.MediumMissing, match="older copy of medium 1"):
        ts.open(shelf_path)
    with ts.open(shelf_path, "r") as shelf:
        assert (shelf.large.numpy() == LARGE + 2).all()
        assert "its mirror is read where they differ" in str(shelf.info())


@pytest.mark.parametrize("size", [0, 4096, 69_632, 71_864, 140_000])
def test_a_mirror_that_was_cut_short_is_told_as_that(size: int) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        path, mirror = Path(name) / "run.shelf", Path(name) / "mirror"
        with ts.open(path, mirror=mirror) as shelf:
            shelf.x = np.arange(10)
            shelf.persist(step=1)
        os.truncate(mirror, size)
        with pytest.raises(ts.ShelfError):
            ts.open(mirror, "r")
        with ts.open(path, "r", mirror=mirror) as shelf:
            assert (shelf.x.numpy() == np.arange(10)).all()
        away = path.rename(path.with_suffix(".lost"))
        with pytest.raises(ts.ShelfError):
            ts.open(path, "r", mirror=mirror)
        away.rename(path)
        with ts.open(path, without=1) as shelf:
            shelf.persist()
        with ts.open(path, "r", mirror=mirror) as shelf:
            assert (shelf.x.numpy() == np.arange(10)).all()


def test_a_mirror_without_a_header_keeps_no_reader_out(shelf_path: Path, mirror: Path) -> None:
    fill(shelf_path, 1, mirror=mirror)
    with mirror.open("r+b") as file:
        file.write(b"x" * 140_000)
    with ts.open(shelf_path, "r", mirror=mirror) as shelf:
        assert (shelf.large.numpy() == LARGE + 1).all()
        assert f"{mirror} is not read as a mirror" in str(shelf.info())
    with pytest.raises(ts.NotAShelf):
        ts.open(shelf_path, mirror=mirror)


def test_a_reader_hears_that_what_it_was_given_is_a_medium_now(
    shelf_path: Path, tmp_path: Path
) -> None:
    part = tmp_path / "run.part"
    with ts.open(shelf_path) as shelf:
        shelf.persist(step=1)
    part.touch()
    with ts.open(shelf_path, "r", also=part) as reader:
        fill(shelf_path, 2, also=part)
        assert reader.refresh()
        assert (reader.large.numpy() == LARGE + 2).all()


def test_what_versions_before_the_newest_need_is_told(shelf_path: Path, tmp_path: Path) -> None:
    part = tmp_path / "run.part"
    with ts.open(shelf_path, also=part, keep=2, tier="block") as shelf:
        shelf.large = LARGE
        shelf.persist(step=1)
        shelf.remove_medium(1)
        shelf.persist(step=2)
    part.unlink()
    with pytest.raises(ts.MediumMissing, match="it was removed, and versions before") as caught:
        ts.open(shelf_path)
    assert 'mode="r" shows the newest version' in caught.value.remedy
    with ts.open(shelf_path, "r") as shelf:
        assert (shelf.large.numpy() == LARGE).all()


def test_part_of_a_tensor_is_assigned_over_what_the_mirror_has(
    shelf_path: Path, mirror: Path
) -> None:
    fill(shelf_path, 1, mirror=mirror)
    data = shelf_path.read_bytes()
    at = data.index((LARGE + 1).tobytes()[:64])
    shelf_path.write_bytes(data[: at + 8000] + b"rotten" + data[at + 8006 :])
    want = LARGE + 1
    want[0] = 7
    with ts.open(shelf_path) as shelf:
        shelf.large[0] = 7
        shelf.persist()
        assert (shelf.large.numpy() == want).all()
    with ts.open(shelf_path, "r") as shelf:
        assert shelf.verify().ok
        assert (shelf.large.numpy() == want).all()


def test_a_mirror_that_only_what_is_prepared_names_is_found(shelf_path: Path, mirror: Path) -> None:
    with ts.open(shelf_path) as shelf:
        shelf.x = np.zeros(10)
        shelf.persist(step=1)
    with ts.open(shelf_path, mirror=mirror) as shelf:
        shelf.x = np.ones(10)
        shelf.prepare(step=2)
    with ts.open(shelf_path) as shelf:
        assert [each.absent for each in shelf.info().media] == [False, False]
        shelf.resolve("commit")
        shelf.x = np.full(10, 3.0)
        shelf.persist(step=3)
    with ts.open(mirror, "r") as shelf:
        assert (shelf.step, shelf.x[0]) == (3, 3)


def test_a_reader_goes_on_to_a_mirror_that_is_new(shelf_path: Path, mirror: Path) -> None:
    with ts.open(shelf_path) as shelf:
        shelf.x = np.zeros(10)
        shelf.persist(step=1)
    with ts.open(shelf_path, "r") as reader:
        fill(shelf_path, 2, mirror=mirror)
        assert reader.refresh()
        assert [each.absent for each in reader.info().media] == [False, False]
