"""Loads into tensors that are there, beside what else fills them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from feed_state import copy_seconds, medians, state_of, timed
from fio import fio_seconds

import tensorshelf as ts


def forget(path: Path) -> None:
    """What the page cache has of a file."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def loading(folder: Path, tier: str, nbytes: int, rounds: int, cold: bool) -> dict[str, float]:
    """Seconds to fill tensors that are there; ours verifies what it reads, the others do not."""
    state, target = state_of(nbytes), state_of(nbytes)
    pt, tensors, npy = folder / "load.pt", folder / "load.safetensors", folder / "load.npy"
    torch.save(state, pt)
    safetensors.torch.save_file(state, tensors)
    for name, tensor in state.items():
        np.save(npy.with_suffix(f".{name}.npy"), tensor.numpy())

    def fill(source: Any) -> None:
        for name, tensor in target.items():
            tensor.copy_(source[name])

    def from_safetensors() -> None:
        with safetensors.safe_open(tensors, "pt") as file:
            for name, tensor in target.items():
                tensor.copy_(file.get_tensor(name))

    def from_npy() -> None:
        for name, tensor in target.items():
            file = npy.with_suffix(f".{name}.npy")
            tensor.copy_(torch.from_numpy(np.load(file, mmap_mode="r")))

    room = [tensor.numpy() for tensor in target.values()]
    samples: dict[str, list[float]] = {}
    with ts.open(folder / "load.shelf", mode="w", tier=tier) as shelf:
        shelf.save(state)
        calls: dict[str, Callable[[], object]] = {
            "load_into": lambda: shelf.load_into(target),
            "torch.load(mmap)": lambda: fill(torch.load(pt, mmap=True, weights_only=True)),
            "safetensors": from_safetensors,
            "np.load": from_npy,
        }
        seconds: dict[str, Callable[[], float]] = {
            name: lambda call=call: timed(call)  # type: ignore[misc]
            for name, call in calls.items()
        }
        seconds["copy of memory"] = lambda: copy_seconds(state, room)
        if tier == "block":
            seconds["limit"] = lambda: fio_seconds(npy, nbytes, "read")
        for number, (name, of) in itertools.product(range(-1, rounds), seconds.items()):
            if cold:
                for path in folder.glob("load.*"):
                    forget(path)
            took = of()
            if number >= 0:
                samples.setdefault(name, []).append(took)
    for path in folder.glob("load.*"):
        path.unlink()
    return medians(samples)
