"""Memory for values that are read.

A large one begins where a page does, so that a drive reads straight into it, and comes from NumPy,
which asks for large pages: filling fresh memory in pages of 4 KiB costs more than reading does.
"""

import mmap

import numpy as np

from tensorshelf._values._dtypes import Array, DType

ALIGNED_BYTES = 1 << 20  # from here on


def empty_bytes(count: int) -> Array:
    """Flat uint8, not initialised."""
    if count < ALIGNED_BYTES:
        return np.empty(count, np.uint8)
    memory = np.empty(count + mmap.PAGESIZE, np.uint8)
    skip = -memory.ctypes.data % mmap.PAGESIZE
    return memory[skip : skip + count]


def empty(shape: tuple[int, ...], dtype: DType) -> Array:
    """An array in C order, not initialised."""
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if count < ALIGNED_BYTES:
        return np.empty(shape, dtype)
    return empty_bytes(count).view(dtype).reshape(shape)
