"""Reads of tensors of the shelf, each to be run by whatever thread."""

import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np

from tensorshelf._progress import Report
from tensorshelf._values._cuda import DeviceMemory
from tensorshelf._values._dtypes import Array
from tensorshelf._values._index import Box

# Also where there are fewer cores: each waits for the drive, and memory loses nothing by it.
_THREADS = 8
_BATCH_BYTES = 4 << 20  # that one thread takes at once: small ones together


class Job(NamedTuple):
    """A tensor of the shelf to be read into memory, flat uint8, or of a CUDA device; or some of it,
    from an offset on.
    """

    handle: Any
    into: Array | DeviceMemory
    offset: int = 0

    def run(self) -> int:
        """Reads and checks, for the most part without the GIL. Returns how many bytes."""
        if isinstance(self.into, DeviceMemory):
            self.handle._read_onto(self.into, self.offset)
        else:
            self.handle._read(self.into, self.offset)
        return self.into.nbytes

    def cut(self) -> Iterator["Job"]:
        """In parts of some MiB, where no chunk is read twice for that."""
        if isinstance(self.into, DeviceMemory) or not hasattr(self.handle, "_cuts"):
            yield self
            return
        ends = [*self.handle._cuts(_BATCH_BYTES), self.into.nbytes]
        for begin, end in itertools.pairwise([0, *ends]):
            yield Job(self.handle, self.into[begin:end], begin)


class HostJob(NamedTuple):
    """A tensor that is read into host memory alone, to be copied into a flat tensor of torch's."""

    handle: Any
    into: Any

    def run(self) -> int:
        import torch

        flat = np.empty(self.into.nbytes, np.uint8)
        self.handle._read(flat, 0)
        if self.into.is_cuda:  # what is queued on other streams may write there still
            torch.cuda.synchronize(self.into.device)
        self.into.copy_(torch.from_numpy(flat))
        return int(flat.nbytes)

    def cut(self) -> Iterator["HostJob"]:
        yield self


class BoxJob(NamedTuple):
    """A box of a tensor of the shelf to be read into memory, flat uint8."""

    handle: Any
    into: Array
    box: Box

    def run(self) -> int:
        self.handle._read_box(self.box, self.into)
        return self.into.nbytes


AnyJob = Job | HostJob | BoxJob


def batches(jobs: Iterable[AnyJob]) -> Iterator[list[AnyJob]]:
    """Batches of some MiB, each for one thread."""
    some: list[AnyJob] = []
    held = 0
    for job in jobs:
        some.append(job)
        held += job.into.nbytes
        if held >= _BATCH_BYTES:
            yield some
            some, held = [], 0
    if some:
        yield some


def run(jobs: list[AnyJob]) -> int:
    """One after the other. Returns how many bytes."""
    return sum(job.run() for job in jobs)


def run_all(jobs: list[AnyJob], report: Report | None) -> None:
    """Several at once. Raises what one of them does; then some have not run."""
    some = list(batches(jobs))
    done, total = 0, sum(job.into.nbytes for job in jobs)
    threads = min(_THREADS, len(some))
    if threads < 2:
        for batch in some:
            done += run(batch)
            _tell(report, done, total)
        return
    with ThreadPoolExecutor(threads, "tensorshelf-load") as pool:
        waiting = {pool.submit(run, batch) for batch in some}
        try:
            while waiting:
                ended, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
                done += sum(each.result() for each in ended)
                _tell(report, done, total)
        finally:
            for each in waiting:
                each.cancel()


def _tell(report: Report | None, done: int, total: int) -> None:
    if report is not None and total:
        report(done, total)
