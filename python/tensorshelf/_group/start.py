"""What all ranks go on from: found when a job starts, before anything is loaded."""

import json
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tensorshelf import _core
from tensorshelf._group.agree import Answer, answer
from tensorshelf._group.kept import KeptShelf
from tensorshelf._group.offer import (
    Held,
    Offer,
    decoded,
    encoded,
    encoded_error,
    error_of,
    fields_of,
    held,
)
from tensorshelf._group.wire import Wire, in_short
from tensorshelf.errors import BadArgument, CorruptError, ShelfError, UnresolvedError

logger = logging.getLogger("tensorshelf")

_AGREED = "agreed"
_CAME = "came"
_SLACK = 10.0  # seconds that who waits for rank 0 gives it to find out who is missing


class Shelf(Protocol):
    """What a start asks of a shelf."""

    _core: _core.Shelf
    _path: str

    def resolve(self, decision: Any) -> Any: ...


class Rank(NamedTuple):
    """Who starts."""

    rank: int
    members: int
    node: str
    replicate: int  # copies of each part with other ranks
    timeout: float  # seconds
    partition: bool = False  # each saves a piece of what all hold alike


class Agreed(NamedTuple):
    """What follows is an epoch of this generation; ``number`` was the last one, 0 of a new job."""

    job: str
    generation: int
    number: int
    keepers: list[list[int]]  # of each rank's part
    holding: list[list[int]]  # the ranks with copies of each part, as of that epoch
    lost: list[bool]  # a rank's own shelf is not of that epoch; one of these has it
    nodes: list[str]  # of each rank

    def sources(self, rank: int) -> list[int]:
        """Who can give it back what it has lost; none where it has lost nothing."""
        return self.holding[rank] if self.lost[rank] else []


def agree_on_start(
    shelf: Shelf, open_copies: Callable[[], dict[int, KeptShelf]], wire: Wire, rank: Rank
) -> Agreed:
    """Commits or abandons what is prepared here, by what all ranks found. Blocks until all came.

    ``open_copies`` gives those of other ranks' parts that are here, by whose they are. Where this
    rank's own shelf is lost, or what it was to commit is damaged, a copy has it: that is for the
    caller to fetch.

    Raises the same on all ranks: what one of them met, UnresolvedError where one did not come,
    StaleError or ShelfNotFound where no epoch is whole, BadArgument where shelves are
    of other ranks, jobs or groups, or the store has messages of an older start.
    """
    own: ShelfError | None = None
    copies: dict[int, KeptShelf] = {}
    try:
        copies = open_copies()
        refuse_second_start(wire, rank.members)
        wire.put(_offer_key(rank.rank), encoded(_offer(shelf, copies, rank)))
    except ShelfError as error:
        own = error
        wire.put(_offer_key(rank.rank), encoded_error(error, f"{shelf._path} on {rank.node}"))
    if rank.rank == 0:
        wire.put(_AGREED, _decided(wire, rank.members, rank.timeout))
    try:
        told = json.loads(wire.take(_AGREED, seconds=rank.timeout + _SLACK))
    except (RuntimeError, TimeoutError) as error:
        raise UnresolvedError(
            f"rank 0 did not say within {rank.timeout:g} s what all go on from: {in_short(error)}",
            "Look for what became of it. Group(timeout=) says how long to wait.",
        ) from error
    if own is not None:
        raise own
    if "error" in told:
        raise error_of(told["error"])
    return _resolved(shelf, copies, rank.rank, Answer(*told["answer"]))


def refuse_second_start(wire: Wire, members: int) -> None:
    """What an older start had agreed on would be taken for what this one has."""
    if wire.count(_CAME) > members:
        raise BadArgument(
            "the group's store has messages of an older start of the job",
            "Give each start a store of its own, or a torch.distributed.PrefixStore in it with "
            "another prefix; and start all ranks anew, not one alone.",
        )


def _offer_key(rank: int) -> str:
    return f"offer/{rank}"


def _offer(shelf: Shelf, copies: dict[int, KeptShelf], rank: Rank) -> Offer:
    try:
        own = held(shelf._core, shelf._path)
    except CorruptError as error:
        if rank.replicate == 0:
            raise
        logger.warning("group: %s counts as lost: %s", shelf._path, error)
        own = Held(shelf._path, None, None, None)
    return Offer(
        rank.node,
        rank.replicate,
        own,
        {owner: held(copy.core, copy.path) for owner, copy in copies.items()},
        rank.partition,
    )


def _resolved(shelf: Shelf, copies: dict[int, KeptShelf], rank: int, answer: Answer) -> Agreed:
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
        answer.job,
        answer.generation,
        answer.number,
        answer.keepers,
        answer.holding,
        lost,
        answer.nodes,
    )


# ---- on rank 0


def _decided(wire: Wire, members: int, timeout: float) -> bytes:
    try:
        return json.dumps({"answer": answer(_offers(wire, members, timeout))}).encode()
    except ShelfError as error:
        return json.dumps({"error": fields_of(error)}).encode()


def _offers(wire: Wire, members: int, timeout: float) -> list[Offer]:
    offers = []
    for rank in range(members):
        try:
            data = wire.take(_offer_key(rank), seconds=timeout)
        except (RuntimeError, TimeoutError) as error:
            missing = [str(each) for each in range(members) if not wire.has(_offer_key(each))]
            raise UnresolvedError(
                f"within {timeout:g} s {len(missing)} of {members} ranks did not say what they "
                f"hold: {', '.join(missing[:5])}",
                "All ranks call resume(). Group(timeout=) says how long to wait.",
            ) from error
        try:
            offers.append(decoded(data))
        except ShelfError as error:
            raise type(error)(f"rank {rank}, {error.what}", error.remedy) from error
    return offers
