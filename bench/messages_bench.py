"""What the group's commit takes of ranks that are not there: the coordinator and a relay are the
real ones, over a real store, and their votes are in it when they begin.

Relays of different nodes work at the same time, each on a machine of its own: of all of them one is
measured, and its time is added to that of the coordinator, which has their votes only then.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from tensorshelf import _core
from tensorshelf._group import coordinate, relay
from tensorshelf._group.posted import BOX, Posted, decision_key, relay_box
from tensorshelf._group.taker import Taker
from tensorshelf._group.wire import Wire

_A_NODE = 8  # ranks
_RANKS = (16, 64, 128, 256, 1_024, 8_192)
_LAST = (1 << 40, 0)
_EPOCH = (1 << 40, 1)


def new_store() -> Any:
    return torch.distributed.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)


def _of(kind: _core.GroupMessageKind, rank: int) -> bytes:
    return Posted(_core.GroupMessage(kind, _EPOCH, rank, b""), 1).pack()


def coordinator_seconds(members: list[list[int]]) -> float:
    """From when all votes are there until all are told."""
    store = new_store()  # it is the server: who lets it go ends it
    wire, its = Wire(store, "bench/"), Wire(store, "bench/")
    for ranks in members:
        wire.post(BOX, _of(_core.GroupMessageKind.yes, ranks[0]))
    coordination = coordinate.Coordination(its, _core.Coordinator(len(members), _LAST), members)
    begin = time.perf_counter()
    taker = Taker("coordinator", its, BOX, coordination.take)
    first = members[0]  # who is told last
    if len(first) > 1:
        wire.next_of(relay_box(first[0]), 1)
    else:
        wire.take(decision_key(1, first[0]))
    seconds = time.perf_counter() - begin
    taker.end(wire)
    return seconds


def relay_seconds(ranks: list[int]) -> float:
    """Until one vote is above of all that are there, and until all are told of the decision."""
    store = new_store()
    wire, its = Wire(store, "bench/"), Wire(store, "bench/")
    box = relay_box(ranks[0])
    for rank in ranks:
        wire.post(box, _of(_core.GroupMessageKind.yes, rank))
    relaying = relay.Relaying(its, _core.Relay(len(ranks), 0, _LAST), ranks)
    begin = time.perf_counter()
    taker = Taker("relay", its, box, relaying.take)
    wire.next_of(BOX, 1)
    wire.post(box, _of(_core.GroupMessageKind.commit, ranks[0]))
    wire.take(decision_key(1, ranks[-1]))
    seconds = time.perf_counter() - begin
    taker.end(wire)
    return seconds


def _median(measure: Any, given: Any, times: int) -> float:
    return statistics.median(measure(given) for _ in range(times))


def run(quick: bool) -> dict[str, Any]:
    times = 1 if quick else 9
    results = {}
    a_relay = _median(relay_seconds, list(range(1, 1 + _A_NODE)), 3 if quick else 49)
    print(f"  a relay takes {a_relay * 1e3:.2f} ms for {_A_NODE} ranks")
    for ranks in _RANKS:
        single = [[rank] for rank in range(ranks)]
        relayed = [list(range(first, first + _A_NODE)) for first in range(_A_NODE, ranks, _A_NODE)]
        flat = _median(coordinator_seconds, single, times)
        by_relays = a_relay + _median(coordinator_seconds, single[:_A_NODE] + relayed, times)
        results[str(ranks)] = {"flat_ms": flat * 1e3, "relayed_ms": by_relays * 1e3}
        print(
            f"  {ranks:>5} ranks, {_A_NODE} a node: {flat * 1e3:7.1f} ms, "
            f"by relays {by_relays * 1e3:6.1f} ms",
            flush=True,
        )
    return {"relay_ms": a_relay * 1e3, "ranks": results}
