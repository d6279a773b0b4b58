"""What ranks have saved each for itself: numbers, texts and short arrays of integers that differ,
as generators and loaders have them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorshelf._group.saved import Saved
from tensorshelf._state import tensors
from tensorshelf._state.nodes import is_mapping, key_of, pairs
from tensorshelf._state.plain import Node
from tensorshelf._state.reader import Reader

_TENSORS = {"tensor", "tie", "part", "piece"}  # what is tied on one rank may be a tensor on another
_SHORT_BYTES = 64 << 10  # of a generator: 2.5 KB of Python's and NumPy's, 5 KB of torch's


def own_keys(ranks: Sequence[Saved]) -> dict[Any, int]:
    """The outermost keys below which a rank has something else than rank 0, each with the first
    such rank. Floating-point tensors are not compared: buffers of a model differ, and rank 0's are
    taken.
    """
    first, *others = ranks
    known = _by_key(first.saved.tree)
    found: dict[Any, int] = {}
    for rank, other in enumerate(others, 1):
        of_rank = _by_key(other.saved.tree)
        for key in known.keys() & of_rank.keys() - found.keys():
            if not _Two(first.reader, other.reader).alike(known[key], of_rank[key]):
                found[key] = rank
    return found


def _by_key(tree: Node) -> dict[Any, Node]:
    return {key_of(key): part for key, part in pairs(tree)} if is_mapping(tree) else {}


class _Two(NamedTuple):
    """Ranks that are compared."""

    one: Reader
    other: Reader

    def alike(self, one: Node, other: Node) -> bool:
        if not isinstance(one, list) or not isinstance(other, list) or not one or not other:
            same = one == other or (one != one and other != other)  # a NaN is as another
            return type(one) is type(other) and same
        if one[0] in _TENSORS and other[0] in _TENSORS:
            return {one[0], other[0]} != {"tensor"} or self._alike_tensors(one, other)
        if is_mapping(one) and is_mapping(other):  # a rank may have parts that others have not
            known = _by_key(other)
            return all(
                self.alike(part, known[key]) for key, part in _by_key(one).items() if key in known
            )
        return len(one) == len(other) and all(map(self.alike, one, other))

    def _alike_tensors(self, one: Node, other: Node) -> bool:
        first, second = _short_bytes(self.one, one), _short_bytes(self.other, other)
        return first is None or second is None or first == second


def _short_bytes(reader: Reader, node: Node) -> bytes | None:
    """The bytes of what may be of a rank alone; None of all else."""
    about = tensors.Tensor.of(node)
    if isinstance(about.place, bytes):
        return about.place
    if about.nbytes > _SHORT_BYTES or not about.element.startswith(("int", "uint")):
        return None
    handle = reader.handle(node)
    if handle is None:
        return None
    flat = np.empty(about.nbytes, np.uint8)
    handle._read(flat, 0)
    return flat.tobytes()
