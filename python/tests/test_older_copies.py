"""Older copies of a shelf's own file, beside media that have more."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import tensorshelf as ts

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
