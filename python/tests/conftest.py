"""Fixtures: a shelf on each medium that any machine has, tmpfs (mapped) and a file (block)."""

import pathlib
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import Place

import tensorshelf as ts

TMPFS = pathlib.Path("/dev/shm")
OpenShelf = Callable[..., ts.Shelf]

# A shell ignores Ctrl-C for what it starts in the background, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def tmpfs() -> Iterator[pathlib.Path]:
    """A directory on tmpfs."""
    if not TMPFS.is_dir():
        pytest.skip("no tmpfs at /dev/shm")
    directory = tempfile.mkdtemp(prefix="tensorshelf-test-", dir=TMPFS)
    yield pathlib.Path(directory)
    shutil.rmtree(directory)


@pytest.fixture
def disk() -> Iterator[pathlib.Path]:
    """A directory where TMPDIR points, open to other users as pytest's own is not."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="tensorshelf-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def shelf_path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Of a shelf yet to be made, in a folder of this test's."""
    return tmp_path / "run.shelf"


@pytest.fixture(params=["tmpfs", "block"])
def place(request: pytest.FixtureRequest) -> Place:
    """(path of a shelf yet to be made, tier), on each medium in turn."""
    if request.param == "tmpfs":
        return request.getfixturevalue("tmpfs") / "run.shelf", "auto"
    return request.getfixturevalue("disk") / "run.shelf", "block"


@pytest.fixture
def reopen(place: Place) -> Iterator[OpenShelf]:
    """Opens the shelf of this test, closing the one that was opened before."""
    opened: list[ts.Shelf] = []

    def open_again(**options: Any) -> ts.Shelf:
        if opened:
            opened.pop().close()
        path, tier = place
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ts.TierWarning)
            opened.append(ts.open(path, **{"tier": tier, **options}))
        return opened[-1]

    yield open_again
    for shelf in opened:
        shelf.close()


@pytest.fixture
def shelf(reopen: OpenShelf) -> ts.Shelf:
    """A new, empty shelf on each medium in turn."""
    return reopen()


@pytest.fixture
def made(place: Place, reopen: OpenShelf) -> pathlib.Path:
    """A closed shelf with w (float32[4, 3]) at version 1 and a large tensor at versions 1 and 2."""
    shelf = reopen()
    shelf.w = np.ones((4, 3), np.float32)
    shelf.big = np.full(400_000, 0x0123456789ABCDEF)
    shelf.persist(1)
    shelf.big[...] = 0x1122334455667788
    shelf.persist(2)
    shelf.close()
    return place[0]
