"""Whether what a save was still copying was changed too early, as far as torch tells.

The pipeline compares bytes, and only some of those of large tensors. torch counts most changes in
place, whatever their size; not those by fused optimizers, by way of ``.data`` or of NumPy. Only
tensors that have their memory to themselves are asked.
"""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from tensorshelf._values import _torch
from tensorshelf.errors import TornSave

_COUNT = operator.attrgetter("_version")


class TooEarly(NamedTuple):
    """A tensor that was changed behind a step()."""

    name: str
    step: int

    def error(self) -> TornSave:
        return TornSave(
            f"{self.name!r} was changed behind step({self.step}), before it was sure to be "
            "copied: that version may hold a part of it from before and a part from behind",
            "From here on it is copied before step() returns. Or call auto.gate() before such a "
            "change, or use autosave(overlap=False).",
        )


class Early:
    """Of the tensors that saves copy behind step(). For one thread."""

    def __init__(self, tensors: Sequence[tuple[str, Any]]) -> None:
        counted = [each for each in tensors if _counts(each[1])]
        self._names = [name for name, _ in counted]
        self._tensors = [tensor for _, tensor in counted]

    def counts(self) -> list[int]:
        """How often each was changed so far."""
        return list(map(_COUNT, self._tensors))

    def changed(self, before: list[int]) -> list[str]:
        """Names of those that were changed since."""
        counts = self.counts()
        if counts == before:
            return []
        pairs = zip(self._names, counts, before, strict=True)
        return [name for name, now, was in pairs if now != was]


def _counts(tensor: Any) -> bool:
    """Not one that shows a part of some memory: torch counts the changes of all such together."""
    if not _torch.is_tensor(tensor) or tensor.is_inference():
        return False
    return bool(tensor.untyped_storage().nbytes() == tensor.nbytes)
