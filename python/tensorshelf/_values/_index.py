"""NumPy's basic indexing as arithmetic on byte offsets, without touching the bytes.

A basic index (integers, slices, an ellipsis, None) names a strided region of a C-ordered tensor.
Knowing the region, a read or a write moves only the bytes between its first and last element.
"""

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorshelf._values._dtypes import Array, DType

SPAN_BYTES = 16 << 20  # a strided read or write goes through a scratch of at most this size

Index = tuple[Any, ...]


@dataclass(frozen=True)
class Region:
    """Elements of a tensor: bytes from ``start``, by ``strides``, ``itemsize`` bytes each."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return _product(self.shape)

    @functools.cached_property
    def dense(self) -> bool:
        """True when the elements, in C order, are one run of bytes from ``start``."""
        expected = self.itemsize
        for count, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if count != 1 and stride != expected:
                return self.size == 0
            expected *= count
        return True

    def span(self) -> tuple[int, int]:
        """First byte and end of the bytes that the region touches; not for an empty region."""
        ends = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        low = self.start + sum(end for end in ends if end < 0)
        high = self.start + sum(end for end in ends if end > 0) + self.itemsize
        return low, high

    def within(self, scratch: Array, low: int, dtype: DType) -> Array:
        """The region's elements within a scratch that holds the tensor's bytes from ``low``."""
        return np.ndarray(self.shape, dtype, scratch, self.start - low, self.strides)

    def leaves(self, limit: int) -> Iterator[tuple[Index, "Region"]]:
        """Splits into parts that are dense, or span at most ``limit`` bytes, or are one element.

        Yields (index, part), where the index picks the part out of an array of this shape.
        Nothing for an empty region.
        """
        if self.size == 0:
            return
        low, high = self.span()
        if self.dense or not self.shape or high - low <= limit:
            yield (), self
            return
        row = Region(self.start, self.shape[1:], self.strides[1:], self.itemsize)
        row_low, row_high = row.span()
        stride = self.strides[0]
        if row_high - row_low > limit:
            for i in range(self.shape[0]):
                moved = replace(row, start=self.start + i * stride)
                for index, part in moved.leaves(limit):
                    yield (i, *index), part
            return
        rows = 1 + (limit - (row_high - row_low)) // max(1, abs(stride))
        for first in range(0, self.shape[0], rows):
            count = min(rows, self.shape[0] - first)
            start = self.start + first * stride
            yield (
                (slice(first, first + count),),
                replace(self, start=start, shape=(count, *self.shape[1:])),
            )


@dataclass(frozen=True)
class Box:
    """Elements of a tensor of ``shape``: ``lengths`` of them from ``begin`` on in each axis."""

    shape: tuple[int, ...]
    itemsize: int
    begin: tuple[int, ...]
    lengths: tuple[int, ...]

    def read(self, read: Callable[[Array, int], None], flat: Array) -> None:
        """Into flat uint8, in C order; ``read`` gives bytes of the tensor from an offset on."""
        ends = map(operator.add, self.begin, self.lengths)
        places = tuple(map(slice, self.begin, ends))
        region = _region(_expand(places, len(self.shape)), whole(self.shape, self.itemsize))
        gather(read, region, self.values(flat))

    def values(self, flat: Array) -> Array:
        """Those bytes as elements."""
        return flat.view(np.dtype((np.void, self.itemsize))).reshape(self.lengths)


def gather(read: Callable[[Array, int], None], region: Region, values: Array) -> None:
    """Fills an array of the region's shape; ``read`` gives bytes of the tensor from an offset on.

    Of bytes that lie between the region's elements some are read along.
    """
    for index, part in region.leaves(SPAN_BYTES):
        if part.dense:
            read(values[(*index, ...)].reshape(-1).view(np.uint8), part.start)
            continue
        low, high = part.span()
        scratch = np.empty(high - low, np.uint8)
        read(scratch, low)
        values[index] = part.within(scratch, low, values.dtype)


@functools.lru_cache(maxsize=4096)
def whole(shape: tuple[int, ...], itemsize: int) -> Region:
    """The region of all elements, in C order."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * max(1, shape[axis])
    return Region(0, shape, tuple(strides), itemsize)


def resolve(index: object, shape: tuple[int, ...], itemsize: int) -> tuple[Region, bool] | None:
    """The region of a basic index, and whether it names one element by integers alone.

    None for an advanced index (arrays, lists, masks). Raises IndexError as NumPy does.
    """
    if index is Ellipsis:
        return whole(shape, itemsize), False
    items = _basic(index if isinstance(index, tuple) else (index,))
    if items is None:
        return None
    scalar = Ellipsis not in items
    expanded = _expand(items, len(shape))
    return _region(expanded, whole(shape, itemsize)), scalar and all(
        isinstance(item, int) for item in expanded
    )


def rows(index: Any, length: int) -> np.ndarray[Any, np.dtype[np.intp]] | None:
    """The rows that an advanced index of the first axis alone names: a list, an array or a mask.

    None for another index, and for one that is out of bounds: NumPy finds the words.
    """
    if isinstance(index, tuple):
        if len(index) != 1:
            return None
        index = index[0]
    try:
        array = np.asarray(index)
    except ValueError:  # a ragged list
        return None
    if isinstance(index, list) and not index:
        return np.empty(0, np.intp)
    if array.ndim != 1 or array.dtype.kind not in "biu":
        return None
    if array.dtype.kind == "b":
        return np.flatnonzero(array) if len(array) == length else None
    if not ((array >= -length) & (array < length)).all():
        return None
    found = array.astype(np.intp)
    return np.where(found < 0, found + length, found)


def _basic(items: Index) -> Index | None:
    """The items with integer-like objects made int; None if one of them is not basic."""
    plain: list[Any] = []
    for item in items:
        if item is None or item is Ellipsis or isinstance(item, slice):
            plain.append(item)
        elif _is_array_like(item):
            return None
        else:
            try:
                plain.append(operator.index(item))
            except TypeError:
                return None
    return tuple(plain)


def _is_array_like(item: object) -> bool:
    """True for what NumPy treats as an array: booleans, and anything with axes."""
    if isinstance(item, (bool, np.bool_)):
        return True
    return getattr(item, "ndim", 0) != 0 or getattr(item, "dtype", None) == np.bool_


def _expand(items: Index, ndim: int) -> Index:
    """The items with the ellipsis, or the missing tail, written out as full slices."""
    ellipses = items.count(Ellipsis)
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = len(items) - ellipses - items.count(None)
    if used > ndim:
        raise IndexError(f"too many indices: the tensor has {ndim} axes, {used} were indexed")
    at = items.index(Ellipsis) if ellipses else len(items)
    fill = (slice(None),) * (ndim - used)
    return (*items[:at], *fill, *items[at + ellipses :])


def _region(items: Index, full: Region) -> Region:
    start, shape, strides, axis = full.start, [], [], 0
    for item in items:
        if item is None:
            shape.append(1)
            strides.append(0)
            continue
        count, stride = full.shape[axis], full.strides[axis]
        if isinstance(item, slice):
            first, stop, step = item.indices(count)
            length = len(range(first, stop, step))
            start += first * stride if length else 0
            shape.append(length)
            strides.append(step * stride)
        else:
            if not -count <= item < count:
                raise IndexError(f"index {item} is out of bounds for axis {axis} with size {count}")
            start += (item + count if item < 0 else item) * stride
        axis += 1
    return Region(start, tuple(shape), tuple(strides), full.itemsize)


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for count in shape:
        size *= count
    return size
