"""What each rank has a share of, made whole on all of them: ring all-gather, over our own links.

    rank r sends its own share to rank r + 1, then what came from rank r - 1, and so on

Each rank sends and receives all shares but one, whatever the number of ranks, and has two links.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from tensorshelf._group.link import Link, LinkLost, Links
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import CorruptError, UnresolvedError

FRAME_BYTES = 1 << 22  # two of them lie in memory at each end of a link

Share = list[Any]  # flat uint8 tensors of torch's, where it lies


class Neighbours:
    """The links of a rank to the next one and from the one before. As ``Link``; errors name the
    rank at the other end.
    """

    def __init__(self, links: Links, rank: int, members: int, frame_bytes: int) -> None:
        self._next, self._before = (rank + 1) % members, (rank - 1) % members

        def made(to: int, keeps: bool) -> Link:
            with _of(to):
                return links.made(
                    f"ring/{self._before if keeps else rank}", keeps=keeps, frame_bytes=frame_bytes
                )

        # Each waits for the other end: neighbours begin with the link that they share.
        if rank % 2:
            self._from = made(self._before, True)
            self._to = made(self._next, False)
        else:
            self._to = made(self._next, False)
            self._from = made(self._before, True)

    @property
    def frame(self) -> Array:
        """What is sent next, to be filled."""
        return self._to.frame

    def send(self, nbytes: int) -> None:
        with _of(self._next):
            self._to.send(nbytes)

    def send_sum(self) -> None:
        with _of(self._next):
            self._to.send_sum(right=True, wait=False)

    def wait_sent(self) -> None:
        with _of(self._next):
            self._to.wait_sent()

    def receive(self, sizes: list[int]) -> Iterator[Array]:
        coming = self._from.receive(sizes)
        for _ in sizes:
            with _of(self._before):
                frame = next(coming)
            yield frame

    def check_sum(self) -> None:
        with _of(self._before):
            self._from.check_sum()


class Ring:
    """A ring of several ranks. For one thread. Raises LinkLost where a neighbour is gone, or gives
    and takes nothing for the seconds of the links, and CorruptError where something came otherwise
    than it was sent. ``go_on`` says whether it is wanted still.
    """

    def __init__(self, links: Links, rank: int, members: int, go_on: Callable[[], bool]) -> None:
        self._rank, self._members = rank, members
        self._go_on = go_on
        self._neighbours = Neighbours(links, rank, members, FRAME_BYTES)

    def gather(self, shares: Sequence[Share], arrived: Callable[[int], None]) -> None:
        """Fills all but this rank's own, which are as long on all ranks. ``arrived`` waits until so
        many bytes of its own are there.
        """
        for turn in range(self._members - 1):
            give = shares[(self._rank - turn) % self._members]
            take = shares[(self._rank - turn - 1) % self._members]
            self._pass_on(give, take, arrived if turn == 0 else lambda _: None)
        self._neighbours.wait_sent()

    def _pass_on(self, give: Share, take: Share, arrived: Callable[[int], None]) -> None:
        there = 0
        coming = self._neighbours.receive([sum(map(len, frame)) for frame in frames(take)])
        for out, into in zip_longest(frames(give), frames(take)):
            if not self._go_on():
                raise UnresolvedError("the exchange was broken off", "Start the job anew.")
            if out is not None:
                there += sum(map(len, out))
                arrived(there)
                self._neighbours.send(_fill(self._neighbours.frame, out))
            if into is not None:
                _empty(next(coming), into)
        self._neighbours.send_sum()
        self._neighbours.check_sum()


@contextlib.contextmanager
def _of(rank: int) -> Iterator[None]:
    """Errors name the rank at the other end."""
    try:
        yield
    except LinkLost as error:
        raise LinkLost(f"rank {rank}: {error.what}", error.remedy) from error
    except CorruptError as error:
        raise CorruptError(
            f"what rank {rank} sent of what all hold alike did not come as it was sent",
            "Start the job anew. Where it stays so, look for the network's faults.",
        ) from error


def frames(share: Share) -> Iterator[Share]:
    """Cut at both ends alike."""
    frame: Share = []
    room = FRAME_BYTES
    for memory in share:
        at = 0
        while at < len(memory):
            part = memory[at : at + room]
            frame.append(part)
            at, room = at + len(part), room - len(part)
            if not room:
                yield frame
                frame, room = [], FRAME_BYTES
    if frame:
        yield frame


def _fill(frame: Any, parts: Share) -> int:
    import torch

    room, at = torch.from_numpy(frame), 0
    for part in parts:
        room[at : at + len(part)].copy_(part)
        at += len(part)
    return at


def _empty(frame: Any, parts: Share) -> None:
    import torch

    came, at = torch.from_numpy(frame), 0
    for part in parts:
        part.copy_(came[at : at + len(part)])
        at += len(part)
