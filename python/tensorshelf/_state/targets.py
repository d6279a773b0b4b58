"""Memory that a saved tensor is read into, where that is there already."""

from typing import Any

import numpy as np

from tensorshelf._state import tensors
from tensorshelf._state.plain import dtype_from
from tensorshelf._values import _dtypes, _torch
from tensorshelf._values._cuda import DeviceMemory
from tensorshelf._values._dtypes import Array


def plain_memory(target: Any, tensor: tensors.Tensor) -> Array | DeviceMemory | None:
    """The bytes of a target in C order and of the tensor's element type, else None. Those of one on
    a CUDA device may have gaps, and are read into behind what its current stream has queued by now.
    """
    if isinstance(target, np.ndarray):
        alike = target.dtype == dtype_from(tensor.element) and target.flags.c_contiguous
        return target.reshape(-1).view(np.uint8) if alike and target.size else None
    if str(target.dtype).removeprefix("torch.") != tensor.element:
        return None
    on_device = _torch.device_memory_of(target)
    if on_device is not None:
        return None if tensors.overlaps_itself(target) else on_device  # torch says what it misses
    if not target.is_contiguous():
        return None
    memory = _torch.memory_of(target)
    if memory is None or not memory[1].size:
        return None
    return memory[1].reshape(-1).view(np.uint8)


def flat(target: Any, tensor: tensors.Tensor) -> Any:
    """The same bytes as a tensor of torch's, where they lie without gaps; else None."""
    import torch

    memory = plain_memory(target, tensor)
    if isinstance(memory, np.ndarray):
        return torch.from_numpy(memory)
    gaps = memory is None or not target.is_contiguous()
    return None if gaps else target.detach().reshape(-1).view(torch.uint8)


def copy(source: Any, target: Any) -> None:
    """From one library to another by way of carriers: each lacks types that the other has."""
    if isinstance(target, np.ndarray):
        if not isinstance(source, np.ndarray):
            found = _torch.TorchSource(source)
            source = found.array().view(_dtypes.needed(found.name))
        np.copyto(target, source)
        return
    import torch

    if isinstance(source, np.ndarray):
        name = _dtypes.name_of(source.dtype)
        carrier = torch.from_numpy(source.view(_dtypes.carrier(name)))
        source = carrier if _dtypes.is_native(name) else carrier.view(_torch.dtype_of(name))
    with torch.no_grad():
        target.copy_(source)
