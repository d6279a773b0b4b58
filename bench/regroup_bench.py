"""What four ranks saved, loaded by other numbers of ranks: how fast, and what is read for it."""

from __future__ import annotations

import functools
import statistics
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from dcp_saves import bytes_read
from fio import fio_seconds
from ranks import run_ranks, together, total

import tensorshelf as ts

_WRITERS = 4
_TENSORS = 8
_COLUMNS = 4096
_BLOCK = 1 << 20  # bytes that stay in a cache


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
) -> tuple[list[float], float, dict[str, float]]:
    """Seconds until all ranks have it, what they read over what there is, and bounds."""
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
    return found, read, {}


def _model(nbytes: int) -> torch.nn.ParameterList:
    """That each rank has whole."""
    count = nbytes // _TENSORS // 4
    return torch.nn.ParameterList(
        [torch.full((count,), float(number)) for number in range(_TENSORS)]
    )


def _saved_whole(rank: int, world: int, folder: str, nbytes: int) -> None:
    """A piece by each."""
    with ts.open(_paths(folder)[rank], tier="block", in_flight=1) as shelf:
        group = ts.Group(partition="every_rank")
        auto = shelf.autosave(group=group, signals=(), model=_model(nbytes))
        auto.resume()
        auto.step(1)
        auto.close()


def _loaded_whole(
    rank: int, world: int, folder: str, nbytes: int, rounds: int
) -> tuple[list[float], float, dict[str, float]]:
    """The same of a model that each rank needs whole."""
    model = _model(nbytes)
    found, read = [], 0.0
    for _ in range(rounds):
        with torch.no_grad():
            for parameter in model:
                parameter.zero_()
        before = bytes_read()
        with ts.open_merged(_paths(folder)) as view:
            load = functools.partial(view.load_into, {"model": model}, group=ts.Group())
            found.append(together(load))
        read = total(bytes_read() - before) / nbytes
        assert all((value == number).all() for number, value in enumerate(model))
    return found, read, _bounds(world, nbytes, min(rounds, 3))


def _bounds(world: int, nbytes: int, rounds: int) -> dict[str, float]:
    """Seconds of the same ranks, with nothing read and nothing checked, until each has as many
    bytes: by gloo's own all-gather, and by copying a block of memory again and again.
    """
    whole = torch.zeros(nbytes, dtype=torch.uint8)
    parts = list(whole.chunk(world))
    own, block = parts[0].clone(), torch.zeros(_BLOCK, dtype=torch.uint8)

    def copies() -> None:
        for part in whole.view(-1, _BLOCK):
            part.copy_(block)

    gathered = [together(lambda: dist.all_gather(parts, own)) for _ in range(rounds)]
    copied = [together(copies) for _ in range(rounds)]
    return {"gloo": statistics.median(gathered), "copies": statistics.median(copied)}


_KINDS = {
    "sharded": (_saved, _loaded, (4, 2, 8)),
    "whole on each rank": (_saved_whole, _loaded_whole, (4, 2, 8)),
}


def run(disk: Path, quick: bool) -> dict[str, Any]:
    rounds = 1 if quick else 5
    results: dict[str, Any] = {}
    for kind, (save, load, worlds) in _KINDS.items():
        nbytes = (32 << 20) if quick else (1 << 30) if kind == "sharded" else (512 << 20)
        folder = disk / kind
        folder.mkdir()
        run_ranks(_WRITERS, save, str(folder), nbytes)
        for world in worlds:
            limit = fio_seconds(disk / "limit", nbytes, "read")
            seconds, read, bounds = run_ranks(world, load, str(folder), nbytes, rounds)
            limit = min(limit, fio_seconds(disk / "limit", nbytes, "read"))
            found = {
                "rate_over_fio": limit / statistics.median(seconds),
                "read_over_state": read,
            }
            took = statistics.median(seconds)
            found |= {f"rate_over_{name}": bound / took for name, bound in bounds.items()}
            results[f"{kind}, into {world}"] = found
            print(
                f"  {nbytes >> 20} MiB that 4 ranks wrote, {kind}, loaded by {world}: "
                f"{found['rate_over_fio']:.2f} of fio's rate (0.9), "
                f"{found['read_over_state']:.3f} of its bytes read (1)",
                flush=True,
            )
            if bounds:
                print(
                    f"    of bare all-gather by gloo {found['rate_over_gloo']:.2f}, "
                    f"of bare copies into each rank {found['rate_over_copies']:.2f}",
                    flush=True,
                )
    return results
