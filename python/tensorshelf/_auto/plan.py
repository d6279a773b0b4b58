"""How often saving pays.

badput(I) = (L + M/I * O + I/2 + S) / M, for runs that are interrupted every M seconds on average
and saved every I: what is lost is a load, the stalls of the saves, half an interval, and the save
that was not durable yet. It is least at I = sqrt(2 * O * M), and no interval can be below S: the
first-order formula of J. W. Young, "A first order approximation to the optimum checkpoint
interval", Communications of the ACM 17 (1974), with the terms for asynchronous saves that the
PyTorch Distributed Checkpoint team measures by.
"""

import math
from dataclasses import dataclass

from tensorshelf.errors import BadArgument


@dataclass(frozen=True)
class Plan:
    """How often to save, and what that leaves."""

    interval_seconds: float  # between two saves
    every: int  # steps
    badput: float  # the part of the time that is lost, 0 to 1

    def __str__(self) -> str:
        return (
            f"save every {self.every} steps ({self.interval_seconds:.3g} s): "
            f"{100 * self.badput:.2g} % of the time is lost"
        )


def plan(
    *,
    mtbi: float,
    step_seconds: float,
    stall_seconds: float,
    save_seconds: float,
    load_seconds: float = 0.0,
    every: int | None = None,
) -> Plan:
    """The interval at which least time is lost, or what ``every`` so many steps loses.

    mtbi           mean time between interruptions, in seconds
    step_seconds   of a step without saving
    stall_seconds  for which a save holds the trainer up
    save_seconds   until it is durable
    load_seconds   to resume
    """
    given = {"mtbi": mtbi, "step_seconds": step_seconds}
    for name, value in given.items():
        if not value > 0:
            raise BadArgument(f"{name}={value!r} is no time", "Give seconds above 0.")
    rest = {"stall_seconds": stall_seconds, "save_seconds": save_seconds}
    for name, value in {**rest, "load_seconds": load_seconds}.items():
        if not value >= 0:
            raise BadArgument(f"{name}={value!r} is no time", "Give seconds, 0 or more.")
    if every is None:
        best = max(save_seconds, math.sqrt(2 * stall_seconds * mtbi))
        every = max(1, round(best / step_seconds))
    elif every < 1:
        raise BadArgument(f"every={every!r} is no number of steps", "Use 1 or more.")
    interval = every * step_seconds
    lost = load_seconds + mtbi / interval * stall_seconds + interval / 2 + save_seconds
    return Plan(interval, every, min(1.0, lost / mtbi))
