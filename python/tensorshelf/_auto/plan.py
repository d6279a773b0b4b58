"""How often saving pays.

badput(I) = (L + M/I * O + I/2 + S) / M, for runs that are interrupted every M seconds on average
and saved every I: what is lost is a load, the stalls of the saves, half an interval, and the save
that was not durable yet. It is least at I = sqrt(2 * O * M), and no interval can be below S: the
first-order formula of J. W. Young, "A first order approximation to the optimum checkpoint
interval", Communications of the ACM 17 (1974), with the terms for asynchronous saves that the
PyTorch Distributed Checkpoint team measures by.

A save is hidden where the medium takes it while the trainer computes: B >= S / (T_F + T_B),
equation 1 of FastPersist (Wang et al., 2024), with S bytes a save, and the times of forward and
backward.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tensorshelf._numbers import is_finite, is_whole
from tensorshelf._size import format_size
from tensorshelf.errors import BadArgument


@dataclass(frozen=True)
class Plan:
    """How often to save, and what that leaves."""

    interval_seconds: float  # between two saves
    every: int  # steps
    badput: float  # the part of the time that is lost, 0 to 1
    needed_bytes_per_second: float | None = None  # for saves to be hidden, where nbytes was given
    hidden: bool | None = None  # whether they are, where bytes_per_second was given, too

    def __str__(self) -> str:
        text = (
            f"save every {self.every} steps ({self.interval_seconds:.3g} s): "
            f"{100 * self.badput:.2g} % of the time is lost"
        )
        if self.needed_bytes_per_second is None:
            return text
        needed = f"{format_size(round(self.needed_bytes_per_second))}/s"
        if self.hidden is None:
            return f"{text}; saves are hidden from {needed} on"
        return f"{text}; saves {'are' if self.hidden else 'are not'} hidden, which takes {needed}"


def plan(
    *,
    mtbi: float,
    step_seconds: float,
    stall_seconds: float,
    save_seconds: float,
    load_seconds: float = 0.0,
    every: int | None = None,
    nbytes: int | None = None,
    bytes_per_second: float | None = None,
    forward_backward_seconds: float | None = None,
) -> Plan:
    """The interval at which least time is lost, or what ``every`` so many steps loses.

    mtbi           mean time between interruptions, in seconds
    step_seconds   of a step without saving
    stall_seconds  for which a save holds the trainer up
    save_seconds   until it is durable
    load_seconds   to resume
    nbytes         of a save; with the two below says whether the medium hides it
    bytes_per_second          that the medium takes, made durable
    forward_backward_seconds  of a step, in which copies may run; all of it where not given
    """
    lasting = {"mtbi": mtbi, "step_seconds": step_seconds}
    if forward_backward_seconds is not None:
        lasting["forward_backward_seconds"] = forward_backward_seconds
    may_be_zero = {
        "stall_seconds": stall_seconds,
        "save_seconds": save_seconds,
        "load_seconds": load_seconds,
    }
    _check(lasting, may_be_zero, {"nbytes": nbytes, "bytes_per_second": bytes_per_second})
    mtbi, step_seconds, stall_seconds = float(mtbi), float(step_seconds), float(stall_seconds)
    save_seconds, load_seconds = float(save_seconds), float(load_seconds)
    if forward_backward_seconds is not None and forward_backward_seconds > step_seconds:
        raise BadArgument(
            f"forward_backward_seconds={forward_backward_seconds!r} is more than "
            f"step_seconds={step_seconds!r}",
            "They are a part of a step.",
        )
    if every is None:
        every = _best_every(mtbi, step_seconds, stall_seconds, save_seconds)
    elif not (is_whole(every) and is_finite(every, least=1)):
        raise BadArgument(f"every={every!r} is no number of steps", "Use 1 or more.")
    interval = float(every) * step_seconds
    if not math.isfinite(interval):
        raise BadArgument(f"every={every!r} is no number of steps", "Use less.")
    lost = load_seconds + mtbi / interval * stall_seconds + interval / 2 + save_seconds
    needed = hidden = None
    if nbytes is not None:
        computing = step_seconds if forward_backward_seconds is None else forward_backward_seconds
        needed = float(nbytes) / (interval - step_seconds + float(computing))
        if not math.isfinite(needed):
            raise BadArgument(f"nbytes={nbytes!r} is too much for a save", "Give bytes.")
        hidden = None if bytes_per_second is None else bytes_per_second >= needed
    return Plan(interval, every, min(1.0, lost / mtbi), needed, hidden)


def _best_every(mtbi: float, step_seconds: float, stall_seconds: float, save_seconds: float) -> int:
    """Steps between two saves at which least time is lost, and no fewer than a save takes."""
    best = max(save_seconds, math.sqrt(2 * stall_seconds) * math.sqrt(mtbi))
    if not math.isfinite(best) or not math.isfinite(best / step_seconds):
        raise BadArgument(
            f"step_seconds={step_seconds!r} is next to none beside the other times",
            "Give all in seconds.",
        )
    return max(1, round(best / step_seconds), math.ceil(save_seconds / step_seconds))


def _check(
    lasting: Mapping[str, float],
    may_be_zero: Mapping[str, float],
    sizes: Mapping[str, float | None],
) -> None:
    """Raises BadArgument for the first that is no such number. A size may be left out."""
    for name, value in lasting.items():
        if not is_finite(value, above=0):
            raise BadArgument(f"{name}={value!r} is no time", "Give seconds above 0.")
    for name, value in may_be_zero.items():
        if not is_finite(value, least=0):
            raise BadArgument(f"{name}={value!r} is no time", "Give seconds, 0 or more.")
    for name, size in sizes.items():
        if size is not None and not is_finite(size, above=0):
            raise BadArgument(f"{name}={size!r} is no size", "Give bytes above 0.")
