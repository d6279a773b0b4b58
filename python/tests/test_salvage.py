"""Shelves that open() calls corrupt, damaged in their files: shown where whole, and repaired."""

import os
import pathlib
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from support import Place, check

import tensorshelf as ts

PAGE = 4096
HEADER = 0x20000  # of the second copies
INCARNATION, ROOTS = 0x1000, 0x10000
GARBAGE = b"\x5a" * PAGE

OpenShelf = Callable[..., ts.Shelf]


def spoil(path: pathlib.Path, *places: int) -> None:
    """Overwrites a page at each place, as no program should."""
    file = os.open(path, os.O_WRONLY)
    for place in places:
        os.pwrite(file, GARBAGE, place)
    os.fsync(file)
    os.close(file)


def both(place: int) -> tuple[int, int]:
    return place, place + HEADER


@pytest.fixture
def path(place: Place, reopen: OpenShelf) -> pathlib.Path:
    """A closed shelf at version 3: a of each version, b of the first, big of the second."""
    shelf = reopen()
    shelf.a = np.full(1000, 1.0)
    shelf.b = np.full(1000, 0x0102030405060708)
    shelf.persist(1)
    shelf.a = np.full(1000, 2.0)
    shelf.big = np.arange(400_000)
    shelf.persist(2)
    shelf.a = np.full(1000, 3.0)
    shelf.persist(3)
    shelf.close()
    return place[0]


def lose_root_and_chunk(path: pathlib.Path) -> None:
    """Both copies of the home after the newest root's, and a page of b."""
    rotten = path.read_bytes().index((0x0102030405060708).to_bytes(8, "little") * 500)
    spoil(path, *both(ROOTS), rotten)


def check_salvaged(shelf: ts.Shelf) -> None:
    assert (shelf.version, shelf.step, set(shelf)) == (3, 3, {"a", "b", "big"})
    assert (shelf.a.numpy() == 3.0).all()
    assert (shelf.big.numpy() == np.arange(400_000)).all()
    with pytest.raises(ts.CorruptError, match="'b'"):
        shelf.b.numpy()
    assert {damage.tensor for damage in shelf.verify().damage} == {"b"}


def test_salvage_shows_what_is_whole(path: pathlib.Path, reopen: OpenShelf) -> None:
    lose_root_and_chunk(path)
    before = path.read_bytes()
    for mode in ("r", "r+", "a"):
        with pytest.raises(ts.CorruptError) as caught:
            reopen(mode=mode)
        error = check(caught, ts.CorruptError, "corrupt", ts.ShelfError)
        assert 'mode="r", salvage=True' in error.remedy
        assert "repair()" in error.remedy
    shelf = reopen(mode="r", salvage=True)
    check_salvaged(shelf)
    check_salvaged(pickle.loads(pickle.dumps(shelf)))
    found = shelf.info().recovery
    assert (found.degraded, found.salvaged, found.lost) == (True, True, (4,))
    assert "version 4 may have been acknowledged, and is lost" in str(shelf.info())
    with pytest.raises(ts.ReadOnlyError):
        shelf.a = np.zeros(1000)
    assert path.read_bytes() == before


def test_repair_makes_it_writable(
    path: pathlib.Path, place: Place, reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    lose_root_and_chunk(path)
    shown: list[tuple[int, int]] = []
    done = ts.repair(path, tier=place[1], progress=lambda *at: shown.append(at))
    assert (done.repaired, done.version, done.step, done.lost) == (True, 3, 3, (4,))
    assert done.damaged == ("b",)
    assert done.damage[0].chunk == 0
    assert "'b'" in str(done)
    assert "version 4" in str(done)
    assert "Version 4 may have been acknowledged" in caplog.text
    assert shown[-1][0] == shown[-1][1] > 0

    again = ts.repair(path, tier=place[1])
    assert (again.repaired, again.lost, again.damaged) == (False, (), ("b",))
    assert "no need" in str(again)

    shelf = reopen(mode="r+")
    check_salvaged(shelf)
    assert not shelf.info().recovery.degraded
    shelf.b = np.full(1000, 5)
    assert shelf.persist(4).version == 4
    shelf = reopen(mode="r", verify="open")
    assert (shelf.b.numpy() == 5).all()
    assert ts.repair(path, tier=place[1]).damage == ()


def test_repair_finds_a_lost_incarnation(
    path: pathlib.Path, place: Place, reopen: OpenShelf
) -> None:
    number = reopen(mode="r+").info().incarnation
    reopen(mode="r").close()
    spoil(path, *both(INCARNATION))
    with pytest.raises(ts.CorruptError, match=r"repair\(\)"):
        reopen(mode="r+")
    assert (reopen(mode="r").b.numpy() == 0x0102030405060708).all()  # needs no number
    done = ts.repair(path, tier=place[1])
    assert (done.repaired, done.lost, done.damage) == (True, (), ())
    shelf = reopen(mode="r+", verify="open")
    assert shelf.info().incarnation > number
    assert (shelf.version, shelf.persist().version) == (3, 4)


def test_repair_of_both(path: pathlib.Path, place: Place, reopen: OpenShelf) -> None:
    lose_root_and_chunk(path)
    spoil(path, *both(INCARNATION))
    check_salvaged(reopen(mode="r", salvage=True))
    assert ts.repair(path, tier=place[1]).damaged == ("b",)
    check_salvaged(reopen(mode="r+"))


def test_what_cannot_be_repaired(path: pathlib.Path, place: Place, reopen: OpenShelf) -> None:
    spoil(path, *both(ROOTS), *both(ROOTS + PAGE))
    before = path.read_bytes()
    for call in (
        lambda: reopen(mode="r", salvage=True),
        lambda: ts.repair(path, tier=place[1]),
    ):
        with pytest.raises(ts.CorruptError) as caught:
            call()
        assert "no root verifies" in str(caught.value)
        assert caught.value.remedy == "Restore the file from a copy."
    assert path.read_bytes() == before


def test_a_shelf_that_opens_is_left_alone(
    path: pathlib.Path, place: Place, reopen: OpenShelf
) -> None:
    before = path.read_bytes()
    done = ts.repair(path, tier=place[1])
    assert (done.repaired, done.version, done.damage) == (False, 3, ())
    shelf = reopen(mode="r", salvage=True)
    assert not shelf.info().recovery.salvaged
    assert shelf.info().recovery.lost == ()
    assert path.read_bytes() == before


def test_repair_takes_the_lock_and_says_who_has_it(
    path: pathlib.Path, place: Place, reopen: OpenShelf
) -> None:
    reopen(mode="r+")
    with pytest.raises(ts.ShelfBusy) as caught:
        ts.repair(path, tier=place[1])
    check(caught, ts.ShelfBusy, "shelf_busy", BlockingIOError)


def test_what_is_refused(path: pathlib.Path, place: Place, reopen: OpenShelf) -> None:
    for mode in ("a", "r+", "w", "x"):
        with pytest.raises(ts.BadArgument, match="reading"):
            reopen(mode=mode, salvage=True)
    for verify in ("none", "open"):
        with pytest.raises(ts.BadArgument, match="verif"):
            reopen(mode="r", verify=verify, salvage=True)
    with pytest.raises(ts.BadArgument):
        ts.repair(path, tier="tape")
    with pytest.raises(ts.ShelfNotFound, match=r"nothing to repair.*Check the path"):
        ts.repair(path.with_name("none.shelf"), tier=place[1])
    path.with_name("text").write_text("no shelf " * 1000)
    with pytest.raises(ts.NotAShelf):
        ts.repair(path.with_name("text"), tier=place[1])
    assert reopen(mode="r").version == 3
