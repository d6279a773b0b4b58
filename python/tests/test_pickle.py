"""Shelves that go to other processes: open for reading they do, open for writing they do not."""

import copy
import multiprocessing
import os
import pathlib
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check, in_child

import tensorshelf as ts


def total(shelf: ts.Shelf) -> tuple[str, float, bool]:
    """Runs in a worker."""
    return shelf.info().path, float(shelf.x.numpy().sum()), shelf.info().writable


class Rows:
    """A data set as DataLoader hands it to its workers."""

    def __init__(self, shelf: ts.Shelf) -> None:
        self.shelf = shelf

    def __len__(self) -> int:
        return len(self.shelf.x)

    def __getitem__(self, index: int) -> float:
        if index >= len(self):
            raise IndexError(index)
        return float(self.shelf.x[index])


@pytest.fixture
def reader(place: Place, reopen: OpenShelf, monkeypatch: pytest.MonkeyPatch) -> Iterator[ts.Shelf]:
    """Open for reading, by a relative path."""
    shelf = reopen()
    shelf.x = np.arange(10.0)
    shelf.persist()
    shelf.close()
    monkeypatch.chdir(place[0].parent)
    with ts.open(place[0].name, mode="r", tier=place[1], verify="open") as reader:
        yield reader


def test_a_spawned_worker_opens_it_anew(reader: ts.Shelf, place: Place, tmp_path: object) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(total, (reader,)) == (str(place[0].resolve()), 45.0, False)
        assert pool.apply(list, (Rows(reader),)) == list(range(10))


def test_it_is_found_from_another_directory(
    reader: ts.Shelf, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = pickle.dumps(reader)
    monkeypatch.chdir(tmp_path)
    with pickle.loads(pickled) as found, copy.copy(reader) as copied:
        assert found.x[3] == copied.x[3] == 3
        assert found._opening.verify == "load"
    assert not reader.closed


def test_an_inherited_one_cannot_be_pickled(reader: ts.Shelf) -> None:
    def body() -> None:
        with pytest.raises(ts.ForkedError):
            pickle.dumps(reader)

    assert in_child(body) == 0


def test_one_open_for_writing_refuses(shelf: ts.Shelf) -> None:
    with pytest.raises(TypeError, match=r'open for writing.*Give workers the path.*mode="r"'):
        pickle.dumps(shelf)
    shelf.close()
    with pytest.raises(ts.ClosedError):
        pickle.dumps(shelf)


def test_opening_twice_names_who_holds_it(shelf: ts.Shelf, place: Place) -> None:
    """Also where the file has another name by now, or is reached by another."""
    path = place[0]
    link = path.with_name("link.shelf")
    link.symlink_to(path)
    moved = path.with_name("moved.shelf")
    os.link(path, moved)
    for name in (path, link, moved):
        with pytest.raises(BlockingIOError) as caught:
            ts.open(name, tier=place[1])
        error = check(caught, ts.ShelfBusy, "shelf_busy", BlockingIOError)
        assert f"{name} is open for writing here already" in error.what
        other = "" if name == path else f" as {path}"
        assert error.what.endswith(f": conftest.py, line {_opening_line()} opened it{other}")
    path.unlink()  # moved while open
    with pytest.raises(ts.ShelfBusy, match=f"conftest.py, .* opened it as {path}"):
        ts.open(moved, tier=place[1])


def test_errors_keep_what_they_say() -> None:
    for error in (ts.ShelfBusy("a", "b", 35), ts.IoError("c"), ts.UnknownName("d", "e")):
        found = pickle.loads(pickle.dumps(error))
        assert (type(found), str(found)) == (type(error), str(error))
        assert getattr(found, "errno", None) == getattr(error, "errno", None)
    group = ts.GroupAborted("f") if hasattr(ts, "GroupAborted") else ts.GroupError("f")
    group.rank = 3
    assert pickle.loads(pickle.dumps(group)).rank == 3


def _opening_line() -> int:
    text = pathlib.Path(__file__).with_name("conftest.py").read_text("utf-8")
    return next(i for i, line in enumerate(text.split("\n"), 1) if "ts.open(path, **" in line)
