"""What a call that is refused leaves behind in the native half: no memory, and nothing noted."""

import contextlib
import gc
import os
import pathlib
import sys
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from conftest import OpenShelf, Place

import tensorshelf as ts


@pytest.mark.parametrize("change", ["assigned", "deleted"])
@pytest.mark.parametrize(
    "commit",
    [
        ts.Shelf.persist,
        lambda shelf: shelf.persist(wait=False),
        lambda shelf: shelf.prepare(id=b"g"),
    ],
)
def test_a_commit_that_is_refused_persists_no_assignment(
    reopen: OpenShelf, place: Place, commit: Callable[[ts.Shelf], object], change: str
) -> None:
    shelf = reopen()
    shelf.x = shelf.y = np.zeros(3)
    shelf.persist()
    shelf.y[...] = np.ones(3)
    handle = shelf.y
    if change == "deleted":
        del shelf.y
    os.unlink(place[0])
    with pytest.raises(ts.ShelfGone):
        commit(shelf)
    shelf.discard()
    with pytest.raises(ts.UnsupportedError, match="'y' was assigned after this handle"):
        shelf.x = handle
    assert not shelf.x.numpy().any()


def assign_whole(shelf: ts.Shelf, array: np.ndarray) -> None:
    shelf.x[...] = array


def assign_by_name(shelf: ts.Shelf, array: np.ndarray) -> None:
    shelf["x"] = array


def assign_in_an_edit(shelf: ts.Shelf, array: np.ndarray) -> None:
    with shelf.x.edit():
        shelf.x[...] = array


def assign_when_closed(shelf: ts.Shelf, array: np.ndarray) -> None:
    handle = shelf.x
    shelf.close()
    handle[...] = array


ASSIGN = [assign_whole, assign_by_name, assign_in_an_edit, assign_when_closed]


@pytest.mark.parametrize("assign", ASSIGN)
@pytest.mark.parametrize(
    ("shape", "dtype"), [((4,), "f4"), ((4,), "f8"), ((2, 2), "f4"), ((5,), "f4"), ((), "f4")]
)
def test_an_array_is_let_go_whatever_becomes_of_its_assignment(
    shelf: ts.Shelf,
    assign: Callable[[ts.Shelf, np.ndarray], None],
    shape: "tuple[int, ...]",
    dtype: str,
) -> None:
    shelf.x = np.zeros(4, "f4")
    array = np.ones(shape, dtype)
    before = sys.getrefcount(array)
    with contextlib.suppress(ts.ShelfError):
        assign(shelf, array)
    assert sys.getrefcount(array) == before
    there = weakref.ref(array)
    del array
    gc.collect()
    assert there() is None


def resident() -> int:
    """In bytes."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("of", ["newest", "version"])
def test_a_copy_that_a_memoryview_shows_goes_with_it(shelf: ts.Shelf, of: str) -> None:
    size = 4 << 20
    shelf.x = np.ones(size, "u1")
    shelf.persist()
    handle = shelf.x if of == "newest" else shelf.at(1).x
    for _ in range(3):
        memoryview(handle).release()
    before = resident()
    for _ in range(12):
        with memoryview(handle) as view:
            assert view[size - 1] == 1
    assert resident() - before < 5 * size
