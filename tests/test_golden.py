"""Shelves of every format as builds wrote them: this one opens them, and goes on with them."""

import pathlib
import sys

import numpy as np
import pytest

import tensorshelf as ts

sys.path.insert(0, str(pathlib.Path(__file__).parent / "golden"))
from make import CHUNK, DTYPES, FORMATS, PART, SHELVES, large, packed, parts, same, unpack, value


def check_plain(shelf: ts.Shelf) -> None:
    assert (shelf.version, shelf.step) == (3, 20)
    assert len(shelf) == len(DTYPES) + 4
    for index, dtype in enumerate(DTYPES):
        assert same(shelf[f"all.{dtype}"], value(index, 24, dtype).reshape(2, 3, 4)), dtype
    assert same(shelf["größe/ß 名前"], value(50, 7))
    assert shelf.empty.shape == (0, 5)
    assert shelf.scalar.numpy()[()] == 2.5
    big = large()
    big[10:20] = value(53, 10)
    big[-5:] = value(54, 5)
    assert same(shelf.big, big)


def kept_bytes(version: int) -> np.ndarray:
    array = np.zeros(3 * CHUNK, "uint8")
    array[CHUNK : CHUNK + 1000] = value(version, 1000, "uint8")
    return array


def check_kept(shelf: ts.Shelf) -> None:
    assert [(found.version, found.step) for found in shelf.versions] == [(3, 30), (4, 40), (5, 50)]
    assert (shelf.info().keep, shelf.info().in_flight) == (2, 3)
    for version in (3, 4, 5):
        old = shelf.at(version)
        assert list(old) == [f"only{version}", "w"]
        assert same(old.w, kept_bytes(version))
        assert same(old[f"only{version}"], value(version, 5))
    assert same(shelf.w, kept_bytes(5))


def check_rolled(shelf: ts.Shelf) -> None:
    assert [(found.version, found.step) for found in shelf.versions] == [(4, 20), (5, 50)]
    assert (shelf.info().keep, shelf.info().in_flight) == (1, 3)
    assert same(shelf.w, value(2, 1000))
    assert same(shelf.late, value(9, 10))


def check_prepared(shelf: ts.Shelf) -> None:
    assert (shelf.version, shelf.step) == (1, 10)
    assert same(shelf.w, value(1, 1000))
    assert same(shelf.v, value(2, 10))
    made = shelf.prepared
    assert made is not None
    assert (made.version, made.step, made.id) == (2, 20, b"\x00golden\xff")


def check_long_names(shelf: ts.Shelf) -> None:
    assert (shelf.version, shelf.step) == (2, 20)
    for version, count in ((shelf.at(1), 300), (shelf, 600)):
        assert len(version) == count
        for number, name in enumerate(version):
            assert name == f"{number:0>1000}"
            assert same(version[name], value(number, 2, "uint8"))


def check_media(shelf: ts.Shelf) -> None:
    assert [(found.version, found.step) for found in shelf.versions] == [(1, 10), (2, 20)]
    stripes = np.zeros(3 * CHUNK, "uint8")
    stripes[:5] = value(3, 5, "uint8")
    assert same(shelf.at(1)["stripes"], stripes)
    stripes[-5:] = value(4, 5, "uint8")
    assert same(shelf.stripes, stripes)
    for version in (shelf.at(1), shelf):
        assert same(version["here"], value(1, 10))
        assert same(version["there"], value(2, 1000))


CHECKS = {
    "plain": check_plain,
    "kept": check_kept,
    "rolled": check_rolled,
    "prepared": check_prepared,
    "long_names": check_long_names,
    "media": check_media,
}
KEPT = [(name, number) for number in FORMATS for name in CHECKS]
for absent in (("long_names", 2), ("media", 2), ("media", 3)):
    KEPT.remove(absent)


def test_every_one_is_checked() -> None:
    assert set(CHECKS) == set(SHELVES)
    folder = pathlib.Path(__file__).parent / "golden"
    beside = {packed("media", 4, PART)}
    assert set(folder.glob("*.xz")) == {packed(name, number) for name, number in KEPT} | beside


def number_of(path: str) -> int:
    """Of its format, as the superblock states it."""
    return int.from_bytes(pathlib.Path(path).read_bytes()[8:12], "little")


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize(("name", "number"), KEPT)
def test_it_is_as_it_was(tmp_path: pathlib.Path, name: str, number: int, mode: str) -> None:
    path = unpack(name, number, tmp_path)
    assert number_of(path) == number
    before = pathlib.Path(path).read_bytes()
    with ts.open(path, mode, verify="open", also=parts(path)) as shelf:
        CHECKS[name](shelf)
        assert shelf.verify()
        recovery = shelf.info().recovery
        assert not recovery.degraded
        assert not recovery.interrupted
        assert recovery.repaired_copies == 0
        assert recovery.notes == ()
    if mode == "r":
        assert pathlib.Path(path).read_bytes() == before


@pytest.mark.parametrize(("name", "number"), [kept for kept in KEPT if kept[0] != "prepared"])
def test_it_goes_on(tmp_path: pathlib.Path, name: str, number: int) -> None:
    path = unpack(name, number, tmp_path)
    with ts.open(path, "r+", also=parts(path)) as shelf:
        version = shelf.version
        shelf.added = np.arange(100_000.0)
        for _ in range(4):
            shelf.added += 1
            version += 1
            assert shelf.persist().version == version
        expected = shelf.added.numpy(copy=True)
    with ts.open(path, "r") as shelf:
        assert shelf.version == version
        assert same(shelf.added, expected)
        assert shelf.verify()
    assert number_of(path) == number


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("decision", ["commit", "abandon"])
def test_what_is_prepared_is_decided(tmp_path: pathlib.Path, decision: str, number: int) -> None:
    path = unpack("prepared", number, tmp_path)
    with ts.open(path, "r+") as shelf:
        shelf.resolve("commit" if decision == "commit" else "abandon")
    with ts.open(path, "r+") as shelf:
        assert shelf.prepared is None
        if decision == "abandon":
            assert (shelf.version, sorted(shelf)) == (1, ["v", "w"])
            assert same(shelf.w, value(1, 1000))
            return
        assert (shelf.version, shelf.step, sorted(shelf)) == (2, 20, ["new", "w"])
        expected = value(1, 1000).copy()
        expected[:10] = value(3, 10)
        assert same(shelf.w, expected)
        assert same(shelf.new, value(4, 10))
        assert shelf.verify()
