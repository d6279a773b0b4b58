"""Whether what ranks hold alike is alike: one chunk of it is compared at each save.

The chunks take turns by the number of the epoch, so that all ranks take the same one. It is taken
within step(), as the snapshot is, and its hash goes with the rank's vote: no vote of the last rank
counts as a yes where the hashes differ. From then on every epoch is refused: what is saved of
replicas that differ is no state, though chunks that come next may be alike.
"""

import bisect
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tensorshelf import _core
from tensorshelf._state.split import Piece
from tensorshelf.errors import GroupError

_CHUNK = 1 << 20  # bytes
_DIFFERS = b"ranks differ: "
_SHOWN = 5  # ranks


class ChunkPlace(NamedTuple):
    """Which bytes of which tensor a chunk is."""

    name: str  # of the tensor
    begin: int  # bytes
    end: int

    def __str__(self) -> str:
        return f"{self.name!r} (bytes {self.begin} to {self.end})"


class Chunk(NamedTuple):
    """What it was at one moment."""

    chunks: "Chunks"
    known: int | None  # its hash; None where a CUDA device is to be waited for
    hash: Callable[[], int]  # that, or waits


class Chunks:
    """The chunks of the tensors that are alike, by their names. ``of_first``: those that rank 0
    gives, which differ, and are to be the same ones on all ranks.
    """

    def __init__(self, wholes: Mapping[str, Any], of_first: Iterable[str] = ()) -> None:
        self._names = sorted(wholes)
        self._tensors = [wholes[name] for name in self._names]
        counts = (-(-tensor.nbytes // _CHUNK) for tensor in self._tensors)
        self._ends = list(itertools.accumulate(counts))  # of each, counted in chunks
        forms: list[Any] = [
            [name, str(tensor.dtype), list(tensor.shape)]
            for name, tensor in zip(self._names, self._tensors, strict=True)
        ]
        forms += sorted(of_first)
        self._seed = _hash(np.frombuffer(json.dumps(forms).encode(), np.uint8), 0)

    def place(self, number: int) -> ChunkPlace | None:
        """The one whose turn it is in that epoch; None where nothing is alike."""
        return None if not self._ends else self._turn(number)[1]

    def chunk(self, number: int) -> Chunk:
        """That one as it is now. The hash is of what is listed, too."""
        if not self._ends:
            return Chunk(self, self._seed, lambda: self._seed)
        which, place = self._turn(number)
        piece = Piece(self._tensors[which], place.begin, place.end)
        return Chunk(self, *_hashed(piece, self._seed))

    def _turn(self, number: int) -> tuple[int, ChunkPlace]:
        turn = number % self._ends[-1]
        which = bisect.bisect_right(self._ends, turn)
        first = self._ends[which - 1] if which else 0
        begin = (turn - first) * _CHUNK
        end = min(begin + _CHUNK, self._tensors[which].nbytes)
        return which, ChunkPlace(self._names[which], begin, end)


def _hashed(piece: Piece, seed: int) -> tuple[int | None, Callable[[], int]]:
    """The hash of what it holds now, None where a device is to be waited for; and what gives it."""
    import torch

    values = piece.values().view(torch.uint8)
    if not values.is_cuda:
        found = _hash(values.cpu().numpy(), seed)
        return found, lambda: found
    copy = torch.empty(values.nbytes, dtype=torch.uint8, pin_memory=True)
    copy.copy_(values, non_blocking=True)
    copied: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(values.device))

    def wait() -> int:
        copied.synchronize()
        return _hash(copy.numpy(), seed)

    return None, wait


def _hash(values: Any, seed: int) -> int:
    return _core.checksum(values, seed)


class Compared:
    """What the votes of all ranks brought with them. ``members``: ranks that vote together have
    compared theirs, and bring one. For one thread.
    """

    def __init__(self, members: list[list[int]]) -> None:
        self._together = {rank: ranks for ranks in members for rank in ranks}
        self._found: dict[int, dict[int, int]] = {}  # by the numbers of epochs, and by ranks
        self._cause: bytes | None = None

    def checked(self, vote: _core.GroupMessage, value: int) -> _core.GroupMessage:
        """The vote that came with that; of a yes a no, where ranks differ."""
        if vote.kind != _core.GroupMessageKind.yes:
            return vote
        of_ranks = self._found.setdefault(vote.epoch[1], {})
        of_ranks |= dict.fromkeys(self._together.get(vote.rank, ()), value)
        if self._cause is None and len(of_ranks) == len(self._together):
            self._cause = _cause(vote.epoch[1], of_ranks)
        if self._cause is None:
            return vote
        return _core.GroupMessage(_core.GroupMessageKind.no, vote.epoch, vote.rank, self._cause)

    def decided(self, number: int) -> None:
        """That epoch, and those before."""
        for each in [each for each in self._found if each <= number]:
            del self._found[each]


def _cause(number: int, of_ranks: Mapping[int, int]) -> bytes | None:
    """Which ranks differ from most; of as many, from those that have the lowest rank."""
    in_order = dict(sorted(of_ranks.items()))
    (most, count), *_ = Counter(in_order.values()).most_common(1)
    if count == len(in_order):
        return None
    others = [rank for rank, value in in_order.items() if value != most]
    first = next(rank for rank, value in in_order.items() if value == most)
    return _DIFFERS + json.dumps([number, others[:_SHOWN], len(others), first]).encode()


def told(cause: bytes, step: int, chunk: Chunk | None) -> GroupError | None:
    """None where a rank said no for something else."""
    if not cause.startswith(_DIFFERS):
        return None
    number, others, count, first = json.loads(cause[len(_DIFFERS) :])
    who = f"rank {others[0]}" if count == 1 else f"ranks {', '.join(map(str, others))}"
    who += ", ..." if count > len(others) else ""
    place = None if chunk is None else chunk.chunks.place(number)
    error = GroupError(
        f"nothing was saved at step {step} on any rank: what ranks are to hold alike is not: {who} "
        f"differ{'s' if count == 1 else ''} from rank {first} in "
        f"{'which tensors there are' if place is None else place}",
        "One copy of it is saved, in pieces, so nothing is saved any more. Find out what drove the "
        "ranks apart, and start the job anew: it goes on from what was saved last. "
        "Group(partition=False) saves what each rank has.",
    )
    error.rank = others[0]
    return error
