"""scrub(): a walk over a shelf in the background, at a bounded rate, that tells what is damaged.

The thread knows the native shelf, and not the one that users have: that one may be let go.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorshelf._core import Shelf as NativeShelf
from tensorshelf._info import Damage, VerifyReport, damage_from, report_from
from tensorshelf._size import format_size
from tensorshelf.errors import (
    AbandonedError,
    ClosedError,
    LeasedError,
    ShelfError,
    StaleError,
    UncommittedError,
    UnresolvedError,
)

logger = logging.getLogger("tensorshelf")

_AGAIN = 1.0  # seconds to the next try of a repair that was refused
_TRIES = 60  # in one pass
_LEAST_PAUSE = 0.01  # a shelf without tensors is walked over in no time
_FOR_NOW = (AbandonedError, LeasedError, UncommittedError, UnresolvedError)


class _Stopped(Exception):
    """Ends a pass: somebody asked for it."""


@dataclass(frozen=True)
class ScrubReport:
    """How far a ``Scrub`` is; true where its last whole pass left nothing damaged, nor this one."""

    running: bool
    passes: int  # over all of the shelf, that came to their end
    nbytes: int  # that were read and checked since it began
    damage: tuple[Damage, ...]  # that the pass under way has found, or the last one left
    last: VerifyReport | None  # of the last pass that came to its end; with what was restored
    error: Exception | None  # that ended it, or kept it from restoring something till now

    def __bool__(self) -> bool:
        return self.error is None and not self.damage and bool(self.last)


@dataclass(frozen=True)
class ScrubOptions:
    """What ``scrub()`` was asked for."""

    bytes_per_second: int
    repair: bool
    on_damage: Callable[[Damage], object] | None
    passes: int | None
    pause: float


class Pace:
    """Waits so that no more bytes are read in a second than it was told, also after a delay."""

    def __init__(
        self,
        bytes_per_second: int,
        wait: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = bytes_per_second
        self._wait = wait
        self._clock = clock
        self._next = clock()  # no sooner may be read on

    def read(self, nbytes: int) -> None:
        """So many more were read."""
        now = self._clock()
        self._next = max(self._next + nbytes / self._rate, now)  # no more is read to catch up
        self._wait(self._next - now)


class Scrub:
    """A walk over a shelf in the background; ``shelf.scrub()`` begins one.

    Any thread may call these. It ends with ``stop()``, when the shelf is closed or let go, or by
    itself, where a number of passes was asked for or something failed.
    """

    def __init__(self, core: NativeShelf, path: str, options: ScrubOptions) -> None:
        self._path = path
        self._options = options
        self._pid = os.getpid()
        self._lock = threading.Lock()  # of `stopped` and `repairing` together
        self._stopped = threading.Event()
        self._repairing = False
        self._passes = 0
        self._nbytes = 0
        self._done = 0  # of this pass
        self._damage: tuple[Damage, ...] = ()
        self._last: VerifyReport | None = None
        self._error: Exception | None = None
        self._pace = Pace(options.bytes_per_second, self._sleep)
        self._thread = threading.Thread(
            target=self._run,
            args=(core,),  # and nobody else's: it holds the file
            name="tensorshelf-scrub",
            daemon=True,
        )
        self._thread.start()

    def __repr__(self) -> str:
        found = self.report()
        state = "running" if found.running else "ended"
        damaged = f"{len(found.damage)} damaged chunks"
        return f"<Scrub {state}, {found.passes} passes, {format_size(found.nbytes)}, {damaged}>"

    @property
    def running(self) -> bool:
        """Whether it goes on; False in a forked child."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def report(self) -> ScrubReport:
        """How far it is, and what it found."""
        return ScrubReport(
            running=self.running,
            passes=self._passes,
            nbytes=self._nbytes,
            damage=self._damage,
            last=self._last,
            error=self._error,
        )

    def stop(self) -> ScrubReport:
        """Ends it, once the chunk that it is reading is read. Twice is allowed.

        A version that it is making to restore something comes to its end by itself.
        """
        if self._pid == os.getpid():
            with self._lock:
                self._stopped.set()
                repairing = self._repairing  # which may wait for what the caller is to do next
            if not repairing and threading.current_thread() is not self._thread:
                self._thread.join()
        return self.report()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it has ended (see ``passes``); False where ``timeout`` seconds pass first."""
        if self._pid == os.getpid() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self.running

    # ---- in its thread

    def _run(self, core: NativeShelf) -> None:
        try:
            while self._passes != self._options.passes:
                if self._passes > 0:
                    self._sleep(max(self._options.pause, _LEAST_PAUSE))
                self._walk(core)
        except (_Stopped, ClosedError):
            pass
        except ShelfError as error:
            self._error = error.with_traceback(None)  # else it holds the file
            logger.error("%s: a scrub ended: %s", self._path, error)
        except Exception as error:  # of the function that is told of damage
            logger.exception("%s: a scrub ended: what it called raised", self._path)
            self._error = error.with_traceback(None)

    def _sleep(self, seconds: float) -> None:
        if self._stopped.wait(max(seconds, 0.0)):
            raise _Stopped

    def _walk(self, core: NativeShelf) -> None:
        self._done, self._damage = 0, ()
        try:
            found = core.verify(self._read, self._found)
        except StaleError as error:  # its writer was faster: what was found counts for nothing
            logger.info("%s: a scrub begins anew: %s", self._path, error)
            self._damage = ()
            self._sleep(_AGAIN)
            return
        self._last = report_from(found)
        if self._options.repair and any(damage.healable for damage in self._last.damage):
            self._repair(core, found)
        self._damage = self._last.left
        self._passes += 1

    def _read(self, done: int, total: int) -> None:
        nbytes, self._done = done - self._done, done
        self._nbytes += nbytes
        self._pace.read(nbytes)

    def _found(self, told: dict[str, Any]) -> None:
        (damage,) = damage_from([told])
        self._damage += (damage,)
        where = " on the mirror of its medium" if damage.in_mirror else ""
        logger.error(
            "%s: chunk %d of %r is damaged%s", self._path, damage.chunk, damage.tensor, where
        )
        if self._options.on_damage is not None:
            self._options.on_damage(damage)

    def _repair(self, core: NativeShelf, found: dict[str, Any]) -> None:
        """Not while something is changed, or prepared: that passes, and it is tried again."""
        for _ in range(_TRIES):
            with self._lock:
                if self._stopped.is_set():
                    raise _Stopped
                self._repairing = True
            try:
                self._last = report_from(core.heal_found(found))
            except _FOR_NOW as error:
                self._error = error.with_traceback(None)
            else:
                self._error = None
                if self._last.healed_as is not None:
                    version, left = self._last.healed_as, len(self._last.left)
                    logger.warning(
                        "%s: damage restored as version %d, %d chunks left",
                        self._path,
                        version,
                        left,
                    )
                return
            finally:
                self._repairing = False
            self._sleep(_AGAIN)
