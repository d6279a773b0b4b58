"""A state that was flattened once, looked at again.

From one step to the next a run's state keeps its form: the same keys, and tensors in the same
memory. So its tree is encoded once, with holes for the leaves that are no tensors of the shelf, and
its tensors are not looked at but for where they lie. What an object gives as its state may lie
elsewhere each time (a generator's): that is found by its place in the tree, and copied. Whatever is
not as it was raises Changed, and the state is flattened anew: nothing of the old form is ever
stored for a new one.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np

from tensorshelf._state import objects, paths, plain, record, shards, split, tensors
from tensorshelf._state.flatten import MAPPINGS, Flat
from tensorshelf._state.keys import Keys
from tensorshelf._state.looks import Changed, Found, Look, stays
from tensorshelf._state.memories import Counted, Memories
from tensorshelf._state.plain import Node, NoPlainValue
from tensorshelf._state.rows import Row, Scalar, Table
from tensorshelf._values import _torch
from tensorshelf.errors import LayoutError


class Again:
    """What was flattened to ``flat``. Raises Changed where it cannot be looked at like that."""

    moving: list[str]  # names of the tensors that may lie elsewhere

    def __init__(self, state: Any, flat: Flat) -> None:
        maker = _Maker(objects.parameter_names(state), flat)
        try:
            self._look = maker.look(state, flat.tree)
        except ValueError:  # an object gives more, or less, than it just gave
            raise Changed from None
        self._memories = maker.memories
        self._record = record.Parts(maker.parts(), sorted(flat.tensors))
        self.moving = maker.moving

    def look(self, state: Any) -> Found:
        """At the state as it is now. Raises Changed."""
        found = Found([], [], [], [], Counted())
        self._look(state, found)
        if not self._memories.hold(found.staying, found.counted):
            raise Changed
        if len(set(found.places)) < len(found.places):
            raise Changed
        return found

    def count_changes(self, places: Container[int]) -> list[int]:
        """As Memories.count_changes() has it."""
        return self._memories.count_changes(places)

    def encoded(self, leaves: list[bytes]) -> bytes:
        """The record with these leaves."""
        return self._record.encoded(leaves)


def _is(value: Any, kind: type) -> None:
    if type(value) is not kind:
        raise Changed


class _Maker:
    """Walks a state beside its tree: gives the looks, and keeps what is encoded once."""

    def __init__(self, names: Mapping[int, str], flat: Flat) -> None:
        self._names = names
        self._flat = flat
        self._addresses: set[int] = set()  # of what stays
        self._writer = record.Writer()
        self._given = False  # within what an object gave
        self._depth = -1  # of containers within each other, as flatten() counts them
        self.moving: list[str] = []
        self.memories = Memories()

    def parts(self) -> list[bytes]:
        return self._writer.parts()

    def look(self, value: Any, node: Node) -> Look:
        self._depth += 1
        try:
            return self._look(value, node)
        finally:
            self._depth -= 1

    def _look(self, value: Any, node: Node) -> Look:
        if tensors.is_tensor(value) or shards.is_sharded(value):
            return self._tensor(value, node)
        if _is_plain(value, self._depth):
            self._writer.hole()
            return _leaf(self._depth)
        kind = type(value)
        if kind in (list, tuple):
            return self._sequence(value, node)
        if kind in (set, frozenset):
            self._writer.node(node)
            return _constant(value, kind)
        if kind in MAPPINGS or kind is OrderedDict:  # others may have a state_dict()
            return self._mapping(value, node)
        return self._object(value, node)

    def _tensor(self, value: Any, node: Node) -> Look:
        if node[0] == "part":
            self._writer.head(node, 3)
            look = self._tensor(shards.local(value), node[3])
            for name in node[4:]:
                self._writer.node(name)
            return _part(look, value)
        if node[0] == "tensor" and isinstance(node[4], bytes):
            self._writer.scalar(node)
            return Scalar(value)
        self._writer.node(node)
        stays_there = not self._given or node[0] == "tie"  # else it may lie elsewhere each time
        if stays_there and self._lies_where_saved(value, node):
            if isinstance(value, np.ndarray):
                return _same_array(value)
            if not self.memories.add(value):
                raise Changed
            return stays
        if node[0] != "tensor" or not isinstance(node[4], str):
            raise Changed  # it is saved in pieces, or shares memory with another
        self.moving.append(node[4])
        return _same_layout(value)

    def _lies_where_saved(self, value: Any, node: Node) -> bool:
        """Whether it is what was flattened, which the plan keeps. Some models make a tensor of
        their state anew at each look: then another may come to lie where this one does.
        """
        address = _address(value)
        if node[0] == "tie":
            return address in self._addresses
        if split.is_piece(node):
            known, offset = self._flat.wholes[node[4][0]], 0
        else:
            place, offset = (node[4], 0) if isinstance(node[4], str) else node[4]
            known = self._flat.tensors[place]
        if address - offset != _address(known):
            return False
        self._addresses.add(address)
        return True

    def _sequence(self, value: Any, node: Node) -> Look:
        self._writer.head(node, 1)
        looks = [self.look(item, part) for item, part in zip(value, node[1:], strict=True)]
        kind, length = type(value), len(looks)

        def look(value: Any, found: Found) -> None:
            _is(value, kind)
            if len(value) != length:
                raise Changed
            for item, each in zip(value, looks, strict=True):
                each(item, found)

        return look

    def _mapping(
        self, value: dict[Any, Any], node: Node, like: dict[Any, Any] | None = None
    ) -> Look:
        """``like`` is what is looked at in place of the value, with other keys in its order."""
        like = value if like is None else like
        ordered = node[0] == "OrderedDict"
        metadata = copy.deepcopy(getattr(like, "_metadata", None))
        first = 2 if ordered else 1
        self._writer.head(node, first)
        looks = []
        for key, part, item in zip(
            node[first::2], node[first + 1 :: 2], value.values(), strict=True
        ):
            self._writer.node(key)
            looks.append(self.look(item, part))
        kind, keys = type(like), Keys(like)
        if kind is dict and Row.made_of(keys, looks):
            return Row(keys, looks)
        if kind is dict and Table.made_of(looks):
            return Table(keys, [row for row in looks if isinstance(row, Row)])
        all_stay = all(each is stays for each in looks)

        def look(value: Any, found: Found) -> None:
            if type(value) is not kind or not keys.are_those_of(value):
                raise Changed
            if ordered and getattr(value, "_metadata", None) != metadata:
                raise Changed
            if all_stay:
                found.staying.extend(value.values())
                return
            for item, each in zip(value.values(), looks, strict=True):
                each(item, found)

        return look

    def _object(self, value: Any, node: Node) -> Look:
        if objects.is_module(value):
            return self._module(value, node)
        if objects.is_optimizer(value):
            return self._optimizer(value, node)
        kind = objects.kind_of(value)
        if kind is None:
            raise Changed  # default= made something of it
        before, self._given = self._given, True
        try:
            return self._held(value, node, kind.get)
        finally:
            self._given = before

    def _held(self, value: Any, node: Node, get: Callable[[Any], Any]) -> Look:
        inner = self.look(get(value), node)

        def look(now: Any, found: Found) -> None:
            if now is not value:
                raise Changed
            inner(get(now), found)

        return look

    def _module(self, module: Any, node: Node) -> Look:
        """Its names are made canonical once."""
        state = objects.module_state(module)
        raw = module.state_dict()
        if len(raw) != len(state):
            raise Changed
        inner = self._mapping(state, node, raw)

        def look(now: Any, found: Found) -> None:
            if now is not module:
                raise Changed
            inner(now.state_dict(), found)

        return look

    def _optimizer(self, optimizer: Any, node: Node) -> Look:
        names = objects.names_of(optimizer, self._names)
        parameters = _parameters(optimizer)
        packed = optimizer.state_dict()
        if names is None:
            inner = self.look(packed, node)
        else:
            self._writer.head(node, 1)
            inner = self.look(objects.by_name(packed, names), node[1])

        def look(now: Any, found: Found) -> None:
            if now is not optimizer or _parameters(optimizer) != parameters:
                raise Changed
            packed = optimizer.state_dict()
            inner(packed if names is None else objects.by_name(packed, names), found)

        return look


def _parameters(optimizer: Any) -> list[list[int]]:
    return [[id(p) for p in group["params"]] for group in optimizer.param_groups]


def _leaf(depth: int) -> Look:
    """A look at what may grow: no deeper than a record may be."""

    def look(value: Any, found: Found) -> None:
        found.leaves.append(record.packed(_plain_node(value, depth)))

    return look


def _is_plain(value: Any, depth: int) -> bool:
    try:
        _plain_node(value, depth)
    except Changed:
        return False
    return True


def _plain_node(value: Any, depth: int) -> Node:
    """The node of plain values and lists, tuples and dicts of them, as flatten() has it: a list of
    losses may grow. Raises Changed.
    """
    if depth > paths.DEEPEST:
        raise Changed
    try:
        return plain.node_of(value)
    except (NoPlainValue, LayoutError):
        pass
    kind = type(value)
    if kind in (list, tuple):
        return [kind.__name__, *(_plain_node(item, depth + 1) for item in value)]
    if kind is not dict:
        raise Changed
    node = ["dict"]
    for key, item in value.items():
        if type(key) is tuple:
            raise Changed
        node += (_plain_node(key, depth + 1), _plain_node(item, depth + 1))
    return node


def _constant(known: Iterable[Any], kind: type) -> Look:
    """A set: as it is iterated over, for that is how it is stored."""
    items = Keys(known)

    def look(value: Any, found: Found) -> None:
        if type(value) is not kind or not items.are_those_of(value):
            raise Changed

    return look


def _address(value: Any) -> int:
    return int(value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr())


def _part(look_at: Look, value: Any) -> Look:
    """A look at a tensor that is sharded: at what this rank has of it."""
    kind, place = type(value), shards.place_of(value)

    def look(now: Any, found: Found) -> None:
        if type(now) is not kind or shards.place_of(now) != place:
            raise Changed
        look_at(shards.local(now), found)

    return look


def _same_layout(value: Any) -> Look:
    kind, shape, dtype = type(value), value.shape, value.dtype
    if isinstance(value, np.ndarray):
        if tensors.is_of_bytes(value.dtype):
            raise Changed  # they are stored as other types
    elif _torch.memory_of(value) is None and not _torch.is_on_device(value):
        raise Changed

    def look(value: Any, found: Found) -> None:
        if type(value) is not kind or value.shape != shape or value.dtype != dtype:
            raise Changed
        found.moving.append(value)

    return look


def _same_array(value: Any) -> Look:
    """An array of the shelf: what it is saved from is where it was, and looks alike."""
    kind, shape, dtype = type(value), value.shape, value.dtype
    if tensors.is_of_bytes(dtype) and not value.flags.c_contiguous:
        raise Changed  # its bytes are a copy
    address, strides = value.ctypes.data, value.strides

    def look(value: Any, found: Found) -> None:
        if (
            type(value) is not kind
            or value.ctypes.data != address
            or value.shape != shape
            or value.dtype != dtype
            or value.strides != strides
        ):
            raise Changed

    return look
