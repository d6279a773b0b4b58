"""Where torch tensors lie, and whether they still do.

All are compared at once: a call of ours for each tensor would cost more than the comparison, at
each save. torch tells of each by DLPack's interface in C, from 2.10 on, and else property by
property.
"""

import operator
from collections.abc import Callable, Container
from itertools import compress
from typing import Any

from tensorshelf import _core

_Property = Callable[[Any], Any]
_Values = list[tuple[_Property, list[Any]]]

_CACHED_TOGETHER = 512  # tensors, whose properties fit a processor's inner caches
_CHANGES = operator.attrgetter("_version")  # how often a tensor was changed in place


class Counted:
    """Tensors, and how often torch says that each was changed in place so far."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self._changes: list[int] = []

    def add(self, tensors: list[Any]) -> None:
        self.tensors += tensors
        self._changes += map(_CHANGES, tensors)

    def changed(self) -> list[int]:
        """Indices of those that were changed since they were added."""
        now = list(map(_CHANGES, self.tensors))
        if now == self._changes:
            return []
        return [
            index
            for index, (was, count) in enumerate(zip(self._changes, now, strict=True))
            if was != count
        ]


class Memories:
    """The memories of tensors, in their order."""

    def __init__(self) -> None:
        self._layouts: _core.TensorLayouts | None = _core.TensorLayouts()
        self._lies: _Values = []  # what self._layouts compares
        self._reads: _Values = []  # what else tells the bytes
        self._count = 0
        self._any_complex = False
        self._places: list[int] = []
        self._is_counted: list[bool] = []

    def add(self, tensor: Any) -> bool:
        """False for one whose bytes are not those of plain memory."""
        if tensor.is_conj() or tensor.is_neg() or tensor.device.type not in ("cpu", "cuda"):
            return False
        if self._count == 0:
            self._lies, self._reads = _properties()
        if tensor.is_complex() and not self._any_complex:  # only those can be lazy conjugates
            self._any_complex = True
            self._reads.append((type(tensor).is_conj, [False] * self._count))
        for read, values in self._lies + self._reads:
            values.append(read(tensor))
        if self._layouts is not None and not self._layouts.add(tensor):
            self._layouts = None
        self._places.append(tensor.data_ptr())
        self._is_counted.append(False)
        self._count += 1
        return True

    def count_changes(self, places: Container[int]) -> list[int]:
        """From here on the changes of those that lie at these addresses are counted, which torch
        has to count. Their addresses, in the order of the counts.
        """
        self._is_counted = [place in places for place in self._places]
        return list(compress(self._places, self._is_counted))

    def hold(self, tensors: list[Any], counted: Counted) -> bool:
        """Whether these are as those were when they were added. Appends those whose changes are
        counted, while the processor's caches have them.
        """
        if len(tensors) != self._count:
            return False
        try:
            return all(
                self._hold(tensors, begin, counted)
                for begin in range(0, self._count, _CACHED_TOGETHER)
            )
        except RuntimeError:  # one has no memory of its own, or no count: it is sparse, or what not
            return False

    def _hold(self, tensors: list[Any], begin: int, counted: Counted) -> bool:
        some = slice(begin, begin + _CACHED_TOGETHER)
        part = tensors[some]
        if self._layouts is not None and not self._layouts.hold(part, begin):
            return False
        for read, values in self._reads if self._layouts is not None else self._lies + self._reads:
            if not all(map(operator.eq, map(read, part), values[some])):
                return False
        counted.add(list(compress(part, self._is_counted[some])))
        return True


def _properties() -> tuple[_Values, _Values]:
    """What says where a tensor lies, its type before all, for the others ask for what torch tensors
    have; and what says how its memory is read.
    """
    from torch import Tensor

    lies = (
        type,
        Tensor.data_ptr,
        operator.attrgetter("shape"),
        operator.attrgetter("dtype"),
        Tensor.stride,
    )
    return [(each, []) for each in lies], [(Tensor.is_neg, [])]
