"""Whose part of which epoch of a group a shelf holds.

It lies in the saved state, so that it is of that very version, and in the mark of what is prepared.
Paths and the launcher's ranks say nothing: they change.
"""

from typing import Any, NamedTuple

from tensorshelf.errors import CorruptError

KEY = "group"  # of the state
_MARK = "tensorshelf.group"
_FIELDS = ("rank", "members", "generation", "number")  # numbers


class Part(NamedTuple):
    """Of one rank."""

    job: str  # the same for all starts of a job, and no other's
    rank: int
    members: int
    generation: int  # one start of the job
    number: int  # of the epoch within that

    @property
    def epoch(self) -> tuple[int, int]:
        return self.generation, self.number

    def mark(self) -> bytes:
        """For what is prepared."""
        return " ".join((_MARK, *map(str, self))).encode()


def part_of_mark(mark: bytes) -> Part | None:
    """None where something else prepared it."""
    head, *words = mark.decode("utf-8", "replace").split(" ")
    if head != _MARK or len(words) != 1 + len(_FIELDS):
        return None
    job, *numbers = words
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        return None
    return Part(job, *map(int, numbers))


def part_of_state(found: Any) -> Part:
    """Of what a saved state has under KEY. Raises CorruptError for what is no part."""
    if isinstance(found, dict) and found.keys() == set(Part._fields):
        job, numbers = found["job"], [found[field] for field in _FIELDS]
        if isinstance(job, str) and all(type(number) is int and number >= 0 for number in numbers):
            return Part(job, *numbers)
    raise CorruptError(
        "what the saved state says of its group is no part of one",
        "Load an older version, or put the shelf back from a copy.",
    )


class Identity:
    """Saved with the state: the part that a save is. For one thread."""

    def __init__(self) -> None:
        self.part: Part | None = None

    def state_dict(self) -> dict[str, Any]:
        assert self.part is not None
        return self.part._asdict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.part = part_of_state(state)
