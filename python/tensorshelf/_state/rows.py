"""What an optimizer keeps of each parameter: rows of a table, looked at column by column.

A call of ours for each row and tensor would cost more than what it looks at, at each save.
"""

import operator
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

import numpy as np

from tensorshelf import _core
from tensorshelf._state import tensors
from tensorshelf._state.keys import Keys
from tensorshelf._state.looks import Changed, Found, Look, stays
from tensorshelf._values import _torch
from tensorshelf.errors import LayoutError

_DTYPE = operator.attrgetter("dtype")
_DIMENSIONS = operator.attrgetter("ndim")
_IS_CPU = operator.attrgetter("is_cpu")


class Scalar:
    """A look at a tensor without dimensions: its bytes are a leaf."""

    def __init__(self, value: Any) -> None:
        self.kind, self.dtype = type(value), value.dtype
        self.nbytes = value.nbytes
        memory = None if isinstance(value, np.ndarray) else _torch.memory_of(value)
        self.is_real = memory is not None and not value.dtype.is_complex  # a plain tensor of torch

    def __call__(self, value: Any, found: Found) -> None:
        if type(value) is not self.kind or value.dtype != self.dtype or value.ndim != 0:
            raise Changed
        try:
            if not isinstance(value, np.ndarray):
                found.places.append(value.data_ptr())
            found.leaves.append(tensors.bytes_of(value))
        except (RuntimeError, LayoutError):  # it has no memory of its own
            raise Changed from None


class Row:
    """A look at a dictionary of torch tensors alone."""

    def __init__(self, keys: Keys, looks: list[Look]) -> None:
        self.names = keys
        self.keys, self.types = tuple(keys.all), tuple(keys.types)
        self.looks = looks
        self.staying = tuple(
            key for key, look in zip(keys.all, looks, strict=True) if look is stays
        )

    @staticmethod
    def made_of(keys: Keys, looks: list[Look]) -> bool:
        return (
            keys.simple
            and bool(looks)
            and all(look is stays or (isinstance(look, Scalar) and look.is_real) for look in looks)
        )

    def __call__(self, value: Any, found: Found) -> None:
        if type(value) is not dict or not self.names.are_those_of(value):
            raise Changed
        for item, look in zip(value.values(), self.looks, strict=True):
            look(item, found)


class Table:
    """A look at a dictionary of such rows, with the same columns."""

    def __init__(self, names: Keys, rows: list[Row]) -> None:
        first = rows[0]
        self._names, self._keys = names, first.keys
        self._types = first.types * len(rows)
        self._staying = _values_of(first.staying)
        self._others = _values_of(tuple(key for key in first.keys if key not in first.staying))
        self._scalars = [look for row in rows for look in row.looks if isinstance(look, Scalar)]
        self._kinds = [scalar.kind for scalar in self._scalars]
        self._dtypes = [scalar.dtype for scalar in self._scalars]
        self._sizes = [scalar.nbytes for scalar in self._scalars]

    @staticmethod
    def made_of(looks: list[Look]) -> bool:
        """Whether they are rows with the same columns."""
        forms = {
            (look.keys, look.types, look.staying) if isinstance(look, Row) else None
            for look in looks
        }
        return len(looks) > 1 and len(forms) == 1 and None not in forms

    def __call__(self, value: Any, found: Found) -> None:
        if type(value) is not dict or not self._names.are_those_of(value):
            raise Changed
        rows = value.values()
        if not _all(operator.is_, map(type, rows), repeat(dict)):
            raise Changed
        if not _all(operator.eq, map(tuple, rows), repeat(self._keys)):
            raise Changed
        if not _all(operator.is_, map(type, chain.from_iterable(rows)), self._types):
            raise Changed
        found.staying.extend(chain.from_iterable(map(self._staying, rows)))
        self._look_at_scalars(list(chain.from_iterable(map(self._others, rows))), found)

    def _look_at_scalars(self, values: list[Any], found: Found) -> None:
        if not values:
            return
        from torch import Tensor

        if (
            not _all(operator.is_, map(type, values), self._kinds)
            or not _all(operator.eq, map(_DTYPE, values), self._dtypes)
            or any(map(_DIMENSIONS, values))
            or not all(map(_IS_CPU, values))
            or any(map(Tensor.is_neg, values))
        ):
            raise Changed
        try:
            places = list(map(Tensor.data_ptr, values))
        except RuntimeError:  # one has no memory of its own
            raise Changed from None
        if not all(places):
            raise Changed
        found.places.extend(places)
        found.leaves.extend(_core.bytes_at(places, self._sizes))


def _all(compare: Callable[[Any, Any], Any], *values: Any) -> bool:
    return all(map(compare, *values))


def _values_of(keys: tuple[Any, ...]) -> Callable[[dict[Any, Any]], tuple[Any, ...]]:
    """The values of these keys, as a tuple."""
    if not keys:
        return lambda row: ()
    if len(keys) == 1:
        return lambda row: (row[keys[0]],)
    return operator.itemgetter(*keys)
