"""A planner's own data as what msgpack takes, and back: containers, numbers, text, bytes."""

from typing import Any

from tensorshelf.errors import NotStorable

_ITSELF = (type(None), bool, float, str, bytes)
_KINDS: dict[type, str] = {list: "list", tuple: "tuple", dict: "dict"}
_MOST = 1 << 63


def encoded(value: Any, path: str) -> Any:
    """The node of a value. Raises NotStorable with the path of what has none."""
    if type(value) in _ITSELF or (type(value) is int and -_MOST <= value < _MOST):
        return value
    if type(value) in (list, tuple):
        items = [encoded(item, f"{path}[{number}]") for number, item in enumerate(value)]
        return [_KINDS[type(value)], *items]
    if type(value) is dict:
        node: list[Any] = ["dict"]
        for key, item in value.items():
            node += [encoded(key, f"{path}: key {key!r}"), encoded(item, f"{path}[{key!r}]")]
        return node
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise NotStorable(
        f"{path}: a {kind} cannot be stored",
        "Use a planner whose data is made of dict, list, tuple, str, int, float, bytes and None.",
    )


def value_of(node: Any) -> Any:
    """What a node stands for. Raises ValueError or TypeError for what is none."""
    if not isinstance(node, list):
        return node
    kind, *items = node
    values = [value_of(item) for item in items]
    if kind == "list":
        return values
    if kind == "tuple":
        return tuple(values)
    if kind == "dict" and len(values) % 2 == 0:
        return dict(zip(values[::2], values[1::2], strict=True))
    raise ValueError(f"no node: {kind!r}")
