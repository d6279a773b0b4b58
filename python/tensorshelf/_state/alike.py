"""Whether groups of an optimizer have the same options."""

from typing import Any

from tensorshelf._state.tensors import is_tensor


def alike(groups: list[Any], *, read: bool) -> bool:
    """Whether all have the same options; of what was saved, tensors may not be read yet."""
    beside = ("params", "param_names")
    options = [{key: group[key] for key in group if key not in beside} for group in groups]
    return all(_equal(each, options[0], read) for each in options[1:])


def _equal(one: Any, other: Any, read: bool) -> bool:
    """Options may be tensors, of one element mostly. One not read yet equals itself alone."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key], read) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(
            _equal(a, b, read) for a, b in zip(one, other, strict=True)
        )
    if is_tensor(one) or is_tensor(other):
        if type(one) is not type(other) or one.shape != other.shape:
            return False
        in_tree = one.ndim == 0 and getattr(one, "is_cpu", True)
        return (read or in_tree) and bool((one == other).all())
    return bool(one == other)
