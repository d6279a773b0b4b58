"""Closes what is still open when the interpreter ends, so that a commit in flight is not lost."""

import atexit
import logging
import os
import weakref
from typing import Protocol

from tensorshelf._assignments import Assignments
from tensorshelf._opening import Opening


class Closable(Protocol):
    """A shelf, as seen from here."""

    _pid: int
    _path: str
    _assignments: Assignments
    _opening: Opening

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()


def close_at_exit(shelf: Closable) -> None:
    """Remembers a shelf, without keeping it alive."""
    _open.add(shelf)


def open_shelves() -> list[Closable]:
    """The shelves of this process that somebody still refers to."""
    return [shelf for shelf in list(_open) if shelf._pid == os.getpid()]


@atexit.register
def _close_all() -> None:
    for shelf in list(_open):
        if shelf._pid != os.getpid():
            continue  # a forked child owns nothing of it
        try:
            shelf.close()
        except Exception:
            logging.getLogger("tensorshelf").exception("closing at exit failed")
