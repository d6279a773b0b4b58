"""A state to its tree and its tensors. Nothing is written: what cannot be stored is told first."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tensorshelf._state import objects, plain, shards
from tensorshelf._state.paths import DEEPEST, Path, shown
from tensorshelf._state.plain import Node, NoPlainValue
from tensorshelf._state.split import Piece
from tensorshelf._state.tensors import Tensors, is_tensor
from tensorshelf.errors import BadArgument, LayoutError, NotStorable

Default = Callable[[Any], Any]

_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple"}
_SETS: dict[type, str] = {set: "set", frozenset: "frozenset"}
MAPPINGS: dict[type, str] = {dict: "dict", Counter: "Counter"}


class Flat(NamedTuple):
    """What is to be stored of a state."""

    tree: Node
    tensors: dict[str, Any]  # by the names that they get
    pieces: Mapping[str, Piece] = MappingProxyType({})  # those of them that are of larger ones
    wholes: Mapping[str, Any] = MappingProxyType({})  # of which there are pieces, by their names


def flatten(state: Any, default: Default | None = None) -> Flat:
    """Raises NotStorable, with the path of what cannot be stored.

    ``default`` is called for that, as in json, and gives what is to be stored in its place.
    """
    if default is not None and not callable(default):
        raise BadArgument(
            f"default={default!r} is no function",
            "Give one that takes a value and returns what to store in its place.",
        )
    walk = _Walk(default, objects.parameter_names(state))
    tree = walk.node(state, None, 0)
    return Flat(tree, walk.tensors.placed())


class _Walk:
    def __init__(self, default: Default | None, names: dict[int, str]) -> None:
        self.tensors = Tensors()
        self._default = default
        self._names = names
        self._above: set[int] = set()
        self._shapes: dict[str, tuple[int, ...]] = {}  # by the names of Shards

    def node(self, value: Any, path: Path | None, depth: int) -> Node:
        if depth > DEEPEST:
            raise NotStorable(
                f"{shown(path)[:200]}...: more than {DEEPEST} containers within each other",
                "Store it less deeply.",
            )
        if is_tensor(value) or shards.is_sharded(value):
            return self._tensor(value, path, depth)
        try:
            return plain.node_of(value)
        except NoPlainValue:
            pass
        except LayoutError as error:
            raise NotStorable(f"{shown(path)}: {error.what}", error.remedy) from error
        if id(value) in self._above:
            raise NotStorable(f"{shown(path)} contains itself", "Break the circle.")
        self._above.add(id(value))
        try:
            return self._compound(value, path, depth)
        finally:
            self._above.remove(id(value))

    def _tensor(self, value: Any, path: Path | None, depth: int) -> Node:
        try:
            if not shards.is_sharded(value):
                return self.tensors.add(value, path)
            return self._part(shards.part_of(value), path)
        except LayoutError as error:
            if self._default is not None:
                return self._replaced(value, path, depth)
            raise NotStorable(f"{shown(path)}: {error.what}", error.remedy) from error

    def _part(self, part: shards.Part, path: Path | None) -> Node:
        head = ["part", list(part.shape), list(part.offsets)]
        if part.name is None:
            return [*head, self.tensors.add(part.local, path)]
        other = self._shapes.setdefault(part.name, part.shape)
        if other != part.shape:
            raise LayoutError(
                f"a part of {part.name!r} of {list(part.shape)}, and another is of {list(other)}",
                "Give each whole tensor a name of its own.",
            )
        return [*head, self.tensors.add(part.local, path), part.name]

    def _compound(self, value: Any, path: Path | None, depth: int) -> Node:
        kind = type(value)
        if kind in _SEQUENCES:
            return [_SEQUENCES[kind], *self._items(value, path, depth)]
        if kind in MAPPINGS:
            return [MAPPINGS[kind], *self._pairs(value, path, depth)]
        if kind is OrderedDict:
            metadata = self.node(getattr(value, "_metadata", None), path, depth + 1)
            return ["OrderedDict", metadata, *self._pairs(value, path, depth)]
        if kind in _SETS:
            return [_SETS[kind], *(self._key(item, path) for item in value)]
        if objects.is_module(value):
            return self.node(objects.module_state(value), path, depth)
        if objects.is_optimizer(value):
            return self._optimizer(value, path, depth)
        has_state = objects.kind_of(value)
        if has_state is not None:
            return self.node(has_state.get(value), path, depth + 1)
        return self._replaced(value, path, depth)

    def _items(self, values: Any, path: Path | None, depth: int) -> list[Node]:
        return [self.node(item, Path(path, i), depth + 1) for i, item in enumerate(values)]

    def _pairs(self, values: Any, path: Path | None, depth: int) -> list[Node]:
        nodes = []
        for key, value in values.items():
            nodes += [self._key(key, path), self.node(value, Path(path, key), depth + 1)]
        return nodes

    def _key(self, key: Any, path: Path | None) -> Node:
        """The node of a key of a dictionary, with its type; or of an item of a set."""
        try:
            if type(key) is tuple:
                return ["tuple", *(self._key(item, path) for item in key)]
            return plain.node_of(key)
        except NoPlainValue:
            raise NotStorable(
                f"{shown(path)} has the key {key!r}, a {type(key).__name__}",
                "Use text, numbers or tuples of them.",
            ) from None
        except LayoutError as error:
            raise NotStorable(f"{shown(path)} has a key: {error.what}", error.remedy) from error

    def _optimizer(self, optimizer: Any, path: Path | None, depth: int) -> Node:
        packed = optimizer.state_dict()
        names = objects.names_of(optimizer, self._names)
        if names is None:
            return self.node(packed, path, depth + 1)
        return ["by_name", self.node(objects.by_name(packed, names), path, depth + 1)]

    def _replaced(self, value: Any, path: Path | None, depth: int) -> Node:
        if self._default is None:
            kind = type(value)
            raise NotStorable(
                f"{shown(path)}: a {kind.__module__}.{kind.__qualname__} cannot be stored",
                "Leave it out, store what it is made of, or give save() default=, a function that "
                "returns that.",
            )
        instead = self._default(value)
        if instead is value:
            raise NotStorable(
                f"{shown(path)}: default= gave it back as it was", "Return what can be stored."
            )
        return self.node(instead, path, depth + 1)
