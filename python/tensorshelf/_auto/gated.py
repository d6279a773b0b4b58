"""Memory of a state that nothing changes before an optimizer steps, and behind the gate then."""

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tensorshelf._state import objects, shards
from tensorshelf._state.tensors import overlaps_itself
from tensorshelf._values import _torch


class Gated:
    """The memory of some tensors, but for what others show of it: those ``changed`` in a forward.

    Of a tensor that has gaps, other tensors may lie in these: it is known as itself alone.
    """

    def __init__(self, tensors: Iterable[Any] = (), changed: Iterable[Any] = ()) -> None:
        tensors = [tensor for tensor in tensors if tensor.numel()]
        self._with_gaps = {_place(tensor) for tensor in tensors if not _is_dense(tensor)}
        self._ranges = _merged(_range(tensor) for tensor in tensors if _is_dense(tensor))
        self._changed = _merged(_range(tensor) for tensor in changed if tensor.numel())

    def has(self, value: Any) -> bool:
        """Whether each byte of a tensor or an array is in that memory."""
        begin, end = _range(value)
        if begin == end or _meets(self._changed, begin, end):
            return False
        at = bisect.bisect_right(self._ranges, (begin, end)) - 1
        around = [self._ranges[place] for place in (at, at + 1) if 0 <= place < len(self._ranges)]
        if any(first <= begin and end <= last for first, last in around):
            return True
        return not isinstance(value, np.ndarray) and _place(value) in self._with_gaps


def gated_in(state: Any) -> Gated:
    """What optimizers of the state step and keep, and the parameters of all its models, for
    averages of them are taken behind the gate. Embeddings with ``max_norm`` are left out: their
    forward changes them.
    """
    optimizers = list(objects.optimizers(state))
    if not optimizers:
        return Gated()
    tensors = list(objects.parameters(state))
    for optimizer in optimizers:
        tensors += objects.stepped_by(optimizer)
        for kept in optimizer.state.values():
            if isinstance(kept, Mapping):  # an optimizer may keep values of its own there, too
                tensors += [t for t in kept.values() if _torch.is_tensor(t)]
    parts = [part for module in objects.modules(state) for part in module.modules()]
    forward = [part.weight for part in parts if getattr(part, "max_norm", None) is not None]
    return Gated(map(shards.local, tensors), map(shards.local, forward))


def _range(value: Any) -> tuple[int, int]:
    """The first byte of its memory, and behind the last. An array is in order."""
    if isinstance(value, np.ndarray):
        return value.ctypes.data, value.ctypes.data + value.nbytes
    begin = value.data_ptr()
    if not value.numel():
        return begin, begin
    last = sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    return begin, begin + (last + 1) * value.element_size()


def _is_dense(tensor: Any) -> bool:
    """Whether it has all of its memory, each byte once."""
    begin, end = _range(tensor)
    fits = end - begin == tensor.numel() * tensor.element_size()
    return bool(fits and not overlaps_itself(tensor))


def _place(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order; those that meet as one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _meets(ranges: list[tuple[int, int]], begin: int, end: int) -> bool:
    at = bisect.bisect_left(ranges, (end, 0)) - 1  # the last that begins before the end
    return at >= 0 and ranges[at][1] > begin
