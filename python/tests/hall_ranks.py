"""Ranks as processes of one machine that exchange pieces: MEMBERS VICTIM WHERE.

Rank VICTIM is killed when it calls WHERE for the third time, or the first time where it does so
once. Each rank prints what became of it.
"""

import os
import signal
import sys
from typing import Any

import torch
from torch.distributed import TCPStore

from tensorshelf._group import exchange, hall_ring, ring
from tensorshelf._group.wire import Wire
from tensorshelf._state import split
from tensorshelf._state.split import Place, Spot

NBYTES = 1 << 20
SECONDS = 1.0
HOST = "127.0.0.1"


def killed_in(where: str) -> None:
    kind: Any = exchange.Exchange if where == "_entered" else hall_ring.HallRing
    method, calls = getattr(kind, where), iter(range(0 if where == "_entered" else 2))

    def until(self: Any, *args: Any) -> Any:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, *args)

    setattr(kind, where, until)


def loaded(store: TCPStore, rank: int, members: int) -> str:
    shares = [split.shares({"w": (members, NBYTES)}, each)["w"] for each in range(members)]
    begin, end = shares[rank]
    whole = torch.zeros(NBYTES, dtype=torch.uint8)
    whole[begin:end] = rank + 1
    one = exchange.Exchange(Wire(store, "x/"), rank, members, SECONDS)
    by: list[Any] = []
    try:
        with one.loading():
            one([Spot(Place("w", members, begin, end, "w[]"), "", whole)], lambda _: None)
            by.append(one._ring)
    except Exception as error:
        return type(error).__name__ if not one._rooms else "keeps the rooms"
    right = all((whole[a:b] == each + 1).all() for each, (a, b) in enumerate(shares))
    return type(by[0]).__name__ if right else "wrong bytes"


def main() -> None:
    members, victim, where = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    ring.FRAME_BYTES = 1 << 16
    ports, lives = os.pipe(), os.pipe()
    children = []
    for rank in range(members):
        if child := os.fork():
            children.append(child)
            continue
        os.close(lives[1])
        if rank == victim:
            killed_in(where)
        if rank == 0:
            store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
            os.write(ports[1], b"%6d" % store.port * (members - 1))
        else:
            store = TCPStore(HOST, int(os.read(ports[0], 6)), is_master=False)
        os.write(1, f"{rank} {loaded(store, rank, members)}\n".encode())
        if rank == 0:
            os.read(lives[0], 1)  # it holds the store until the others have ended
        os._exit(0)
    for rank, child in reversed(list(enumerate(children))):
        if not rank:
            os.close(lives[1])
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print(rank, "killed", os.WTERMSIG(status), flush=True)


if __name__ == "__main__":
    main()
