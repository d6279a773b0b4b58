"""Copies of ranks' parts with other ranks: how fast a lost one is had back, and what they cost."""

from __future__ import annotations

import os
import socket
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from ranks import largest, run_ranks

import tensorshelf as ts
from tensorshelf._group import copies

_LOST = 1  # the rank that loses its shelf


def loopback(nbytes: int) -> float:
    """Bytes a second from one process into another, by plain sockets: what no copy can pass."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        source, piece = socket.create_connection(listener.getsockname()), bytes(8 << 20)
        for _ in range(nbytes // len(piece)):
            source.sendall(piece)
        source.close()
        os._exit(0)
    target, _ = listener.accept()
    room, begin, count = bytearray(8 << 20), time.perf_counter(), 0
    while got := target.recv_into(room):
        count += got
    seconds = time.perf_counter() - begin
    os.waitpid(child, 0)
    return count / seconds


def pair(rank: int, nbytes: int) -> float:
    """Bytes a second into a rank from another, by bare gloo: what carries our bytes."""
    if rank not in (0, _LOST):
        return 0.0
    rooms = [torch.zeros(8 << 20, dtype=torch.uint8) for _ in range(2)]
    under_way: list[Any] = []
    begin = time.perf_counter()
    for number in range(nbytes // len(rooms[0])):
        if len(under_way) == len(rooms):
            under_way.pop(0).wait()
        room = rooms[number % len(rooms)]
        under_way.append(dist.irecv(room, 0) if rank == _LOST else dist.isend(room, _LOST))
    for each in under_way:
        each.wait()
    return nbytes / (time.perf_counter() - begin)


def _had_back(rank: int, world: int, folder: str, nbytes: int) -> tuple[float, float, float, float]:
    """Bytes a second of fetching a lost shelf; of doing so into a shelf that is there, which has
    the room already; of a plain socket; and of gloo.
    """
    path = f"{folder}/run.{rank}.shelf"
    size = nbytes if rank == _LOST else 1 << 20
    values = np.full(size // 8, float(rank + 1))
    took: list[float] = []
    fetch = copies.Copy.fetch

    def timed(self: copies.Copy, shelf: Any) -> None:
        begin = time.perf_counter()
        fetch(self, shelf)
        took.append(time.perf_counter() - begin)

    copies.Copy.fetch = timed  # type: ignore[method-assign]
    for start in range(2):
        with ts.open(path, in_flight=1) as shelf:
            group = ts.Group(replicate=1, node=str(rank))
            auto = shelf.autosave(group=group, signals=(), values=values)
            begin = auto.resume()
            assert begin == start
            auto.step(start + 1)
            auto.wait()
            if rank == _LOST and start == 1:
                assert auto._commits.mend(shelf)
            auto.close()
        if rank == _LOST and start == 0:
            os.unlink(path)
        largest(0.0)
    rates = [nbytes / seconds for seconds in took] if took else [0.0, 0.0]
    limit = loopback(nbytes) if rank == _LOST else 0.0
    limit = largest(limit)  # the others are idle until then
    return largest(rates[0]), largest(rates[1]), limit, largest(pair(rank, nbytes))


def had_back(folder: Path, nbytes: int, rounds: int) -> dict[str, Any]:
    lost, mended, limits, pairs = [], [], [], []
    for number in range(rounds):
        where = folder / str(number)
        where.mkdir()
        one, other, limit, by_gloo = run_ranks(4, _had_back, str(where), nbytes)
        lost.append((one / limit, one / by_gloo))
        mended.append((other / limit, other / by_gloo))
        limits.append(limit / 1e9)
        pairs.append(by_gloo / 1e9)
        for path in where.iterdir():
            path.unlink()
    found = {
        "loopback_gigabytes_per_second": statistics.median(limits),
        "gloo_gigabytes_per_second": statistics.median(pairs),
        "lost_over_loopback": statistics.median(each for each, _ in lost),
        "damaged_over_loopback": statistics.median(each for each, _ in mended),
        "lost_over_gloo": statistics.median(each for _, each in lost),
        "damaged_over_gloo": statistics.median(each for _, each in mended),
    }
    print(
        f"  a lost shelf of {nbytes >> 20} MiB is had back at "
        f"{found['lost_over_loopback']:.2f} of the loopback's rate, a damaged one, whose room is "
        f"there, at {found['damaged_over_loopback']:.2f} (0.8); of bare gloo's, which is "
        f"{found['gloo_gigabytes_per_second']:.2f} GB/s to "
        f"{found['loopback_gigabytes_per_second']:.2f}, at {found['lost_over_gloo']:.2f} and "
        f"{found['damaged_over_gloo']:.2f}",
        flush=True,
    )
    return found


def _steps(rank: int, world: int, folder: str, nbytes: int, steps: int, kept: int) -> float:
    """Seconds of a step of 200 ms, of which a trainer sleeps some, with its saves."""
    path, took = f"{folder}/{kept}.{rank}.shelf", []
    with ts.open(path, size=8 * nbytes, in_flight=2) as shelf:
        weight = torch.nn.Parameter(torch.zeros(nbytes // 4))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        model = torch.nn.ParameterList([weight])
        group = ts.Group(replicate=kept, node=str(rank))
        auto = shelf.autosave(group=group, signals=(), model=model, optimizer=optimizer)
        auto.resume()
        for step in range(1, steps + 3):
            begin = time.perf_counter()
            time.sleep(0.2)
            auto.gate()
            auto.step(step)
            took.append(time.perf_counter() - begin)
        auto.close()
    return largest(statistics.median(took[2:]))


def cost(folder: Path, nbytes: int, steps: int) -> dict[str, Any]:
    """Of a trainer that sleeps: on two cores those of four others are no trainer's own."""
    without, with_copies = [], []
    for number in range(3):
        where = folder / f"cost.{number}"
        where.mkdir()
        without.append(run_ranks(4, _steps, str(where), nbytes, steps, 0))
        with_copies.append(run_ranks(4, _steps, str(where), nbytes, steps, 1))
    ratio = statistics.median(b / a for a, b in zip(without, with_copies, strict=True))
    print(f"  a step with a copy of each part, over one without: {ratio:.3f} (1.01)", flush=True)
    return {"step_over_uncopied": ratio}


def run(memory: Path, disk: Path, quick: bool) -> dict[str, Any]:
    """``memory`` is a folder of tmpfs: the disk's rate would be all that is seen."""
    return {
        "had_back": had_back(memory, (64 << 20) if quick else (2 << 30), 1 if quick else 3),
        "cost": cost(disk, (4 if quick else 16) << 20, 4 if quick else 20),
    }
