"""What the thread of a rank did for its group, and when: for a trace."""

import time
from collections import deque
from typing import NamedTuple

_MOST = 1000  # epochs that are kept


class Sent(NamedTuple):
    """To a keeper: what changed of this rank's part."""

    keeper: int
    nbytes: int
    began: float
    ended: float


class Epoch:
    """One save of this rank with the others. Times are those of ``time.monotonic()``: ``began``;
    ``prepared``; ``kept``: copies have it; ``votes``, before the vote is sent, and ``voted``,
    behind that; ``decided``: heard of it; ``ended``: flipped, or abandoned. What did not come to be
    lacks.
    """

    def __init__(self, number: int, step: int) -> None:
        self.number = number
        self.step = step
        self.times = {"began": time.monotonic()}
        self.sent: list[Sent] = []
        self.made = False  # committed here, and so decided behind the votes of all

    def at(self, what: str) -> None:
        """It has come to this now."""
        self.times[what] = time.monotonic()

    def copied(self, keeper: int, nbytes: int, began: float) -> None:
        """The keeper has it now."""
        self.sent.append(Sent(keeper, nbytes, began, time.monotonic()))


class Moments:
    """What became of the last epochs of one start. One thread notes it, and any may read."""

    def __init__(self, rank: int, node: str, start: tuple[str, int]) -> None:
        self.rank = rank
        self.node = node
        self.start = start  # job, and generation
        self.epochs: deque[Epoch] = deque(maxlen=_MOST)

    def begin(self, number: int, step: int) -> Epoch:
        """The next one."""
        epoch = Epoch(number, step)
        self.epochs.append(epoch)
        return epoch
