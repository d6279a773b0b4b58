"""What steps are worth, as the trainer says: by it the best versions stay."""

import math
import threading
from typing import Any

from tensorshelf._drain.options import Drain
from tensorshelf.errors import BadArgument

_REMEMBERED = 1000  # steps


class Metrics:
    """Any thread may ask."""

    def __init__(self, drain: Drain) -> None:
        self._best = drain.best
        self._lock = threading.Lock()
        self._by_step: dict[int, float] = {}

    def measured(self, step: int, metric: Any) -> None:
        """Raises BadArgument where nothing says what is better, or it is no number."""
        if self._best is None:
            raise BadArgument(
                "a metric is given, and nothing says which is better",
                'Use Drain(..., best="min") or best="max".',
            )
        try:
            number = float(metric)
        except (TypeError, ValueError) as error:
            raise BadArgument(f"metric={metric!r} is no number", "Give a float.") from error
        if math.isnan(number) or math.isinf(number):
            return  # of a loss that went astray: never the best
        with self._lock:
            self._by_step[step] = number
            while len(self._by_step) > _REMEMBERED:
                del self._by_step[next(iter(self._by_step))]

    def of(self, step: int | None) -> float | None:
        with self._lock:
            return None if step is None else self._by_step.get(step)
