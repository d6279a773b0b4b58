"""The tree of a state as bytes in a shelf: a tensor of uint8 with room to grow.

    bytes 0-7    how many bytes of msgpack follow, little-endian
    then         {"format", "owned", "tree"}
    then         zeros

It lies in a tensor of a power of two, so that a counter with one digit more is no new tensor. Its
checksum is the shelf's, as of every tensor.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorshelf._state import paths
from tensorshelf._state.plain import Node
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import CorruptError, FormatTooNew, UnknownName, UnsupportedError

FORMAT = 1
_LEAST_BYTES = 4096
_LENGTH_BYTES = 8


class Reads(Protocol):
    """What reading a state asks of a shelf."""

    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str) -> Any: ...


class Record(NamedTuple):
    """A state without its tensors."""

    tree: Node
    owned: list[str]  # the names of its tensors


def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError as error:
        raise UnsupportedError("msgpack is not installed", "Run: pip install msgpack.") from error
    return msgpack


def encoded(record: Record) -> Array:
    """As it lies in the shelf."""
    content = {"format": FORMAT, "owned": record.owned, "tree": record.tree}
    data = _msgpack().packb(content, use_bin_type=True, unicode_errors="surrogatepass")
    needed = _LENGTH_BYTES + len(data)
    room = np.zeros(max(_LEAST_BYTES, 1 << (needed - 1).bit_length()), np.uint8)
    room[:_LENGTH_BYTES] = np.frombuffer(len(data).to_bytes(_LENGTH_BYTES, "little"), np.uint8)
    room[_LENGTH_BYTES:needed] = np.frombuffer(data, np.uint8)
    return room


def find(shelf: Reads) -> Record | None:
    """What the shelf holds, or None where no state was saved."""
    if paths.RECORD not in shelf:
        return None
    handle = shelf[paths.RECORD]
    if handle.dtype_name != "uint8" or len(handle.shape) != 1 or handle.nbytes < _LENGTH_BYTES:
        raise _no_record(f"it is {handle.dtype_name}{list(handle.shape)}")
    room = handle.numpy()
    size = int.from_bytes(room[:_LENGTH_BYTES].tobytes(), "little")
    if size > handle.nbytes - _LENGTH_BYTES:
        raise _no_record(f"its length is said to be {size}")
    try:
        content = _msgpack().unpackb(
            room[_LENGTH_BYTES : _LENGTH_BYTES + size].tobytes(),
            raw=False,
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )
        if content["format"] > FORMAT:
            raise FormatTooNew(
                f"the saved state is of format {content['format']}; this release reads {FORMAT}",
                "Load it with the tensorshelf release that saved it, or a later one.",
            )
        return Record(content["tree"], content["owned"])
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, FormatTooNew):
            raise
        raise _no_record(str(error)) from error


def get(shelf: Reads) -> Record:
    """What the shelf holds. Raises UnknownName where no state was saved."""
    record = find(shelf)
    if record is None:
        raise UnknownName(
            "no state was saved in this shelf", "shelf.save(state) does. list(shelf) gives tensors."
        )
    return record


def _no_record(why: str) -> CorruptError:
    return CorruptError(
        f"{paths.RECORD!r} is no record of a saved state: {why}",
        "Something else was assigned to it. Delete it, and save the state again.",
    )
