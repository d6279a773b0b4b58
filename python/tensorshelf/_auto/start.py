"""What a run's saves are of, and what room they have: told once, when they are known."""

from dataclasses import dataclass

from tensorshelf._info import Info, survives
from tensorshelf._size import format_size


@dataclass(frozen=True)
class Sources:
    """What a save is copied from, and when."""

    eager: tuple[str, ...]  # tensors of the shelf that may change when step() returns
    lazy: tuple[str, ...]  # that are copied while the next forward and backward run
    eager_nbytes: int
    lazy_nbytes: int


@dataclass(frozen=True)
class Start:
    """How a run is saved; ``str()`` of it is a sentence."""

    sources: Sources
    slots: int  # of each tensor: versions that there can be at once
    free_nbytes: int  # of the shelf, which may grow besides
    capacity_nbytes: int
    survives: str  # what a version does

    @classmethod
    def of(cls, info: Info, sources: Sources) -> "Start":
        slots = info.keep + info.in_flight + 1
        lasts = survives(info.promises)
        return cls(sources, slots, info.free_bytes, info.capacity_bytes, lasts)

    def __str__(self) -> str:
        s = self.sources
        return (
            f"{_of(s.lazy, s.lazy_nbytes)} copied behind step(), {_of(s.eager, s.eager_nbytes)} "
            f"before it returns; {self.slots} slots each, {format_size(self.free_nbytes)} of "
            f"{format_size(self.capacity_nbytes)} free; a version survives {self.survives}"
        )


def _of(names: tuple[str, ...], nbytes: int) -> str:
    return f"{len(names)} tensors ({format_size(nbytes)})"
