"""The items of a plan into a shelf: in place where the layout is the same, replaced where not."""

import io
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType

from tensorshelf._shelf import Shelf
from tensorshelf._tensor import Tensor
from tensorshelf._values import _dtypes
from tensorshelf.dcp import _room
from tensorshelf.dcp._names import RECORD, name_of

Row = tuple[MetadataIndex, str, int]  # an item, the tensor it is in, and how many bytes it has


def assign(shelf: Shelf, plan: SavePlan, planner: SavePlanner) -> list[Row]:
    """Assigns what the plan has, and deletes what it has no more."""
    rows = [_assign_item(shelf, item, planner) for item in plan.items]
    for name in set(shelf) - {name for _, name, _ in rows} - {RECORD}:
        del shelf[name]
    return rows


def put_record(shelf: Shelf, data: bytes) -> None:
    """Assigns what the shelf says of the save."""
    _put(shelf, RECORD, _room.filled(data, _there(shelf, RECORD)))


def _assign_item(shelf: Shelf, item: WriteItem, planner: SavePlanner) -> Row:
    value = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        assert isinstance(value, io.BytesIO)
        name, data = name_of(item.index.fqn, None), value.getvalue()
        _put(shelf, name, _room.filled(data, _there(shelf, name)))
        return item.index, name, len(data)
    assert isinstance(value, torch.Tensor)
    is_piece = item.type == WriteItemType.SHARD
    name = name_of(item.index.fqn, item.index.offset if is_piece else None)
    tensor = value.detach()
    _put(shelf, name, tensor)
    return item.index, name, tensor.numel() * tensor.element_size()


def _put(shelf: Shelf, name: str, value: Any) -> None:
    there = _there(shelf, name)
    if there is not None and _layout(value) != (there.dtype_name, there.shape):
        shelf.replace(name, value)
    else:
        shelf[name] = value


def _there(shelf: Shelf, name: str) -> Tensor | None:
    if name not in shelf:  # get() would look for one that is like it
        return None
    return shelf[name]


def _layout(value: Any) -> tuple[str, tuple[int, ...]]:
    return _dtypes.name_of(value.dtype), tuple(value.shape)
