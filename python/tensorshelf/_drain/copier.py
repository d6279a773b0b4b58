"""What the drain's thread does: one version after the other.

It looks for a new version many times a second, so that saving need not tell it. What fails is told
once, and tried again later. Which version comes next is said by its work: of a shelf alone
(alone.py), or of a rank of a group (rank.py).
"""

import logging
import os
import tempfile
import time
from typing import Protocol

from tensorshelf import _core
from tensorshelf._drain.options import Drain
from tensorshelf._drain.standing import GivenUp, Standing
from tensorshelf._drain.upload import Pace
from tensorshelf.errors import ClosedError, ShelfBusy, StaleError

logger = logging.getLogger("tensorshelf")

_LOOK_SECONDS = 0.05
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # seconds behind a failure
_TOO_FEW_SLOTS = 2


class DrainedShelf(Protocol):
    """What is asked of a shelf."""

    _core: _core.Shelf
    _path: str


class Work(Protocol):
    """What there is to do. For one thread."""

    def begin(self) -> None:
        """Before all else, and again where it failed."""

    def turn(self) -> bool | None:
        """One piece of it. False where there is none now, None where others are waited for."""

    def failed(self) -> None:
        """Either did; it is tried again."""

    def end(self) -> None:
        """Nothing comes behind that."""


class Copier:
    """``run`` is for a thread of its own; it keeps no shelf alive that was given up."""

    def __init__(self, drain: Drain, standing: Standing, work: Work) -> None:
        self._drain = drain
        self._standing = standing
        self._work = work
        self._told: set[object] = set()  # kinds of failures, since the last success

    def run(self) -> None:
        try:
            self._go_on()
        except (GivenUp, ClosedError):
            pass
        except Exception as error:
            self._failed(error)
        finally:
            self._work.end()
            self._standing.end()

    def _go_on(self) -> None:
        begun, pause = False, _FIRST_PAUSE
        while True:
            closing = self._standing.closing  # before it looks: what is durable then is drained
            self._standing.busy_since = time.monotonic()
            try:
                self._standing.refuse_given_up()  # nobody waits for what cannot be begun either
                if not begun:
                    self._work.begin()
                    begun = True
                done = self._work.turn()
            except StaleError:
                continue  # it was overtaken before it was pinned
            except (GivenUp, ClosedError):
                raise
            except ShelfBusy:  # another job has the place
                raise
            except Exception as error:
                self._standing.busy_since = None  # it failed, and is not stuck
                self._failed(error)
                self._work.failed()
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            finally:
                self._standing.busy_since = None
            if done:
                pause = _FIRST_PAUSE
                self._told.clear()
            elif done is False and closing:
                return
            else:
                self._sleep(_LOOK_SECONDS)

    def _sleep(self, seconds: float) -> None:
        standing = self._standing
        with standing.changed:
            if standing.hurried or standing.closing:
                nap = 0.0 if standing.hurried else seconds
                seconds = nap if seconds == _LOOK_SECONDS else min(seconds, _FIRST_PAUSE)
            if seconds and not standing.given_up:
                standing.changed.wait(seconds)
            standing.hurried = False

    def _failed(self, error: Exception) -> None:
        self._standing.failed(error)
        kind = (type(error), getattr(error, "errno", None))
        if kind not in self._told:
            self._told.add(kind)
            remote = self._drain.remote
            logger.warning("drain: %s has not the newest version: %s", remote, error)


class Turns:
    """When bytes may be sent. Any thread."""

    def __init__(self, drain: Drain, standing: Standing) -> None:
        self._pace = Pace(drain.rate)
        self._standing = standing

    def wait(self, nbytes: int) -> None:
        """Until so many may. Raises GivenUp."""
        end = time.monotonic() + self._pace.take(nbytes)
        with self._standing.changed:
            while (left := end - time.monotonic()) > 0 and not self._standing.given_up:
                self._standing.moved_at = time.monotonic()  # it is held back, and not stuck
                self._standing.changed.wait(left)
        self._standing.refuse_given_up()


def tell_of_slots(core: _core.Shelf) -> None:
    """In the log, where a shelf has few."""
    about = core.info()
    if about["keep"] + about["in_flight"] < _TOO_FEW_SLOTS:
        logger.info(
            "drain: while a version is read, the second save behind it waits; a shelf made "
            "with in_flight=2 has room for one more"
        )


def spool_folder(drain: Drain, path: str) -> str:
    """On a local disk; what is there is not lost when the remote is slow."""
    if drain.spool is not None:
        return os.path.expanduser(drain.spool)
    return os.path.dirname(os.path.abspath(path)) if os.path.isfile(path) else tempfile.gettempdir()
