"""A joined state that so many ranks load together: each reads its piece of what all need whole."""

import itertools
from collections.abc import Container
from typing import Any

from tensorshelf._group.pieced import PiecedTensor
from tensorshelf._group.state import JoinedState, StoredRecord
from tensorshelf._state import record, split
from tensorshelf._state.nodes import is_mapping, key_of, pairs
from tensorshelf._state.paths import RECORD, free_name
from tensorshelf._state.plain import Node
from tensorshelf._state.reader import all_tensors
from tensorshelf._state.tensors import Tensor
from tensorshelf._values._dtypes import Array


class _Range:
    """Some bytes of a tensor, as a handle of a shelf gives them."""

    def __init__(self, handle: Any, begin: int, end: int) -> None:
        self._handle, self._begin = handle, begin
        self.nbytes = end - begin

    def _read(self, flat: Array, offset: int) -> None:
        self._handle._read(flat, self._begin + offset)

    def _cuts(self, nbytes: int) -> list[int]:
        """Where parts of about so many bytes end, each of whole chunks but at the ends of this."""
        whole = self._handle
        begins = whole.begins() if isinstance(whole, PiecedTensor) else [0]
        begins = [*begins, whole.nbytes]
        cuts = {at for a, b in itertools.pairwise(begins) for at in range(a, b, nbytes)}
        return [at - self._begin for at in sorted(cuts) if 0 < at - self._begin < self.nbytes]


class SharedOut:
    """For ``record.Reads``, with an exchange: tensors below these outermost keys that ranks had
    whole, or in pieces, lie here in pieces, by the split of ``ranks`` writers.
    """

    def __init__(self, state: JoinedState, keys: Container[Any], rank: int, ranks: int) -> None:
        self._state = state
        self._ranges: dict[str, _Range] = {}
        found = [node for node in _chosen(state.tree, keys) if state.was_whole(node[4])]
        sizes = {node[4]: (ranks, Tensor.of(node).nbytes) for node in found}
        shares = split.shares(sizes, rank)
        taken = set(state.names())
        places: dict[str, list[Any]] = {}
        for name in sizes:
            begin, end = shares.get(name, (0, 0))
            held = None
            if begin < end:
                held = free_name(f"{name}[{begin}:{end}]", taken)
                self._ranges[held] = _Range(state[name], begin, end)
            places[name] = list(split.Place(name, ranks, begin, end, held))
        tree = _placed(state.tree, {id(node) for node in found}, places)
        self._record = StoredRecord(record.encoded(record.Record(tree, self._owned(tree))))

    def _owned(self, tree: Node) -> list[str]:
        """The names of its tensors."""
        homes = (Tensor.of(node).place for node in all_tensors(tree) if node[0] != "piece")
        names = {home[0] if isinstance(home, list) else home for home in homes}
        return sorted({*self._ranges, *(name for name in names if isinstance(name, str))})

    def __contains__(self, name: object) -> bool:
        return name in self._ranges or name in self._state

    def __getitem__(self, name: str) -> Any:
        if name == RECORD:
            return self._record
        return self._ranges[name] if name in self._ranges else self._state[name]


def _chosen(tree: Node, keys: Container[Any]) -> list[Node]:
    """Nodes of torch's tensors that lie in one of their own, and have bytes."""
    parts = [part for key, part in pairs(tree) if key_of(key) in keys] if is_mapping(tree) else []
    return [node for part in parts for node in _tensors(part) if Tensor.of(node).nbytes]


def _tensors(node: Node) -> list[Node]:
    if not isinstance(node, list) or not node or node[0] == "part":
        return []
    if node[0] == "tensor":
        return [node] if node[1] == "torch" and isinstance(node[4], str) else []
    return [found for part in node[1:] for found in _tensors(part)]


def _placed(node: Node, chosen: set[int], places: dict[str, list[Any]]) -> Node:
    if not isinstance(node, list) or not node:
        return node
    if id(node) in chosen:
        return ["piece", *node[1:4], places[node[4]], node[5]]
    return node if node[0] == "tensor" else [_placed(part, chosen, places) for part in node]
