"""A drain that is under way, as a program sees it: it asks, waits and ends it."""

import logging
import os
import threading
import time
from typing import Any

from tensorshelf._drain.alone import AloneWork
from tensorshelf._drain.copier import Copier, DrainedShelf, Work, tell_of_slots
from tensorshelf._drain.info import DrainInfo
from tensorshelf._drain.meeting import Meeting
from tensorshelf._drain.metrics import Metrics
from tensorshelf._drain.options import Drain, check_seconds
from tensorshelf._drain.rank import RankWork
from tensorshelf._drain.remote import open_remote
from tensorshelf._drain.standing import Standing
from tensorshelf._group.group import Group
from tensorshelf.errors import BadArgument, ClosedError

logger = logging.getLogger("tensorshelf")

_LOOK_SECONDS = 0.05
_STUCK_SECONDS = 60
_SHOWN = 5  # ranks


class Drainer:
    """Copies what an autosave makes durable; ``auto.drain`` is one. Any thread may ask it."""

    def __init__(self, shelf: DrainedShelf, drain: Drain, group: Group | None = None) -> None:
        self._drain = drain
        self._pid = os.getpid()
        self._metrics = Metrics(drain)
        rank = None if group is None else group.rank
        self._standing = standing = Standing(shelf._core, os.fspath(drain.remote), rank)
        self._told_stuck_at = 0.0  # since when it was, as was told last
        tell_of_slots(shelf._core)
        work: Work
        if group is None:
            self.meeting = None
            work = AloneWork(shelf, drain, standing, self._metrics)
        else:
            self.meeting = Meeting(standing, drain, group.rank)
            work = RankWork(shelf, drain, group, standing, self._metrics, self.meeting)
        self._copier = Copier(drain, standing, work)
        self._thread = threading.Thread(
            target=self._copier.run, name="tensorshelf-drain", daemon=True
        )
        self._thread.start()

    def info(self) -> DrainInfo:
        """What lies at the remote, what is on its way, and what went wrong last."""
        return self._standing.info()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the newest durable version lies at the remote; False where it gives up.

        Of a group all ranks call it, for a version is there when all have put their parts.

        ``timeout``: it gives up where nothing moves for so many seconds, by default for those of
        ``Drain``. So a slow remote is waited for, and a stuck one is not.

        In a forked child, which has no drain, False.

        Raises ClosedError where the drain is closed, and something is not there: it never comes.
        """
        patience = self._patience(timeout)
        if os.getpid() != self._pid:
            return False
        standing = self._standing
        with standing.changed:
            wanted = standing.want_newest()
            if not standing.is_open and standing.base < wanted:
                raise ClosedError(
                    f"the drain to {self._drain.remote} is closed, and version {wanted} of the "
                    "shelf is not there",
                    "Another autosave(drain=) brings it there.",
                )
            return self._arrives(wanted, patience)

    def _arrives(self, wanted: int, patience: float) -> bool:
        """Waits for it."""
        standing, began = self._standing, time.monotonic()
        with standing.changed:
            while standing.base < wanted and not standing.ended:
                left = max(began, standing.moved_at) + patience - time.monotonic()
                if left <= 0:
                    break
                standing.changed.wait(min(left, _LOOK_SECONDS))
            return standing.base >= wanted

    def close(self, timeout: float | None = None) -> None:
        """Waits as ``wait()`` does, and ends; what is not drained then is told in the log.

        Ctrl-C ends the wait. Closing twice is allowed.
        """
        standing = self._standing
        if os.getpid() != self._pid:
            return
        if not standing.is_open:
            standing.newest()  # the shelf is about to close, and cannot be asked any more then
            return
        patience = self._patience(timeout)
        try:
            with standing.changed:
                standing.closing = True
                if self._arrives(standing.want_newest(), patience):
                    # It may be deleting what need not stay.
                    standing.changed.wait_for(lambda: standing.ended, patience)
        finally:
            self._give_up()

    def _patience(self, timeout: float | None) -> float:
        return check_seconds(self._drain.timeout if timeout is None else timeout)

    def _give_up(self) -> None:
        newest, left = self._standing.give_up()
        if left:
            version, error = self._standing.version, self._standing.error
            logger.warning(
                "drain: version %d is not at %s, which has %s%s%s",
                newest,
                self._drain.remote,
                "none" if version is None else f"version {version}",
                "" if error is None else f": {error}",
                self._who_lags(),
            )

    def measured(self, step: int, metric: Any) -> None:
        """What the save of that step is worth that begins next; None where nobody says. Each is
        told of, for else it has the metric of an older one of that step.
        """
        if metric is None and self._drain.best is None:
            return
        self._metrics.measured(step, metric, after=self._standing.newest())

    def tell_if_stuck(self) -> None:
        """In the log, once for each time that it is."""
        awaited = self._standing.awaited()
        if awaited is None:
            return
        version, since = awaited
        if time.monotonic() - since <= _STUCK_SECONDS or since == self._told_stuck_at:
            return
        self._told_stuck_at = since
        logger.warning(
            "drain: nothing of version %d has come to %s for %d seconds%s; training goes on, and "
            "what it saves is on this machine alone",
            version,
            self._drain.remote,
            _STUCK_SECONDS,
            self._who_lags(),
        )

    def _who_lags(self) -> str:
        ranks = self._standing.lagging or ()
        more = ", ..." if len(ranks) > _SHOWN else ""
        return f" (of ranks {', '.join(map(str, ranks[:_SHOWN]))}{more})" if ranks else ""

    def __repr__(self) -> str:
        closed = "" if self._standing.is_open else " (closed)"
        return f"<Drainer to {self._drain.remote}, version {self._standing.version}{closed}>"


def check_drain(drain: Any) -> None:
    """Raises what is wrong with it that can be known without asking the remote."""
    if not isinstance(drain, Drain):
        raise BadArgument(f"drain={drain!r} is no Drain", "Use tensorshelf.Drain(directory).")
    open_remote(drain.remote)
