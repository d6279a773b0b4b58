"""shelf.load(): a saved state as values, or the parts of it that keys name."""

import fnmatch
from collections.abc import Iterable
from typing import Any

from tensorshelf._progress import Report
from tensorshelf._state import record
from tensorshelf._state.nodes import head, is_mapping, key_of, pairs, value_of
from tensorshelf._state.paths import Path, dotted
from tensorshelf._state.plain import Node
from tensorshelf._state.reader import Reader
from tensorshelf._state.record import Reads
from tensorshelf._state.rename import Rename, renamed
from tensorshelf.errors import BadArgument, UnknownName


def load(
    shelf: Reads, keys: str | Iterable[str] | None, rename: Rename | None, report: Report | None
) -> Any:
    """See Shelf.load."""
    saved = record.get(shelf)
    tree, reader = saved.tree, Reader(shelf, saved)
    if keys is not None:
        tree = _chosen(tree, _listed(keys))
    if rename is not None:
        tree = renamed(tree, rename)
    state = value_of(tree, reader)
    reader.read_all(report)
    return state


def _listed(keys: str | Iterable[str]) -> list[str]:
    given = [keys] if isinstance(keys, str) else keys
    listed = list(given) if isinstance(given, Iterable) else []
    if not isinstance(given, Iterable) or not all(isinstance(key, str) for key in listed):
        raise BadArgument(
            f"keys={keys!r} are no paths",
            'Give paths of what to load, such as ["model.*"]; without keys= all is loaded.',
        )
    return listed


def _chosen(tree: Node, keys: list[str]) -> Node:
    """The tree without the parts that no key names. Raises UnknownName for a key of nothing."""
    used: set[str] = set()
    if not keys and not is_mapping(tree):
        raise UnknownName("the saved state has no keys", "Leave keys out.")
    chosen = _choose(tree, None, keys, used)
    unused = [key for key in keys if key not in used]
    if unused:
        there = ", ".join(repr(key_of(key)) for key, _ in pairs(tree)) if is_mapping(tree) else ""
        raise UnknownName(
            f"the saved state has nothing of the key {unused[0]!r}",
            f"Its outermost keys: {there}." if there else "Leave keys out.",
        )
    return chosen


def _names(key: str, path: str) -> bool:
    """* and ? alone stand for something: a path may have brackets."""
    return fnmatch.fnmatchcase(path, key.replace("[", "[[]"))


def _choose(node: Node, path: Path | None, keys: list[str], used: set[str]) -> Node | None:
    named = [key for key in keys if path is not None and _names(key, dotted(path))]
    if named:
        used.update(named)
        others = [key for key in keys if key not in used]
        if others and is_mapping(node):  # they may name a part of it besides
            for key, part in pairs(node):
                _choose(part, Path(path, key_of(key)), others, used)
        return node
    if not is_mapping(node):
        return None
    kept = []
    for key, part in pairs(node):
        chosen = _choose(part, Path(path, key_of(key)), keys, used)
        if chosen is not None:
            kept += [key, chosen]
    return [*head(node), *kept] if kept or path is None else None
