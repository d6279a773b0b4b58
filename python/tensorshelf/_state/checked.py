"""What of a stored record may be believed: whatever reads a state goes by this first.

The shelf's checksums tell damaged bytes, and not what something else wrote there. So a record is an
``object`` until it was looked at, and what has not the form that saving gives it is CorruptError.

A record is a map of three: "format", a number; "owned", the names that the state's tensors have in
the shelf; and "tree", a node. A node stands for itself, or is a list of a tag and of what it takes.
The tables below have every tag that is stored; what those of tensors take is this:

    ["tensor", library, element type, shape, place, strides]
        The place is a tensor's name in the shelf; or its bytes, for one without dimensions, but on
        a CUDA device, which had to be waited for at each save; or [name, offset]: a part of a
        tensor of bytes, where several show one memory. Strides count elements, and are None in C
        order.
    ["tie", n]
        The n-th tensor of the tree once more, from 0.
    ["part", shape of the whole, offsets of the part, node]
        The node of what this rank has of a tensor that is sharded, which lies in its shelf. That of
        a Shard has its name behind.
    ["piece", library, element type, shape, [name, writers, begin, end, held], strides]
        As of a tensor, but for the place. The name is that of the whole, and every rank lists all
        of them. From ``begin`` to ``end``, in bytes of the whole in C order, this rank has it, in
        the tensor of the shelf that ``held`` names; None where it has nothing of it. The writers
        (writers.py) share it out as split.py says.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

from tensorshelf._state import paths
from tensorshelf._state.plain import Node, dtype_of_text, is_a, whole_number
from tensorshelf._state.writers import are_valid
from tensorshelf._values import _dtypes
from tensorshelf.errors import CorruptError

_DEEPEST_NODES = paths.DEEPEST + 8  # a container is a node; of an optimizer it is two
_PLAIN = (type(None), bool, int, float, str, bytes)


class Checked(NamedTuple):
    """A record whose every node has the form that saving gives it."""

    tree: Node
    owned: list[str]  # the names of its tensors in the shelf


class _Malformed(Exception):
    """Saving never gives a record that form."""


class _Seen(NamedTuple):
    """What the nodes before had."""

    tensors: list[str | None]  # by number, as ties have it: the names in the shelf of those there
    wholes: set[str]  # the names of those that lie in pieces


def checked(tree: object, owned: object) -> Checked:
    """Both, where they are a tree and the names that its tensors have in the shelf."""
    seen = _Seen([], set())
    try:
        _check(tree, seen, 0)
        names = sorted({name for name in seen.tensors if name is not None})
        if not _is_list_of(owned, str) or owned != names:
            raise _Malformed("it names other tensors than its tree has")
    except _Malformed as error:
        raise no_record(str(error)) from None
    return Checked(tree, owned)


def no_record(why: str) -> CorruptError:
    """What the tensor of that name is not."""
    return CorruptError(
        f"{paths.RECORD!r} is no record of a saved state: {why}",
        "Something else was assigned to it. Delete it, and save the state again.",
    )


def _check(node: object, seen: _Seen, depth: int) -> None:
    if not isinstance(node, list):
        _check_plain(node)
        return
    if depth > _DEEPEST_NODES:
        raise _Malformed("its nodes lie too deep within each other")
    tag, parts = _taken_apart(node)
    if tag in _LEAVES:
        _check_leaf(tag, parts)
    elif tag not in _BRANCHES:
        raise CorruptError(
            f"the saved state holds a {tag!r}, which this release does not know",
            "Load it with the tensorshelf release that saved it, or a later one.",
        )
    elif not _BRANCHES[tag](parts, seen, depth + 1):
        raise _malformed(tag)


def _check_plain(node: object) -> None:
    if not isinstance(node, _PLAIN):
        raise _Malformed(f"it holds a {type(node).__name__}")


def _check_leaf(tag: str, parts: list[Any]) -> None:
    if not _LEAVES[tag](parts):
        raise _malformed(tag)


def _malformed(tag: str) -> _Malformed:
    return _Malformed(f"a {tag!r} in it has another form than saving gives it")


def _taken_apart(node: list[Any]) -> tuple[str, list[Any]]:
    if not node or not isinstance(node[0], str):
        raise _Malformed("a node in it has no tag")
    return node[0], node[1:]


def _check_key(node: object, depth: int) -> None:
    """Checks a key of a dictionary, or an item of a set."""
    if not isinstance(node, list):
        _check_plain(node)
        return
    if depth > _DEEPEST_NODES:
        raise _Malformed("its keys lie too deep within each other")
    tag, parts = _taken_apart(node)
    if tag == "tuple":
        for part in parts:
            _check_key(part, depth + 1)
    elif tag in _LEAVES and tag != "bytearray":  # which is no key of a dict
        _check_leaf(tag, parts)
    else:
        raise _Malformed(f"it has a {tag!r} as a key")


# ---- leaves: whether the parts are what the tag takes


def _is_list_of(parts: object, kind: type) -> TypeGuard[list[Any]]:
    return isinstance(parts, list) and all(type(part) is kind for part in parts)


def _are(*kinds: type) -> Callable[[list[Any]], bool]:
    return lambda parts: [type(part) for part in parts] == list(kinds)


def _lengths(parts: object) -> bool:
    return _is_list_of(parts, int) and all(part >= 0 for part in parts)


def _whole_number(part: object) -> bool:
    return type(part) is int or (isinstance(part, list) and part[:1] == ["int"] and _int(part[1:]))


def _range(parts: list[Any]) -> bool:
    return len(parts) == 3 and all(map(_whole_number, parts)) and whole_number(parts[2]) != 0


def _number(parts: list[Any]) -> bool:
    if not _are(str, bytes)(parts):
        return False
    dtype, data = dtype_of_text(parts[0]), parts[1]
    if dtype is None:
        return False
    if dtype.itemsize == 0:
        return not data.strip(b"\0")  # NumPy gives a zero for an empty text
    return len(data) == dtype.itemsize


_int = _are(bytes)

_LEAVES: dict[str, Callable[[list[Any]], bool]] = {
    "int": _int,
    "complex": _are(float, float),
    "bytearray": _are(bytes),
    "range": _range,
    "number": _number,
    "np.dtype": lambda parts: _are(str)(parts) and dtype_of_text(parts[0]) is not None,
    "torch.dtype": _are(str),
    "torch.Size": _lengths,
    "torch.device": _are(str),
}

# ---- branches: what is in them is looked at, too


def _items(parts: list[Any], seen: _Seen, depth: int) -> bool:
    for part in parts:
        _check(part, seen, depth)
    return True


def _keys(parts: list[Any], seen: _Seen, depth: int) -> bool:
    for part in parts:
        _check_key(part, depth)
    return True


def _pairs(parts: list[Any], seen: _Seen, depth: int) -> bool:
    _keys(parts[::2], seen, depth)
    _items(parts[1::2], seen, depth)
    return len(parts) % 2 == 0


def _ordered(parts: list[Any], seen: _Seen, depth: int) -> bool:
    _items(parts[:1], seen, depth)
    return len(parts) % 2 == 1 and _pairs(parts[1:], seen, depth)


def _by_name(parts: list[Any], seen: _Seen, depth: int) -> bool:
    """An optimizer's state, with names of parameters in the place of numbers."""
    _items(parts, seen, depth)
    if len(parts) != 1 or not is_a(parts[0], "dict"):
        return False
    groups = _entry(parts[0], "param_groups")
    return (
        is_a(_entry(parts[0], "state"), "dict")
        and is_a(groups, "list")
        and len(groups) > 1
        and all(is_a(group, "dict") and _names_parameters(group) for group in groups[1:])
    )


def _entry(mapping: list[Any], key: str) -> Any:
    found = [part for known, part in zip(mapping[1::2], mapping[2::2], strict=True) if known == key]
    return found[-1] if found else None


def _names_parameters(group: list[Any]) -> bool:
    names = _entry(group, "params")
    return is_a(names, "list") and _is_list_of(names[1:], str)


def _tie(parts: list[Any], seen: _Seen, depth: int) -> bool:
    return _lengths(parts) and len(parts) == 1 and parts[0] < len(seen.tensors)


def _tensor(parts: list[Any], seen: _Seen, depth: int) -> bool:
    if len(parts) != 5:
        return False
    library, element, shape, place, strides = parts
    itemsize = _itemsize(library, element)
    if itemsize is None or not _lengths(shape):
        return False
    seen.tensors.append(place if isinstance(place, str) else _home(place))
    if isinstance(place, list) and library != "torch":
        return False  # of NumPy's, each has memory of its own
    strides_fit = strides is None or (_lengths(strides) and len(strides) == len(shape))
    return strides_fit and _is_place(place, itemsize, shape)


def _piece(parts: list[Any], seen: _Seen, depth: int) -> bool:
    if len(parts) != 5 or not _is_list_of(parts[2], int):
        return False
    library, element, shape, place, strides = parts
    itemsize = _itemsize(library, element)
    if itemsize is None or library != "torch" or not _lengths(shape):
        return False
    if not isinstance(place, list) or len(place) != 5 or not _lengths(place[2:4]):
        return False
    name, writers, begin, end, held = place
    seen.tensors.append(held)
    if not isinstance(name, str) or name in seen.wholes:
        return False  # a second one would be filled with the first one's piece, or with nothing
    seen.wholes.add(name)
    strides_fit = strides is None or (_lengths(strides) and len(strides) == len(shape))
    return (
        strides_fit
        and 0 not in shape
        and are_valid(writers)
        and begin <= end <= itemsize * math.prod(shape)
        and begin % itemsize == end % itemsize == 0
        and (isinstance(held, str) if begin < end else held is None)
    )


def _part(parts: list[Any], seen: _Seen, depth: int) -> bool:
    if len(parts) not in (3, 4) or not is_a(parts[2], "tensor", "tie"):
        return False
    shape, offsets, node, *name = parts
    _check(node, seen, depth)
    return (
        _is_list_of(name, str)
        and _lengths(shape)
        and _lengths(offsets)
        and len(shape) == len(offsets)
        and all(offset <= length for offset, length in zip(offsets, shape, strict=True))
    )


def _itemsize(library: object, element: object) -> int | None:
    if not isinstance(element, str) or library not in ("torch", "numpy"):
        return None
    if _dtypes.is_known(element):
        return _dtypes.carrier(element).itemsize
    dtype = dtype_of_text(element) if library == "numpy" else None
    return None if dtype is None else dtype.itemsize


def _home(place: object) -> str | None:
    return place[0] if isinstance(place, list) and place and isinstance(place[0], str) else None


def _is_place(place: object, itemsize: int, shape: list[int]) -> bool:
    if isinstance(place, bytes):
        return not shape and len(place) == itemsize
    if isinstance(place, list):
        return _are(str, int)(place) and place[1] >= 0 and place[1] % itemsize == 0
    return isinstance(place, str)


_BRANCHES: dict[str, Callable[[list[Any], _Seen, int], bool]] = {
    "list": _items,
    "tuple": _items,
    "set": _keys,
    "frozenset": _keys,
    "dict": _pairs,
    "Counter": _pairs,
    "OrderedDict": _ordered,
    "by_name": _by_name,
    "tensor": _tensor,
    "piece": _piece,
    "tie": _tie,
    "part": _part,
}

_TAGS = frozenset(_LEAVES) | frozenset(_BRANCHES)
