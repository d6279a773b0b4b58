"""Keys of a mapping, or items of a set, and whether they are still exactly those.

Python takes 1, 1.0 and True for one key, and a shelf stores them as three: types count, and so do
the signs of zeros.
"""

from collections.abc import Iterable
from typing import Any

from tensorshelf._state import plain, record
from tensorshelf._state.plain import NoPlainValue
from tensorshelf.errors import LayoutError

_EQUAL_IS_SAME = {str, int, bool, bytes, type(None)}  # of one type


class Keys:
    """In their order."""

    def __init__(self, known: Iterable[Any]) -> None:
        self.all = list(known)
        self.types = list(map(type, self.all))
        self._simple = _EQUAL_IS_SAME.issuperset(self.types)
        self._packed = [] if self._simple else _packed(self.all)

    @property
    def simple(self) -> bool:
        """Whether equal ones of equal types are the same."""
        return self._simple

    def are_those_of(self, value: Any) -> bool:
        keys = list(value)
        if list(map(type, keys)) != self.types:
            return False
        return keys == self.all if self._simple else _packed(keys) == self._packed


def _packed(keys: list[Any]) -> list[bytes]:
    return [record.packed(_node(key)) for key in keys]


def _node(key: Any) -> Any:
    if type(key) is tuple:
        return ["tuple", *map(_node, key)]
    try:
        return plain.node_of(key)
    except (NoPlainValue, LayoutError):
        return repr(key)  # what cannot be stored any more: it is none of those
