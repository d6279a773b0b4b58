"""What all ranks saved, as one state that is read where it lies: nothing is copied before."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tensorshelf._group.joined import JoinedTensor
from tensorshelf._group.pieced import PiecedTensor
from tensorshelf._group.saved import Saved
from tensorshelf._group.whole import names_in, whole_of
from tensorshelf._state import record, tensors
from tensorshelf._state.nodes import is_mapping, key_of, pairs
from tensorshelf._state.paths import RECORD
from tensorshelf._values._dtypes import Array


class StoredRecord:
    """The state's tree, as a handle of a shelf gives it."""

    dtype_name = "uint8"

    def __init__(self, data: Array) -> None:
        self._data = data
        self.shape, self.nbytes = data.shape, data.nbytes

    def numpy(self) -> Array:
        return self._data


class JoinedState:
    """As the shelf that merge() makes would hold it. For ``record.Reads``."""

    def __init__(self, ranks: Sequence[Saved]) -> None:
        readers = [rank.reader for rank in ranks]
        whole = whole_of([rank.saved.tree for rank in ranks], readers)
        locks = [threading.Lock() for _ in ranks]
        shelf = ranks[0].shelf
        self._whole = {*whole.copied, *(made.about.place for made in whole.pieced)}
        self.tree = whole.tree
        self.record = record.encoded(record.Record(whole.tree, names_in(whole.tree)))
        self._tensors: dict[str, Any] = {
            made.about.place: JoinedTensor(made.about, made.parts, readers, locks)
            for made in whole.made
        }
        shelves = [rank.shelf for rank in ranks]
        self._tensors |= {made.about.place: PiecedTensor(made, shelves) for made in whole.pieced}
        self._tensors |= {new: shelf[old] for new, old in whole.copied.items()}

    def __contains__(self, name: object) -> bool:
        return name == RECORD or name in self._tensors

    def __getitem__(self, name: str) -> Any:
        return StoredRecord(self.record) if name == RECORD else self._tensors[name]

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def keys(self) -> list[Any]:
        """The outermost ones."""
        return [key_of(key) for key, _ in pairs(self.tree)] if is_mapping(self.tree) else []

    def was_whole(self, name: str) -> bool:
        """Whether ranks had all of it, alike, and not parts of it."""
        return name in self._whole

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def values(self) -> Iterator[tuple[str, Any]]:
        """Names, and what a shelf takes under them; each is done with when the next is wanted."""
        for name, tensor in self._tensors.items():
            made = isinstance(tensor, (JoinedTensor, PiecedTensor))
            yield name, _value_of(tensor) if made else tensor


def _value_of(tensor: JoinedTensor | PiecedTensor) -> Any:
    about = tensor.about._replace(strides=None)
    return tensors.as_stored(tensors.new(about, lambda flat: tensor._read(flat, 0)))
