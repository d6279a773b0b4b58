"""The shelf of one rank, as this process holds it: opened when needed, closed when a save fails.

What failed is not mended: closing drops it, and the next opening is a recovery, which says what is
true. Writers of one path share a home, and a reader of this process finds it.
"""

import contextlib
import errno
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tensorshelf._numbers import is_number
from tensorshelf._open import open as open_shelf
from tensorshelf._options import BlockOptions, new_options
from tensorshelf._shelf import Shelf
from tensorshelf._size import parse_size
from tensorshelf.dcp._names import RECORD
from tensorshelf.dcp._shares import Share
from tensorshelf.errors import BadArgument, ClosedError, ShelfBusy, ShelfError, UnsupportedError

logger = logging.getLogger("tensorshelf")

_PAUSE = 0.02  # seconds between two looks at a shelf that another process holds


@dataclass(frozen=True)
class Options:
    """How a writer would have its rank's shelf opened; None of what it leaves to others."""

    size: int | str | None = None
    tier: str | None = None
    block: BlockOptions | None = None
    keep: int | None = None
    threads: int | None = None
    keep_unchanged: bool | None = None
    # Seconds to wait for another process that has it open: each writer's own.
    lock_wait: float = field(default=10.0, compare=False)

    def __post_init__(self) -> None:
        known_tier = "auto" if self.tier is None else self.tier
        new_options(self.size, known_tier, self.block, self.keep, None, None, self.threads)
        check_wait(self.lock_wait)

    def open(self, path: str) -> Shelf:
        """The shelf at a path. Raises ShelfBusy where another process has it."""
        return open_shelf(path, **self._chosen())

    def are_of(self, opened: "Options") -> bool:
        """Whether a shelf that was opened by those is as these would have it."""
        defaults = Options(tier="auto", block=BlockOptions(), keep_unchanged=False)
        there = defaults._chosen() | opened._chosen()
        return all(value == there.get(name) for name, value in self._chosen().items())

    def _chosen(self) -> dict[str, Any]:
        """What is not left out, with sizes in bytes, however they were written."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        chosen = {name: value for name, value in given.items() if value is not None}
        if self.size is not None:
            chosen["size"] = parse_size(self.size)
        for name, value in chosen.items():
            if isinstance(value, BlockOptions):
                chosen[name] = replace(value, buffer=parse_size(value.buffer, "buffer"))
        return chosen


def check_wait(lock_wait: Any) -> None:
    """Raises BadArgument where it is no time to wait."""
    if not is_number(lock_wait, least=0):
        raise BadArgument(f"lock_wait={lock_wait!r} is no time", "Give seconds: 0 or more.")


class Home:
    """One shelf. Whoever writes to it holds ``lock``."""

    def __init__(self, path: str, rank: int) -> None:
        self.path = path
        self.rank = rank
        self.lock = threading.RLock()
        self.stays_open = True  # between saves
        self.assigned: Share | None = None  # by a coordinator, for a save that is on its way
        self.turn: object = None  # of the save that began last
        self._entered = False
        self._opened = Options()  # how, where it is
        self._shelf: Shelf | None = None

    @property
    def shelf(self) -> Shelf | None:
        """The shelf, where it is open."""
        return None if self._shelf is None or self._shelf.closed else self._shelf

    @contextlib.contextmanager
    def whole(self, options: Options) -> Iterator[Shelf]:
        """The open shelf, for a part of a save: what fails in it closes the shelf.

        Raises ClosedError within another such part: a signal's handler may come there; and
        BadArgument where another writer of this process opened the shelf otherwise.
        """
        with self.lock:
            if self._entered:
                raise ClosedError(
                    f"a save into {self.path} was begun within another one",
                    "Let the one end before the next begins.",
                )
            shelf = self.shelf
            if shelf is not None and not options.are_of(self._opened):
                raise BadArgument(
                    f"{self.path} was opened by another ShelfWriter of this process, with other "
                    "options",
                    "Give all writers of a path the same, or close() the one before.",
                )
            self._entered = True
            try:
                yield self._open(options) if shelf is None else shelf
            except BaseException as error:
                error.add_note(f"This is of rank {self.rank}, whose shelf is {self.path}.")
                self.drop()
                raise
            finally:
                self._entered = False

    def close(self) -> None:
        """Lets the file go; what is prepared stays so. The next save opens it again."""
        with self.lock:
            shelf, self._shelf, self.assigned = self._shelf, None, None
            if shelf is not None:
                shelf.close()

    def discard(self, shelf: Shelf) -> None:
        """Drops what was assigned. A save that was on its way cannot be finished then."""
        self.assigned = None
        shelf.discard()

    def check_turn(self, turn: object) -> None:
        """Raises ClosedError where another save began since."""
        if turn is None or turn is not self.turn:
            raise self._overtaken()

    def take_assigned(self, expected: Share | None) -> Share:
        """What was assigned for the save that is to be committed now.

        Raises ClosedError where it is gone: it would be the record of one over values of another.
        """
        found, self.assigned = self.assigned, None
        if found is None or (expected is not None and expected != found):
            raise self._overtaken()
        return found

    def _overtaken(self) -> ClosedError:
        return ClosedError(
            f"{self.path} was closed, or another save into it began, while one was on its way",
            "Wait for a save before the next one.",
        )

    def let_go(self) -> None:
        """Closes it where it is to be open within saves alone."""
        if not self.stays_open:
            self.close()

    def drop(self) -> None:
        """Closes it behind a failure, which says more than another one would."""
        try:
            self.close()
        except ShelfError as error:
            logger.warning("%s: closing after a failed save: %s", self.path, error)

    def _open(self, options: Options) -> Shelf:
        deadline = time.monotonic() + options.lock_wait
        while True:
            try:
                shelf = self._shelf = options.open(self.path)
                break
            except ShelfBusy as error:
                wait_or_raise(error, deadline)
        self._opened = replace(options, keep=shelf.info().keep)
        _refuse_foreign(shelf, self.path)
        return shelf


def wait_or_raise(error: ShelfBusy, deadline: float) -> None:
    """Waits a moment for whoever has the shelf open, unless it is this process or too late."""
    if error.errno == errno.EDEADLK or time.monotonic() >= deadline:
        raise error
    time.sleep(_PAUSE)


def _refuse_foreign(shelf: Shelf, path: str) -> None:
    if len(shelf) and RECORD not in shelf:
        raise UnsupportedError(
            f"{path} holds tensors that no DCP save put there, and a save would delete them",
            "Give ShelfWriter another path.",
        )


_homes: "weakref.WeakValueDictionary[tuple[int, str], Home]" = weakref.WeakValueDictionary()
_adding = threading.Lock()


def home_of(path: str, rank: int) -> Home:
    """That of a path."""
    with _adding:
        key = _key(path)
        found = _homes.get(key)
        if found is None:
            found = _homes[key] = Home(path, rank)
        return found


def find_home(path: str) -> Home | None:
    """That of a path, if a writer of this process has one."""
    with _adding:
        return _homes.get(_key(path))


def homes() -> list[Home]:
    """All of this process."""
    with _adding:
        return [home for (pid, _), home in _homes.items() if pid == os.getpid()]


def _key(path: str) -> tuple[int, str]:
    return os.getpid(), os.path.realpath(path)  # a forked child has no share in its parent's
