"""A saved state under other keys: rename= of load() and load_into()."""

import functools
from collections.abc import Callable, Mapping

from tensorshelf._state.nodes import WITHIN, head, is_mapping, key_of, pairs
from tensorshelf._state.plain import Node, is_a
from tensorshelf.errors import BadArgument

Rename = Mapping[str, str] | Callable[[str], str]


def renamed(tree: Node, rename: Rename) -> Node:
    """The tree with other keys. Raises BadArgument where a part would come to lie elsewhere."""
    if callable(rename):
        new_name = rename
    elif isinstance(rename, Mapping):
        new_name = functools.partial(_by_prefix, rename)
    else:
        raise BadArgument(
            f"rename={rename!r} is neither a dict nor a function",
            'Use {"old.path": "new.path"}, or a function of a path.',
        )
    return _rename(tree, "", "", new_name)


def _rename(node: Node, old: str, new: str, new_name: Callable[[str], str]) -> Node:
    if not is_a(node, *WITHIN):
        return node
    if node[0] == "by_name":
        return ["by_name", _rename_parameters(node[1], new_name)]
    if not is_mapping(node):
        parts = enumerate(node[1:])
        return [node[0], *(_rename(p, f"{old}{i}.", f"{new}{i}.", new_name) for i, p in parts)]
    made = head(node)
    before: dict[str, str] = {}  # the paths that they had, by those that they get
    for key, part in pairs(node):
        if not isinstance(key, str):
            made += [key, _rename(part, f"{old}{key_of(key)}.", f"{new}{key_of(key)}.", new_name)]
            continue
        whole = _renamed_once(old + key, new_name, before)
        if not whole.startswith(new) or whole == new:
            raise BadArgument(
                f"rename= makes {whole!r} of {old + key!r}, and what it is in becomes {new[:-1]!r}",
                "Rename what it is in, too, or the last part of the key alone.",
            )
        made += [whole.removeprefix(new), _rename(part, f"{old}{key}.", f"{whole}.", new_name)]
    return made


def _renamed_once(name: str, new_name: Callable[[str], str], before: dict[str, str]) -> str:
    made = new_name(name)
    if not isinstance(made, str):
        raise BadArgument(f"rename= makes {made!r} of {name!r}, which is no path", "Give a str.")
    other = before.setdefault(made, name)
    if other != name:
        raise BadArgument(
            f"rename= makes {made!r} of {other!r} and of {name!r}",
            "Give each a name of its own; keys= loads one of them alone.",
        )
    return made


def _rename_parameters(optimizer: Node, new_name: Callable[[str], str]) -> Node:
    """What an optimizer keeps goes by its parameters' paths, which are those in their model."""
    before: dict[str, str] = {}

    def states(node: Node) -> Node:
        made = head(node)
        for name, part in pairs(node):
            own = isinstance(name, str)  # others are none of a parameter
            made += [_renamed_once(name, new_name, before) if own else name, part]
        return made

    def names(node: Node) -> Node:
        return [node[0], *(_renamed_once(name, new_name, before) for name in node[1:])]

    def groups(node: Node) -> Node:
        return [node[0], *(_changed(group, {"params": names}) for group in node[1:])]

    return _changed(optimizer, {"state": states, "param_groups": groups})


def _changed(node: Node, changes: Mapping[str, Callable[[Node], Node]]) -> Node:
    """A mapping's node with other parts under these keys."""
    made = head(node)
    for key, part in pairs(node):
        change = changes.get(key) if isinstance(key, str) else None
        made += [key, part if change is None else change(part)]
    return made


def _by_prefix(names: Mapping[str, str], name: str) -> str:
    """The longest of the names that is it, or leads to it."""
    for end in (len(name), *(i for i in range(len(name) - 1, 0, -1) if name[i] == ".")):
        if name[:end] in names:
            return names[name[:end]] + name[end:]
    return name
