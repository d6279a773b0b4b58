"""Bytes in a tensor of uint8 that has room to grow, so that a longer value is no new tensor.

    bytes 0-7    how many follow, little-endian
    then         the bytes, and zeros

It has a power of two of them, at least what a slot takes. Its checksum is the shelf's, as of every
tensor.
"""

from typing import Any

import numpy as np

from tensorshelf._values._dtypes import Array

_LENGTH_BYTES = 8
_LEAST_BYTES = 4096


def size_for(data: bytes) -> int:
    """How large a new one is, in bytes."""
    return max(_LEAST_BYTES, 1 << (_LENGTH_BYTES + len(data) - 1).bit_length())


def filled(data: bytes, size: int | None = None) -> Array:
    """One that holds these bytes, for which there is room where ``size`` is given."""
    room = np.zeros(size or size_for(data), np.uint8)
    put(room, data)
    return room


def fits(data: bytes, nbytes: int) -> bool:
    """Whether they have room in a tensor of so many bytes."""
    return _LENGTH_BYTES + len(data) <= nbytes


def put(room: Array, data: bytes) -> bool:
    """Over what lies there; False, and nothing done, where there is not the room."""
    if not fits(data, room.nbytes):
        return False
    needed = _LENGTH_BYTES + len(data)
    room[:_LENGTH_BYTES] = np.frombuffer(len(data).to_bytes(_LENGTH_BYTES, "little"), np.uint8)
    room[_LENGTH_BYTES:needed] = np.frombuffer(data, np.uint8)
    room[needed:] = 0
    return True


def is_room(handle: Any) -> bool:
    """Whether a tensor can be one of these."""
    return (
        handle.dtype_name == "uint8" and len(handle.shape) == 1 and handle.nbytes >= _LENGTH_BYTES
    )


def length(room: Array) -> int:
    """How many it says that it holds."""
    return int.from_bytes(room[:_LENGTH_BYTES].tobytes(), "little")


def content(room: Array) -> bytes | None:
    """What it holds; None where it says that it holds more than it can."""
    end = _LENGTH_BYTES + length(room)
    return room[_LENGTH_BYTES:end].tobytes() if end <= room.nbytes else None
