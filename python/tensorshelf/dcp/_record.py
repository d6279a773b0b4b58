"""What a shelf says of the group save that it is part of: the tensor ``__dcp__``.

    format    1
    id        of this rank's part
    shares    of the coordinator's alone: for each rank its number, file, shelf, version and id
    metadata  of the coordinator's alone: the Metadata, as msgpack once more, so that who asks for
              the ids alone does not decode it

A version of the coordinator's shelf that has it is the group save. That of another rank says which
save its version belongs to, and decides nothing.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex

from tensorshelf.dcp import _codec, _room
from tensorshelf.dcp._names import RECORD
from tensorshelf.dcp._shares import Piece, Share
from tensorshelf.errors import CorruptError, FormatTooNew

FORMAT = 1

_DAMAGED = (ValueError, TypeError, KeyError, RuntimeError, OverflowError)
_TYPES = (int, str, str, int, bytes)  # of a share's fields


class Head(NamedTuple):
    """A record without the Metadata, which is decoded when it is asked for."""

    id: bytes
    shares: dict[int, Share]  # none but in the coordinator's shelf
    metadata: bytes


def mark(part: bytes) -> bytes:
    """What the shelf of a rank says that does not coordinate."""
    return _packed({"format": FORMAT, "id": part})


def group(
    part: bytes, shares: dict[int, Share], metadata: Metadata, pieces: dict[MetadataIndex, Piece]
) -> bytes:
    """What the coordinator's shelf says. Raises NotStorable."""
    rows = [[s.rank, s.file, s.shelf_id, s.version, s.id] for s in shares.values()]
    inner = _packed(_codec.encoded(metadata, pieces))
    return _packed({"format": FORMAT, "id": part, "shares": rows, "metadata": inner})


def find(tensors: Mapping[str, Any]) -> Head | None:
    """What a shelf, or a version of one, says; None where DCP never saved into it."""
    if RECORD not in tensors:
        return None
    data = _room.content(tensors, RECORD)
    try:
        return _checked(_unpacked(data))
    except _DAMAGED as error:
        if isinstance(error, FormatTooNew):
            raise
        raise _no_record(error) from error


def metadata_of(head: Head) -> Metadata:
    """The Metadata of a group save, with where each piece is. Raises CorruptError."""
    try:
        fields = _unpacked(head.metadata)
        if not isinstance(fields, dict):
            raise TypeError("it has no fields")
        found = _codec.decoded(fields)
        if any(piece.rank not in head.shares for piece in found.storage_data.values()):
            raise ValueError("it names a rank that has no share")
        return found
    except _DAMAGED as error:
        raise _no_record(error) from error


def _checked(found: object) -> Head:
    """Raises TypeError where it is no record, and FormatTooNew."""
    if not isinstance(found, dict) or type(found.get("format")) is not int:
        raise TypeError("it has no format")
    if found["format"] > FORMAT:
        raise FormatTooNew(
            f"the record of a DCP save is of format {found['format']}; this release reads {FORMAT}",
            "Load it with the tensorshelf release that saved it, or a later one.",
        )
    part, metadata, rows = found.get("id"), found.get("metadata", b""), found.get("shares", [])
    if not (isinstance(part, bytes) and isinstance(metadata, bytes) and isinstance(rows, list)):
        raise TypeError("its parts are of other types")
    shares = {share.rank: share for share in map(_share, rows)}
    if len(shares) < len(rows) or not part:
        raise ValueError("two shares of one rank, or no id")
    return Head(part, shares, metadata)


def _share(row: object) -> Share:
    """Each field of its type, and one that there can be: rank and file become parts of a path."""
    if not isinstance(row, list) or tuple(map(type, row)) != _TYPES:
        raise TypeError(f"no share: {row!r}")
    share = Share(*row)
    is_name = share.file == os.path.basename(share.file) and share.file not in ("", ".", "..")
    if share.rank < 0 or share.version < 1 or not share.id or not is_name:
        raise ValueError(f"no share: {row!r}")
    return share


def _packed(node: Any) -> bytes:
    data: bytes = msgpack.packb(node, use_bin_type=True, unicode_errors="surrogatepass")
    return data


def _unpacked(data: bytes) -> object:
    unpacked: object = msgpack.unpackb(
        data, raw=False, strict_map_key=False, unicode_errors="surrogatepass"
    )
    return unpacked


def _no_record(error: Exception) -> CorruptError:
    return CorruptError(
        f"{RECORD!r} is no record of a DCP save: {type(error).__name__}: {error}",
        "Something else was assigned to it. Where versions are kept, go back with "
        "rollback(version); else move the shelf away, and save anew.",
    )
