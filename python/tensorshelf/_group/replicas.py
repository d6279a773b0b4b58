"""All copies that concern a rank: those of its part, and those that it keeps. Of one start."""

import contextlib
import itertools
import logging
import os
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from tensorshelf._group.copies import CopiedShelf, Copy, Pair
from tensorshelf._group.kept import Keeper, KeptShelf, kept_beside, kept_path
from tensorshelf._group.link import Links
from tensorshelf._group.offer import held
from tensorshelf._group.start import Agreed
from tensorshelf._group.wire import Store, TrainersWire, Wire
from tensorshelf._state.paths import RECORD
from tensorshelf.errors import BadArgument, CorruptError, NotAShelf, ShelfError

logger = logging.getLogger("tensorshelf")


class ReplicatedShelf(CopiedShelf, Protocol):
    """What is asked of a rank's own shelf."""

    _path: str

    def resolve(self, decision: Any) -> Any: ...


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
        self._keeps: tuple[int, ...] = ()
        self._sources: list[Copy] = []  # that have what all go on from
        self._others: list[Copy] = []  # of these, those that are kept no more
        self.copies: list[Copy] = []  # of this rank's part, from now on

    def open(self) -> dict[int, KeptShelf]:
        """Those that are there of other ranks' parts, by whose they are."""
        if self._options.replicate:
            for owner, path in kept_beside(self._path, self._options.folder).items():
                with _or_put_aside(path), contextlib.ExitStack() as closing:
                    kept = KeptShelf(path)
                    closing.callback(kept.core.close)
                    held(kept.core, path)
                    closing.pop_all()
                    self._found[owner] = kept
        return self._found

    def begin(self, agreed: Agreed, wire: TrainersWire, store: Store, seconds: float) -> None:
        """Keeps what this rank is to keep."""
        _, prefix = wire.place()
        links = Links(store, prefix, seconds=seconds, most=self._options.most)
        rank = self._rank
        self._keeps = tuple(
            owner for owner, keepers in enumerate(agreed.keepers) if rank in keepers
        )
        for owner in _owners(rank, agreed):
            kept = self._found.pop(owner, None)
            kept = kept or KeptShelf(kept_path(self._path, self._options.folder, owner))
            with _closed_where_it_fails(kept):
                own = wire.for_a_thread()
            self._keepers.append(Keeper(Pair(owner, rank), kept, own, links))
            self._keepers[-1].start()
        self._close_found()  # of others, who have theirs elsewhere now
        asked = {*agreed.keepers[rank], *agreed.holding[rank]}
        if not asked:
            return
        own = wire.for_a_thread()
        made = {
            keeper: Copy(Pair(rank, keeper), own, seconds, links, agreed.nodes[keeper])
            for keeper in asked
        }
        self.copies = [made[keeper] for keeper in agreed.keepers[rank]]
        self._sources = [made[keeper] for keeper in agreed.holding[rank]]
        self._others = [copy for copy in self._sources if copy not in self.copies]
        for copy in self._sources:
            copy.epoch = agreed.number

    def have_back(self, shelf: ReplicatedShelf, agreed: Agreed) -> None:
        """This rank's own shelf, where that is lost. All ranks have begun."""
        if agreed.sources(self._rank):
            if shelf._core.prepared() is not None:  # of what counts as lost
                shelf.resolve("abandon")
            self._fetch(shelf)
        elif _is_of_the_group(shelf):
            for copy in self._sources:
                copy.holds = shelf._core.version

    def mend(self, shelf: ReplicatedShelf) -> bool:
        """Has the whole of the shelf's newest version back; False where no copy is of that."""
        version = shelf._core.version
        self._sources = [copy for copy in self._sources if copy.holds == version]
        if self._sources:
            self._fetch(shelf)
        return bool(self._sources)

    def _fetch(self, shelf: ReplicatedShelf) -> None:
        """From the first that can; they all have the same."""
        failed: ShelfError | None = None
        untried = list(self._sources)
        while untried:
            copy = untried.pop(0)
            logger.warning(
                "group: %s is had back from its copy with rank %d", self._path, copy.pair.keeper
            )
            try:
                copy.fetch(shelf)
            except ShelfError as error:
                logger.warning("group: that cannot be had: %s", error)
                failed = error
                copy.holds = copy.epoch = None  # all of it is sent
            else:
                break
        else:
            assert failed is not None
            raise failed
        for other in untried:
            other.holds = shelf._core.version

    def lacking(self, epoch: int) -> list[Copy]:
        """The copies of this rank's part that are not of that epoch."""
        return [copy for copy in self.copies if copy.epoch != epoch]

    def close(self, wire: Wire, seconds: float, *, settled: bool) -> None:
        """Waits so long for owners of what is kept here."""
        if settled:
            for copy in (*self.copies, *self._others):
                copy.bye()
        self._close_found()  # first, for the store may be what is gone
        for keeper in self._keepers:
            keeper.close(wire, seconds)
        self.copies, self._others, self._sources, self._keepers = [], [], [], []

    def _close_found(self) -> None:
        while self._found:
            self._found.popitem()[1].core.close()

    def keeps(self) -> tuple[int, ...]:
        """The ranks whose parts are kept here."""
        return self._keeps


def _is_of_the_group(shelf: ReplicatedShelf) -> bool:
    """The newest version, and none that was committed beside it: each save writes the record."""
    record = shelf._core.find(RECORD)
    return record is not None and record._info().version == shelf._core.version


def _owners(rank: int, agreed: Agreed) -> list[int]:
    """Whose parts this rank keeps; and those of which it has a copy that may be asked for."""
    return [
        owner
        for owner, keepers in enumerate(agreed.keepers)
        if rank in keepers or rank in agreed.holding[owner]
    ]


@contextlib.contextmanager
def _closed_where_it_fails(kept: KeptShelf) -> Iterator[None]:
    try:
        yield
    except BaseException:
        kept.core.close()
        raise


@contextlib.contextmanager
def _or_put_aside(path: str) -> Iterator[None]:
    """A copy that cannot be opened is none; the next is made in its place."""
    try:
        yield
    except (BadArgument, CorruptError, NotAShelf) as error:
        aside = f"{path}.damaged"
        for number in itertools.count(2):  # what was put aside before may be the last there is
            if not os.path.lexists(aside):
                break
            aside = f"{path}.damaged-{number}"
        os.rename(path, aside)
        logger.warning("group: a copy is put aside as %s: %s", aside, error)
