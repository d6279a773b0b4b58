"""A tensor of the parts that ranks have of it, read where they lie."""

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tensorshelf._group.pieces import Piece, Region
from tensorshelf._state import tensors
from tensorshelf._state.reader import Reader
from tensorshelf._values._dtypes import Array
from tensorshelf._values._index import Box
from tensorshelf.errors import BadArgument


class Source(Protocol):
    """What has the bytes of a part."""

    def _read_box(self, box: Box, flat: Array) -> None: ...


class _WithinMemory:
    """A part that lies within memory that other tensors show: it is read whole."""

    def __init__(self, reader: Reader, piece: Piece, lock: threading.Lock) -> None:
        self._reader, self._piece, self._lock = reader, piece, lock

    def _read_box(self, box: Box, flat: Array) -> None:
        with self._lock:  # a reader is for one thread
            value = self._reader.tensor(self._piece.node)
            self._reader.read_all()
        data = np.frombuffer(tensors.bytes_of(value), np.uint8)
        box.read(lambda into, offset: np.copyto(into, data[offset : offset + into.nbytes]), flat)


class _Placed(NamedTuple):
    place: Region  # in the whole
    source: Source


class JoinedTensor:
    """Reads as a handle of a shelf does, for any thread: each byte of a part once, where it is."""

    def __init__(
        self,
        about: tensors.Tensor,
        parts: Sequence[tuple[Region, Piece]],
        readers: Sequence[Reader],
        locks: Sequence[threading.Lock],
    ) -> None:
        self.about = about
        self.nbytes = about.nbytes
        self._parts = [
            _Placed(place, _source(readers[piece.rank], piece, locks[piece.rank]))
            for place, piece in parts
        ]

    def _read(self, flat: Array, offset: int) -> None:
        """All of it: nobody asks for less by this. Else a merged shelf would have other bytes."""
        if (offset, flat.nbytes) != (0, self.nbytes):
            raise BadArgument(
                f"{flat.nbytes} bytes from {offset} on are asked for of a tensor that is read "
                f"whole, all {self.nbytes} of them",
                "That is a bug of tensorshelf: report it.",
            )
        shape = self.about.shape
        self._read_box(Box(shape, self.about.itemsize, (0,) * len(shape), shape), flat)

    def _read_box(self, box: Box, flat: Array) -> None:
        into = box.values(flat)
        wanted = Region(box.begin, _sums(box.begin, box.lengths))
        for place, source in self._parts:
            if not place.meets(wanted):
                continue
            begin = tuple(map(max, place.begin, wanted.begin))
            lengths = _differences(tuple(map(min, place.end, wanted.end)), begin)
            inner = Box(
                _differences(place.end, place.begin),
                box.itemsize,
                _differences(begin, place.begin),
                lengths,
            )
            first = _differences(begin, wanted.begin)
            _read_into(into[tuple(map(slice, first, _sums(first, lengths)))], source, inner)


def _read_into(into: Array, source: Source, box: Box) -> None:
    if into.flags.c_contiguous:
        source._read_box(box, into.reshape(-1).view(np.uint8))
        return
    values = np.empty(into.shape, into.dtype)
    source._read_box(box, values.reshape(-1).view(np.uint8))
    into[...] = values


def _source(reader: Reader, piece: Piece, lock: threading.Lock) -> Source:
    handle: Source | None = reader.handle(piece.node)
    return _WithinMemory(reader, piece, lock) if handle is None else handle


def _sums(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _differences(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))
