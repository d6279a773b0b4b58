"""Copies that lack what all ranks go on from, made anew behind a start: not by the next save."""

import logging
import time
from collections.abc import Callable

from tensorshelf import _core
from tensorshelf._group.copies import Copy
from tensorshelf._group.moments import Moments
from tensorshelf.errors import ShelfError

logger = logging.getLogger("tensorshelf")


class Renewal:
    """The renewal of the copies of one rank's part. For the group's thread, before its first save.

    A copy is of the epoch before, or none, until all of it has come: then it is flipped, as one
    version of the keeper's shelf. There is nothing to decide on: the epoch is committed already.
    """

    def __init__(self, copies: list[Copy], shelf: _core.Shelf, epoch: int) -> None:
        self._copies = copies
        self._shelf = shelf
        self._epoch = epoch

    def run(
        self, moments: Moments, *, save_waits: Callable[[], bool], stopped: Callable[[], bool]
    ) -> None:
        """Until all have it. A save that waits sends all of the part itself. What fails is told in
        the log, and the next save tries again.
        """
        told = moments.begin(self._epoch, self._shelf.step or 0)
        for copy in self._copies:
            if save_waits() or stopped():
                return
            began = time.monotonic()
            try:
                nbytes = copy.renew(self._shelf, self._epoch, stopped)
            except ShelfError as error:
                logger.warning(
                    "group: the copy with rank %d is not made anew before the next save: %s",
                    copy.pair.keeper,
                    error,
                )
                continue
            told.copied(copy.pair.keeper, nbytes, began)
            logger.info(
                "group: the copy with rank %d is made anew, of epoch %d, %d bytes",
                copy.pair.keeper,
                self._epoch,
                nbytes,
            )
