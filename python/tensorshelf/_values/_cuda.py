"""CUDA memory as a source of values, without torch or CuPy: an address, a layout and a stream. And
as what is read into.

Bytes go between device and shelf through page-locked buffers, row by row where they lie with gaps.
What is scattered too widely for that is copied to the host by the library that owns it.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from tensorshelf import _core
from tensorshelf._values import _dtypes
from tensorshelf._values._dtypes import Array, DType
from tensorshelf.errors import LayoutError

LEGACY_STREAM = 1  # cudaStreamLegacy: behind everything that was queued on ordinary streams
ANY_DEVICE = -1


@functools.cache
def usable() -> bool:
    """True where this build has CUDA and finds a driver and a device. Asked once per process."""
    return bool(_core.cuda_support()["devices"])


# Of what lies with gaps, the outermost first: parts, and bytes from one to the next. Innermost are
# rows of consecutive bytes.
Axes = tuple[tuple[int, int], ...]

# To queue a copy takes microseconds, and each row of one a transfer of its own over the bus. Where
# the bytes of each are fewer, a kernel that brings them together first is faster. Estimates.
_LEAST_COPY, _FEW_COPIES = 4 << 10, 16
_LEAST_ROW, _FEW_ROWS = 128, 256


def axes_of(shape: tuple[int, ...], steps: tuple[int, ...], itemsize: int) -> Axes | None:
    """Where the elements of a value that has some lie, which are so many bytes apart; none where
    they are consecutive. None where too many copies, or of too short rows, would bring them.
    """
    axes: list[tuple[int, int]] = []
    row = itemsize
    for length, step in reversed(list(zip(shape, steps, strict=True))):
        if length == 1:
            continue
        if not axes and step == row:
            row *= length
        elif axes and step == axes[-1][0] * axes[-1][1]:
            axes[-1] = (axes[-1][0] * length, axes[-1][1])
        else:
            axes.append((length, step))
    if not axes:
        return ()
    # One copy takes all rows of the innermost axis, where they lie one behind the other.
    together = 0 if row <= axes[0][1] < 1 << 31 else 1
    copies = math.prod(length for length, _ in axes[1 - together :])
    rows = math.prod(length for length, _ in axes)
    few = copies <= max(_FEW_COPIES, row * rows // _LEAST_COPY)
    return tuple(reversed(axes)) if few and (row >= _LEAST_ROW or rows <= _FEW_ROWS) else None


class Where(TypedDict):
    """Bytes of a device, and where of a tensor they are."""

    address: int
    nbytes: int
    offset: int
    stream: int
    device: int
    axes: Axes


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of a device, whole once ``stream`` has done what is queued on it."""

    address: int
    nbytes: int
    stream: int = LEGACY_STREAM
    device: int = ANY_DEVICE
    axes: Axes = ()

    def write_to(self, into: _core.Assignment, offset: int) -> None:
        """Assigns the bytes to a tensor, from a byte offset on."""
        into._write_from_device(**self.where(offset))

    def where(self, offset: int) -> "Where":
        """It as the native half takes it, for what begins at a byte of a tensor."""
        return {
            "address": self.address,
            "nbytes": self.nbytes,
            "offset": offset,
            "stream": self.stream,
            "device": self.device,
            "axes": self.axes,
        }

    def to_host(self) -> Array:
        """A copy, as flat uint8."""
        flat = np.empty(self.nbytes, np.uint8)
        if self.nbytes:
            _core.copy_from_device(
                flat,
                address=self.address,
                stream=self.stream,
                device=self.device,
                axes=self.axes,
            )
        return flat


class DeviceSource:
    """A value on a device. ``owner`` keeps the memory alive."""

    weak = False
    conversion = "value.astype('{}')"

    def __init__(
        self, dtype: DType, name: str, shape: tuple[int, ...], memory: DeviceMemory, owner: object
    ) -> None:
        self.shape = shape
        self.name = name
        self._dtype = dtype
        self._memory = memory
        self._owner = owner

    def array(self) -> Array:
        return self._memory.to_host().view(self._dtype).reshape(self.shape)

    def contiguous_bytes(self) -> Iterator[Array]:
        yield _dtypes.to_native(self.array()).reshape(-1).view(np.uint8)

    def write_to(self, into: _core.Assignment, offset: int) -> bool:
        """Writes the bytes straight from the device; False where they are not in our byte order."""
        if not self._memory.nbytes or not self._dtype.isnative:
            return False
        self._memory.write_to(into, offset)
        return True


def interface_of(value: Any) -> Mapping[str, Any] | None:
    """The object's ``__cuda_array_interface__``, if it has one for the memory it has now."""
    try:
        found = value.__cuda_array_interface__
    except Exception:  # arrays that may lie on the host raise what they like there
        return None
    return found if isinstance(found, Mapping) else None


def from_interface(value: object, interface: Mapping[str, Any]) -> DeviceSource:
    """The Source that the interface describes (its version 3, of which earlier ones are parts).

    Raises LayoutError for what is malformed, masked, or scattered over too many places.
    """
    kind = type(value).__name__
    try:
        shape = tuple(int(length) for length in interface["shape"])
        dtype = np.dtype(interface["typestr"])
        address = int(interface["data"][0] or 0)
        strides = interface.get("strides")
        stream = int(interface.get("stream") or LEGACY_STREAM)
        if strides is not None and len(strides) != len(shape):
            raise ValueError(f"{len(strides)} strides for {len(shape)} axes")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise LayoutError(
            f"the __cuda_array_interface__ of a {kind} cannot be read: {error!r}",
            "It needs shape, typestr and data, as its version 3 describes them.",
        ) from error
    if interface.get("mask") is not None:
        raise LayoutError(f"a masked {kind} cannot be stored", "Fill it, or store the mask apart.")
    nbytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    axes: Axes | None = ()
    if strides is not None and nbytes:
        axes = axes_of(shape, tuple(map(int, strides)), dtype.itemsize)
    if axes is None:
        raise LayoutError(
            f"a {kind} on a device has strides {strides}: it would be copied in too many pieces",
            "Copy it first: cupy.ascontiguousarray(value), or value.copy().",
        )
    memory = DeviceMemory(address, nbytes, stream, axes=axes)
    return DeviceSource(dtype, _dtypes.name_of(dtype), shape, memory, value)
