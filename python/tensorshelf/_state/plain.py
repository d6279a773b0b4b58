"""Leaves of a state that are no tensors, as nodes of its tree, and back.

A node is None, a bool, a number, text or bytes, which stand for themselves, or a list: a tag, and
what the tag takes. The tags are stored: never rename one.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorshelf._values import _dtypes, _torch
from tensorshelf.errors import LayoutError, UnsupportedError

Node = Any

_THEMSELVES = {type(None), bool, float, str, bytes}


def is_a(node: Node, *tags: str) -> bool:
    """Whether it is a list with one of these tags."""
    return isinstance(node, list) and bool(node) and node[0] in tags


class NoPlainValue(Exception):
    """The value is another kind of leaf, or none at all."""


def node_of(value: object) -> Node:
    """Raises NoPlainValue for what is a container, a tensor or an object."""
    kind = type(value)
    if kind in _THEMSELVES:
        return value
    if kind is int:
        return _whole_number(value)
    maker = _NODES.get(kind)
    if maker is not None:
        return maker(value)
    if isinstance(value, np.generic):
        return ["number", _dtype_text(value.dtype), value.tobytes()]
    if isinstance(value, np.dtype):
        return ["np.dtype", _dtype_text(value)]
    torch = sys.modules.get("torch")
    if torch is not None:
        if kind is torch.dtype:
            return ["torch.dtype", str(value).removeprefix("torch.")]
        if kind is torch.Size:
            return ["torch.Size", *map(int, value)]  # type: ignore[call-overload]
        if kind is torch.device:
            return ["torch.device", str(value)]
    raise NoPlainValue


def _whole_number(value: Any) -> Node:
    if -(2**63) <= value < 2**64:
        return value
    return ["int", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]


_NODES: dict[type, Callable[[Any], Node]] = {
    complex: lambda value: ["complex", value.real, value.imag],
    bytearray: lambda value: ["bytearray", bytes(value)],
    range: lambda value: ["range", *map(_whole_number, (value.start, value.stop, value.step))],
}


def _dtype_text(dtype: "_dtypes.DType") -> str:
    """One that NumPy reads again; of ml_dtypes' types, their name."""
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise LayoutError(f"the NumPy type {dtype} is no plain one", "Store its fields.")
    if dtype.name in _dtypes.carried_names():
        return dtype.name
    if np.dtype(dtype.str) != dtype:
        raise LayoutError(f"the NumPy type {dtype} is none of NumPy's own", "Store its name.")
    return dtype.str


def dtype_from(text: str) -> "_dtypes.DType":
    """The NumPy type that is stored so."""
    return _dtypes.needed(text) if text in _dtypes.carried_names() else np.dtype(text)


@functools.lru_cache(maxsize=256)
def dtype_of_text(text: str) -> "_dtypes.DType | None":
    """The NumPy type that is stored so, or a carrier of its bytes; None where none is."""
    if text in _dtypes.carried_names():
        return _dtypes.carrier(text)
    try:
        dtype = np.dtype(text)
        # Arrays of ml_dtypes were bytes in some byte order, to releases that took them for bytes.
        return dtype if _dtype_text(dtype) in (text, text.replace("<V", "|V")) else None
    except (TypeError, ValueError, SyntaxError, LayoutError):
        return None


def value_of(node: Node) -> Any:
    """The leaf that a node stands for."""
    return _VALUES[node[0]](*node[1:]) if isinstance(node, list) else node


def _size(*lengths: int) -> Any:
    return _torch.required().Size(lengths)


def _device(text: str) -> Any:
    torch = _torch.required()
    try:
        return torch.device(text)
    except RuntimeError as error:
        raise UnsupportedError(
            f"torch {torch.__version__} has no device {text!r}, which the saved state names",
            "Load it with the torch that saved it; keys= loads the rest.",
        ) from error


def _number(text: str, data: bytes) -> Any:
    dtype = dtype_from(text)
    return np.frombuffer(data, dtype)[0] if dtype.itemsize else np.zeros((), dtype)[()]


def whole_number(node: "int | Sequence[Any]") -> int:
    """That a node stands for."""
    return node if isinstance(node, int) else int.from_bytes(node[1], "little", signed=True)


_VALUES: dict[str, Callable[..., Any]] = {
    "int": lambda data: int.from_bytes(data, "little", signed=True),
    "complex": complex,
    "bytearray": bytearray,
    "range": lambda *parts: range(*map(whole_number, parts)),
    "number": _number,
    "np.dtype": dtype_from,
    "torch.dtype": _torch.dtype_of,
    "torch.Size": _size,
    "torch.device": _device,
}
