"""What each rank has a share of, made whole on all of them, where all are on one machine.

    rank r puts a block of its own share into its room, and says so to rank r + 1
    who hears of a block copies it out of the room that it is in, and tells the next
    who hears of its own block knows that all have it, and fills that half of its room again

So each byte is copied into a room once, and out of it once by each other rank; over the ring goes
the word of it alone: the checksum of all that its rank has put there so far.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tensorshelf import _core
from tensorshelf._group import ring
from tensorshelf._group.link import Links
from tensorshelf._group.ring import Neighbours, Share
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import CorruptError, UnresolvedError

_WORD_BYTES = np.dtype(np.uint64).itemsize
_HALVES = 2
_AT_ONCE = 1 << 18  # bytes: a checksum of what was copied just now finds it in the cache


def room_bytes() -> int:
    """That each rank lends."""
    return _HALVES * ring.FRAME_BYTES


class HallRing:
    """A ring of several ranks, with the room of each. For one thread; raises as ``Ring`` does."""

    def __init__(
        self,
        links: Links,
        rank: int,
        members: int,
        rooms: Sequence[Array],
        go_on: Callable[[], bool],
    ) -> None:
        self._rank, self._members = rank, members
        self._rooms = rooms
        self._go_on = go_on
        self._sums = [0] * members
        self._neighbours = Neighbours(links, rank, members, _WORD_BYTES)

    def gather(self, shares: Sequence[Share], arrived: Callable[[int], None]) -> None:
        """Fills all but this rank's own, which are as long on all ranks. ``arrived`` waits until so
        many bytes of its own are there.
        """
        blocks = [list(ring.frames(share)) for share in shares]
        own, others = blocks[self._rank], self._others()
        rounds = max(map(len, blocks))
        words = self._words(sum(len(each) for each in blocks))
        there = 0
        for number in range(rounds):
            if number < len(own):
                there += sum(map(len, own[number]))
                arrived(there)
                self._give(number, own[number])
            if 0 < number <= len(own):
                next(words)  # of the one before, which all have now
            for rank in others:
                if number < len(blocks[rank]):
                    self._take(rank, number, blocks[rank][number], next(words))
        if len(own) == rounds:
            next(words)
        self._neighbours.wait_sent()

    def _others(self) -> list[int]:
        """In the order in which this one hears of their blocks."""
        return [(self._rank - turn) % self._members for turn in range(1, self._members)]

    def _give(self, number: int, block: Share) -> None:
        rank = self._rank
        for room, part in self._parts(rank, number, block):
            _copy_into(room, part)
            self._sums[rank] = _core.checksum(room, self._sums[rank])
        self._say(self._sums[rank])

    def _take(self, rank: int, number: int, block: Share, word: int) -> None:
        if not self._go_on():
            raise UnresolvedError("the exchange was broken off", "Start the job anew.")
        for room, part in self._parts(rank, number, block):
            _copy_out(room, part)
            self._sums[rank] = _core.checksum(room, self._sums[rank])
        self._say(word)
        if self._sums[rank] != word:
            raise CorruptError(
                f"what rank {rank} gave of what all hold alike did not come as it was given",
                "Start the job anew. Where it stays so, test the memory of this machine.",
            )

    def _parts(self, rank: int, number: int, block: Share) -> Iterator[tuple[Array, Any]]:
        """Where they lie in the room, and in the tensors."""
        room, at = self._rooms[rank], number % _HALVES * ring.FRAME_BYTES
        for memory in block:
            for begin in range(0, len(memory), _AT_ONCE):
                part = memory[begin : begin + _AT_ONCE]
                yield room[at : at + len(part)], part
                at += len(part)

    def _say(self, word: int) -> None:
        self._neighbours.frame[:_WORD_BYTES].view(np.uint64)[0] = word
        self._neighbours.send(_WORD_BYTES)

    def _words(self, count: int) -> Iterator[int]:
        for frame in self._neighbours.receive([_WORD_BYTES] * count):
            yield int(frame.view(np.uint64)[0])


def _copy_into(room: Array, part: Any) -> None:
    if part.is_cpu:
        np.copyto(room, part.numpy())
        return
    import torch

    torch.from_numpy(room).copy_(part)


def _copy_out(room: Array, part: Any) -> None:
    if part.is_cpu:
        np.copyto(part.numpy(), room)
        return
    import torch

    part.copy_(torch.from_numpy(room))
