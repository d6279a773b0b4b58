"""What a shelf and each of its versions have in common: names of tensors, and a state to load."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from tensorshelf import _names
from tensorshelf._progress import Report, reporter
from tensorshelf._spelling import spelled
from tensorshelf._state import load as _load
from tensorshelf._state.record import Reads


class HasNames(Protocol):
    """The native half."""

    def find(self, name: str) -> Any: ...

    def names(self) -> list[str]: ...


class Named:
    """A mapping of names to tensors that is told from others by identity, for comparing reads."""

    __slots__: tuple[str, ...] = ()

    _core: HasNames

    @spelled
    def load(
        self: Reads,
        keys: str | Iterable[str] | None = None,
        *,
        rename: Mapping[str, str] | Callable[[str], str] | None = None,
        progress: Report | bool | None = None,
    ) -> Any:
        """The state that ``save()`` stored, in memory of its own; every checksum is checked.

        Objects come back as their states: ``model.load_state_dict(shelf.load("model")["model"])``.
        Tied tensors are one again, and keys have their types.

        keys      parts to load, by their dotted paths, with * and ?: "model", "model.layers.0.*"
        rename    {"old.path": "new.path"}, for what lies below them too, or a function of a path
        progress  True for a bar, or a function of (done, total) in bytes

        Raises UnknownName where there is no state, or no such key, and CorruptError where what was
        saved is damaged, or something else was assigned in its place.
        """
        with reporter(progress, "loading") as report:
            return _load.load(self, keys, rename, report)

    def __contains__(self, name: object) -> bool:
        return _names.is_text(name) and self._core.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        return iter(self._core.names())

    def __len__(self) -> int:
        return len(self._core.names())

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)
