"""Saves and loads by torch.distributed.checkpoint: shelves beside torch's own files, made durable.

A stack of linear layers with AdamW's moments, sharded by fully_shard over the ranks where there are
more than one. All save the same state below the same folder, in rotation; a figure is the median of
the seconds until the last rank is done. A lead is the median of what torch's files took over what
shelves took the moment before, with the least and the most. The first save is into nothing; later
ones follow it. In the background, "blocks" is until the state may change, "saved" until it is
durable. Each of those has a later save alone: the first starts DCP's process. Loads fill tensors
that are there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from dcp_stores import STORES, Store
from fio import fio_seconds
from ranks import largest, run_ranks, together, total
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

LAYERS = 8
WORLDS = (1, 2, 4)
READERS = (4, 2, 8)
Samples = dict[str, list[float]]  # seconds by what was measured


def state_of(world: int, nbytes: int) -> dict[str, Any]:
    """A model and its optimizer behind a step; so many bytes over all ranks."""
    width = int((nbytes / (LAYERS * 3 * 4)) ** 0.5) // 8 * 8
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    if world > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world,))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer}


def tensors_of(node: Any) -> list[torch.Tensor]:
    """The tensors of a state, of a sharded one this rank's part."""
    if isinstance(node, dict):
        return [tensor for value in node.values() for tensor in tensors_of(value)]
    if hasattr(node, "to_local"):
        return [node.to_local()]
    return [node] if isinstance(node, torch.Tensor) else []


def fill(state: dict[str, Any], value: float) -> None:
    with torch.no_grad():
        for tensor in tensors_of(state):
            tensor.fill_(value)


def forget(store: Store, rank: int) -> None:
    """Drops the files from the page cache."""
    from feed_loads import forget as forget_file

    if rank == 0:
        for path in store.files():
            forget_file(path)
    dist.barrier()


@contextlib.contextmanager
def still() -> Iterator[None]:
    """DCP's saving process, begun within, has what it tells of each save go nowhere."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def background(
    state: dict[str, Any], store: Store, kind: AsyncCheckpointerType
) -> dict[str, float]:
    dist.barrier()
    begin = time.perf_counter()
    with still():
        saving: Any = dcp.async_save(
            state, storage_writer=store.writer(), async_checkpointer_type=kind
        )
        blocked = time.perf_counter() - begin
        saving.result()
    saved = time.perf_counter() - begin
    name = f"async_save, {kind.value}"
    return {f"{name}: blocks": largest(blocked), f"{name}: saved": largest(saved)}


def round_of(
    rank: int, state: dict[str, Any], target: dict[str, Any], folder: Path, timed: bool
) -> dict[str, Samples]:
    """One of everything, by each in turn."""
    found: dict[str, Samples] = {name: defaultdict(list) for name in STORES}
    stores = {name: make(folder) for name, make in STORES.items()}
    count = 0

    def each(measure: Callable[[Store], dict[str, float]]) -> None:
        nonlocal count
        for name, store in stores.items():
            count += 1
            fill(state, float(count))
            for figure, seconds in measure(store).items():
                found[name][figure].append(seconds)
            if rank == 0:
                store.saved()
            dist.barrier()

    def save(store: Store) -> float:
        return together(lambda: dcp.save(state, storage_writer=store.writer()))

    def load(store: Store, cold: bool) -> float:
        if cold:
            forget(store, rank)
        return together(lambda: dcp.load(target, storage_reader=store.reader()))

    each(lambda store: {"first save": save(store)})
    for _ in range(2 if timed else 1):
        each(lambda store: {"later save": save(store)})
    for kind in (AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS):
        each(lambda store, kind=kind: background(state, store, kind))  # type: ignore[misc]
    for store in stores.values():
        store.close()
    each(lambda store: {"load, warm": load(store, False)})
    each(lambda store: {"load, cold": load(store, True)})
    dist.barrier()
    if rank == 0:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    dist.barrier()
    return found


def measured(
    rank: int, world: int, folder: Path, nbytes: int, rounds: int
) -> tuple[float, dict[str, Samples]]:
    """The bytes of the state, and each store's figures."""
    state, target = state_of(world, nbytes), state_of(world, nbytes)
    samples: dict[str, Samples] = {name: defaultdict(list) for name in STORES}
    for number in range(-1, rounds):
        found = round_of(rank, state, target, folder, number >= 0)
        if number >= 0:
            for name, figures in found.items():
                for figure, seconds in figures.items():
                    samples[name][figure] += seconds
    size = total(sum(tensor.nbytes for tensor in tensors_of(state)))
    return size, {name: dict(figures) for name, figures in samples.items()}


# ---- loading what other ranks wrote


def write_both(rank: int, world: int, folder: Path, nbytes: int) -> None:
    state = state_of(world, nbytes)
    for make in STORES.values():
        store = make(folder)
        dist.barrier()  # all have looked, before there is more to see
        for value in (1.0, 2.0):
            fill(state, value)
            dcp.save(state, storage_writer=store.writer())
            if rank == 0:
                store.saved()
            dist.barrier()
        store.close()


def bytes_read() -> float:
    """By this process from the medium below, as the kernel counts them."""
    with open("/proc/self/io") as file:
        fields = dict(line.split(": ") for line in file.read().splitlines())
    return float(fields["read_bytes"])


def loaded(rank: int, world: int, folder: Path, nbytes: int, rounds: int) -> dict[str, Samples]:
    """Seconds of a cold load, and what all ranks read over what the state has."""
    state = state_of(world, nbytes)
    size = total(sum(tensor.nbytes for tensor in tensors_of(state)))
    samples: dict[str, Samples] = {name: defaultdict(list) for name in STORES}
    for number in range(-1, rounds):
        for name, make in STORES.items():
            store = make(folder)
            fill(state, 0.0)
            forget(store, rank)
            before = bytes_read()
            seconds = together(lambda: dcp.load(state, storage_reader=store.reader()))  # noqa: B023
            read = total(bytes_read() - before)
            if any((tensor != 2).any() for tensor in tensors_of(state)):
                raise RuntimeError(f"{name}: the state did not come back")
            if number >= 0:
                samples[name]["load, cold"].append(seconds)
                samples[name]["bytes read over the state's"].append(read / size)
    return {name: dict(figures) for name, figures in samples.items()}


# ---- all


def show(title: str, found: dict[str, Samples], nbytes: float) -> None:
    for figure, ours in found["shelves"].items():
        mine = statistics.median(ours)
        of_bytes = "bytes" in figure
        cells = f"{mine:7.3f}" + (" " * 13 if of_bytes else f" s {nbytes / mine / 1e9:5.2f} GB/s")
        for name, samples in found.items():
            if name == "shelves":
                continue
            cells += f" | {statistics.median(samples[figure]):7.3f}"
            if not of_bytes:
                leads = [each / own for each, own in zip(samples[figure], ours, strict=True)]
                spread = f"({min(leads):.2f} to {max(leads):.2f})"
                cells += f" {statistics.median(leads):6.2f}x {spread:<16}"
        print(f"  {title:<18} {figure:<27} {cells}", flush=True)


def run(folder: Path, nbytes: int, rounds: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    others = "".join(f" | {f'{name}, and our lead':<33}" for name in list(STORES)[1:])
    print(f"  {'ranks':<18} {'':<27} {'shelves':<20}{others}", flush=True)
    size = float(nbytes)
    for world in WORLDS:
        size, found = run_ranks(world, measured, folder, nbytes, rounds)
        results[f"{world} ranks"] = found | {"bytes": size}
        show(f"{world}", found, size)
    run_ranks(READERS[0], write_both, folder, nbytes)
    for world in READERS:
        found = run_ranks(world, loaded, folder, nbytes, rounds)
        show(f"{world} of what {READERS[0]} wrote", found, size)
        results[f"{world} ranks of what {READERS[0]} wrote"] = found
    target = folder / "fio"
    limits = {
        way: statistics.median(fio_seconds(target, int(size), way) for _ in range(3))
        for way in ("write", "read")
    }
    for way, seconds in limits.items():
        print(f"  fio {way}: {size / seconds / 1e9:.2f} GB/s", flush=True)
    return results | {"fio": limits}
