"""All copies that concern a rank: those of its part, and those that it keeps. Of one start."""

import contextlib
import logging
import os
from typing import NamedTuple, Protocol

from tensorshelf._group import copies
from tensorshelf._group.copies import Copy, Pair
from tensorshelf._group.kept import Keeper, KeptShelf, kept_beside, kept_path
from tensorshelf._group.link import Links
from tensorshelf._group.start import Agreed
from tensorshelf._group.wire import Store, Wire
from tensorshelf._state.paths import RECORD
from tensorshelf.errors import CorruptError, NotAShelf, TruncatedError

logger = logging.getLogger("tensorshelf")


class Shelf(copies.Shelf, Protocol):
    """What is asked of a rank's own shelf."""

    _path: str


class Options(NamedTuple):
    """What a Group was given."""

    replicate: int  # copies of each part
    folder: str | None  # in which copies of others lie; None: beside the rank's shelf
    most: float | None  # bytes a second that a rank sends


class Replicas:
    """For one thread, but what ``copies`` has, which is for another."""

    def __init__(self, rank: int, path: str, options: Options) -> None:
        self._rank = rank
        self._path = path
        self._options = options
        self._found: dict[int, KeptShelf] = {}
        self._keepers: list[Keeper] = []
        self.copies: list[Copy] = []  # of this rank's part

    def open(self) -> dict[int, KeptShelf]:
        """Those that are there of other ranks' parts, by whose they are."""
        if self._options.replicate:
            for owner, path in kept_beside(self._path, self._options.folder).items():
                with _or_put_aside(path):
                    self._found[owner] = KeptShelf(path)
        return self._found

    def begin(
        self, shelf: Shelf, agreed: Agreed, store: Store, prefix: str, seconds: float
    ) -> None:
        """Keeps what this rank is to keep, and has its own shelf back where that is lost."""
        links = Links(store, prefix, seconds=seconds, most=self._options.most)
        rank = self._rank
        for owner in _owners(rank, agreed):
            kept = self._found.pop(owner, None)
            kept = kept or KeptShelf(kept_path(self._path, self._options.folder, owner))
            self._keepers.append(Keeper(Pair(owner, rank), kept, Wire(store, prefix), links))
        self._close_found()  # of others, who have theirs elsewhere now
        wire = Wire(store, prefix)
        made = {
            keeper: Copy(Pair(rank, keeper), wire, seconds, links)
            for keeper in {*agreed.keepers[rank], *agreed.sources(rank)}
        }
        self.copies = [made[keeper] for keeper in agreed.keepers[rank]]
        for source in agreed.sources(rank):
            logger.warning("group: %s is had back from its copy with rank %d", self._path, source)
            made[source].fetch(shelf)
        for keeper, copy in made.items():
            if keeper in agreed.holding[rank] and _is_of_the_group(shelf):
                copy.holds = shelf._core.version
            if copy not in self.copies:
                copy.bye()

    def mend(self, shelf: Shelf) -> bool:
        """Has the whole of the shelf's newest version back; False where no copy is of that."""
        for copy in self.copies:
            if copy.holds == shelf._core.version:
                logger.warning(
                    "group: %s is damaged, and had back from its copy with rank %d",
                    self._path,
                    copy.pair.keeper,
                )
                copy.fetch(shelf)
                for other in self.copies:
                    if other.holds is not None:
                        other.holds = shelf._core.version
                return True
        return False

    def close(self, wire: Wire, seconds: float, *, settled: bool) -> None:
        """Waits so long for owners of what is kept here."""
        if settled:
            for copy in self.copies:
                copy.bye()
        for keeper in self._keepers:
            keeper.close(wire, seconds)
        self._close_found()
        self.copies, self._keepers = [], []

    def _close_found(self) -> None:
        while self._found:
            self._found.popitem()[1].core.close()

    def keeps(self) -> tuple[int, ...]:
        """The ranks whose parts are kept here."""
        return tuple(keeper.pair.owner for keeper in self._keepers)


def _is_of_the_group(shelf: Shelf) -> bool:
    """The newest version, and none that was committed beside it: each save writes the record."""
    record = shelf._core.find(RECORD)
    return record is not None and record._info().version == shelf._core.version


def _owners(rank: int, agreed: Agreed) -> list[int]:
    """Whose parts this rank keeps; and whose it only gives back."""
    return [
        owner
        for owner, keepers in enumerate(agreed.keepers)
        if rank in keepers or rank in agreed.sources(owner)
    ]


@contextlib.contextmanager
def _or_put_aside(path: str):  # type: ignore[no-untyped-def]
    """A copy that cannot be opened is none; the next is made in its place."""
    try:
        yield
    except (CorruptError, NotAShelf, TruncatedError) as error:
        os.replace(path, f"{path}.damaged")
        logger.warning("group: a copy is put aside as %s.damaged: %s", path, error)
