"""One tensor of the parts that ranks have of it."""

from collections.abc import Sequence
from typing import NamedTuple

from tensorshelf._state import tensors
from tensorshelf._state.plain import Node
from tensorshelf._state.reader import Reader
from tensorshelf.errors import CorruptError


class Piece(NamedTuple):
    """What one rank has of a tensor."""

    rank: int
    offsets: tuple[int, ...]
    node: Node  # of a tensor in the rank's shelf


class Region(NamedTuple):
    """Where a part lies in the whole."""

    begin: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def elements(self) -> int:
        count = 1
        for begin, end in zip(self.begin, self.end, strict=True):
            count *= end - begin
        return count

    def meets(self, other: "Region") -> bool:
        """Whether an element lies in both."""
        return all(
            max(a, c) < min(b, d)
            for a, b, c, d in zip(self.begin, self.end, other.begin, other.end, strict=True)
        )


def unlike(what: str) -> CorruptError:
    """What ranks of one program never save."""
    return CorruptError(f"the ranks {what}", "Were they saved by one and the same program?")


def distinct(
    pieces: Sequence[Piece], about: tensors.Tensor, readers: Sequence[Reader], name: str
) -> list[tuple[Region, Piece]]:
    """Those of a whole that ``about`` tells, each once, of the first rank that has it; empty ones
    left out. Raises CorruptError where they are not all of it, or of another tensor.
    """
    found: dict[Region, Piece] = {}
    for piece in pieces:
        own = readers[piece.rank].about(piece.node)
        if (own.element, own.library) != (about.element, about.library):
            raise unlike(f"have another tensor in the place of {name!r}")
        if len(own.shape) != len(about.shape):
            raise unlike(f"have a part of other dimensions in the place of {name!r}")
        ends = tuple(a + n for a, n in zip(piece.offsets, own.shape, strict=True))
        if any(end > length for end, length in zip(ends, about.shape, strict=True)):
            raise unlike(f"have a part of {name!r} that reaches beyond {list(about.shape)}")
        if 0 not in own.shape:
            found.setdefault(Region(piece.offsets, ends), piece)
    whole = Region((0,) * len(about.shape), about.shape)
    if sum(region.elements for region in found) != whole.elements or _overlap(list(found)):
        raise unlike(f"have not all of {name!r} together, or some of it twice")
    return list(found.items())


def _overlap(regions: list[Region]) -> bool:
    """Whether two have an element in common: in order of the dimension that parts them most, each
    is compared with those alone that begin before it ends.
    """
    if len(regions) < 2 or not regions[0].begin:
        return False
    begins = [
        len(set(column)) for column in zip(*(region.begin for region in regions), strict=True)
    ]
    axis = begins.index(max(begins))
    regions = sorted(regions, key=lambda region: region.begin[axis])
    for number, region in enumerate(regions):
        for other in regions[number + 1 :]:
            if other.begin[axis] >= region.end[axis]:
                break
            if region.meets(other):
                return True
    return False
