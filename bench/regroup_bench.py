"""What four ranks saved, loaded by other numbers of ranks: how fast, and what is read for it."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import torch
from dcp_saves import bytes_read
from fio import fio_seconds
from ranks import run_ranks, together, total

import tensorshelf as ts

_WRITERS = 4
_TENSORS = 8
_COLUMNS = 4096


def _rows(rank: int, world: int, number: int, of: int) -> ts.Shard:
    """A rank's part of a tensor of so many rows."""
    begin, end = (of * each // world for each in (rank, rank + 1))
    value = torch.full((end - begin, _COLUMNS), float(number))
    return ts.Shard(value, f"w{number}", (of, _COLUMNS), (begin, 0))


def _state(rank: int, world: int, nbytes: int) -> dict[str, ts.Shard]:
    of = nbytes // _TENSORS // _COLUMNS // 4
    return {f"w{number}": _rows(rank, world, number, of) for number in range(_TENSORS)}


def _paths(folder: str) -> list[str]:
    return [f"{folder}/run.{rank}.shelf" for rank in range(_WRITERS)]


def _saved(rank: int, world: int, folder: str, nbytes: int) -> None:
    with ts.open(_paths(folder)[rank], tier="block", in_flight=1) as shelf:
        auto = shelf.autosave(group=ts.Group(), signals=(), kept=_state(rank, world, nbytes))
        auto.resume()
        auto.step(1)
        auto.close()


def _loaded(
    rank: int, world: int, folder: str, nbytes: int, rounds: int
) -> tuple[list[float], float]:
    """Seconds until all ranks have it, and what they read over what there is."""
    state = _state(rank, world, nbytes)
    found, read = [], 0.0
    for _ in range(rounds):
        for shard in state.values():
            shard.tensor.zero_()
        before = bytes_read()
        with ts.open_merged(_paths(folder)) as view:
            found.append(together(lambda: view.load_into({"kept": state})))
        read = total(bytes_read() - before) / nbytes
        assert all((shard.tensor == int(name[1:])).all() for name, shard in state.items())
    return found, read


def run(disk: Path, quick: bool) -> dict[str, Any]:
    nbytes, rounds = ((32 << 20), 1) if quick else ((1 << 30), 5)
    run_ranks(_WRITERS, _saved, str(disk), nbytes)
    results: dict[str, Any] = {}
    for world in (4, 2, 8):
        limit = fio_seconds(disk / "limit", nbytes, "read")
        seconds, read = run_ranks(world, _loaded, str(disk), nbytes, rounds)
        limit = min(limit, fio_seconds(disk / "limit", nbytes, "read"))
        results[f"into_{world}"] = {
            "rate_over_fio": limit / statistics.median(seconds),
            "read_over_state": read,
        }
        print(
            f"  {nbytes >> 20} MiB that 4 ranks wrote, loaded by {world}: "
            f"{results[f'into_{world}']['rate_over_fio']:.2f} of fio's rate (0.9), "
            f"{read:.3f} of its bytes read (1)",
            flush=True,
        )
    return results
