"""The thread that drains: one version after the other, and always the newest that is due.

It looks for a new version many times a second, so that saving need not tell it. A version is
pinned while it is read (stage.py), and never while a remote is waited for: one that is stuck holds
up this thread alone. What fails is told once, and tried again later, with the version that is the
newest then.
"""

import contextlib
import logging
import math
import os
import tempfile
import threading
import time
from typing import Any, Protocol

from tensorshelf import _core
from tensorshelf._drain.info import DrainInfo
from tensorshelf._drain.manifest import Manifest
from tensorshelf._drain.options import Drain
from tensorshelf._drain.remote import open_remote
from tensorshelf._drain.site import Site
from tensorshelf._drain.stage import Spool
from tensorshelf._drain.upload import Pace
from tensorshelf.errors import BadArgument, ClosedError, ShelfBusy, StaleError

logger = logging.getLogger("tensorshelf")

_LOOK_SECONDS = 0.05
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # seconds behind a failure
_STUCK_SECONDS = 60
_METRICS = 1000  # steps of which the metric is remembered
_TOO_FEW_SLOTS = 2


class Shelf(Protocol):
    """What is asked of a shelf."""

    _core: _core.Shelf
    _path: str


class _GivenUp(Exception):
    """close() has: nobody waits for this thread any more."""


class Drainer:
    """Copies what an autosave makes durable; ``auto.drain`` is one. Any thread may ask it."""

    def __init__(self, shelf: Shelf, drain: Drain, rank: int | None = None) -> None:
        self._drain = drain
        self._core: _core.Shelf | None = shelf._core
        self._pid = os.getpid()
        about = shelf._core.info()
        self._spool_folder = _spool_folder(drain, shelf._path)
        self._pace = Pace(drain.rate)
        self._state = threading.Condition()
        self._metrics: dict[int, float] = {}  # by step
        self._closing = self._given_up = self._ended = self._hurried = False
        self._moved_at = time.monotonic()
        self._version: int | None = None  # that was drained last
        self._step: int | None = None
        self._time_ns: int | None = None
        self._before = max(shelf._core.version - 1, 0)  # versions that never were to be drained
        self._wanted = 0  # a version that somebody waits for, though it is not due
        self._on_its_way: int | None = None
        self._drained = self._skipped = self._failures = 0
        self._read = self._sent = self._spared = 0
        self._error: str | None = None
        self._told: set[object] = set()  # kinds of failures, since the last success
        self._told_stuck_at = 0.0  # when it moved last, as was told
        self._newest = _newest(shelf._core)
        self._site = Site(
            drain,
            about["shelf_id"],
            rank,
            wait=self._wait_turn,
            on_read=self._on_read,
            on_sent=self._on_sent,
        )
        if about["keep"] + about["in_flight"] < _TOO_FEW_SLOTS:
            logger.info(
                "drain: while a version is read, the second save behind it waits; a shelf made "
                "with in_flight=2 has room for one more"
            )
        self._thread = threading.Thread(target=self._run, name="tensorshelf-drain", daemon=True)
        self._thread.start()

    # ---- asked by others

    def info(self) -> DrainInfo:
        """What lies at the remote, what is on its way, and what went wrong last."""
        with self._state:
            self._note_newest()
            newest, time_ns = self._newest
            base = self._before if self._version is None else self._version
            return DrainInfo(
                remote=os.fspath(self._drain.remote),
                version=self._version,
                step=self._step,
                on_its_way=self._on_its_way,
                drained=self._drained,
                skipped=self._skipped,
                lag_versions=max(newest - base, 0),
                lag_seconds=None
                if self._time_ns is None
                else max(time_ns - self._time_ns, 0) / 1e9,
                read_bytes=self._read,
                sent_bytes=self._sent,
                spared_bytes=self._spared,
                moved_seconds=time.monotonic() - self._moved_at,
                failures=self._failures,
                error=self._error,
            )

    def wait(self, timeout: float | None = None) -> bool:
        """Until the newest durable version lies at the remote; False where it does not come there.

        ``timeout``: seconds in which nothing moves, that of ``Drain`` where nothing is said. So a
        slow remote is waited for, and a stuck one is not.
        """
        patience = self._drain.timeout if timeout is None else timeout
        if os.getpid() != self._pid:
            return False
        with self._state:
            self._note_newest()
            wanted = self._wanted = self._newest[0]
            self._hurried = True
            self._state.notify_all()
            began = time.monotonic()
            while not self._reached(wanted) and not self._ended:
                left = max(began, self._moved_at) + patience - time.monotonic()
                if left <= 0:
                    break
                self._state.wait(min(left, _LOOK_SECONDS))
            return self._reached(wanted)

    def close(self, timeout: float | None = None) -> None:
        """Waits as ``wait()`` does, and ends; what is not drained then is told in the log.

        Ctrl-C ends the wait. Closing twice is allowed.
        """
        if self._core is None or os.getpid() != self._pid:
            return
        try:
            with self._state:
                self._closing = True
            if self.wait(timeout):
                self._await_end(timeout)  # it may be deleting what need not stay
        finally:
            self._give_up()

    def _await_end(self, timeout: float | None) -> None:
        patience = self._drain.timeout if timeout is None else timeout
        with self._state:
            self._state.wait_for(lambda: self._ended, patience)

    def _give_up(self) -> None:
        with self._state:
            self._note_newest()
            newest, reached = self._newest[0], self._version or self._before
            self._given_up = True
            self._core = None  # so that the shelf ends, whatever the thread is stuck in
            left = max(newest - reached, 0)
            self._skipped += left
            self._state.notify_all()
            if left:
                logger.warning(
                    "drain: version %d is not at %s, which has %s%s",
                    newest,
                    self._drain.remote,
                    "none" if self._version is None else f"version {self._version}",
                    "" if self._error is None else f": {self._error}",
                )

    def measured(self, step: int, metric: float) -> None:
        """What the version of that step is worth. Before it is durable."""
        if self._drain.best is None:
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
        with self._state:
            self._metrics[step] = number
            while len(self._metrics) > _METRICS:
                del self._metrics[next(iter(self._metrics))]

    def tell_if_stuck(self) -> None:
        """In the log, once for each time that it is."""
        with self._state:
            moved_at, version = self._moved_at, self._on_its_way
            stuck = version is not None and time.monotonic() - moved_at > _STUCK_SECONDS
            if not stuck or moved_at == self._told_stuck_at:
                return
            self._told_stuck_at = moved_at
        logger.warning(
            "drain: nothing of version %d has come to %s for %d seconds; training goes on, and "
            "what it saves is on this machine alone",
            version,
            self._drain.remote,
            _STUCK_SECONDS,
        )

    def __repr__(self) -> str:
        closed = " (closed)" if self._core is None else ""
        return f"<Drainer to {self._drain.remote}, version {self._version}{closed}>"

    # ---- the thread

    def _run(self) -> None:
        try:
            self._work()
        except (_GivenUp, ClosedError):
            pass
        except Exception as error:
            self._note_failure(error)
        finally:
            with self._state:
                self._ended = True
                self._on_its_way = None
                self._state.notify_all()

    def _work(self) -> None:
        begun, pause = False, _FIRST_PAUSE
        while True:
            version: int | None = None
            closing = self._closing  # before it looks: what is durable by then is drained
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
            except (_GivenUp, ClosedError):
                raise
            except ShelfBusy:  # another job has the place
                raise
            except Exception as error:
                self._note_failure(error)
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
            with self._state:
                self._set_drained(last)

    def _is_ours(self, last: Manifest) -> bool:
        """Whether it is a version of the shelf as it is, and not of one that was lost behind it."""
        for found in self._opened().versions():
            if found["version"] == last.version:
                return bool(found["time_ns"] == last.time_ns)
        return last.version < self._opened().version

    def _opened(self) -> _core.Shelf:
        core = self._core
        if core is None:
            raise _GivenUp
        return core

    def _next(self) -> int | None:
        """The oldest that is to stay of those that are retained, or else the newest."""
        core = self._opened()
        after = self._before if self._version is None else self._version
        if core.version <= after:
            return None
        there = [found for found in core.versions() if found["version"] > after]
        due = [found for found in there if self._is_due(found["step"])]
        if self._wanted > after:
            due = due or there
        for found in due:
            if self._site.wants(found["step"], self._metric_of(found["step"])):
                return int(found["version"])
        return int(due[-1]["version"]) if due else None

    def _is_due(self, step: int | None) -> bool:
        return self._drain.every == 1 or (step is not None and step % self._drain.every == 0)

    def _passed_over(self, made: Manifest) -> int:
        """Versions that were due, and are not drained."""
        every, after = self._drain.every, max(self._before, self._version or 0)
        if every == 1:
            return max(made.version - after - 1, 0)
        if self._step is None or made.step is None:
            return 0
        return max((made.step - 1) // every - self._step // every, 0)

    def _metric_of(self, step: int | None) -> float | None:
        return None if step is None else self._metrics.get(step)

    def _copy(self, version: int) -> None:
        with self._state:
            self._on_its_way = version
        spool = Spool(self._spool_folder)
        try:
            staged = self._site.stage(self._opened(), version, spool)
            before = self._sent
            made = self._site.put(staged, spool, self._metric_of(staged.step))
        finally:
            spool.close()
            with self._state:
                self._on_its_way = None
        with self._state:
            self._skipped += self._passed_over(made)
            self._spared += staged.nbytes - (self._sent - before)
            self._drained += 1
            self._error = None
            self._set_drained(made)
        self._refuse_given_up()
        self._site.collect()
        self._told.clear()

    def _set_drained(self, made: Manifest) -> None:
        self._version, self._step, self._time_ns = made.version, made.step, made.time_ns
        self._moved_at = time.monotonic()
        self._state.notify_all()

    # ---- with the state's lock

    def _reached(self, version: int) -> bool:
        return (self._before if self._version is None else self._version) >= version

    def _note_newest(self) -> None:
        core = self._core
        if core is not None:
            with contextlib.suppress(ClosedError):
                self._newest = _newest(core)

    # ---- told by the thread's work

    def _on_read(self, nbytes: int) -> None:
        with self._state:
            self._read += nbytes
            self._moved_at = time.monotonic()
        self._refuse_given_up()

    def _on_sent(self, nbytes: int) -> None:
        with self._state:
            self._sent += nbytes
            self._moved_at = time.monotonic()
        self._refuse_given_up()

    def _refuse_given_up(self) -> None:
        if self._given_up:
            raise _GivenUp

    def _wait_turn(self, nbytes: int) -> None:
        end = time.monotonic() + self._pace.take(nbytes)
        with self._state:
            while (left := end - time.monotonic()) > 0 and not self._given_up:
                self._moved_at = time.monotonic()  # it is held back, and not stuck
                self._state.wait(left)
        self._refuse_given_up()

    def _sleep(self, seconds: float) -> None:
        with self._state:
            if self._hurried or self._closing:
                seconds = 0.0 if seconds == _LOOK_SECONDS else min(seconds, _FIRST_PAUSE)
            if seconds and not self._given_up:
                self._state.wait(seconds)
            self._hurried = False

    def _note_failure(self, error: Exception) -> None:
        kind = (type(error), getattr(error, "errno", None))
        with self._state:
            self._error = str(error)
            self._failures += 1
            told = kind in self._told
            self._told.add(kind)
        if not told:
            logger.warning("drain: %s has not the newest version: %s", self._drain.remote, error)


def check_drain(drain: Any) -> None:
    """Raises what is wrong with it that can be known without asking the remote."""
    if not isinstance(drain, Drain):
        raise BadArgument(f"drain={drain!r} is no Drain", "Use tensorshelf.Drain(directory).")
    open_remote(drain.remote)


def _newest(core: _core.Shelf) -> tuple[int, int]:
    """The durable version's number, and when it was persisted."""
    versions = core.versions()
    return (versions[-1]["version"], versions[-1]["time_ns"]) if versions else (0, 0)


def _spool_folder(drain: Drain, path: str) -> str:
    """On a local disk; what is there is not lost when the remote is slow."""
    if drain.spool is not None:
        return os.path.expanduser(drain.spool)
    return os.path.dirname(os.path.abspath(path)) if os.path.isfile(path) else tempfile.gettempdir()
