"""Which bytes of which tensors make one piece, that is one object of a remote.

A tensor of CHUNK_BYTES or more is cut where its chunks end. Smaller ones are put together, in the
order of their names, until a piece is full: else each would be an object of its own.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tensorshelf._core import CHUNK_BYTES


class Tensor(NamedTuple):
    """A tensor of a version."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    written: int  # the version that wrote it last


class Part(NamedTuple):
    """Some bytes of one tensor."""

    tensor: int  # its index
    offset: int
    nbytes: int


Piece = tuple[Part, ...]


def size_of(piece: Piece) -> int:
    """Bytes."""
    return sum(part.nbytes for part in piece)


def pieces_of(tensors: list[Tensor]) -> Iterator[Piece]:
    """Those of large tensors, tensor by tensor, and then those of small ones."""
    small = []
    for index, tensor in enumerate(tensors):
        if tensor.nbytes >= CHUNK_BYTES:
            for offset in range(0, tensor.nbytes, CHUNK_BYTES):
                yield (Part(index, offset, min(CHUNK_BYTES, tensor.nbytes - offset)),)
        elif tensor.nbytes:
            small.append(Part(index, 0, tensor.nbytes))
    together: list[Part] = []
    room = CHUNK_BYTES
    for part in small:
        if part.nbytes > room:
            yield tuple(together)
            together, room = [], CHUNK_BYTES
        together.append(part)
        room -= part.nbytes
    if together:
        yield tuple(together)


def covers(tensors: list[Tensor], pieces: list[Piece]) -> bool:
    """Whether the pieces have every byte of every tensor once, each tensor's in their order, and no
    other's between them.
    """
    reached = [0] * len(tensors)
    last = -1
    for piece in pieces:
        for part in piece:
            if not 0 <= part.tensor < len(tensors) or part.nbytes <= 0:
                return False
            if reached[part.tensor] != part.offset or (part.offset and part.tensor != last):
                return False
            reached[part.tensor] += part.nbytes
            last = part.tensor
    return reached == [tensor.nbytes for tensor in tensors]
