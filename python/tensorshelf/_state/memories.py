"""Where torch tensors lie, and whether they still do.

All are compared at once, property by property: a call of ours for each tensor would cost more than
the comparison, at each save.
"""

import operator
from collections.abc import Callable
from typing import Any

_Property = Callable[[Any], Any]

_CACHED_TOGETHER = 512  # tensors, whose properties fit a processor's inner caches


class Memories:
    """Of tensors in their order."""

    def __init__(self) -> None:
        self._known: list[tuple[_Property, list[Any]]] = []
        self._count = 0
        self._any_complex = False

    def add(self, tensor: Any) -> bool:
        """False for one whose bytes are not those of plain memory."""
        if tensor.is_conj() or tensor.is_neg() or tensor.device.type not in ("cpu", "cuda"):
            return False
        if not self._known:
            self._known = [(each, []) for each in _properties()]
        if tensor.is_complex() and not self._any_complex:  # only those can be lazy conjugates
            self._any_complex = True
            self._known.append((type(tensor).is_conj, [False] * self._count))
        for read, values in self._known:
            values.append(read(tensor))
        self._count += 1
        return True

    def hold(self, tensors: list[Any]) -> bool:
        """Whether these are as those were when they were added."""
        if len(tensors) != self._count:
            return False
        try:
            return all(
                self._hold(tensors, begin) for begin in range(0, self._count, _CACHED_TOGETHER)
            )
        except RuntimeError:  # one has no memory of its own: it is sparse, or what not
            return False

    def _hold(self, tensors: list[Any], begin: int) -> bool:
        some = slice(begin, begin + _CACHED_TOGETHER)
        part = tensors[some]
        return all(
            all(map(operator.eq, map(read, part), values[some])) for read, values in self._known
        )


def _properties() -> list[_Property]:
    """Type before all, for the others ask for what torch tensors have."""
    from torch import Tensor

    return [
        type,
        Tensor.data_ptr,
        operator.attrgetter("shape"),
        operator.attrgetter("dtype"),
        Tensor.stride,
        Tensor.is_neg,
    ]
