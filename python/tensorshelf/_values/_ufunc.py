"""NumPy's functions on tensors: handles as inputs are read, handles as outputs are written."""

import inspect
from typing import Any

import numpy as np

from tensorshelf._values import _dtypes, _torch
from tensorshelf._values._handle import is_handle
from tensorshelf.errors import LayoutError, ReadOnlyError

_COMPUTE_FIRST = "Compute the value first and convert it: shelf[{}][...] = value.astype(...)."


def apply(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``getattr(ufunc, method)(*inputs, **kwargs)`` with handles among its operands.

    An output handle is computed beside the tensor and then assigned whole, under NumPy's
    "same_kind" rule; LayoutError where that forbids it.
    """
    if method == "at":
        return _apply_at(ufunc, inputs)
    outputs: tuple[Any, ...] = kwargs.get("out") or ()
    written = [out for out in outputs if is_handle(out)]
    if not written:
        _refuse_torch(ufunc, inputs)
        return _call(ufunc, method, inputs, kwargs)
    keeps_old = "where" in kwargs or method != "__call__"
    targets = tuple(_target(out, keeps_old or _among(out, inputs)) for out in outputs)
    if method == "__call__":  # x += 1 reads and writes one copy, which NumPy knows how to
        inputs = tuple(_replaced(item, outputs, targets) for item in inputs)
    try:
        made = _call(ufunc, method, inputs, {**kwargs, "out": targets})
    except TypeError as error:
        name = written[0].name
        raise LayoutError(f"{name!r}: {error}", _COMPUTE_FIRST.format(repr(name))) from error
    for out, target in zip(outputs, targets, strict=True):
        if is_handle(out):
            out._assign(target)
    if len(outputs) == 1:
        return outputs[0]
    return tuple(  # None among them asks for a new array
        new if out is None else out for out, new in zip(outputs, made, strict=True)
    )


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``func(*args, **kwargs)`` of NumPy's functions that are no ufuncs, as ``np.mean``.

    They take what they call for an array: np.mean would leave the sum in an output handle.
    """
    out = _output(func, args, kwargs)
    if out is None:
        return getattr(func, "_implementation", func)(*args, **kwargs)  # the latter of like=
    target = _target(out, keeps_old=True)
    args = tuple(target if item is out else item for item in args)
    kwargs = {name: target if item is out else item for name, item in kwargs.items()}
    try:
        func(*args, **kwargs)
    except TypeError as error:
        raise LayoutError(
            f"{out.name!r}: {error}", _COMPUTE_FIRST.format(repr(out.name))
        ) from error
    out._assign(target)
    return out


def _output(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The handle that a function is to write into, also where it comes by its place."""
    try:
        found = inspect.signature(func).bind(*args, **kwargs).arguments.get("out")
    except (TypeError, ValueError):  # it does not tell its arguments
        found = kwargs.get("out")
    return found if is_handle(found) else None


def _call(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if "where" in kwargs:
        kwargs = {**kwargs, "where": _value(kwargs["where"])}
    return getattr(ufunc, method)(*[_value(operand) for operand in inputs], **kwargs)


def _refuse_torch(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> None:
    """Raises where the result would be a NumPy array, and autograd would end without a word."""
    if not any(_torch.is_tensor(operand) for operand in inputs):
        return
    name = next((operand.name for operand in inputs if is_handle(operand)), "...")
    raise TypeError(
        f"a torch tensor and a shelf's handle do not mix in {ufunc.__name__}(). "
        f"Give it the value: shelf[{name!r}].torch()."
    )


def _apply_at(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> None:
    target, rest = inputs[0], inputs[1:]
    if not is_handle(target):
        ufunc.at(target, *[_value(operand) for operand in rest])
        return
    scratch = target.numpy(copy=True)
    ufunc.at(scratch, *[_value(operand) for operand in rest])
    target._assign(scratch)


def _value(operand: Any) -> Any:
    if is_handle(operand):
        return operand.numpy()
    if _torch.is_tensor(operand):  # torch refuses to give NumPy its bfloat16
        source = _torch.TorchSource(operand)
        return source.array().view(_dtypes.needed(source.name))
    return operand


def _target(out: Any, keeps_old: bool) -> Any:
    """An array that the ufunc may write into, in place of the handle."""
    if not is_handle(out):
        return out
    if not hasattr(out, "_assign"):
        raise ReadOnlyError(f"{out!r} cannot be assigned", "Assign to the tensor of the shelf.")
    if keeps_old:
        return out.numpy(copy=True)
    return np.empty(out.shape, _dtypes.needed(out.dtype_name))


def _among(out: Any, inputs: tuple[Any, ...]) -> bool:
    return any(item is out for item in inputs)


def _replaced(item: Any, outputs: tuple[Any, ...], targets: tuple[Any, ...]) -> Any:
    """The copy that was made of this very handle for an output, else the operand itself."""
    for out, target in zip(outputs, targets, strict=True):
        if item is out:
            return target
    return item
