"""Ranks of a gloo group on this machine, each a process, over loopback alone."""

from __future__ import annotations

import datetime
import logging
import multiprocessing
import os
import pickle
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# One process imports torch; the ranks are its forks.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tensorshelf.dcp", "torch.distributed.fsdp", "torch._dynamo"])

SECONDS = 300  # that a group may take


def semaphore() -> Any:
    """For Group's arguments: what a rank releases and await_released() takes."""
    return _CONTEXT.Semaphore(0)


class Group:
    """Ranks that run ``body(rank, world, *args)``."""

    def __init__(self, world: int, body: Callable[..., Any], *args: Any) -> None:
        self._folder = tempfile.TemporaryDirectory()
        port = _free_port()
        self.ranks = [
            _CONTEXT.Process(
                target=_run,
                args=(body, rank, world, port, self._answer(rank), args),
            )
            for rank in range(world)
        ]
        for each in self.ranks:
            each.start()

    def await_released(self, told: Any) -> None:
        """Until a rank releases what semaphore() gave."""
        if not told.acquire(timeout=SECONDS):
            self.end(0)
            raise RuntimeError(f"nothing was heard of the ranks for {SECONDS} s")

    def kill(self, ranks: list[int]) -> None:
        """Raises RuntimeError where a rank has ended by itself: that would be no kill."""
        codes = [each.exitcode for each in self.ranks]
        if codes != [None] * len(codes):
            raise RuntimeError(f"ranks ended with {codes} before they were killed")
        for rank in ranks:
            self.ranks[rank].kill()

    def end(self, seconds: float = SECONDS) -> None:
        """Waits for all of them, and kills who is late."""
        deadline = time.monotonic() + seconds
        for each in self.ranks:
            each.join(max(0.0, deadline - time.monotonic()))
        for each in self.ranks:
            if each.is_alive():
                each.kill()
            each.join()

    def answers(self) -> list[Any]:
        """What each rank returned. Raises RuntimeError where one did not."""
        self.end()
        codes = [each.exitcode for each in self.ranks]
        if any(codes):
            raise RuntimeError(f"ranks ended with {codes}")
        return [pickle.loads(self._answer(rank).read_bytes()) for rank in range(len(codes))]

    def _answer(self, rank: int) -> Path:
        return Path(self._folder.name) / str(rank)


def run_ranks(world: int, body: Callable[..., Any], *args: Any) -> Any:
    """What rank 0 returned."""
    return Group(world, body, *args).answers()[0]


def together(call: Callable[[], object]) -> float:
    """Seconds until the last rank has done it, on all ranks the same."""
    dist.barrier()
    begin = time.perf_counter()
    call()
    return largest(time.perf_counter() - begin)


def largest(value: float) -> float:
    return _over_all(value, dist.ReduceOp.MAX)


def total(value: float) -> float:
    return _over_all(value, dist.ReduceOp.SUM)


def _over_all(value: float, how: Any) -> float:
    held = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(held, how)
    return float(held)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(
    body: Callable[..., Any],
    rank: int,
    world: int,
    port: int,
    answer: Path,
    args: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # the tables name the media; DCP tells each failure itself
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),  # DCP's saving processes ask for it
        "PYTHONWARNINGS": "ignore",
    }
    dist.init_process_group(
        "gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=SECONDS)
    )
    dist.barrier()
    found = body(rank, world, *args)
    answer.write_bytes(pickle.dumps(found))
    dist.barrier()
    _end_saving_process()
    dist.destroy_process_group()


def _end_saving_process() -> None:
    """DCP keeps the one that it started, and says nothing of how to end it."""
    from torch.distributed.checkpoint import _async_process_executor as executor

    executor._CHECKPOINT_PROCESS = None
