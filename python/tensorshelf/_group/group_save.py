"""A rank's part of a save, and what becomes of it."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable

from tensorshelf._core import CommitResult, PendingSave
from tensorshelf._group import council
from tensorshelf._group.drift import Chunk
from tensorshelf._group.part import Part
from tensorshelf.errors import ForkedError, UnresolvedError

logger = logging.getLogger("tensorshelf")

_TICK = 0.05  # seconds between two looks for Ctrl-C


class _Once:
    """As an Event, and signals may come at any moment. That has an ordinary lock: Ctrl-C in the
    middle of its wait() may leave it locked, and what a signal calls there would wait for itself.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._until_set = threading.Lock()  # that nobody keeps, once it is let go
        self._until_set.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        with contextlib.suppress(RuntimeError):  # it was let go
            self._until_set.release()

    def wait(self, seconds: float) -> bool:
        if not self._is_set and self._until_set.acquire(timeout=seconds):
            self._until_set.release()
        return self._is_set


class GroupSave:
    """A rank's part of a save, and what becomes of that: as PendingSave, for any thread.

    ``pending`` is what a pipeline copies; None where all is prepared already. ``every`` is the
    interval at which this rank would save, 0 where it says nothing of that. ``where`` its part
    is. ``alike`` is of what ranks hold alike, where that is saved in pieces.
    """

    def __init__(
        self,
        part: Part,
        step: int,
        pending: PendingSave | None,
        *,
        timeout: float,
        awaited: Callable[[], str],
        every: int = 0,
        where: str = "",
        alike: Chunk | None = None,
    ) -> None:
        self.part = part
        self.every = every
        self._where = where
        self.step = step
        self.alike = alike
        self._pending = pending
        self._timeout = timeout
        self._awaited = awaited
        self._end = _Once()
        self._settled = _Once()
        self._result: CommitResult | None = None
        self.error: Exception | None = None  # that it came to nothing by
        self._pid = os.getpid()
        self.voted: bool | None = None  # for it: prepared, in its copies too; or against it

    def staged(self) -> bool:
        return self._pending is None or self._pending.staged()

    def wait_staged(self) -> None:
        if self._pending is not None:
            self._pending.wait_staged()

    def wait_prepared(self) -> None:
        if self._pending is not None:
            self._pending.wait_prepared()

    def done(self) -> bool:
        """True when all ranks have it, durable, or it came to nothing."""
        return self._end.is_set()

    def has_failed(self) -> bool:
        """True when it came to nothing."""
        return self._end.is_set() and self.error is not None

    def wait(self) -> CommitResult:
        """Until it is done. Raises what it came to nothing by, and UnresolvedError where nothing
        was decided in time.
        """
        self._wait(self._end)
        if self.error is not None:
            raise self.error
        assert self._result is not None
        return self._result

    def wait_settled(self) -> None:
        """Until nothing of it is left to be resolved, whatever it came to."""
        self._wait(self._settled)

    def _wait(self, event: _Once) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(
                "the save was begun by the parent of this process", "Wait for it there."
            )
        begin, told = time.monotonic(), False
        while not event.wait(_TICK):
            waited = time.monotonic() - begin
            if waited >= self._timeout:
                raise self.undecided(f"for {self._timeout:g} s")
            if waited >= council.TELL_AFTER and not told:
                told = True
                logger.warning("group: waiting: %s", self.undecided(f"for {waited:.0f} s").what)

    def settled(self) -> None:
        self._settled.set()

    def is_settled(self) -> bool:
        return self._settled.is_set()

    def undecided(self, when: str) -> UnresolvedError:
        own = f"The part of rank {self.part.rank}, in {self._where}, is"
        if self.voted:
            own += " prepared, and the next start of the job decides."
        elif self.voted is False:
            own += " dropped, for this rank voted against it."
        else:
            own += " not prepared yet, or its copies are not: this rank has not voted either."
        return UnresolvedError(
            f"{self._awaited()} not voted on the save of step {self.step} {when}",
            f"Slow, stopped or gone. {own} Group(timeout=) says how long to wait, and Group.info() "
            "on rank 0 who has not voted.",
        )

    def ended(self, end: CommitResult | Exception) -> None:
        """Once; what comes later is dropped."""
        if self._end.is_set():
            return
        if isinstance(end, Exception):
            self.error = end
        else:
            self._result = end
        self._end.set()

    def times(self) -> dict[str, float]:
        return {} if self._pending is None else self._pending.times()

    def copies(self) -> list[tuple[int, int, float, float]]:
        return [] if self._pending is None else self._pending.copies()
