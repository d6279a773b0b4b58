"""What all ranks go on from: found when a job starts, before anything is loaded."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tensorshelf import _core
from tensorshelf._group.agree import Answer, answer
from tensorshelf._group.council import Council
from tensorshelf._group.kept import KeptShelf
from tensorshelf._group.offer import Held, Offer, held, offer_of
from tensorshelf._group.wire import Wire
from tensorshelf._group.writers import Choice, Site
from tensorshelf.errors import CorruptError

logger = logging.getLogger("tensorshelf")


class StartShelf(Protocol):
    """What a start asks of a shelf."""

    _core: _core.Shelf
    _path: str

    def resolve(self, decision: Any) -> Any: ...


class Rank(NamedTuple):
    """Who starts."""

    rank: int
    members: int
    site: Site
    replicate: int  # copies of each part with other ranks
    timeout: float  # seconds
    partition: Choice = False  # who saves pieces of what all hold alike
    drain: str | None = None  # what of what it drains stays, in words


class Agreed(NamedTuple):
    """What follows is an epoch of this generation; ``number`` was the last one, 0 of a new job."""

    job: str
    generation: int
    number: int
    keepers: list[list[int]]  # of each rank's part
    holding: list[list[int]]  # the ranks with copies of each part, as of that epoch
    lost: list[bool]  # a rank's own shelf is not of that epoch; one of these has it
    nodes: list[str]  # of each rank
    writers: list[int]  # ranks that save pieces of what all hold alike

    def sources(self, rank: int) -> list[int]:
        """Who can give it back what it has lost; none where it has lost nothing."""
        return self.holding[rank] if self.lost[rank] else []


def agree_on_start(
    shelf: StartShelf, open_copies: Callable[[], dict[int, KeptShelf]], wire: Wire, rank: Rank
) -> Agreed:
    """Commits or abandons what is prepared here, by what all ranks found. Blocks until all came.

    ``open_copies`` gives those of other ranks' parts that are here, by whose they are. Where this
    rank's own shelf is lost, or what it was to commit is damaged, a copy has it: that is for the
    caller to fetch.

    Raises the same on all ranks: what one of them met, UnresolvedError where one did not come,
    StaleError or ShelfNotFound where no epoch is whole, BadArgument where shelves are of other
    ranks, jobs or groups.
    """
    copies: dict[int, KeptShelf] = {}

    def said() -> Offer:
        copies.update(open_copies())
        return _offer(shelf, copies, rank)._replace(queues=wire.has_queues)

    council = Council(
        wire,
        rank.rank,
        rank.members,
        rank.timeout,
        where=f"{shelf._path} on {rank.site.node}",
        asks="what they hold",
        finds="what all go on from",
        by="resume()",
    )
    return _resolved(shelf, copies, rank.rank, Answer(*council.answer(said, decided)))


def decided(said: list[Any]) -> Answer:
    """On rank 0, of what all said."""
    return answer(list(map(offer_of, said)))


def _offer(shelf: StartShelf, copies: dict[int, KeptShelf], rank: Rank) -> Offer:
    try:
        own = held(shelf._core, shelf._path)
    except CorruptError as error:
        if rank.replicate == 0:
            raise
        logger.warning("group: %s counts as lost: %s", shelf._path, error)
        own = Held(shelf._path, None, None, None)
    return Offer(
        rank.site,
        rank.replicate,
        own,
        {owner: held(copy.core, copy.path) for owner, copy in copies.items()},
        rank.partition,
        rank.drain,
    )


def _resolved(shelf: StartShelf, copies: dict[int, KeptShelf], rank: int, answer: Answer) -> Agreed:
    nothing = _core.Todo.nothing.name
    for owner, todo in answer.copy_todos[rank].items():
        if todo != nothing:
            copies[int(owner)].resolve(todo)
    lost = list(answer.lost)
    if (todo := answer.todos[rank]) != nothing:
        try:
            shelf.resolve(todo)
        except CorruptError:
            if not answer.holding[rank]:
                raise
            shelf.resolve("abandon")
            lost[rank] = True
    return Agreed(
        job=answer.job,
        generation=answer.generation,
        number=answer.number,
        keepers=answer.keepers,
        holding=answer.holding,
        lost=lost,
        nodes=answer.nodes,
        writers=answer.writers,
    )
