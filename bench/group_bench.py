"""Ranks that save together: what the group's commit adds, as processes here and by arithmetic.

Clocks of one machine's processes are one (time.monotonic), so that what happens on several ranks
can be compared. What is beyond this machine's cores is simulated, by costs measured here, and is
said to be.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import copies_bench
import messages_bench
import numpy as np
import pieces_bench
import regroup_bench
import torch
from ranks import largest, run_ranks

import tensorshelf as ts
from tensorshelf._group import council, offer, routes, start
from tensorshelf._group.part import Part
from tensorshelf._group.wire import Wire
from tensorshelf._group.writers import Site

_RANKS = (2, 4, 8)
_NODES = (2, 4)  # that the largest of these are taken to be on


# ---- the commit behind the slowest rank


def _spin(seconds: float) -> None:
    """What a trainer in pure Python does: it holds the GIL."""
    end = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < end:
        count += 1


def _latencies(
    rank: int, world: int, folder: str, saves: int, busy: bool, nodes: int
) -> list[float]:
    """From when the last rank was prepared until the last one has flipped, of each save. Ranks of
    several nodes vote by relays, few as they are.
    """
    work = _spin if busy else time.sleep
    routes._WORTH = -world
    node = f"node {rank * nodes // world}"
    found = []
    path = f"{folder}/{world}.{busy}.{nodes}.{rank}.shelf"
    with ts.open(path, size="16MiB", in_flight=2) as shelf:
        values = np.zeros(1000)
        auto = shelf.autosave(group=ts.Group(node=node), signals=(), values=values)
        auto.resume()
        for step in range(1, saves + 3):
            values += 1
            commit = auto.step(step)
            work(0.25)  # longer than a commit takes, else its end is what gives the GIL
            auto.wait()
            assert commit is not None
            times = commit.times
            if step > 2:  # the first makes the tensors
                found.append(largest(times["durable"]) - largest(times["launched"]))
        auto.close()
    return found


def commit_latency(folder: str, saves: int) -> dict[str, Any]:
    results = {}
    for busy in (False, True):
        flat = [(world, 1) for world in _RANKS]
        for world, nodes in [*flat, *((_RANKS[-1], nodes) for nodes in _NODES)]:
            seconds = run_ranks(world, _latencies, folder, saves, busy, nodes)
            of = f" of {nodes} nodes" if nodes > 1 else ""
            name = f"{world} ranks{of}, trainers {'in pure Python' if busy else 'in kernels'}"
            results[name] = statistics.median(seconds) * 1e3
            limit = 25 if busy else 5
            print(f"  {name:<47} {results[name]:7.2f} ms (to reach: {limit})", flush=True)
    return results


# ---- many ranks' save over one writer's


def _saved(rank: int, world: int, folder: str, nbytes: int, rounds: int) -> list[float]:
    """Seconds of each save of so many bytes in all, until all ranks have it."""
    found = []
    path = f"{folder}/bytes.{world}.{rank}.shelf"
    with ts.open(path, size=4 * nbytes // world + (64 << 20), in_flight=2) as shelf:
        values = np.random.default_rng(rank).standard_normal(nbytes // world // 8)
        auto = shelf.autosave(group=ts.Group(), signals=(), values=values)
        auto.resume()
        for step in range(1, rounds + 3):
            values += 1
            largest(0.0)  # together
            begin = time.monotonic()
            auto.step(step)
            auto.wait()
            seconds = largest(time.monotonic() - begin)
            if step > 2:
                found.append(seconds)
        auto.close()
    Path(path).unlink()
    return found


def group_over_one(folder: str, nbytes: int, rounds: int) -> dict[str, Any]:
    one, four = [], []
    for _ in range(3):
        one += run_ranks(1, _saved, folder, nbytes, rounds)
        four += run_ranks(4, _saved, folder, nbytes, rounds)
    ratio = statistics.median(one) / statistics.median(four)
    rate = nbytes / statistics.median(four) / 1e9
    print(f"  a save of {nbytes >> 20} MiB by 4 ranks, over 1: {ratio:.2f} (0.95), {rate:.2f} GB/s")
    return {"over_one": ratio, "gigabytes_per_second": rate}


def _stalls(rank: int, world: int, folder: str, nbytes: int, steps: int) -> float:
    """Of a trainer that sleeps 200 ms a step: the share of a step that it waits for saves."""
    waited = []
    with ts.open(f"{folder}/stalls.{rank}.shelf", size=8 * nbytes, in_flight=2) as shelf:
        weight = torch.nn.Parameter(torch.zeros(nbytes // 4))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        model = torch.nn.ParameterList([weight])
        auto = shelf.autosave(group=ts.Group(), signals=(), model=model, optimizer=optimizer)
        auto.resume()
        for step in range(1, steps + 3):
            time.sleep(0.2)
            begin = time.monotonic()
            auto.gate()
            auto.step(step)
            waited.append(time.monotonic() - begin)
        auto.close()
    return largest(statistics.median(waited[2:]) / 0.2)


# ---- starting


def _starts(rank: int, world: int, folder: str, starts: int) -> list[float]:
    """Seconds until the last rank knows what all go on from."""
    found = []
    with ts.open(f"{folder}/starts.{rank}.shelf", size="16MiB", in_flight=2) as shelf:
        auto = shelf.autosave(group=ts.Group(), signals=(), values=np.zeros(1000))
        auto.resume()
        auto.step(1)
        auto.wait()
        for _ in range(starts):
            largest(0.0)
            begin = time.monotonic()
            auto.resume()
            found.append(largest(time.monotonic() - begin))
        auto.close()
    return found


def start_of(members: int) -> float:
    """Seconds of rank 0 for so many offers, which are in the store: its ranks are simulated."""
    store = messages_bench.new_store()  # it is the server: who lets it go ends it
    wire = Wire(store, "bench/")
    part = Part("0" * 32, 0, members, 1 << 40, 1000)
    for rank in range(members):
        held = offer.Held(f"run.{rank}.shelf", part._replace(rank=rank), None, None)
        said = {"said": offer.Offer(Site(f"node {rank}"), 0, held, {})}
        wire.put(council.key_of(rank), json.dumps(said).encode())
    rank_0 = council.Council(wire, 0, members, 60.0, "", "", "", "")
    begin = time.perf_counter()
    rank_0._decide(start.decided)  # none of the others is there to be told
    return time.perf_counter() - begin


def run(memory: Path, block: Path, quick: bool) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=block) as folder:
        print("from the slowest rank's prepared until all have flipped, median:")
        results["commit_ms"] = commit_latency(folder, 5 if quick else 20)
        nbytes = (32 if quick else 256) << 20
        results["group_over_one"] = group_over_one(folder, nbytes, 1 if quick else 4)
        share = run_ranks(4, _stalls, folder, 16 << 20, 4 if quick else 20)
        results["stalled"] = share
        print(f"  4 trainers that sleep wait {share:.2%} of a step of 200 ms (1%)", flush=True)
        seconds = statistics.median(run_ranks(4, _starts, folder, 3 if quick else 10))
        results["start_ms"] = seconds * 1e3
        print(
            f"  4 ranks agree on what they go on from in {seconds * 1e3:.1f} ms (100)", flush=True
        )
        results["pieces"] = pieces_bench.run(Path(folder), quick)
    with (
        tempfile.TemporaryDirectory(dir=memory) as fast,
        tempfile.TemporaryDirectory(dir=block) as slow,
    ):
        results["copies"] = copies_bench.run(Path(fast), Path(slow), quick)
    with tempfile.TemporaryDirectory(dir=block) as slow:
        results["regrouped"] = regroup_bench.run(Path(slow), quick)
    results["start_of_1000_s"] = start_of(1000)
    print(
        f"  1,000 simulated ranks: rank 0 takes {results['start_of_1000_s']:.2f} s (1)", flush=True
    )
    results["messages"] = messages_bench.run(quick)
    return results
