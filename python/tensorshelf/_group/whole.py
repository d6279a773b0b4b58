"""What all ranks saved, as one state: its tree with whole tensors in the place of parts.

The parts of a DTensor are found by their order, for all ranks have the same model; those of Shards
by their names, and so are the pieces of what all hold alike. The state is rank 0's; what other
ranks have Shards of, and rank 0 has not, lies in it where the first of them has it.

In the trees that are worked on here a tie is the node of its tensor once more: so what is tied
stays so, whatever takes the place of the tensor.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tensorshelf._group.part import KEY
from tensorshelf._group.pieced import Pieced, Run, runs_of
from tensorshelf._group.pieces import Piece, Region, distinct, unlike
from tensorshelf._state import shards, tensors
from tensorshelf._state.nodes import is_mapping, key_of, pairs
from tensorshelf._state.paths import RECORD, Path, dotted, free_name
from tensorshelf._state.plain import Node
from tensorshelf._state.reader import Reader, all_tensors
from tensorshelf.errors import BadArgument

_HOLDERS = {"list", "tuple", "by_name"}  # of what may be sharded, beside mappings


class Made(NamedTuple):
    """A whole tensor that is to be made."""

    about: tensors.Tensor  # of the whole; its place is the name that it gets
    parts: list[tuple[Region, Piece]]


class Whole(NamedTuple):
    """What is to be stored."""

    tree: Node
    made: list[Made]
    pieced: list[Pieced]
    copied: dict[str, str]  # tensors of rank 0's shelf, by the names that they get


class _Step(NamedTuple):
    key: Node
    head: list[Node]  # of the mapping that has the key


class _Found(NamedTuple):
    """A part, and the keys that lead there; None where others than mappings lie between."""

    node: Node
    steps: tuple[_Step, ...] | None


class _Named(NamedTuple):
    """A tensor of which ranks have parts."""

    name: str | None  # of a Shard
    found: list[tuple[int, _Found]]  # with their ranks


def whole_of(trees: Sequence[Node], readers: Sequence[Reader]) -> Whole:
    """What the ranks' trees, in their order, are as one state. Raises CorruptError for what one
    program never saves, and BadArgument for a Shard that no place is found for.
    """
    trees = [_untied(_without_group(tree), list(all_tensors(tree))) for tree in trees]
    of_ranks = [list(_found(tree, ())) for tree in trees]
    named, ordered = _by_name(of_ranks), _by_order(of_ranks)
    taken = {RECORD, *(each.name for each in named if each.name is not None)}
    maker = _Maker(readers, taken, runs_of(trees))
    for each in [*named, *ordered]:
        maker.add(each)
    tree = maker.rebuilt(trees[0])
    for each in named:
        rank, first = each.found[0]
        if rank > 0:
            _insert(
                tree, first, maker.rebuilt(first.node), f"rank {rank} has a part of {each.name!r}"
            )
    return Whole(_tied(tree, {}), maker.made, maker.pieced, maker.copied)


def _without_group(tree: Node) -> Node:
    kept = [item for key, part in pairs(tree) if key != KEY for item in (key, part)]
    return ["dict", *kept]


# ---- ties


def _untied(node: Node, known: Sequence[Node]) -> Node:
    if not isinstance(node, list) or not node or node[0] in ("tensor", "piece"):
        return node
    if node[0] == "tie":
        return known[node[1]]
    if node[0] == "part":
        return [*node[:3], _untied(node[3], known), *node[4:]]
    return [node[0], *(_untied(part, known) for part in node[1:])]


def _tied(node: Node, known: dict[int, int]) -> Node:
    if not isinstance(node, list) or not node:
        return node
    if node[0] == "tensor":
        if id(node) in known:
            return ["tie", known[id(node)]]
        known[id(node)] = len(known)
        return node
    if node[0] == "part":
        return [*node[:3], _tied(node[3], known), *node[4:]]
    return [node[0], *(_tied(part, known) for part in node[1:])]


# ---- which parts are of one tensor


def _found(node: Node, steps: tuple[_Step, ...] | None) -> Iterator[_Found]:
    if not isinstance(node, list) or not node:
        return
    if node[0] == "part":
        yield _Found(node, steps)
    elif is_mapping(node):
        head = node[: len(node) - 2 * len(list(pairs(node)))]
        for key, part in pairs(node):
            yield from _found(part, None if steps is None else (*steps, _Step(key, head)))
    elif node[0] in _HOLDERS:
        for part in node[1:]:
            yield from _found(part, None)


def _by_name(of_ranks: Sequence[Sequence[_Found]]) -> list[_Named]:
    named: dict[str, _Named] = {}
    for rank, found in enumerate(of_ranks):
        for each in found:
            name = shards.name_of(each.node)
            if name is not None:
                named.setdefault(name, _Named(name, [])).found.append((rank, each))
    return list(named.values())


def _by_order(of_ranks: Sequence[Sequence[_Found]]) -> list[_Named]:
    ordered = [[each for each in found if len(each.node) == 4] for found in of_ranks]
    if len(set(map(len, ordered))) > 1:
        raise unlike("have other tensors that are sharded")
    return [_Named(None, list(enumerate(found))) for found in zip(*ordered, strict=True)]


# ---- the tree


class _Maker:
    def __init__(
        self, readers: Sequence[Reader], taken: Iterable[str], runs: dict[str, list[Run]]
    ) -> None:
        self.made: list[Made] = []
        self.pieced: list[Pieced] = []
        self._runs = runs
        self.copied: dict[str, str] = {}
        self._readers = readers
        self._taken = set(taken)
        self._homes: dict[str, str] = {}  # the names that tensors of rank 0's shelf get
        self._wholes: dict[int, Node] = {}  # by the parts
        self._moved: dict[int, Node] = {}
        self._alike: dict[object, Node] = {}

    def add(self, each: _Named) -> None:
        """Notes what takes the place of these parts."""
        pieces = []
        shape = each.found[0][1].node[1]
        name = each.name or self._text(each.found[0][1].node[3])
        for rank, (node, _) in each.found:
            if node[1] != shape:
                raise unlike(f"have another tensor in the place of {name!r}")
            pieces.append(Piece(rank, tuple(node[2]), node[3]))
        # What is tied on all ranks is one tensor, whatever its names are.
        key = frozenset((piece.rank, id(piece.node), piece.offsets) for piece in pieces)
        if key not in self._alike:
            self._alike[key] = self._new(each.name, name, shape, pieces)
        for _, (node, _) in each.found:
            self._wholes[id(node)] = self._alike[key]

    def _text(self, node: Node) -> str:
        place = self._readers[0].about(node).place
        return place if isinstance(place, str) else "a tensor without a name"

    def _new(self, named: str | None, text: str, shape: list[int], pieces: list[Piece]) -> Node:
        first = pieces[0]
        about = self._readers[first.rank].about(first.node)
        if not shape:
            return self.rebuilt(first.node)  # it has no parts: all ranks have it
        if named is None and not isinstance(about.place, str):
            raise unlike("have a sharded tensor within other memory")
        name = self._home(about.place) if named is None else named
        about = about._replace(shape=tuple(shape), place=name, strides=None)
        self.made.append(Made(about, distinct(pieces, about, self._readers, text)))
        return ["tensor", about.library, about.element, shape, name, None]

    def _home(self, name: str) -> str:
        if name not in self._homes:
            self._homes[name] = free_name(name, self._taken)
        return self._homes[name]

    def rebuilt(self, node: Node) -> Node:
        """A tree of rank 0, or a part, with what takes the place of its parts."""
        if not isinstance(node, list) or not node:
            return node
        if node[0] == "tensor":
            if id(node) not in self._moved:
                self._moved[id(node)] = self._copied(node)
            return self._moved[id(node)]
        if node[0] == "piece":
            if id(node) not in self._moved:
                self._moved[id(node)] = self._pieced(node)
            return self._moved[id(node)]
        if node[0] != "part":
            return [node[0], *map(self.rebuilt, node[1:])]
        name = shards.name_of(node)
        whole = self._wholes[id(node)]
        return whole if name is None else ["part", node[1], [0] * len(node[1]), whole, name]

    def _pieced(self, node: Node) -> Node:
        about = tensors.Tensor.of(node)
        name = self._home(about.place[0])
        self.pieced.append(Pieced(about._replace(place=name), self._runs[about.place[0]]))
        return ["tensor", *node[1:4], name, node[5]]

    def _copied(self, node: Node) -> Node:
        *head, place, strides = node
        old = place[0] if isinstance(place, list) else place
        if not isinstance(old, str):
            return list(node)
        new = self._home(old)
        self.copied[new] = old
        return [*head, [new, place[1]] if isinstance(place, list) else new, strides]


def _insert(tree: Node, found: _Found, part: Node, whose: str) -> None:
    """Into a tree of rank 0, which has nothing there."""
    here = tree
    steps = found.steps or ()
    for number, step in enumerate(steps):
        there = [value for key, value in pairs(here) if key == step.key]
        if number + 1 == len(steps):
            if not there:
                here += [step.key, part]
                return
        elif not there:
            here += [step.key, list(steps[number + 1].head)]
            here = here[-1]
        elif is_mapping(there[0]):
            here = there[0]
        else:
            break
    path: Path | None = None
    for step in steps:
        path = Path(path, key_of(step.key))
    where = f"at {dotted(path)!r}, where rank 0 has something else" if steps else "within a list"
    raise BadArgument(
        f"{whose} {where}, and none of it itself",
        "Save such tensors under keys that no other rank has for another: in a dict, by their "
        "names, as {name: Shard(tensor, name, ...)}.",
    )


def names_in(tree: Node) -> list[str]:
    """The names of the tensors of the shelf that a tree has, sorted."""
    places = (tensors.Tensor.of(node).place for node in all_tensors(tree))
    homes = (place[0] if isinstance(place, list) else place for place in places)
    return sorted({home for home in homes if isinstance(home, str)})
