"""A torch run's whole state, saved and loaded: shelf.save() beside torch.save() on the same medium.

A stack of linear layers and its AdamW, after a step, in five sizes of state. Each save comes after
an iteration has swept through memory, so that caches are cold, and in rotation with the others;
medians. "stall" is the time until the trainer may change the state again; of a save that waits it
is the time until the state is durable, as far as the medium makes anything durable. autosave() has
a state and a shelf of its own, of which nobody loads: its step() is measured, and what its gate has
to wait for right behind it; between the two a trainer computes. torch.save is
made atomic and durable as in compare.py, and measured as it is mostly written, too. Loading fills
tensors that are there, from the page cache where the store uses that; torch.load(mmap=True) leaves
the optimizer's in the file, to be read when they are used.
"""

from __future__ import annotations

import itertools
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compare import replace_durably

import tensorshelf as ts

LAYERS = 12
WIDTHS = (96, 320, 1024)  # 1.3, 15 and 151 MB of state
QUICK_WIDTHS = (96,)
SWEPT_BYTES = 256 << 20


def state_of(width: int) -> dict[str, Any]:
    """A model and its optimizer, which has its moments."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, width)).sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer, "epoch": 3}


def packed(state: dict[str, Any]) -> dict[str, Any]:
    """What is given to torch.save."""
    return {"model": state["model"].state_dict(), "optimizer": state["optimizer"].state_dict()}


def size_of(state: dict[str, Any]) -> int:
    model = sum(tensor.nbytes for tensor in state["model"].state_dict().values())
    moments = state["optimizer"].state_dict()["state"].values()
    return model + sum(tensor.nbytes for some in moments for tensor in some.values())


def calls(
    shelf: ts.Shelf, file: Path, state: dict[str, Any], loaded_into: list[dict[str, Any]]
) -> dict[str, tuple[Callable[[], Any], Callable[[Any], object] | None]]:
    """By name: what is timed, and what is done behind it with what it returned."""

    ours, theirs = loaded_into  # torch's optimizer keeps what lies in the file

    def torch_load() -> None:
        loaded = torch.load(file, mmap=True, weights_only=True)
        theirs["model"].load_state_dict(loaded["model"])
        theirs["optimizer"].load_state_dict(loaded["optimizer"])

    return {
        "shelf.save": (lambda: shelf.save(state), None),
        "shelf.save, stall": (lambda: shelf.save(state, wait=False), lambda commit: commit.wait()),
        "torch.save, durable": (
            lambda: replace_durably(file, lambda path: torch.save(packed(state), path)),
            None,
        ),
        "torch.save, in place": (lambda: torch.save(packed(state), file), None),
        "shelf.load_into": (lambda: shelf.load_into(ours), None),
        "torch.load": (torch_load, None),
    }


def measure(directory: Path, tier: str, width: int, rounds: int) -> dict[str, float]:
    state = state_of(width)
    swept = np.zeros(SWEPT_BYTES // 8)
    seconds: dict[str, list[float]] = {}
    file, path = directory / "state.pt", directory / "saves.shelf"
    auto_path = directory / "autosaves.shelf"
    own = state_of(width)
    own["progress"] = {"epoch": own.pop("epoch")}
    waits: list[float] = []
    with (
        ts.open(path, mode="w", tier=tier, in_flight=2) as shelf,
        ts.open(auto_path, mode="w", tier=tier, in_flight=2) as auto_shelf,
        auto_shelf.autosave(**own) as auto,
    ):

        def behind(_: object) -> None:
            begin = time.perf_counter()
            auto.gate()
            waits.append(time.perf_counter() - begin)
            auto.wait()

        step = itertools.count(1)
        chosen = calls(shelf, file, state, [state_of(width), state_of(width)])
        chosen["autosave, step()"] = (lambda: auto.step(next(step)), behind)
        auto.step(next(step))  # the first of a form copies everything
        auto.wait()
        for number in range(-1, rounds):
            for name, (call, then) in chosen.items():
                with torch.no_grad():
                    for parameter in state["model"].parameters():
                        parameter.add_(1e-3)
                swept += 1
                begin = time.perf_counter()
                result = call()
                elapsed = time.perf_counter() - begin
                if then is not None:
                    then(result)
                if number >= 0:
                    seconds.setdefault(name, []).append(elapsed)
    for left in (file, path, auto_path):
        left.unlink()
    seconds["autosave, gate at once"] = waits
    found = {name: statistics.median(samples) for name, samples in seconds.items()}
    return {"bytes": float(size_of(state)), **found}


def run(mapped: Path, block: Path, quick: bool) -> dict[str, dict[str, float]]:
    warnings.simplefilter("ignore", ts.TierWarning)  # the titles name the media
    torch.set_num_threads(1)
    results = {}
    for title, directory, tier in (
        (f"mapped, {mapped}", mapped, "pmem"),
        ("block, a file on this disk", block, "block"),
    ):
        for width in QUICK_WIDTHS if quick else WIDTHS:
            row = measure(directory, tier, width, 3 if quick else 15)
            results[f"{title}, {row['bytes'] / 1e6:.1f} MB"] = row
            cells = ", ".join(f"{k} {v * 1e3:.2f} ms" for k, v in row.items() if k != "bytes")
            saving = row["torch.save, durable"] / row["shelf.save"]
            loading = row["torch.load"] / row["shelf.load_into"]
            print(
                f"  {title}, {row['bytes'] / 1e6:.1f} MB: {cells}; saving {saving:.2f}x, "
                f"loading {loading:.2f}x",
                flush=True,
            )
    return results
