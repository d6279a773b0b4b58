"""DCP's Metadata as what msgpack takes, and back. Nothing is pickled.

What is of a kind that a later torch may bring is refused by name: no save must be committed that
would not load as it was.
"""

from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from tensorshelf.dcp import _plain
from tensorshelf.dcp._shares import Piece
from tensorshelf.errors import NotStorable

Node = dict[str, Any]

_MOST = 1 << 63  # of a length

_FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "preserve": torch.preserve_format,
}


def encoded(metadata: Metadata, pieces: dict[MetadataIndex, Piece]) -> Node:
    """Both as one node. Raises NotStorable, with the path of what cannot be stored."""
    return {
        "state": [[fqn, _entry(fqn, md)] for fqn, md in metadata.state_dict_metadata.items()],
        "planner": _plain.encoded(metadata.planner_data, "metadata.planner_data"),
        "version": _plain.encoded(metadata.version, "metadata.version"),
        "pieces": [
            [index.fqn, _lengths(index.offset), index.index, piece.rank, piece.name, piece.nbytes]
            for index, piece in pieces.items()
        ],
    }


def decoded(node: Node) -> Metadata:
    """Metadata whose ``storage_data`` says where the pieces are.

    Raises ValueError, TypeError or KeyError for a node that is none.
    """
    return Metadata(
        state_dict_metadata={_text(fqn): _storage(entry) for fqn, entry in node["state"]},
        planner_data=_plain.value_of(node["planner"]),
        storage_data=dict(_placed(*row) for row in node["pieces"]),
        version=_plain.value_of(node["version"]),
    )


def _entry(fqn: str, stored: Any) -> Any:
    if type(stored) is BytesStorageMetadata:
        return None
    path = f"metadata.state_dict_metadata[{fqn!r}]"
    if type(stored) is not TensorStorageMetadata:
        raise _unknown(path, stored)
    chunks = [[_lengths(chunk.offsets), _lengths(chunk.sizes)] for chunk in stored.chunks]
    return [_properties(stored.properties, path), _lengths(stored.size), chunks]


def _storage(entry: Any) -> BytesStorageMetadata | TensorStorageMetadata:
    if entry is None:
        return BytesStorageMetadata()
    properties, size, chunks = entry
    return TensorStorageMetadata(
        _properties_of(*properties),
        _size(size),
        [ChunkStorageMetadata(_size(offsets), _size(sizes)) for offsets, sizes in chunks],
    )


def _properties(given: TensorProperties, path: str) -> list[Any]:
    names = [name for name, known in _FORMATS.items() if known == given.memory_format]
    if not names or given.layout != torch.strided or type(given.dtype) is not torch.dtype:
        raise _unknown(f"{path}.properties", given)
    dtype = str(given.dtype).removeprefix("torch.")
    return [dtype, bool(given.requires_grad), names[0], bool(given.pin_memory)]


def _properties_of(
    dtype_name: str, requires_grad: bool, format_name: str, pin_memory: bool
) -> TensorProperties:
    dtype = getattr(torch, dtype_name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"this torch has no element type {dtype_name!r}")
    return TensorProperties(
        dtype=dtype,
        requires_grad=requires_grad,
        memory_format=_FORMATS[format_name],
        pin_memory=pin_memory,
    )


def _placed(
    fqn: str, offset: list[int] | None, number: int | None, rank: int, name: str, nbytes: int
) -> tuple[MetadataIndex, Piece]:
    if any(type(value) is not int for value in (rank, nbytes, 0 if number is None else number)):
        raise TypeError(f"no place: {rank!r}, {nbytes!r}, {number!r}")
    place = None if offset is None else _size(offset)
    return MetadataIndex(_text(fqn), place, number), Piece(rank, _text(name), nbytes)


def _lengths(size: Any) -> list[int] | None:
    return None if size is None else [int(length) for length in size]


def _size(lengths: list[int]) -> torch.Size:
    if not all(type(length) is int and 0 <= length < _MOST for length in lengths):
        raise ValueError(f"no lengths: {lengths!r}")
    return torch.Size(lengths)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no name: {value!r}")
    return value


def _unknown(path: str, given: Any) -> NotStorable:
    return NotStorable(
        f"{path}: {given!r} is nothing that can be stored",
        "Convert the tensor to a strided one, or save it by torch's FileSystemWriter.",
    )
