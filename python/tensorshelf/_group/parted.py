"""A flattened state of which this rank saves its pieces of what all ranks hold alike.

All tensors stay in the tree. What is left as it is: tensors without dimensions or elements, and
what shows memory that others show, too.
"""

from typing import Any, NamedTuple

from tensorshelf._group.alike import alike
from tensorshelf._state import split
from tensorshelf._state import writers as writing
from tensorshelf._state.flatten import Flat
from tensorshelf._state.paths import RECORD, free_name
from tensorshelf._state.plain import Node
from tensorshelf._state.reader import all_tensors
from tensorshelf._values import _torch


class Parted(NamedTuple):
    """What is to be stored, and whole tensors by their names."""

    flat: Flat
    alike: dict[str, Any]  # that all ranks hold alike
    of_first: list[str]  # that rank 0 gives


class Ranks(NamedTuple):
    """A group, as one of its ranks sees it."""

    rank: int
    members: int
    writers: list[int]  # who have pieces of what all hold alike
    is_numbered_anew: bool = False  # those of torch.distributed may be others, on some ranks


def parted(flat: Flat, state: Any, ranks: Ranks) -> Parted:
    """What this rank saves of ``state``, flattened; its nodes are changed in place."""
    nodes = list(all_tensors(flat.tree))
    found = alike(state, _sharded(flat, nodes), ranks.rank, ranks.members)
    if ranks.is_numbered_anew:  # whose buffers are given is not known alike by all
        found = found._replace(of_first=frozenset())
    shared: dict[str, Any] = {}
    of_first: dict[str, Any] = {}
    for node in nodes:
        begin = _begin(flat, node)
        if begin in found.all_ranks:
            shared[node[4]] = flat.tensors[node[4]]
        elif begin in found.of_first:
            of_first[node[4]] = flat.tensors[node[4]]
    wholes = shared | of_first
    writers = writing.stored(ranks.writers)
    sizes = {name: (writers if name in shared else 1, wholes[name].nbytes) for name in wholes}
    shares = split.shares(sizes, ranks.rank)
    taken = {RECORD, *flat.tensors}
    tensors = {name: value for name, value in flat.tensors.items() if name not in wholes}
    pieces = {}
    for node in nodes:
        name = node[4]
        if not isinstance(name, str) or name not in wholes:
            continue
        begin, end = shares.get(name, (0, 0))
        held = None
        if begin < end:
            held = free_name(f"{name}[{begin}:{end}]", taken)
            pieces[held] = split.Piece(wholes[name], begin, end)
            tensors[held] = pieces[held].values()
        node[0] = "piece"
        node[4] = list(split.Place(name, sizes[name][0], begin, end, held))
    return Parted(Flat(flat.tree, tensors, pieces, wholes), shared, list(of_first))


def _begin(flat: Flat, node: Node) -> int | None:
    """In memory; None of what is in no tensor of the shelf of its own."""
    value = flat.tensors[node[4]] if isinstance(node[4], str) else None
    if not _torch.is_tensor(value) or not value.numel():
        return None
    return int(value.data_ptr())


def _sharded(flat: Flat, nodes: list[Node]) -> frozenset[int]:
    """Where what this rank has of sharded tensors begins."""
    found = set()
    for part in _parts(flat.tree):
        place = (nodes[part[1]] if part[0] == "tie" else part)[4]
        name, offset = place if isinstance(place, list) else (place, 0)
        value = flat.tensors.get(name)
        if _torch.is_tensor(value) and value.numel():
            found.add(value.data_ptr() + offset)
    return frozenset(found)


def _parts(node: Node) -> list[Node]:
    if not isinstance(node, list) or not node or node[0] == "tensor":
        return []
    if node[0] == "part":
        return [node[3]]
    return [part for inner in node[1:] for part in _parts(inner)]
