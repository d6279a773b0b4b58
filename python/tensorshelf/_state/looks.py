"""What a look at a part of a state is, and what it finds."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tensorshelf._state.memories import Counted


class Changed(Exception):
    """The state has another form than it had."""


class Found(NamedTuple):
    """What a look found, in the order of the state."""

    leaves: list[bytes]  # what fills the holes of the record
    moving: list[Any]  # tensors that objects gave as their states
    staying: list[Any]  # torch tensors that are to lie where they did
    places: list[int]  # where those without dimensions lie: no two of them in one
    counted: Counted  # of those that stay, whose changes are counted


Look = Callable[[Any, Found], None]  # at a value; appends what is found in it. Raises Changed


def stays(value: Any, found: Found) -> None:
    """A torch tensor of the shelf; all are compared together."""
    found.staying.append(value)
