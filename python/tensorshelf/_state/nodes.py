"""Nodes of a saved state's tree, and what they stand for."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

from tensorshelf._state import objects, plain
from tensorshelf._state.plain import Node, is_a
from tensorshelf._state.reader import Reader

_SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPINGS: dict[str, type] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
WITHIN = {*_MAPPINGS, "list", "tuple", "by_name"}  # what has parts with paths


def pairs(node: Node) -> Iterator[tuple[Node, Node]]:
    """Keys and values of a mapping's node."""
    first = len(head(node))
    return zip(node[first::2], node[first + 1 :: 2], strict=True)


def head(node: Node) -> list[Node]:
    """What of a mapping's node comes before its keys."""
    return list(node[:2] if node[0] == "OrderedDict" else node[:1])


def is_mapping(node: Node) -> bool:
    return is_a(node, *_MAPPINGS)


def key_of(node: Node) -> Any:
    return value_of(node, None)


def value_of(node: Node, reader: Reader | None) -> Any:
    """What a node stands for; a key or an item of a set has no tensors, and needs no reader."""
    if not isinstance(node, list):
        return node
    kind = node[0]
    if kind in ("tensor", "tie", "region", "piece"):
        assert reader is not None
        return reader.tensor(node)
    if kind == "part":
        return value_of(node[3], reader)
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](value_of(part, reader) for part in node[1:])
    if kind in _MAPPINGS:
        made = _MAPPINGS[kind]()
        for key, part in pairs(node):
            made[key_of(key)] = value_of(part, reader)
        if kind == "OrderedDict" and node[1] is not None:
            made._metadata = value_of(node[1], reader)
        return made
    if kind == "by_name":
        return objects.by_number(value_of(node[1], reader))
    return plain.value_of(node)
