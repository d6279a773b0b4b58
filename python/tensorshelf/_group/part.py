"""Whose part of which epoch of a group a shelf holds.

It lies in the saved state, so that it is of that very version, and in the mark of what is prepared.
Paths and the launcher's ranks say nothing: they change.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tensorshelf.errors import CorruptError

KEY = "group"  # of the state
_MARK = "tensorshelf.group"
_FIELDS = ("rank", "members", "generation", "number")  # numbers
_ALIKE = "alike"  # of a mark alone


class Part(NamedTuple):
    """The part of one rank in one epoch."""

    job: str  # the same for all starts of a job, and no other's
    rank: int
    members: int
    generation: int  # one start of the job
    number: int  # of the epoch within that
    alike: int | None = None  # hash of what all ranks hold alike, where it was known

    @property
    def epoch(self) -> tuple[int, int]:
        return self.generation, self.number

    def mark(self) -> bytes:
        """For what is prepared."""
        words = [_MARK, *map(str, self[:-1])]
        return " ".join(
            words if self.alike is None else [*words, f"{_ALIKE}={self.alike}"]
        ).encode()

    def state(self) -> dict[str, Any]:
        """For what is saved."""
        return {field: value for field, value in self._asdict().items() if field != _ALIKE}


def part_of_mark(mark: bytes) -> Part | None:
    """None where something else prepared it."""
    head, *words = mark.decode("utf-8", "replace").split(" ")
    count = 1 + len(_FIELDS)
    if head != _MARK or len(words) not in (count, count + 1):
        return None
    job, *numbers = words[:count]
    for word in words[count:]:
        name, _, number = word.partition("=")
        if name != _ALIKE:
            return None
        numbers.append(number)
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        return None
    return Part(job, *map(int, numbers))


def part_of_state(found: Any) -> Part:
    """The part that a saved state has under KEY. Raises CorruptError for what is no part."""
    if isinstance(found, dict) and found.keys() == {"job", *_FIELDS}:
        job, numbers = found["job"], [found[field] for field in _FIELDS]
        if isinstance(job, str) and all(type(number) is int and number >= 0 for number in numbers):
            return Part(job, *numbers)
    raise CorruptError(
        "what the saved state says of its group is no part of one",
        "Load an older version, or put the shelf back from a copy.",
    )


def refused(prepared: Iterable[tuple[Part, int | None]]) -> set[tuple[int, int]]:
    """The epochs of what is prepared, with its steps, in which ranks had saved different steps, or
    replicas that differed. The coordinator cannot have committed them, though all have their parts.
    """
    found: dict[tuple[int, int], set[tuple[str, int | None]]] = {}
    for part, step in prepared:
        of_epoch = found.setdefault(part.epoch, set())
        of_epoch.add(("step", step))
        if part.alike is not None:
            of_epoch.add((_ALIKE, part.alike))
    return {epoch for epoch, told in found.items() if len({kind for kind, _ in told}) < len(told)}


class Identity:
    """Saved with the state: the part that a save is. For one thread."""

    def __init__(self) -> None:
        self.part: Part | None = None

    def state_dict(self) -> dict[str, Any]:
        assert self.part is not None
        return self.part.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.part = part_of_state(state)
