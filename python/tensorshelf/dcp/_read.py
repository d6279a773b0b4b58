"""Pieces of a shelf into tensors: the part that is needed, each byte checked as it is read."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed.checkpoint.planner import ReadItem

from tensorshelf._state.tensors import overlaps_itself
from tensorshelf._values import _dtypes, _index, _torch
from tensorshelf._values._cuda import DeviceMemory
from tensorshelf._values._dtypes import Array
from tensorshelf._view import Readable
from tensorshelf.errors import LayoutError

_THREADS = 8  # more than cores: each waits for the drive, and memory loses nothing by it
_ALONE_BYTES = 4 << 20  # up to so many are read by the caller


class Job(NamedTuple):
    """A run of a tensor's bytes to be read into memory, flat uint8, or of a CUDA device."""

    handle: Readable
    start: int
    into: Array | DeviceMemory

    def run(self) -> None:
        """Reads and checks, for the most part without the GIL."""
        if isinstance(self.into, DeviceMemory):
            self.handle._read_onto(self.into, self.start)
        else:
            self.handle._read(self.into, self.start)


def run_all(jobs: list[Job]) -> None:
    """Reads them, several at once. Raises what the first of them does."""
    if sum(job.into.nbytes for job in jobs) <= _ALONE_BYTES:
        for job in jobs:
            job.run()
        return
    with ThreadPoolExecutor(min(_THREADS, len(jobs))) as pool:
        for done in [pool.submit(job.run) for job in jobs]:
            done.result()


def job_for(handle: Readable, item: ReadItem, target: torch.Tensor) -> Job | None:
    """To read the part that an item names into the target's own memory, where that lies in order.

    Where not, the part is read at once, by way of memory of its own, and there is nothing to do.
    """
    region = _region(handle, item)
    if tuple(target.shape) != region.shape:
        raise LayoutError(
            f"{item.dest_index.fqn!r}: {list(region.shape)} of the saved tensor does not fit into "
            f"{list(target.shape)}",
            "Load into tensors of the sizes that were saved.",
        )
    if not region.size:
        return None
    memory = _memory(handle, target) if region.dense else None
    if memory is not None:
        return Job(handle, region.start, memory)
    target.copy_(_values(handle, region))
    return None


def _region(handle: Readable, item: ReadItem) -> _index.Region:
    """Where it lies; a piece without dimensions DCP may ask for by offset 0 and length 1."""
    if not handle.shape:
        return _index.whole((), handle.itemsize)
    offsets, lengths = item.storage_offsets, item.lengths
    within = len(offsets) == len(handle.shape) and all(
        offset + length <= there
        for offset, length, there in zip(offsets, lengths, handle.shape, strict=True)
    )
    if not within:
        raise LayoutError(
            f"{handle.name!r} is {list(handle.shape)}: it has no part {list(lengths)} at "
            f"{list(offsets)}",
            "The record and the tensor are not of one save: load another.",
        )
    index = tuple(slice(o, o + length) for o, length in zip(offsets, lengths, strict=True))
    found = _index.resolve(index, handle.shape, handle.itemsize)
    assert found is not None
    return found[0]


def _memory(handle: Readable, target: torch.Tensor) -> Array | DeviceMemory | None:
    """The target's memory, of the type: on the host as flat bytes in order, or on a device."""
    on_device, found = _torch.device_memory_of(target), _torch.memory_of(target)
    if on_device is None and found is None:
        return None
    if _dtypes.name_of(target.dtype) != handle.dtype_name:
        return None
    if found is None:
        return None if overlaps_itself(target) else on_device
    array = found[1]
    return array.reshape(-1).view(np.uint8) if array.flags.c_contiguous else None


def _values(handle: Readable, region: _index.Region) -> Any:
    dtype = _torch.dtype_of(handle.dtype_name)
    flat = handle._gather(region).reshape(-1).view(np.uint8)
    return torch.from_numpy(flat).view(dtype).reshape(region.shape)
