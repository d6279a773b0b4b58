"""Writing values: straight where their bytes lie right, converted in blocks elsewhere.

Each is part of one assignment, which is undone where something fails.
"""

from typing import Any

import numpy as np

from tensorshelf._core import CHUNK_BYTES, Assignment
from tensorshelf._values import _dtypes, _index
from tensorshelf._values._cuda import DeviceSource
from tensorshelf._values._dtypes import Array
from tensorshelf._values._sources import Source, blocks, check_cast, flat_bytes
from tensorshelf.errors import LayoutError


def write_straight(into: Assignment, source: Source, offset: int = 0) -> None:
    """Writes a value of the tensor's own element type at a byte offset."""
    if isinstance(source, DeviceSource) and source.write_to(into, offset):
        return
    for piece in source.contiguous_bytes():
        # An empty part may begin, in steps of its axes, beyond the end of an empty tensor.
        into._write(piece, offset if piece.nbytes else 0)
        offset += piece.nbytes


def whole_bytes(source: Source) -> Array:
    """All bytes of a value, flat; a copy unless they lie so already."""
    pieces = list(source.contiguous_bytes())
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def write_region(into: Assignment, region: _index.Region, name: str, source: Source) -> None:
    """Assigns a value, cast and broadcast as NumPy does, to a region of a tensor of type ``name``.

    A dense region is overwritten; another is read, changed and written back in spans of at most
    about _index.SPAN_BYTES. Raises LayoutError where the value does not fit.
    """
    if region.dense and source.shape == region.shape and source.name == name:
        write_straight(into, source, region.start)
        return
    check_cast(source, name)
    values = broadcast(source.array(), region.shape)
    for index, part in region.leaves(_index.SPAN_BYTES):
        if part.dense:
            _overwrite(into, part, name, (source.name, values[(*index, ...)]))
        else:
            _change(into, part, _dtypes.convert(values[(*index, ...)], source.name, name))


def write_scattered(into: Assignment, values: Array, index: Any, name: str, source: Source) -> None:
    """Assigns to an advanced index of ``values``, the tensor's value, and writes all of it back."""
    check_cast(source, name)
    try:
        values[index] = _dtypes.convert(source.array(), source.name, name)
    except ValueError as error:
        raise LayoutError(str(error), "Assign a value that broadcasts to the index.") from error
    into._write(flat_bytes(values), 0)


def write_changed(into: Assignment, values: Array) -> int:
    """Writes those chunks of the whole value that differ from what the tensor holds.

    Returns the bytes written. Neighbouring changed chunks go in one write.
    """
    new = flat_bytes(values)
    old = np.empty(min(CHUNK_BYTES, new.nbytes), np.uint8)
    begin: int | None = None
    written = 0
    for at in range(0, new.nbytes, CHUNK_BYTES):
        chunk = new[at : at + CHUNK_BYTES]
        into._read_into(old[: chunk.nbytes], at)
        if not np.array_equal(chunk, old[: chunk.nbytes]):
            begin = at if begin is None else begin
            written += chunk.nbytes
        elif begin is not None:
            into._write(new[begin:at], begin)
            begin = None
    if begin is not None:
        into._write(new[begin:], begin)
    return written


def fits(source: Source, name: str, shape: tuple[int, ...]) -> bool:
    """True where write_region() would take the value, cast and broadcast."""
    try:
        check_cast(source, name)
    except LayoutError:
        return False
    extra = max(0, len(source.shape) - len(shape))
    if any(length != 1 for length in source.shape[:extra]):
        return False
    pairs = zip(reversed(source.shape[extra:]), reversed(shape), strict=False)
    return all(length in (1, wanted) for length, wanted in pairs)


def broadcast(values: Array, shape: tuple[int, ...]) -> Array:
    """The values stretched to a shape, leading axes of length one dropped, without a copy."""
    _dtypes.check_dims("the tensor", len(shape))
    while values.ndim > len(shape) and values.shape[0] == 1:
        values = values[0]
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise LayoutError(
            f"a value of shape {values.shape} does not broadcast to {shape}",
            "Reshape it, or assign it to another part.",
        ) from None


def _overwrite(into: Assignment, part: _index.Region, name: str, source: tuple[str, Array]) -> None:
    """Writes values to a dense region, converting them block by block."""
    offset = part.start
    for block in blocks(source[1]):
        piece = flat_bytes(_dtypes.convert(block, source[0], name))
        into._write(piece, offset)
        offset += piece.nbytes


def _change(into: Assignment, part: _index.Region, values: Array) -> None:
    """Reads the bytes that a strided region spans, changes its elements, writes them back."""
    low, high = part.span()
    scratch = np.empty(high - low, np.uint8)
    into._read_into(scratch, low)
    part.within(scratch, low, values.dtype)[...] = values
    into._write(scratch, low)
