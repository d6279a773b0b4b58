"""Tensors that ranks hold alike, of which each rank saves a piece.

Its node: checked.py. The writers of a tensor, ranks of the group, share it out by the split of
include/tensorshelf/partition.hpp. That is a part of this format: where the other pieces lie is
computed, and written nowhere.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from tensorshelf import _core
from tensorshelf._state import writers as writing
from tensorshelf._state.plain import Node, is_a
from tensorshelf._state.writers import Writers
from tensorshelf.errors import BadArgument


class Place(NamedTuple):
    """What this rank has of a tensor."""

    name: str  # of the whole
    writers: Writers
    begin: int  # bytes
    end: int
    held: str | None


class Piece(NamedTuple):
    """What is saved of a tensor that is here whole."""

    whole: Any  # torch's
    begin: int  # bytes, of whole elements
    end: int

    @property
    def is_shown(self) -> bool:
        """Whether ``values`` are the whole's own memory."""
        return bool(self.whole.is_contiguous())

    def values(self) -> Any:
        """One after the other, in C order; a copy, but of a whole that lies so."""
        width = self.whole.element_size()
        first, last = self.begin // width, self.end // width
        if self.is_shown or self.whole.ndim == 0:
            return self.whole.reshape(-1)[first:last]
        row = math.prod(self.whole.shape[1:])
        rows = self.whole[first // row : -(-last // row)]  # no more of it is copied
        skipped = first // row * row
        return rows.reshape(-1)[first - skipped : last - skipped].clone()


class Spot(NamedTuple):
    """Where a whole goes. Of this rank's piece the bytes are there already."""

    place: Place
    form: str  # of the whole: element type and shape
    memory: Any  # flat, of torch's uint8, on any device


class Exchange(Protocol):
    """Fills spots, in one go with the other ranks."""

    @property
    def meanwhile(self) -> bool:
        """Whether the pieces of this rank may come while it is called; else they come before."""
        ...

    def __call__(self, spots: list[Spot], arrived: Callable[[int], None]) -> None:
        """``arrived`` waits until so many bytes of this rank's pieces are there, in the order of
        the names of their wholes, and raises what reading them did.
        """
        ...


def is_piece(node: Node) -> bool:
    return is_a(node, "piece")


def shares(wholes: Mapping[str, tuple[Writers, int]], rank: int) -> dict[str, tuple[int, int]]:
    """Where the pieces of a rank begin and end, of tensors with these writers and bytes."""
    together: dict[str, list[str]] = {}  # names of what the same ranks share out
    for name in sorted(wholes):
        together.setdefault(str(wholes[name][0]), []).append(name)
    found = {}
    for names in together.values():
        writers = wholes[names[0]][0]
        own = writing.number(writers, rank)
        if own is None:
            continue
        sizes = [wholes[name][1] for name in names]
        for number, begin, length in _core.pieces_of(sizes, writing.count(writers), own):
            found[names[number]] = (begin, begin + length)
    return found


def in_pieces(name: str, shelf: str) -> BadArgument:
    """The error for a tensor whose other pieces are not here."""
    return BadArgument(
        f"{name!r} lies in pieces in the shelves of a group's ranks, and {shelf} has one of them, "
        "or none",
        "Make one shelf of those of all ranks, with tensorshelf.merge(); or let "
        "autosave(group=...) of all ranks resume it.",
    )
