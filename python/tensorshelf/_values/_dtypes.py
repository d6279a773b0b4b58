"""Element types: the shelf's names, NumPy's dtypes, and the carriers of those NumPy lacks.

Every element type has a carrier, a plain NumPy dtype of the same width in which its bytes can be
moved, indexed and compared: itself where NumPy knows the type, else an unsigned integer. So a
bfloat16 tensor can be stored and read as torch.bfloat16 where ml_dtypes is not installed.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorshelf.errors import LayoutError, UnsupportedError

Array = npt.NDArray[Any]
DType = np.dtype[Any]


@dataclass(frozen=True)
class StandInDType:
    """What ``tensor.dtype`` is for an element type that NumPy lacks while ml_dtypes is missing."""

    name: str
    itemsize: int

    def __repr__(self) -> str:
        return f"dtype({self.name})"


# Kinds in the order of NumPy's "same_kind" rule: a value may go to its own kind or a later one.
_KIND = {"b": 0, "u": 1, "i": 2, "f": 3, "c": 4}

_NATIVE = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_CARRIED = {
    "bfloat16": "<u2",
    "complex32": "<u4",
    "float8_e4m3fn": "u1",
    "float8_e5m2": "u1",
    "float8_e4m3fnuz": "u1",
    "float8_e5m2fnuz": "u1",
    "float8_e8m0fnu": "u1",
}
_CARRIER = {
    **{name: np.dtype(name).newbyteorder("<") for name in _NATIVE},
    **{name: np.dtype(text) for name, text in _CARRIED.items()},
}

# NumPy has no complex32: its value is a pair of float16.
COMPLEX32 = np.dtype([("real", "<f2"), ("imag", "<f2")])

_REMEDY = (
    "Store numbers of a fixed size: text as bytes in uint8, times as .view('int64'), "
    "a structure field by field."
)


def carrier(name: str) -> DType:
    """The NumPy dtype in which the bytes of this element type are moved."""
    return _CARRIER[name]


def is_known(name: str) -> bool:
    """True for the name of an element type."""
    return name in _CARRIER


def is_native(name: str) -> bool:
    """True for an element type that NumPy itself knows."""
    return name in _NATIVE


def carried_names() -> tuple[str, ...]:
    """The element types that NumPy itself lacks."""
    return tuple(_CARRIED)


@functools.cache
def public(name: str) -> DType | None:
    """The NumPy dtype that users see; None for one that needs ml_dtypes where it is missing."""
    if name in _NATIVE:
        return _CARRIER[name]
    if name == "complex32":
        return COMPLEX32
    try:
        import ml_dtypes
    except ImportError:
        return None
    return np.dtype(getattr(ml_dtypes, name))


def shown(name: str) -> DType | StandInDType:
    """The public dtype, or a stand-in that has its name and width."""
    return public(name) or StandInDType(name, _CARRIER[name].itemsize)


def needed(name: str) -> DType:
    """The public dtype, or UnsupportedError saying how to get it."""
    found = public(name)
    if found is None:
        raise UnsupportedError(
            f"NumPy has no {name} of its own",
            "Install ml_dtypes (pip install ml_dtypes), or use .torch().",
        )
    return found


def name_of(dtype: object) -> str:
    """The shelf's name of a dtype given as text, NumPy or torch dtype, or Python type.

    Raises LayoutError for what has no fixed-size numeric meaning: object, text, dates, long double.
    """
    if isinstance(dtype, np.dtype):
        return _name_of_numpy(dtype)
    if isinstance(dtype, StandInDType):
        return dtype.name
    if type(dtype).__module__ == "torch" and type(dtype).__name__ == "dtype":
        dtype = str(dtype).removeprefix("torch.")
    if isinstance(dtype, str) and dtype in _CARRIER:
        return dtype
    try:
        resolved = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        raise LayoutError(f"{dtype!r} is no element type", _known()) from None
    if dtype is None:
        raise LayoutError("None is no element type", _known())
    return _name_of_numpy(resolved)


@functools.lru_cache(maxsize=256)
def _name_of_numpy(dtype: DType) -> str:
    if dtype == COMPLEX32:
        return "complex32"
    if dtype.name not in _CARRIER or dtype.subdtype is not None:
        raise LayoutError(f"element type {dtype} cannot be stored", _REMEDY)
    return str(dtype.name)


def _known() -> str:
    return f"Known: {', '.join(_CARRIER)}."


def kind(name: str) -> str:
    """One of b, u, i, f, c."""
    if name in _NATIVE:
        return _CARRIER[name].kind
    return "c" if name == "complex32" else "f"


def castable(source: str, target: str) -> bool:
    """NumPy's "same_kind" rule: float64 to float32 may be, float to int may not."""
    return _KIND[kind(source)] <= _KIND[kind(target)]


def layout_text(name: str, shape: tuple[int, ...]) -> str:
    """float32[4, 3]"""
    return f"{name}[{', '.join(map(str, shape))}]"


MAX_DIMS = 32 if int(np.__version__.split(".")[0]) < 2 else 64  # of NumPy's arrays


def check_dims(what: str, dims: int) -> None:
    """Raises UnsupportedError where NumPy has no arrays of so many axes."""
    if dims > MAX_DIMS:
        raise UnsupportedError(
            f"{what} has {dims} dimensions; NumPy {np.__version__} has at most {MAX_DIMS}",
            "Use .torch() and copy_() with torch tensors, or NumPy 2, whose arrays have up to 64.",
        )


def to_native(block: Array) -> Array:
    """The same values in this machine's byte order; the same array where they are so already."""
    return block if block.dtype.isnative else block.astype(block.dtype.newbyteorder("="))


def convert(block: Array, source: str, target: str) -> Array:
    """Values of ``source`` type (public or carrier array) as a carrier array of ``target`` type.

    Element by element, so of any shape and strides; copies only where the types differ.
    """
    block = to_native(block)
    if source == target:
        return block.view(_CARRIER[target])
    values = block.view(needed(source))
    if source == "complex32":
        values = values["real"].astype(np.complex64) + 1j * values["imag"].astype(np.complex64)
    if target == "complex32":
        wide = values.astype(np.complex64)
        pairs = np.empty(wide.shape, COMPLEX32)
        pairs["real"], pairs["imag"] = wide.real, wide.imag
        return pairs.view(_CARRIER[target])
    return values.astype(needed(target)).view(_CARRIER[target])
