"""Parts of tensors that are sharded over ranks: DTensors, as FSDP2 and tensor parallelism have.

A node is ["part", shape of the whole, offsets of the part, node]: the node of what this rank has,
which lies in its shelf. Where it goes back, it fills the same part of a tensor of the same shape.
"""

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tensorshelf.errors import LayoutError

if TYPE_CHECKING:
    import torch
    from torch.distributed.tensor import DTensor


class Part(NamedTuple):
    """What this rank has of a tensor."""

    shape: tuple[int, ...]  # of the whole
    offsets: tuple[int, ...]  # at which it begins in each dimension
    local: "torch.Tensor"


def is_sharded(value: object) -> "TypeGuard[DTensor]":
    """True for a DTensor; never imports it."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def local(value: Any) -> Any:
    """A DTensor's memory on this rank; all else as it is."""
    return value._local_tensor if is_sharded(value) else value


def part_of(value: "DTensor") -> Part:
    """Raises LayoutError for what is a summand of the whole, and no part of it."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if any(each.is_partial() for each in value.placements):
        raise LayoutError(
            "a DTensor with a Partial placement has no values before it is reduced",
            "Store value.redistribute(...) to what it is to be.",
        )
    _, offsets = compute_local_shape_and_global_offset(
        value.shape, value.device_mesh, value.placements
    )
    return Part(tuple(value.shape), tuple(map(int, offsets)), value._local_tensor)


def like(value: "DTensor", part: "torch.Tensor") -> "DTensor":
    """A tensor that is sharded as that one, with this as the part of this rank."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(  # type: ignore[no-untyped-call,no-any-return,unused-ignore]
        part,
        value.device_mesh,
        value.placements,
        run_check=False,
        shape=value.shape,
        stride=value.stride(),
    )


def fits(value: object, shape: list[int], offsets: list[int], length: tuple[int, ...]) -> bool:
    """Whether it is that part of a tensor of that shape, with these lengths of its own."""
    if not is_sharded(value):
        return False
    own = part_of(value)
    if list(own.shape) != shape or tuple(own.local.shape) != length:
        return False
    return list(own.offsets) == offsets or not own.local.numel()  # of nothing they say nothing
