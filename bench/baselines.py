"""What people save checkpoints with, each as a call that saves a dictionary of tensors durably.

torch.save, safetensors and DCP are there with torch. torchsnapshot and DeepSpeed are found where
they are installed, in out/bench/baselines too: bench/install_baselines.sh puts them there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from compare import replace_durably
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

State = dict[str, torch.Tensor]
Save = Callable[[State], object]

INSTALLED = Path(__file__).resolve().parent.parent / "out" / "bench" / "baselines"
sys.path.append(str(INSTALLED))


def sync_tree(folder: Path) -> None:
    """Makes durable what somebody wrote there and did not."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def dcp_writer(folder: Path, durable: bool = True) -> dcp.FileSystemWriter:
    return dcp.FileSystemWriter(folder, thread_count=2, sync_files=durable, overwrite=True)


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """Of one rank: DCP's asynchronous saves ask for one."""
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def torch_save(path: Path) -> Save:
    """Over that file, atomic and durable."""
    return lambda state: replace_durably(path, lambda place: torch.save(state, place))


def synchronous(folder: Path, *, durable: bool = True) -> dict[str, Save]:
    """By name; each writes below that folder, over what it wrote before."""
    saves: dict[str, Save] = {}

    def add(name: str, file: str, write: Callable[[Path, State], object]) -> None:
        path = folder / file
        if durable:
            saves[name] = lambda state: replace_durably(path, lambda place: write(place, state))
        else:
            saves[name] = lambda state: write(path, state)

    add("torch.save", "state.pt", lambda path, state: torch.save(state, path))
    add(
        "safetensors",
        "state.safetensors",
        lambda path, state: safetensors.torch.save_file(state, path),
    )
    saves["DCP save"] = lambda state: dcp.save(
        state, storage_writer=dcp_writer(folder / "dcp", durable), no_dist=True
    )
    for found in (torchsnapshot(folder, durable), fast_file_writer(folder, durable=durable)):
        if found is not None:
            saves[found[0]] = found[1]
    return saves


def torchsnapshot(folder: Path, durable: bool) -> tuple[str, Save] | None:
    try:
        import torchsnapshot as library
    except ImportError:
        return None
    place = folder / "torchsnapshot"

    def save(state: State) -> None:
        shutil.rmtree(place, ignore_errors=True)
        library.Snapshot.take(str(place), {"state": library.StateDict(**state)})
        if durable:
            sync_tree(place)

    return "torchsnapshot", save


def fast_file_writer(
    folder: Path, staging: int = 64 << 20, *, double: bool = True, durable: bool = True
) -> tuple[str, Save] | None:
    """DeepSpeed's writer of FastPersist, with so many bytes of staging memory, in two buffers or
    one; blocks of 8 MiB at most, depth 8.
    """
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)  # else it tells that there is no GPU
    try:
        from deepspeed.io import FastFileWriter, FastFileWriterConfig
        from deepspeed.io import fast_file_writer as module
        from deepspeed.ops.op_builder import AsyncIOBuilder

        block = min(8 << 20, staging // 2)
        handle = AsyncIOBuilder().load(verbose=False).aio_handle(block, 8, False, True, 1)
    except Exception as error:  # whatever is missing: a package, a compiler, libaio
        print(f"  without DeepSpeed: {type(error).__name__}: {error}".splitlines()[0])
        return None

    class OnProcessor:  # its one helper for CUDA, as a view
        def load(self) -> Any:
            return self

        @staticmethod
        def cast_to_byte_tensor(tensors: Any) -> Any:
            if isinstance(tensors, torch.Tensor):
                return tensors.view(torch.uint8)
            return [each.view(torch.uint8) for each in tensors]

    module.UtilsBuilder = OnProcessor
    buffer = torch.empty(staging, dtype=torch.uint8)
    path = folder / "deepspeed.pt"

    def save(state: State) -> None:
        config = FastFileWriterConfig(
            dnvme_handle=handle, pinned_tensor=buffer, double_buffer=double
        )
        writer = FastFileWriter(file_path=str(path), config=config)
        torch.save(state, f=writer, _use_new_zipfile_serialization=False)
        writer.close()  # which flushes its file
        if durable:
            sync_tree(folder)

    return "DeepSpeed FastFileWriter", save


# ---- in the background


def background(folder: Path) -> dict[str, Callable[[State], Future[Any]]]:
    """By name: returns when the state may change, the future when it is saved. In a group."""

    def by(kind: AsyncCheckpointerType) -> Callable[[State], Future[Any]]:
        path = folder / f"dcp-{kind.value}"
        return lambda state: dcp.async_save(  # type: ignore[return-value]
            state, storage_writer=dcp_writer(path), async_checkpointer_type=kind
        )

    return {
        "DCP async_save, thread": by(AsyncCheckpointerType.THREAD),
        "DCP async_save, process": by(AsyncCheckpointerType.PROCESS),
        "clone, torch.save in a thread": lambda state: cloned(folder / "cloned.pt", state),
    }


def cloned(path: Path, state: State) -> Future[Any]:
    copy = {name: tensor.clone() for name, tensor in state.items()}
    future: Future[Any] = Future()

    def write() -> None:
        replace_durably(path, lambda place: torch.save(copy, place))
        future.set_result(None)

    threading.Thread(target=write).start()
    return future
