"""What a DCP save stores beside its tensors, in rooms of the state's own form."""

from collections.abc import Mapping
from typing import Any

from tensorshelf._state import room
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import CorruptError

_SPARE = 4  # a tensor that is so many times too large is replaced


def filled(data: bytes, before: Any | None) -> Array:
    """The value of a tensor that holds these bytes, as large as the one before if that will do."""
    needed = room.size_for(data)
    kept = before is not None and room.is_room(before) and room.fits(data, before.nbytes)
    if before is not None and kept and before.nbytes <= _SPARE * needed:
        return room.filled(data, before.nbytes)
    return room.filled(data)


def content(tensors: Mapping[str, Any], name: str) -> bytes:
    """The bytes in a tensor. Raises CorruptError where it is none of these."""
    handle = tensors[name]
    data = room.content(handle.numpy()) if room.is_room(handle) else None
    if data is None:
        raise CorruptError(
            f"tensor {name!r} holds no value of a DCP save",
            "Something else was assigned to it. Where versions are kept, go back with "
            "rollback(version); else move the shelf away, and save anew.",
        )
    return data
