"""What steps and saves cost, as medians of the last ones: one slow step says nothing."""

import math
from statistics import median
from typing import NamedTuple

from tensorshelf._auto.plan import Plan, plan
from tensorshelf._auto.timeline import Timeline
from tensorshelf._size import format_size

_LAST = 20  # steps and saves


class Costs(NamedTuple):
    """Medians, in seconds and bytes."""

    step: float  # of the trainer's own work
    stall: float  # within step()
    save: float  # until a version is durable
    nbytes: float  # of a save

    def plan(self, mtbi: float, load_seconds: float) -> Plan:
        """The interval at which least is lost."""
        return plan(
            mtbi=mtbi,
            step_seconds=self.step,
            stall_seconds=self.stall,
            save_seconds=self.stall + self.save,
            load_seconds=load_seconds,
        )

    @property
    def bytes_per_second(self) -> float:
        """At which saves became durable."""
        return self.nbytes / self.save

    def told(self, every: int) -> str:
        """Where a save is not hidden, what would hide it."""
        enough = math.ceil(self.save / self.step)
        return (
            f"a save takes {self.save:.3g} s ({format_size(round(self.bytes_per_second))}/s), and "
            f"{every} {'step' if every == 1 else 'steps'} of training {every * self.step:.3g} s: "
            f"the saves hold the training up; every={enough} hides them"
        )

    def is_hidden(self, every: int) -> bool:
        """Whether a save ends while the trainer computes (FastPersist's equation 1)."""
        return self.save <= every * self.step


def costs(timeline: Timeline, *, at_least: int = 1) -> Costs | None:
    """None before so many steps and saves were measured."""
    landed = [(save.seconds, save.nbytes) for save in timeline.saves[-_LAST:]]
    saves = [(seconds, nbytes) for seconds, nbytes in landed if seconds is not None]
    steps, stalls = list(timeline.worked)[-_LAST:], list(timeline.stalled)[-_LAST:]
    if min(len(saves), len(steps), len(stalls)) < at_least:
        return None
    step = median(steps)
    save, nbytes = (median(each) for each in zip(*saves, strict=True))
    if step <= 0 or save <= 0:
        return None
    return Costs(step, median(stall.ended - stall.began for stall in stalls), save, nbytes)
