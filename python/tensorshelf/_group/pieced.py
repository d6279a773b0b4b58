"""Whole tensors of the pieces that ranks have of what they hold alike."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tensorshelf._group.pieces import unlike
from tensorshelf._state import split, tensors
from tensorshelf._state.plain import Node
from tensorshelf._values._dtypes import Array
from tensorshelf._values._index import Box


class Run(NamedTuple):
    """Bytes of a whole, in a tensor of a rank's shelf."""

    begin: int
    end: int
    rank: int
    held: str


class Pieced(NamedTuple):
    """A whole tensor that is to be made."""

    about: tensors.Tensor  # its place is the name that it gets
    runs: list[Run]


def runs_of(trees: Sequence[Node]) -> dict[str, list[Run]]:
    """By the names of the wholes. Raises CorruptError where ranks have not all of one together, or
    some of it twice, or not the same ones.
    """
    of_ranks = [{node[4][0]: node for node in _pieces(tree)} for tree in trees]
    for rank, found in enumerate(of_ranks):
        other = sorted(found.keys() ^ of_ranks[0].keys())
        if other:
            raise unlike(f"0 and {rank} have not both a piece of {other[0]!r}")
    return {name: _runs(name, [found[name] for found in of_ranks]) for name in of_ranks[0]}


def _pieces(node: Node) -> Iterator[Node]:
    if split.is_piece(node):
        yield node
    elif isinstance(node, list) and node and node[0] != "tensor":
        for part in node[1:]:
            yield from _pieces(part)


def _runs(name: str, nodes: Sequence[Node]) -> list[Run]:
    runs = []
    for rank, node in enumerate(nodes):
        place = split.Place(*node[4])
        if (node[1:4], place.writers) != (nodes[0][1:4], nodes[0][4][1]):
            raise unlike(f"0 and {rank} have pieces of different tensors as {name!r}")
        if place.held is not None:
            runs.append(Run(place.begin, place.end, rank, place.held))
    runs.sort()
    ends = [0, *(run.end for run in runs)]
    whole = tensors.Tensor.of(nodes[0]).nbytes
    if [run.begin for run in runs] != ends[:-1] or ends[-1] != whole:
        raise unlike(f"have not all of {name!r} together, or some of it twice")
    return runs


class PiecedTensor:
    """Reads as a handle of a shelf does, for any thread: each byte where it is."""

    def __init__(self, made: Pieced, shelves: Sequence[Any]) -> None:
        self.about = made.about
        self.nbytes = made.about.nbytes
        self._handles = [(run, shelves[run.rank][run.held]) for run in made.runs]

    def _read(self, flat: Array, offset: int) -> None:
        for run, handle in self._handles:
            begin, end = max(run.begin, offset), min(run.end, offset + flat.nbytes)
            if begin < end:
                handle._read(flat[begin - offset : end - offset], begin - run.begin)

    def begins(self) -> list[int]:
        """Where each of the pieces does, whose chunks count from there."""
        return [run.begin for run, _ in self._handles]

    def _read_box(self, box: Box, flat: Array) -> None:
        box.read(self._read, flat)
