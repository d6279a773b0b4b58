"""Bytes in a tensor of uint8 that has room to grow, so that a longer value is no new tensor.

bytes 0-7    how many follow, little-endian
then         the bytes, and zeros
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorshelf._state import record
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import CorruptError

_LENGTH_BYTES = 8
_LEAST_BYTES = 4096  # what a slot takes at least
_SPARE = 4  # a tensor that is so many times too large is replaced


def filled(data: bytes, before: Any | None) -> Array:
    """The value of a tensor that holds these bytes, as large as the one before if that will do."""
    needed = _LENGTH_BYTES + len(data)
    size = max(_LEAST_BYTES, 1 << (needed - 1).bit_length())
    if before is not None and is_room(before) and needed <= before.nbytes <= _SPARE * size:
        size = before.nbytes
    room = np.zeros(size, np.uint8)
    record.put(room, data)
    return room


def is_room(handle: Any) -> bool:
    """Whether a tensor can be one of these."""
    return handle.dtype_name == "uint8" and len(handle.shape) == 1 and handle.nbytes > _LENGTH_BYTES


def content(tensors: Mapping[str, Any], name: str) -> bytes:
    """The bytes in a tensor. Raises CorruptError where it is none of these."""
    handle = tensors[name]
    if is_room(handle):
        room = handle.numpy()
        size = int.from_bytes(room[:_LENGTH_BYTES].tobytes(), "little")
        if size <= room.nbytes - _LENGTH_BYTES:
            data: bytes = room[_LENGTH_BYTES : _LENGTH_BYTES + size].tobytes()
            return data
    raise CorruptError(
        f"tensor {name!r} holds no value of a DCP save",
        "Something else was assigned to it. Where versions are kept, go back with "
        "rollback(version); else move the shelf away, and save anew.",
    )
