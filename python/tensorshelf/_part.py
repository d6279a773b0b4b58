"""What indexing a tensor gives: an array that is a value, not a place."""

import operator
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from tensorshelf._values import _torch
from tensorshelf._values._dtypes import Array


class Part(np.ndarray[Any, np.dtype[Any]]):
    """A part of a tensor as it was when it was read. It is read-only: a write would be lost.

    To Python, ``x[0] += 1`` is a read, an addition in place to what was read, and a write. So that
    it works, operators in place give a new array here, as those of numbers do. All else that is
    computed from it is a common array, and so is its ``copy()``.
    """

    def __setitem__(self, index: Any, value: Any) -> None:
        if not self.flags.writeable:
            raise ValueError(
                "this part of a tensor is a copy and read-only: the write would be lost. Write "
                "through the tensor, x[0, 1] = v for x[0][1] = v, or change a .copy()"
            )
        super().__setitem__(index, value)  # type: ignore[no-untyped-call]

    def __getattr__(self, name: str) -> Any:
        text = f"'Part' object has no attribute '{name}'"
        if name == "torch" or (not name.startswith("_") and _torch.has_method(name)):
            text += (
                "; a part of a tensor is a NumPy array, read-only: for a torch tensor index the "
                "whole, shelf.x.torch()[index], or take torch.from_numpy(part.copy())"
            )
        raise AttributeError(text)

    def copy(self, order: Literal["K", "A", "C", "F"] | None = "C") -> Array:  # type: ignore[override]
        return np.array(self, order=order)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:  # None of them a Part that can be written to: NumPy says so
            kwargs["out"] = tuple(_plain(item) for item in kwargs["out"])
        return getattr(ufunc, method)(*(_plain(item) for item in inputs), **kwargs)

    def __reduce__(self) -> Any:
        return _plain(self).__reduce__()


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Part) else value


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    def change(self: Any, other: Any) -> Any:
        mine = _plain(self) if self.flags.writeable else self.copy()
        return getattr(operator, name)(mine, other)

    return change


for _name in "add sub mul matmul truediv floordiv mod pow lshift rshift and xor or".split():
    setattr(Part, f"__i{_name}__", _in_place(f"__i{_name}__"))
