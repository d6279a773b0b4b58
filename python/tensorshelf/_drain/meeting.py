"""Where the drains of a group meet: which version all copy next.

A rank's vote on a save says whether its drain is free, and rank 0's besides whether that version is
to be drained. Where all are, the coordinator says so with its decision, and each rank pins the
version as it flips to it. So all copy the same one, whatever becomes newest meanwhile, and nothing
waits: where one is busy, or stuck, the decision says nothing of drains.
"""

import logging
from typing import NamedTuple

from tensorshelf import _core
from tensorshelf._drain.options import Drain
from tensorshelf._drain.standing import GivenUp, Standing
from tensorshelf._group.drains import BUSY, NOT_DUE
from tensorshelf.errors import ClosedError, ShelfError

logger = logging.getLogger("tensorshelf")


class Agreed(NamedTuple):
    """A version that all ranks copy."""

    version: int  # of this rank's shelf
    floor: int  # the number of the oldest epoch that may become a version at the remote still
    pin: _core.VersionPin


class Meeting:
    """Where the drain of one rank meets the others. The lock is that of ``standing``."""

    def __init__(self, standing: Standing, drain: Drain, rank: int) -> None:
        self._standing = standing
        self._every = drain.every
        self._is_first = rank == 0
        self._floor: int | None = None  # while the drain's thread has nothing to do
        self._promised = False  # to have nothing to do until the decision
        self._agreed: Agreed | None = None
        self._ended = False

    # ---- for the group's threads

    def begin(self) -> None:
        """All ranks have agreed on what they go on from."""
        with self._standing.changed:
            self._standing.agreed = True

    def offer(self, number: int, step: int) -> int:
        """What the vote on that epoch says: BUSY, or on rank 0 NOT_DUE, or the floor."""
        with self._standing.changed:
            if self._floor is None or self._agreed is not None:
                return BUSY
            if self._is_first and step % self._every:
                return NOT_DUE
            self._promised = True
            return self._floor or number

    def agreed(self, floor: int) -> None:
        """The version that this rank has just flipped to is drained by all."""
        with self._standing.changed:
            if self._ended:  # nobody would let go of the pin
                return
            try:
                core = self._standing.opened()
                version = core.version
                self._agreed = Agreed(version, floor, core.pin(version, copies=True))
            except (ClosedError, GivenUp):
                return
            except ShelfError as error:  # its part will lack; the group's saves go on
                logger.warning("drain: a version is passed over: %s", error)
                return
            self._standing.changed.notify_all()

    def over(self) -> None:
        """Nothing that was promised holds any more: the epoch was decided, or never will be."""
        with self._standing.changed:
            self._promised = False

    def lag(self, ranks: tuple[int, ...]) -> None:
        """On rank 0: those whose drains were busy at the last vote."""
        self._standing.lag(ranks)

    # ---- for the drain's thread

    def turn(self, *, idle: bool) -> tuple[bool, Agreed | None]:
        """Whether it may turn to something, and what was agreed on. It is busy from here on, but
        where nothing was and it is ``idle``: has nothing else to do.
        """
        with self._standing.changed:
            if self._agreed is None and (self._promised or (idle and self._floor is not None)):
                return False, None
            self._floor = None
            agreed, self._agreed = self._agreed, None
            return True, agreed

    def rest(self, floor: int) -> None:
        """It is free. ``floor``: the number of an epoch that waits for others, or 0."""
        with self._standing.changed:
            self._floor = floor

    def end(self) -> None:
        """It copies no more."""
        with self._standing.changed:
            self._floor = self._agreed = None
            self._ended = True
