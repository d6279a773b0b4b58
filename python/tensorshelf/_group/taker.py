"""A thread that takes votes: the coordinator's, or a relay's."""

import contextlib
import itertools
import logging
import struct
import threading
from collections.abc import Callable

from tensorshelf._group.posted import END
from tensorshelf._group.wire import Wire, in_short
from tensorshelf.errors import ShelfError

logger = logging.getLogger("tensorshelf")

_MOMENT = 1.0  # seconds


class Taker:
    """Gives ``take`` what is posted to the box, until ``end()``, or the store is gone. ``wire`` is
    its thread's own.
    """

    def __init__(self, name: str, wire: Wire, box: str, take: Callable[[bytes], None]) -> None:
        self._name = name
        self._wire = wire
        self._box = box
        self._take = take
        self._thread = threading.Thread(target=self._run, name=f"tensorshelf-{name}", daemon=True)
        self._thread.start()

    def end(self, wire: Wire) -> None:
        """Behind what was posted before. ``wire`` is the caller's."""
        with contextlib.suppress(RuntimeError):  # torch's, of its store
            wire.post(self._box, END)
            self._thread.join(_MOMENT)

    def _run(self) -> None:
        try:
            for number in itertools.count(1):
                posted = self._wire.next_of(self._box, number)
                if posted == END:
                    return
                self._take(posted)
                self._wire.done_with(self._box, number)  # behind the decision: that is waited for
        except (ShelfError, struct.error) as error:  # a vote that is none; some are RuntimeErrors
            logger.error(
                "the group's %s ends, and no save is decided any more: %s", self._name, error
            )
        except RuntimeError as error:  # torch's, of its store
            logger.debug("the group's %s ends: %s", self._name, in_short(error))
