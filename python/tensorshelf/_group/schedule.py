"""The interval at which all ranks save, where every="auto": the coordinator chooses it of what each
rank would have, and tells it with its decisions.

What the decision on an epoch tells holds behind the second save after that one. No rank begins that
save before it has heard the decision, for it waits there till the second before is decided. So each
knows at every step, without a wait, whether the step is saved, and all know the same, however far
apart they are.
"""

from collections import deque

BEHIND = 2  # saves


class Schedule:
    """Told of by one thread, and asked by another. ``begun`` is the number of the last epoch."""

    def __init__(self) -> None:
        self._told: deque[tuple[int, int]] = deque()  # that it comes from, and the interval
        self._every = 1

    def told(self, number: int, every: int) -> None:
        """With the decision on that epoch; 0: what was told before stays."""
        if every:
            self._told.append((number, every))

    def every(self, begun: int) -> int:
        """At steps behind the save of that epoch, the last one that was begun. All decisions up to
        the second before it are told already.
        """
        while self._told and self._told[0][0] <= begun - BEHIND:
            _, self._every = self._told.popleft()
        return self._every
