"""Pieces of what ranks hold alike: what each rank saves, and how fast each has the whole back."""

from __future__ import annotations

import mmap
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from ranks import largest, run_ranks, together, total

import tensorshelf as ts
from tensorshelf._group import exchange

_TENSOR = 16 << 20  # bytes


def _model(nbytes: int) -> torch.nn.Module:
    of = torch.Generator().manual_seed(1)
    count = max(1, nbytes // _TENSOR)
    shape = (nbytes // count // 4,)
    return torch.nn.ParameterList([torch.randn(shape, generator=of) for _ in range(count)])


def _resumed(
    rank: int, world: int, folder: str, nbytes: int, starts: int, partition: bool
) -> dict[str, float]:
    """Bytes of a save by all ranks, and by the one with most; seconds of resume() and of the
    exchange within it, of the slowest rank.
    """
    exchanged: list[float] = []
    gather = exchange.Exchange._gather

    def timed(self: exchange.Exchange, *args: Any) -> None:
        exchanged.append(together(lambda: gather(self, *args)))

    exchange.Exchange._gather = timed  # type: ignore[method-assign]
    model = _model(nbytes)
    took: list[float] = []
    path = f"{folder}/run.{partition}.{rank}.shelf"
    with ts.open(path, in_flight=1) as shelf:
        group = ts.Group(partition="every_rank" if partition else False)
        auto = shelf.autosave(group=group, signals=(), model=model)
        auto.resume()
        auto.step(1)
        auto.wait()
        nbytes_saved = float(sum(shelf[name].nbytes for name in shelf))
        for _ in range(starts):
            took.append(together(auto.resume))
        auto.close()
    os.unlink(path)
    return {
        "all": total(nbytes_saved),
        "most": largest(nbytes_saved),
        "seconds": statistics.median(took),
        "exchange": statistics.median(exchanged) if exchanged else 0.0,
    }


def _read_rate(folder: Path, nbytes: int) -> float:
    """Bytes a second of the medium, by one process, past the page cache where it can."""
    path, room = folder / "read", mmap.mmap(-1, 8 << 20)
    with open(path, "wb") as file:
        for _ in range(nbytes // len(room)):
            file.write(os.urandom(len(room)))
        os.fsync(file.fileno())
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # tmpfs
        opened = os.open(path, os.O_RDONLY)
    begin = time.perf_counter()
    while os.readv(opened, [room]):
        pass
    seconds = time.perf_counter() - begin
    os.close(opened)
    path.unlink()
    return nbytes / seconds


def run(folder: Path, quick: bool) -> dict[str, Any]:
    nbytes, starts = (32 if quick else 256) << 20, 2 if quick else 5
    whole = run_ranks(4, _resumed, str(folder), nbytes, starts, False)
    pieces = run_ranks(4, _resumed, str(folder), nbytes, starts, True)
    rate = _read_rate(folder, nbytes)
    print(f"  {nbytes >> 20} MiB that 4 ranks hold alike, a save, and all of it back on each:")
    for name, found in (("whole", whole), ("in pieces", pieces)):
        print(
            f"    {name:<10} {found['all'] / 2**20:7.0f} MiB in all, "
            f"{found['most'] / 2**20:6.1f} by the rank with most; "
            f"resumed in {found['seconds']:.2f} s, exchange {found['exchange']:.2f} s",
            flush=True,
        )
    print(
        f"    the medium reads {rate / 1e9:.2f} GB/s: {nbytes / rate:.2f} s for it once, "
        f"{4 * nbytes / rate:.2f} s four times",
        flush=True,
    )
    return {"whole": whole, "in_pieces": pieces, "read_bytes_per_second": rate}
