"""How a shelf ends: closed by who opened it, or let go. What is dropped, or failed, is told.

Import its functions, not the module: at the interpreter's end modules that others refer to are
emptied, and a shelf may be let go later.
"""

import contextlib
import logging
import os
from typing import Protocol
from weakref import WeakSet

from tensorshelf._auto.feed import Feed
from tensorshelf._commit import SaveOnItsWay
from tensorshelf._core import PendingCommit
from tensorshelf._core import Shelf as NativeShelf
from tensorshelf._scrub import Scrub
from tensorshelf._versions import PinnedVersion
from tensorshelf.errors import ShelfError

logger = logging.getLogger("tensorshelf")


class Ending(Protocol):
    """A shelf, as seen from here."""

    _core: NativeShelf
    _feed: Feed | None
    _flight: PendingCommit | SaveOnItsWay | None
    _path: str
    _pid: int
    _pins: WeakSet[PinnedVersion]
    _scrub: Scrub | None


def close_shelf(shelf: Ending) -> None:
    """Raises what failed in the background."""
    _end_scrub(shelf)
    try:
        if shelf._feed is not None:
            shelf._feed.close()
    finally:
        try:
            _warn_of_dropped(shelf, "closed")
        finally:
            for held in list(shelf._pins):  # for which it would wait
                held.release()
            shelf._core.close()  # whatever a log handler raised: it holds the file


def let_go(shelf: Ending) -> None:
    """Nobody refers to it any more, and nobody can be raised at: what failed is in the log.

    The native half lets the file go by itself.
    """
    _end_scrub(shelf)
    _end_feed(shelf)
    _await_flight(shelf)
    _tell_of_failure(shelf)
    _warn_of_dropped(shelf, "let go, not closed,")


def _end_scrub(shelf: Ending) -> None:
    if shelf._scrub is not None:
        shelf._scrub.stop()


def _end_feed(shelf: Ending) -> None:
    try:
        if shelf._feed is not None:
            shelf._feed.close()
    except ShelfError as error:
        logger.error("%s was let go, and nothing was saved: %s", shelf._path, error)


def _await_flight(shelf: Ending) -> None:
    """What it fails with is asked for next: who waited for it may have been told."""
    if shelf._flight is not None and shelf._pid == os.getpid():
        with contextlib.suppress(ShelfError):
            shelf._flight.wait()


def _tell_of_failure(shelf: Ending) -> None:
    if shelf._core.closed or shelf._pid != os.getpid():
        return
    if failure := shelf._core.unheard_failure():
        logger.error("%s: let go after a commit in the background: %s", shelf._path, failure)


def _warn_of_dropped(shelf: Ending, how: str) -> None:
    if not shelf._core.closed and shelf._pid == os.getpid() and shelf._core.has_uncommitted():
        logger.warning(
            "%s: %s with assignments that were never persisted; they are dropped",
            shelf._path,
            how,
        )
