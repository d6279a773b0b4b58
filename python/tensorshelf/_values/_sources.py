"""Where assigned values come from: arrays, tensors of other libraries, lists, numbers.

A Source knows its shape and element type, and gives its bytes in C order, little-endian. What is
contiguous is given as it lies; what is not is converted in blocks along the first axis, so that
no second copy of the whole is ever made.
"""

import contextlib
import datetime
from collections.abc import Iterator, Mapping, MappingView
from typing import Any, Protocol

import numpy as np

from tensorshelf._values import _cuda, _dtypes, _torch
from tensorshelf._values._dtypes import Array
from tensorshelf._values._handle import is_handle
from tensorshelf.errors import LayoutError

BLOCK_BYTES = 8 << 20

_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_REMEDY = "Assign a NumPy array or a torch tensor of numbers."


class Source(Protocol):
    """A value to be assigned."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""

    @property
    def name(self) -> str:
        """The shelf's name of the element type."""

    @property
    def weak(self) -> bool:
        """True for Python numbers and lists: the tensor decides the width."""

    @property
    def conversion(self) -> str:
        """How a user makes one of another element type, which stands for {}."""

    def array(self) -> Array:
        """The value as an array of its public or carrier dtype, in either byte order."""

    def contiguous_bytes(self) -> Iterator[Array]:
        """The value's bytes in C order, little-endian, as flat uint8 arrays."""


def blocks(array: Array, limit: int = BLOCK_BYTES) -> Iterator[Array]:
    """Consecutive parts in C order, of at most about ``limit`` bytes each; at least one."""
    if array.nbytes <= limit or array.ndim == 0:
        yield array
        return
    row_bytes = array.nbytes // array.shape[0]
    if row_bytes > limit:
        for row in array:
            yield from blocks(row, limit)
        return
    rows = limit // row_bytes
    for first in range(0, array.shape[0], rows):
        yield array[first : first + rows]


def flat_bytes(array: Array) -> Array:
    """The bytes of an array as flat uint8, in C order; a copy only where it is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class ArraySource:
    """A NumPy array, or what NumPy made one of."""

    def __init__(
        self,
        array: Array,
        *,
        name: str | None = None,
        weak: bool = False,
        spelled: str = "np.asarray(value)",
    ) -> None:
        self.name = name or _dtypes.name_of(array.dtype)
        self.shape: tuple[int, ...] = array.shape
        self.weak = weak
        self.conversion = f"{spelled}.astype('{{}}')"
        self._array = array

    def array(self) -> Array:
        return self._array

    def contiguous_bytes(self) -> Iterator[Array]:
        array = self._array
        if array.flags.c_contiguous and array.dtype.isnative:
            yield flat_bytes(array)
            return
        for block in blocks(array):
            yield flat_bytes(_dtypes.to_native(block))


def source_of(value: object) -> Source:
    """The Source of any supported object.

    NumPy arrays and scalars, torch tensors on any device, numbers, nested lists, and objects with
    ``__cuda_array_interface__``, ``__array__``, ``__dlpack__`` or the buffer protocol. Raises
    LayoutError for the rest.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise LayoutError(
            "a masked array has a mask, which would be lost",
            "Use .filled(value); or store .data and .mask, each by itself.",
        )
    if isinstance(value, (np.ndarray, np.generic)):
        return ArraySource(np.asarray(value), spelled="value")
    if isinstance(value, (bool, int, float, complex, list, tuple)):
        return ArraySource(_from_python(value), weak=True)
    if is_handle(value):
        values = value._copied()  # whole, before any is written
        return ArraySource(values, name=value.dtype_name, spelled="value.numpy()")
    if _torch.is_tensor(value):
        return _torch.source(value)
    interface = _cuda.interface_of(value)
    if interface is not None:
        return _from_device(value, interface)
    return ArraySource(_from_foreign(value))


def named_source(name: str, value: object) -> Source:
    """``source_of``, with errors that name the tensor that was to have the value."""
    try:
        return source_of(value)
    except LayoutError as error:
        what, remedy = f"{name!r}: {error.what}", error.remedy
        items = _items_text(value)
        if items:
            prefix = repr(f"{name}.").replace("{", "{{").replace("}", "}}")
            key = f"f{prefix[:-1]}{{k}}{prefix[-1]}"
            remedy = (
                "shelf.save() stores it, nested ones too; or flatten it: "
                f"shelf.update({{{key}: v for k, v in {items}}})."
            )
        raise LayoutError(what, remedy) from error


def _items_text(value: object) -> str:
    """How the names and values are had of what holds several, else nothing."""
    if isinstance(value, Mapping):
        return "value.items()"
    return "value.state_dict().items()" if hasattr(value, "state_dict") else ""


def named(name: str, error: LayoutError) -> LayoutError:
    """The same error, beginning with the tensor's name."""
    return LayoutError(f"{name!r}: {error.what}", error.remedy)


def _from_device(value: object, interface: Mapping[str, Any]) -> Source:
    if not _cuda.usable():  # Numba's arrays know another way to the host, CuPy's refuse it
        with contextlib.suppress(LayoutError):
            return ArraySource(_from_foreign(value))
    return _cuda.from_interface(value, interface)


def _from_python(value: object) -> Array:
    if isinstance(value, (list, tuple)):
        _refuse_masks(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise LayoutError(f"the list is not rectangular: {error}", "Pad its rows.") from error
    if array.dtype == object and isinstance(value, int):
        raise LayoutError(
            f"{value} does not fit 64 bits", "Assign its 64-bit parts as uint64, or float(value)."
        )
    if array.dtype == object:
        odd = next((item for item in array.flat if not isinstance(item, _NUMBERS)), None)
        raise _no_number(odd, "a list that holds ")
    return array


def _refuse_masks(values: "list[Any] | tuple[Any, ...]") -> None:
    """Raises for masked arrays in nested lists, of which NumPy would take the hidden values."""
    kinds = {type(value) for value in values}
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
        raise LayoutError(
            "a list of masked arrays has masks, which would be lost",
            "Use np.ma.stack(list).filled(value).",
        )
    if not kinds.isdisjoint((list, tuple)):
        for value in values:
            if isinstance(value, (list, tuple)):
                _refuse_masks(value)


def _from_foreign(value: Any) -> Array:
    """An array of an object of another library, through the first protocol that it speaks."""
    if value is None or isinstance(value, (str, bytes, Mapping, set)) or callable(value):
        raise _no_number(value)
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.asarray(np.from_dlpack(value))
        array = np.asarray(value)
    except Exception as error:
        raise LayoutError(f"{type(value).__name__} gave no array: {error}", _REMEDY) from error
    if array.dtype == object and array.ndim == 0:  # NumPy's answer to what it knows nothing of
        raise _no_number(value)
    return array


def _no_number(value: object, holder: str = "") -> LayoutError:
    """The error for an object that is no number, with what to store in its place."""
    kind = type(value)
    remedy = _REMEDY
    if value is None:
        remedy = "`del` deletes a tensor; shelf.save() stores None, as a part of a state."
    elif isinstance(value, (str, bytes, Mapping, set)):
        remedy = "shelf.save() stores it, as a part of a state."
    elif isinstance(value, datetime.timedelta):
        remedy = "Store value.total_seconds()."
    elif isinstance(value, datetime.datetime):
        remedy = "Store value.timestamp(), or np.datetime64(value).view('int64')."
    elif isinstance(value, datetime.date):
        remedy = "Store value.toordinal()."
    elif isinstance(value, (Iterator, MappingView)):
        remedy = "Take its values first: list(value), or np.fromiter(value, dtype)."
    elif hasattr(kind, "__float__"):
        remedy = "Store float(value)."
    article = "an" if kind.__name__[0] in "AEIOaeio" else "a"
    return LayoutError(f"{holder}{article} {kind.__name__} cannot be stored as a tensor", remedy)


def matches(source: Source, name: str, shape: tuple[int, ...]) -> bool:
    """True when the value has exactly this layout, or is a Python number or list that fits it."""
    if tuple(source.shape) != shape:
        return False
    return source.name == name or (source.weak and _weakly_castable(source.name, name))


def _weakly_castable(source: str, target: str) -> bool:
    kinds = _dtypes.kind(source), _dtypes.kind(target)
    return _dtypes.castable(source, target) or kinds == ("i", "u")


def _conversion(source: Source, target: str) -> str:
    """What a user writes to have the value in an element type that it is not cast to."""
    if not source.weak or source.shape:
        return source.conversion.format(target)
    number = "value.real" if _dtypes.kind(source.name) == "c" else "value"
    made = {"b": "bool", "u": "int", "i": "int", "f": ""}[_dtypes.kind(target)]
    return f"{made}({number})" if made else number


def check_cast(source: Source, target: str) -> None:
    """Raises LayoutError unless the values may be cast to the element type ``target``.

    The rule is NumPy's "same_kind". A Python int may also go to an unsigned type that holds it.
    """
    if source.name == target:
        return
    allowed = _weakly_castable if source.weak else _dtypes.castable
    if not allowed(source.name, target):
        raise LayoutError(
            f"cannot cast {source.name} to {target} under the rule 'same_kind'",
            f"Convert it first: {_conversion(source, target)}.",
        )
    if source.weak and _dtypes.kind(source.name) in "iu" and _dtypes.kind(target) in "iu":
        values, limits = source.array(), np.iinfo(_dtypes.carrier(target))
        if values.size and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
            raise LayoutError(
                f"a value lies outside {target} ({limits.min} to {limits.max})",
                "Use a wider element type.",
            )
