"""Where something lies in a state, as errors show it and as the name of its tensor."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from tensorshelf import _names
from tensorshelf.errors import BadName

DEEPEST = 200  # containers within each other
LONGEST = 900  # bytes of a name; the rest of what the store allows tells like ones apart
RECORD = "__state__"  # the tensor that holds the tree


class Path(NamedTuple):
    """A step into a container; None stands for the state itself."""

    above: "Path | None"
    key: object


def keys(path: Path | None) -> Iterator[object]:
    """From the outermost on."""
    steps = []
    while path is not None:
        steps.append(path.key)
        path = path.above
    return reversed(steps)


def shown(path: Path | None) -> str:
    """state['model'][0]"""
    return "state" + "".join(f"[{key!r}]" for key in keys(path))


def dotted(path: Path | None) -> str:
    """model.0, as tensors are named."""
    return ".".join(str(key) for key in keys(path))


class TensorNames:
    """Gives each path a name of its own, the same whenever the state has the same form."""

    def __init__(self) -> None:
        self._taken = {RECORD}

    def name(self, path: Path | None) -> str:
        name = dotted(path) or "state"
        try:
            bad = len(_names.checked(name).encode()) > LONGEST or "\0" in name
        except BadName:
            bad = True
        if bad:
            digest = hashlib.blake2b(shown(path).encode(errors="backslashreplace"), digest_size=16)
            name = f"state.{digest.hexdigest()}"
        return free_name(name, self._taken)


def free_name(name: str, taken: set[str]) -> str:
    """The name, or one like it where it is taken; it is taken from here on."""
    chosen, number = name, 1
    while chosen in taken:
        number += 1
        chosen = f"{name}~{number}"
    taken.add(chosen)
    return chosen
