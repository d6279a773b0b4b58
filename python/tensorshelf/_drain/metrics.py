"""What saves are worth, as the trainer says: by it the best versions stay."""

import math
import threading
from collections import deque
from typing import Any, NamedTuple

from tensorshelf._drain.options import Drain
from tensorshelf.errors import BadArgument

_REMEMBERED = 1000  # saves


class _Save(NamedTuple):
    """One that was told of."""

    step: int
    after: int  # the version that was durable then: it makes a later one, if any
    metric: float | None


class Metrics:
    """Any thread may ask.

    A step may be saved again: behind a rollback, or a failure, or with something else changed. So
    each save is told of, one without a metric, too, and a version has that of the last save of its
    step that may have made it.
    """

    def __init__(self, drain: Drain) -> None:
        self._best = drain.best
        self._lock = threading.Lock()
        self._saves: deque[_Save] = deque(maxlen=_REMEMBERED)

    def measured(self, step: int, metric: Any, *, after: int) -> None:
        """Raises BadArgument where nothing says what is better, or it is no number."""
        if metric is not None and self._best is None:
            raise BadArgument(
                "a metric is given, and nothing says which is better",
                'Use Drain(..., best="min") or best="max".',
            )
        try:
            number = None if metric is None else float(metric)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadArgument(f"metric={metric!r} is no number", "Give a float.") from error
        if number is not None and not math.isfinite(number):
            number = None  # of a loss that went astray: never the best
        with self._lock:
            self._saves.append(_Save(step, after, number))

    def of(self, step: int | None, version: int) -> float | None:
        """The metric of a version that was saved with that step, or None."""
        with self._lock:
            for save in reversed(self._saves):
                if save.step == step and save.after < version:
                    return save.metric
        return None
