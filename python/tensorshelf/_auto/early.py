"""Whether what a save was still copying was changed too early, as far as torch tells.

The pipeline compares bytes, and only some of those of large tensors. torch counts most changes in
place, whatever their size; not those by fused optimizers, by way of ``.data`` or of NumPy. Only
tensors that have their memory to themselves are asked.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from tensorshelf._state.again import Again
from tensorshelf._state.memories import Counted
from tensorshelf._values import _torch
from tensorshelf.errors import TornSave


class TooEarly(NamedTuple):
    """A tensor that was changed behind a step()."""

    name: str
    step: int

    def error(self) -> TornSave:
        return TornSave(
            f"{self.name!r} was changed behind step({self.step}), before it was sure to be "
            "copied: that version may hold it partly as it was before, and partly as it is now",
            "From here on it is copied before step() returns. Or call auto.gate() before such a "
            "change, or use autosave(overlap=False).",
        )


class Early:
    """The tensors that saves copy behind step(), watched for changes. For one thread."""

    def __init__(self, again: Again, tensors: Sequence[tuple[str, Any]]) -> None:
        names = defaultdict(list)
        for name, tensor in tensors:
            if _counts(tensor):
                names[int(tensor.data_ptr())].append(name)  # pieces of one, each with a name
        self._names = [names[place] for place in again.count_changes(names)]

    def changed(self, counted: Counted) -> list[str]:
        """Names of those that were changed since a look of ``again`` found them."""
        return [name for index in counted.changed() for name in self._names[index]]


def _counts(tensor: Any) -> bool:
    """Not one that shows a part of some memory: torch counts the changes of all such together."""
    if not _torch.is_tensor(tensor) or tensor.is_inference():
        return False
    return bool(0 < tensor.nbytes == tensor.untyped_storage().nbytes())
