"""shelf.save(): a state becomes the newest version, whole."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from tensorshelf._state import paths, record
from tensorshelf._state.flatten import Flat
from tensorshelf._state.record import Record
from tensorshelf._values import _dtypes, _torch
from tensorshelf._values._sources import source_of
from tensorshelf.errors import LayoutError, ReadOnlyError, ShelfError

Made = TypeVar("Made")


class StateShelf(Protocol):
    """What saving asks of a shelf."""

    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str) -> Any: ...

    def __setitem__(self, name: str, value: Any) -> None: ...

    def __delitem__(self, name: str) -> None: ...

    def replace(self, name: str, value: Any) -> Any: ...

    def discard(self) -> None: ...


def save(shelf: StateShelf, flat: Flat, commit: Callable[[], Made], *, uncommitted: bool) -> Made:
    """See Shelf.save. ``commit`` makes it a version, or prepares it. ``uncommitted``: whether
    something else was assigned since the last version.

    Everything is looked at before anything is assigned: flatten() found what cannot be stored, and
    here is found what would need another layout than a tensor of somebody else has.
    """
    before = record.find(shelf)
    owned = set() if before is None else set(before.owned)
    other = [name for name, value in flat.tensors.items() if not _fits(shelf, name, value)]
    for name in other:
        if name not in owned:
            raise _taken(shelf, name)
    tree = record.encoded(Record(flat.tree, sorted(flat.tensors)))
    try:
        for name in owned - flat.tensors.keys():
            if name in shelf:
                del shelf[name]
        for name, value in flat.tensors.items():
            if name in other:
                shelf.replace(name, value)
            else:
                shelf[name] = value
        if paths.RECORD in shelf and not _fits(shelf, paths.RECORD, tree):
            shelf.replace(paths.RECORD, tree)
        else:
            shelf[paths.RECORD] = tree
        return commit()
    except BaseException as error:
        if not uncommitted:
            _discard(shelf, error)
        elif isinstance(error, ShelfError):
            error.add_note(
                "save() had assigned a part of the state. Something else was assigned before it, "
                "so all of it is kept: discard() drops both, and persist() would commit them."
            )
        raise


def holds(shelf: record.Reads, flat: Flat) -> bool:
    """Whether a state of that very form was saved last: saving it makes and deletes no tensor."""
    before = record.find(shelf)
    if before is None or before.owned != sorted(flat.tensors):
        return False
    return all(name in shelf and _fits(shelf, name, value) for name, value in flat.tensors.items())


def _discard(shelf: StateShelf, error: BaseException) -> None:
    """Else the next version would have half of a state."""
    try:
        shelf.discard()
    except ReadOnlyError:  # then nothing was assigned
        pass
    except ShelfError as second:
        error.add_note(f"A part of the state stays assigned, for discarding it failed: {second}")


def _fits(shelf: record.Reads, name: str, value: Any) -> bool:
    """Whether the value can be assigned: the tensor is not there, or has its layout."""
    if name not in shelf:
        return True
    handle = shelf[name]
    return bool((handle.dtype_name, handle.shape) == _layout(value))


def _layout(value: Any) -> tuple[str, tuple[int, ...]]:
    if isinstance(value, np.ndarray) or _torch.is_tensor(value):
        return _dtypes.name_of(value.dtype), tuple(value.shape)
    source = source_of(value)
    return source.name, source.shape


def _taken(shelf: StateShelf, name: str) -> LayoutError:
    handle = shelf[name]
    there = _dtypes.layout_text(handle.dtype_name, handle.shape)
    return LayoutError(
        f"{name!r} is {there} in the shelf, no part of a saved state, and of another layout than "
        "the state has there",
        f"Delete or rename it first: del shelf[{name!r}]. Nothing was assigned.",
    )
