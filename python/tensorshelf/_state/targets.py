"""Memory that a saved tensor is read into, where that is there already."""

from typing import Any

import numpy as np

from tensorshelf._state import tensors
from tensorshelf._state.plain import dtype_from
from tensorshelf._values import _dtypes, _torch
from tensorshelf._values._cuda import DeviceMemory
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import LayoutError


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
    """From one library to another by way of carriers: each lacks types that the other has. Raises
    LayoutError where the target's type has no such number; floats may be rounded.
    """
    if isinstance(target, np.ndarray):
        if not isinstance(source, np.ndarray):
            found = _torch.TorchSource(source)
            source = found.array().view(_dtypes.needed(found.name))
        with np.errstate(over="ignore"):
            np.copyto(target, source)
            lost = target.dtype != source.dtype and _is_lost(source, target, np)
    else:
        import torch

        if isinstance(source, np.ndarray):
            name = _dtypes.name_of(source.dtype)
            carrier = torch.from_numpy(source.view(_dtypes.carrier(name)))
            source = carrier if _dtypes.is_native(name) else carrier.view(_torch.dtype_of(name))
        with torch.no_grad():
            target.copy_(source)
            lost = target.dtype != source.dtype and _is_lost(
                source.to(target.device), target, torch
            )
    if lost:
        raise LayoutError(
            f"{source.dtype} was saved, with a number that {target.dtype} has not, which the state "
            "has there: it holds a part of what was saved by now",
            "Give a state of the dtypes that were saved, and convert it then.",
        )


def _is_lost(source: Any, target: Any, library: Any) -> bool:
    """Whether a whole number is another one by now, or a finite one is none. ``library``: NumPy or
    torch, of both.
    """
    if _is_whole(source.dtype):
        real = target.real if _is_complex(target.dtype) else target
        other = _as(real, source.dtype) != source
        if _is_whole(target.dtype):  # as wide a one without a sign, or with one, gives it back
            other |= _is_negative(target) != _is_negative(source)
        return bool(other.any())
    finite = library.isfinite(_wide(source, library)) & ~library.isfinite(_wide(target, library))
    return bool(finite.any())


def _is_negative(values: Any) -> Any:
    """As whole numbers that each library compares: torch lacks that of some."""
    unsigned = str(values.dtype).removeprefix("torch.").startswith("uint")
    return values != values if unsigned else values < 0


def _wide(values: Any, library: Any) -> Any:
    """What has no complex numbers, as a type of which all is known: some lack infinity."""
    return values if _is_complex(values.dtype) else _as(values, library.float64)


def _is_complex(dtype: Any) -> bool:
    return "complex" in str(dtype)


def _as(values: Any, dtype: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return values.astype(dtype) if isinstance(values, np.ndarray) else values.to(dtype)


def _is_whole(dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        return dtype.kind in "iu"
    return not (dtype.is_floating_point or dtype.is_complex) and str(dtype) != "torch.bool"
