"""What the drain's thread does: one version after the other, and always the newest that is due.

It looks for a new version many times a second, so that saving need not tell it. A version is
pinned while it is read (stage.py), and never while a remote is waited for: one that is stuck holds
up this thread alone. What fails is told once, and tried again later, with the version that is the
newest then.
"""

import logging
import os
import tempfile
import time
from typing import Protocol

from tensorshelf import _core
from tensorshelf._drain.manifest import Manifest
from tensorshelf._drain.metrics import Metrics
from tensorshelf._drain.options import Drain
from tensorshelf._drain.site import Site
from tensorshelf._drain.stage import Spool
from tensorshelf._drain.standing import GivenUp, Standing
from tensorshelf._drain.upload import Pace
from tensorshelf.errors import ClosedError, ShelfBusy, StaleError

logger = logging.getLogger("tensorshelf")

_LOOK_SECONDS = 0.05
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # seconds behind a failure
_TOO_FEW_SLOTS = 2


class Shelf(Protocol):
    """What is asked of a shelf."""

    _core: _core.Shelf
    _path: str


class Copier:
    """``run`` is for a thread of its own; it keeps no shelf alive that was given up."""

    def __init__(
        self, shelf: Shelf, drain: Drain, rank: int | None, standing: Standing, metrics: Metrics
    ) -> None:
        about = shelf._core.info()
        self._drain = drain
        self._standing = standing
        self._metrics = metrics
        self._spool_folder = _spool_folder(drain, shelf._path)
        self._pace = Pace(drain.rate)
        self._told: set[object] = set()  # kinds of failures, since the last success
        self._site = Site(
            drain,
            about["shelf_id"],
            rank,
            wait=self._wait_turn,
            on_read=lambda nbytes: standing.moved(read=nbytes),
            on_sent=lambda nbytes: standing.moved(sent=nbytes),
        )
        if about["keep"] + about["in_flight"] < _TOO_FEW_SLOTS:
            logger.info(
                "drain: while a version is read, the second save behind it waits; a shelf made "
                "with in_flight=2 has room for one more"
            )

    def run(self) -> None:
        try:
            self._work()
        except (GivenUp, ClosedError):
            pass
        except Exception as error:
            self._failed(error)
        finally:
            self._standing.end()

    def _work(self) -> None:
        begun, pause = False, _FIRST_PAUSE
        while True:
            version: int | None = None
            closing = self._standing.closing  # before it looks: what is durable then is drained
            try:
                if not begun:
                    self._begin()
                    begun = True
                version = self._next()
                if version is not None:
                    self._copy(version)
                    pause = _FIRST_PAUSE
            except StaleError:
                continue  # it was overtaken before it was pinned
            except (GivenUp, ClosedError):
                raise
            except ShelfBusy:  # another job has the place
                raise
            except Exception as error:
                self._failed(error)
                self._site.failed()
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            if version is None:
                if closing:
                    return
                self._sleep(_LOOK_SECONDS)

    def _begin(self) -> None:
        last = self._site.begin()
        if last is not None and self._is_ours(last):
            self._standing.found(last)

    def _is_ours(self, last: Manifest) -> bool:
        """Whether it is a version of the shelf as it is, and not of one that was lost behind it."""
        core = self._standing.opened()
        for found in core.versions():
            if found["version"] == last.version:
                return bool(found["time_ns"] == last.time_ns)
        return last.version < core.version

    def _next(self) -> int | None:
        """The oldest that is to stay of those that are retained, or else the newest."""
        core, after = self._standing.opened(), self._standing.base
        if core.version <= after:
            return None
        there = [found for found in core.versions() if found["version"] > after]
        due = [found for found in there if self._is_due(found["step"])]
        if self._standing.wanted > after:
            due = due or there
        for found in due:
            if self._site.wants(found["step"], self._metrics.of(found["step"])):
                return int(found["version"])
        return int(due[-1]["version"]) if due else None

    def _is_due(self, step: int | None) -> bool:
        return self._drain.every == 1 or (step is not None and step % self._drain.every == 0)

    def _copy(self, version: int) -> None:
        standing = self._standing
        standing.set_on_its_way(version)
        spool = Spool(self._spool_folder)
        try:
            staged = self._site.stage(standing.opened(), version, spool)
            before = standing.sent
            made = self._site.put(staged, spool, self._metrics.of(staged.step))
        finally:
            spool.close()
            standing.set_on_its_way(None)
        spared = staged.nbytes - (standing.sent - before)
        standing.copied(made, every=self._drain.every, spared=spared)
        standing.refuse_given_up()
        self._site.collect()
        self._told.clear()

    def _wait_turn(self, nbytes: int) -> None:
        end = time.monotonic() + self._pace.take(nbytes)
        with self._standing.changed:
            while (left := end - time.monotonic()) > 0 and not self._standing.given_up:
                self._standing.moved_at = time.monotonic()  # it is held back, and not stuck
                self._standing.changed.wait(left)
        self._standing.refuse_given_up()

    def _sleep(self, seconds: float) -> None:
        standing = self._standing
        with standing.changed:
            if standing.hurried or standing.closing:
                seconds = 0.0 if seconds == _LOOK_SECONDS else min(seconds, _FIRST_PAUSE)
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


def _spool_folder(drain: Drain, path: str) -> str:
    """On a local disk; what is there is not lost when the remote is slow."""
    if drain.spool is not None:
        return os.path.expanduser(drain.spool)
    return os.path.dirname(os.path.abspath(path)) if os.path.isfile(path) else tempfile.gettempdir()
