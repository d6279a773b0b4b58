"""A stored shelf, read by section 3 of docs/design.md alone: nothing of tensorshelf is used.

Whoever reads the page can write such a reader; where the page said something else than the store
does, this would find no shelf.
"""

import ctypes
import ctypes.util
import lzma
import pathlib
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
PAGE, HEADER, CHUNK = 4096, 0x20000, 1 << 20
P1, P2, ALL = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, (1 << 64) - 1
VERSION = (1 << 40) - 1
FLOAT32 = 12


def library() -> ctypes.CDLL:
    name = ctypes.util.find_library("xxhash") or "libxxhash.so.0"
    try:
        loaded = ctypes.CDLL(name)
    except OSError:
        pytest.skip("no libxxhash to load")
    loaded.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    loaded.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    return loaded


def xxh3(data: bytes, seed: int = 0) -> int:
    return int(library().XXH3_64bits_withSeed(data, len(data), seed & ALL))


class Tensor(NamedTuple):
    tensor_id: int
    size: int
    first_cell: int
    dtype: int
    shape: tuple[int, ...]
    slots: list[int]


class Reader:
    """Of one image: the newest version."""

    def __init__(self, image: bytes) -> None:
        self.image = image
        block = image[:336]
        magic, self.format, self.k = struct.unpack_from("<8sII", block)
        assert magic == b"TSHELF\r\n"
        assert struct.unpack_from("<Q", block, 328)[0] == xxh3(block[:328], 0)
        shelf_id = block[40:56]
        assert struct.unpack_from("<III", block, 56) == (PAGE, CHUNK, 1)
        self.shelf_seed = xxh3(shelf_id)
        self.root = max(filter(None, map(self.root_at, range(self.k))), key=lambda r: r[0])[1]
        self.version = struct.unpack_from("<Q", self.root)[0] & VERSION

    def page_seed(self, place: int) -> int:
        return self.shelf_seed ^ (place * P1 & ALL)

    def root_at(self, home: int) -> tuple[int, bytes] | None:
        place = 0x10000 + home * PAGE
        page = self.image[place : place + PAGE]
        word, checksum, incarnation, sequence = struct.unpack_from("<QQQQ", page)
        blank = page[:8] + bytes(8) + page[16:]
        tag = xxh3(struct.pack("<QQ", incarnation, sequence)) & 0xFFFFFF
        version = word & VERSION
        if checksum != xxh3(blank, self.page_seed(place)) or word >> 40 != tag:
            return None
        assert version % self.k == home
        return version, page

    def incarnations(self) -> Iterator[int]:
        for copy in (0, 1):
            place = copy * HEADER + 0x1000
            number, checksum = struct.unpack_from("<QQ", self.image, place)
            assert checksum == xxh3(self.image[place : place + 8], self.page_seed(place))
            yield number

    def marks(self) -> Iterator[tuple[int, bytes]]:
        """Version and id; the one with the higher counter counts."""
        for copy in (0, 1):
            place = copy * HEADER + 0x2000
            record = self.image[place : place + 304]
            checksum = struct.unpack_from("<Q", record, 296)[0]
            assert checksum == xxh3(record[:296], self.page_seed(place))
            version = struct.unpack_from("<Q", record, 8)[0]
            length = struct.unpack_from("<I", record, 36)[0]
            yield version, record[40 : 40 + length]

    def page(self, ref: tuple[int, int, int]) -> bytes:
        first, second, checksum = ref
        for place in (first, second):
            page = self.image[place : place + PAGE]
            assert xxh3(page, self.page_seed(first)) == checksum
        return page

    def leaves(self) -> list[bytes]:
        count = struct.unpack_from("<I", self.root, 88)[0]
        refs = list(struct.iter_unpack("<QQQ", self.root[96 : 96 + 165 * 24]))
        flags = struct.unpack_from("<Q", self.root, 96 + 165 * 24)[0]
        pages = [self.page(ref) for ref in refs if ref[0]]
        if flags & 1 == 0:
            below = []
            for page in pages:
                assert struct.unpack_from("<I", page)[0] == 1
                below += [ref for ref in struct.iter_unpack("<QQQ", page[16:4096]) if ref[0]]
            pages = [self.page(ref) for ref in below]
        assert len(pages) == count
        return pages

    def tensors(self) -> dict[str, Tensor]:
        found = {}
        for leaf in self.leaves():
            kind, _, used, _ = struct.unpack_from("<IIII", leaf)
            at = 16
            while kind == 2 and at < used:
                tensor_id, size, cell, length = struct.unpack_from("<QQQI", leaf, at)
                dtype, dims, name, slots, _, _ = struct.unpack_from("<HHHHHH", leaf, at + 28)
                here = at + 40
                places = [struct.unpack_from("<Q", leaf, here + 16 * i)[0] for i in range(slots)]
                here += 16 * slots
                shape = struct.unpack_from(f"<{dims}q", leaf, here)
                here += 8 * dims
                tensor = Tensor(tensor_id, size, cell, dtype, shape, places)
                found[leaf[here : here + name].decode()] = tensor
                at += length
        return found

    def cells(self) -> dict[int, tuple[int, int]]:
        found = {}
        for leaf in self.leaves():
            kind, index, _, _ = struct.unpack_from("<IIII", leaf)
            if kind == 3:
                for i, cell in enumerate(struct.iter_unpack("<QQ", leaf[16:4096])):
                    found[index * 255 + i] = cell
        return found

    def value(self, tensor: Tensor) -> bytes:
        cells = self.cells()
        data = b""
        for chunk in range((tensor.size + CHUNK - 1) // CHUNK):
            checksum, state = cells[tensor.first_cell + chunk]
            size = min(CHUNK, tensor.size - chunk * CHUNK)
            kind, slot = state >> 48, state >> 40 & 0xFF
            assert state & VERSION <= self.version
            if kind == 2:
                data += bytes(size)
                continue
            assert kind == 1
            place = tensor.slots[slot] + chunk * CHUNK
            piece = self.image[place : place + size]
            seed = self.shelf_seed + (tensor.tensor_id * P1 & ALL ^ (chunk + 1) * P2 & ALL)
            assert xxh3(piece, seed) == checksum
            data += piece
        return data


@pytest.mark.parametrize("format", [2, 3, 4])
def test_the_page_is_enough_to_read_a_shelf(format: int) -> None:
    reader = Reader(lzma.decompress((GOLDEN / f"format-{format}-plain.shelf.xz").read_bytes()))
    assert (reader.format, reader.version) == (format, 3)
    assert struct.unpack_from("<Q", reader.root, 32)[0] == 20  # the step
    assert max(reader.incarnations()) >= 1
    tensors = reader.tensors()
    assert tensors["empty"].shape == (0, 5)
    assert reader.value(tensors["scalar"]) == struct.pack("<d", 2.5)
    single = tensors["all.float32"]
    assert (single.dtype, single.shape, single.size) == (FLOAT32, (2, 3, 4), 96)
    assert {len(reader.value(tensor)) - tensor.size for tensor in tensors.values()} == {0}
    assert tensors["big"].size > CHUNK


@pytest.mark.parametrize("format", [2, 3, 4])
def test_the_page_is_enough_to_find_what_is_prepared(format: int) -> None:
    name = f"format-{format}-prepared.shelf.xz"
    reader = Reader(lzma.decompress((GOLDEN / name).read_bytes()))
    assert reader.version == 1
    assert list(reader.marks()) == [(2, b"\x00golden\xff")] * 2


def test_the_page_is_enough_to_know_a_medium_beside_the_first() -> None:
    shelf, medium = (
        lzma.decompress((GOLDEN / f"format-4-media.{name}.xz").read_bytes())
        for name in ("shelf", "shelf.part")
    )
    versions = set()
    for place in (0, 0x10000):
        header = medium[place : place + 64]
        magic, format, index, features = struct.unpack_from("<8sIIQ", header)
        assert (magic, format, index, features) == (b"TSHELF+\n", 4, 1, 0)
        assert header[24:40] == shelf[40:56]
        assert struct.unpack_from("<Q", header, 56)[0] == xxh3(header[:56], place)
        (stamp,) = struct.unpack_from("<Q", medium, place + 0x1000)
        versions.add(stamp & VERSION)
        assert stamp >> 40 == xxh3(header[40:56], stamp & VERSION) & 0xFFFFFF
    assert len(versions) == 1
    assert max(versions) <= Reader(shelf).version


def test_every_tag_of_a_saved_state_stands_in_the_page() -> None:
    """And what is checked before it is read is what the page has."""
    checked = (ROOT / "python" / "tensorshelf" / "_state" / "checked.py").read_text()
    tables = re.findall(r"^_(?:LEAVES|BRANCHES): .*?^}", checked, re.MULTILINE | re.DOTALL)
    known = {tag for table in tables for tag in re.findall(r'^    "(\S+)":', table, re.MULTILINE)}
    page = (ROOT / "docs" / "design.md").read_text().partition("| tag | takes |")[2]
    rows = re.match(r"\n(\|.*\n)+", page)
    assert rows is not None
    first_cells = [row.split("|")[1] for row in rows[0].split("\n") if row]
    shown = {tag for cell in first_cells for tag in re.findall(r"`(\S+?)`", cell)}
    assert len(tables) == 2
    assert shown == known
