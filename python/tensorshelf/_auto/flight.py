"""The save on its way, and what becomes of it.

A failure is raised by ``hear()`` or ``wait()``, which ``step()`` and ``wait()`` of autosave call,
and goes from there by one way: ``failed()`` notes it, and ``on_error`` says whether it is raised
or told (``notices.py``). What the gate meets is kept for them, for an optimizer that is about to
step is no place to raise it. What a signal meets is told in the log at once, and raised by them
where the process goes on.
"""

import contextlib
import logging
import os
import time

from tensorshelf._auto.ending import note_besides
from tensorshelf._auto.feed import NAP_SECONDS, Feed
from tensorshelf._auto.run import Run
from tensorshelf._auto.timeline import Timeline
from tensorshelf._commit import Commit
from tensorshelf.errors import ShelfError

logger = logging.getLogger("tensorshelf")


class Flight:
    """The last save of one autosave. For one thread, and for signals that end its calls.

    ``deadline``: seconds that a signal waits for it. ``all_heard``: what became of each save is
    asked for, also of one behind which another was begun; without, the pipeline tells of those.
    """

    def __init__(
        self, feed: Feed, timeline: Timeline, *, deadline: float, all_heard: bool = False
    ) -> None:
        self._feed = feed
        self._timeline = timeline
        self._deadline = deadline
        self._all_heard = all_heard
        self.commit: Commit | None = None  # until somebody heard what became of it
        self._overtaken: list[Commit] = []  # that others were begun behind, the oldest first
        self._met: ShelfError | None = None  # by the gate
        self._lost: Commit | None = None  # of a group: until it is staged
        self._pid = os.getpid()

    def begin(self, run: Run, step: int) -> Commit:
        """Saves, in the background."""
        before, self.commit = self.commit, self._feed.save(run.shelf, run.state, step)
        self._feed.taken()
        if before is not None and self._all_heard:
            self._overtaken.append(before)
        return self.commit

    def _find_lost(self) -> None:
        """A save that was begun while a signal's handler raised: it goes on, and copies what the
        gate is to keep as it is.
        """
        lost = self._feed.lost()
        if lost is None:
            return
        if self._all_heard:
            self._lost = lost  # the others know of it, and tell what becomes of it
        else:
            self.commit = lost
        self._feed.taken()

    def has_landed(self) -> bool:
        """True when nothing is on its way."""
        self._find_lost()
        return self.commit is None or self.commit.done()

    def gate(self) -> None:
        """Waits until what is saved may change."""
        if os.getpid() != self._pid:
            return  # a child has its own copy of all
        self._find_lost()
        if self._lost is not None:
            with contextlib.suppress(ShelfError):
                self._lost.wait_staged()
            self._lost = None
        commit = self.commit
        if commit is None or commit.staged():
            return
        begin = time.monotonic()
        try:
            commit.wait_staged()
        except ShelfError as error:
            self._met = error
            if self._all_heard:
                self.commit = None  # else it is told once more
        finally:
            self._timeline.waited(begin, time.monotonic())

    def hear(self) -> None:
        """Raises what the gate met, or what the save failed with where that is known by now."""
        self._find_lost()
        self._raise_met()
        while self._overtaken and self._overtaken[0].done():
            self._overtaken.pop(0).wait()
        commit = self.commit
        if commit is None or not commit.done():
            return
        self.commit = None
        commit.wait()
        self._feed.note(None)

    def wait(self) -> None:
        """Until it is durable. Raises what it failed with, or what the gate met."""
        self._find_lost()
        self._raise_met()
        failures: list[ShelfError] = []
        while (commit := self._overtaken[0] if self._overtaken else self.commit) is not None:
            try:
                commit.wait()  # where a signal ends it, the gate still knows of it
            except ShelfError as error:
                if error not in failures:
                    failures.append(error)
                if not (self._all_heard and commit.done()):
                    break
            if self._overtaken:
                del self._overtaken[0]
            else:
                self.commit = None
                if not failures:
                    self._feed.note(None)
        for other in failures[1:]:
            note_besides(failures[0], other)
        if failures:
            raise failures[0]

    def _raise_met(self) -> None:
        met, self._met = self._met, None
        if met is not None:
            raise met

    def failed(self, error: ShelfError) -> None:
        """Notes what was raised here, or by ``begin()``."""
        if self.commit is not None and self.commit.done() and not self._all_heard:
            self.commit = None  # else the gate waits for it, whatever else failed
        self._feed.note(error)

    def land(self, signal: int) -> None:
        """Before a signal does what it does."""
        self._find_lost()
        commit = self.commit
        if commit is None:
            return
        end = time.monotonic() + self._deadline
        while not commit.done() and time.monotonic() < end:
            time.sleep(NAP_SECONDS)
        landed = "may be lost: the version before stands"
        if commit.done():
            try:
                commit.wait()
                landed = "is durable"
            except ShelfError as error:
                landed = f"failed, and the version before stands: {error}"
        logger.warning("signal %d: what was being saved %s", signal, landed)
