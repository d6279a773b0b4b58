"""Ranks of a process group for the tests of tensorshelf.dcp: processes, joined by gloo."""

import contextlib
import datetime
import itertools
import multiprocessing
import os
import pathlib
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

# One process imports torch; the ranks are its forks.
RANKS = multiprocessing.get_context("forkserver")
RANKS.set_forkserver_preload(
    ["tensorshelf.dcp", "torch.distributed.fsdp", "torch._dynamo", "pytest"]
)

SECONDS = 120
_rounds = itertools.count()


def run_ranks(
    body: Callable[..., Any], world: int, folder: pathlib.Path, *args: Any, dies: bool = False
) -> list[Any]:
    """``body(rank, folder, *args)`` on each rank of a group; what each returned.

    With ``dies`` every rank has to end by SIGKILL.
    """
    codes = start_ranks(body, world, folder, *args)
    assert codes == [-signal.SIGKILL if dies else 0] * world
    if dies:
        return []
    return [pickle.loads(_answer(folder, rank).read_bytes()) for rank in range(world)]


def start_ranks(
    body: Callable[..., Any], world: int, folder: pathlib.Path, *args: Any
) -> list[int | None]:
    """The same, to their end, whichever that is: the exit codes."""
    meeting = folder / f"meeting-{next(_rounds)}"
    children = [
        RANKS.Process(target=_run, args=(body, rank, world, meeting, folder, args))
        for rank in range(world)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(SECONDS)
        if child.is_alive():
            child.kill()
    return [child.exitcode for child in children]


def die() -> None:
    """Ends this process as a power button does."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """DCP says each time that it saves in a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _answer(folder: pathlib.Path, rank: int) -> pathlib.Path:
    return folder / f"answer-{rank}"


def _run(
    body: Callable[..., Any],
    rank: int,
    world: int,
    meeting: pathlib.Path,
    folder: pathlib.Path,
    args: tuple[Any, ...],
) -> None:
    import torch
    import torch.distributed as dist

    signal.alarm(SECONDS)
    torch.set_num_threads(1)
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    warnings.simplefilter("ignore")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=SECONDS),
    )
    found = body(rank, folder, *args)
    _answer(folder, rank).write_bytes(pickle.dumps(found))
    dist.destroy_process_group()
