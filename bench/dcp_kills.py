"""Ranks that save over and over by torch.distributed.checkpoint, and are killed: what is left?

Each round begins a group, which saves until the parent kills one rank or all of them at a random
moment behind its first save. Then one process loads. Every element of a save is its number, so that
a mix is seen. An older save than one that had been acknowledged before the kill is a lost one. The
page cache lives on: this shows what killed processes leave, not what a power loss does.
"""

from __future__ import annotations

import os
import random
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from dcp_stores import STORES
from ranks import Group, semaphore

WORLD = 2
ROWS = 512
COLUMNS = 2048  # 4 MiB over all ranks
LATEST = 0.3  # seconds from the first save until the kill, at most
VERDICTS = ("whole", "cannot be loaded", "mixed", "lost")


def state_of(value: float) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (WORLD,))
    parts = {
        f"w{number}": distribute_tensor(torch.zeros(ROWS // 4, COLUMNS), mesh, [Shard(0)])
        for number in range(4)
    }
    for each in parts.values():
        each.to_local().fill_(value)
    return parts | {"same": torch.full((1000,), value), "step": value}


def save_on(rank: int, world: int, folder: Path, name: str, first: int, begun: Any) -> None:
    """Each save that is acknowledged is a line more."""
    store = STORES[name](folder)
    dist.barrier()  # all have looked, before there is more to see
    with open(folder / f"told {name}", "a") as told:
        for step in range(first, first + 10_000):
            try:
                dcp.save(state_of(float(step)), storage_writer=store.writer())
            except (RuntimeError, dcp.CheckpointException):  # the other one was killed
                os._exit(1)
            if rank == 0:
                print(step, file=told, flush=True)
                store.saved()
                begun.release()


def verdict(folder: Path, name: str) -> str:
    told = max(map(int, (folder / f"told {name}").read_text().split()))
    state: dict[str, Any] = {f"w{number}": torch.zeros(ROWS // 4, COLUMNS) for number in range(4)}
    state |= {"same": torch.zeros(1000), "step": 0.0}
    try:
        dcp.load(state, storage_reader=STORES[name](folder).reader(), no_dist=True)
    except (Exception, dcp.CheckpointException):  # the latter is none
        return "cannot be loaded"
    values = {float(state["step"])}
    for number in range(4):
        values |= set(state[f"w{number}"].unique().tolist())
    values |= set(state["same"].unique().tolist())
    if len(values) > 1:
        return "mixed"
    return "lost" if values.pop() < told else "whole"


def run(folder: Path, kills: int) -> dict[str, Any]:
    """By who was killed and the store: how often each verdict."""
    seed = time.time_ns()
    print(f"  seed {seed}", flush=True)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"seed": seed}
    for who in ("one rank", "all ranks"):
        for name in STORES:
            rng = random.Random(f"{seed} {who}")  # both are killed at the same moments
            place = folder / who / name
            place.mkdir(parents=True)
            (place / f"told {name}").touch()
            verdicts: Counter[str] = Counter()
            for number in range(kills // 2):
                victims = [rng.randrange(WORLD)] if who == "one rank" else list(range(WORLD))
                begun = semaphore()
                group = Group(WORLD, save_on, place, name, number * 10_000 + 1, begun)
                group.await_released(begun)
                time.sleep(rng.uniform(0.0, LATEST))
                group.kill(victims)
                group.end(10)  # who is left is told by the group
                verdicts[verdict(place, name)] += 1
            saves = len((place / f"told {name}").read_text().split())
            counts = {each: verdicts[each] for each in VERDICTS}
            found[f"{who}, {name}"] = counts | {"saves": saves}
            cells = ", ".join(f"{each} {number}" for each, number in counts.items())
            print(f"  kill of {who:<10} {name:<12} {cells}; {saves} saves", flush=True)
    return found
