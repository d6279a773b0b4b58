"""What all ranks go on from: found when a job starts, before anything is loaded."""

import json
import secrets
import uuid
from typing import Any, NamedTuple, Protocol

from tensorshelf import _core, errors
from tensorshelf._group.part import KEY, Part, part_of_mark, part_of_state
from tensorshelf._group.wire import Wire, in_short
from tensorshelf._info import Prepared
from tensorshelf._state.paths import RECORD
from tensorshelf.errors import BadArgument, ShelfError, UnknownName, UnresolvedError

_AGREED = "agreed"
_CAME = "came"
_SLACK = 10.0  # seconds that who waits for rank 0 gives it to find out who is missing


class Shelf(Protocol):
    """What a start asks of a shelf."""

    _path: str

    def __contains__(self, name: object) -> bool: ...

    def load(self, keys: str) -> Any: ...

    @property
    def prepared(self) -> Prepared | None: ...

    def resolve(self, decision: Any) -> Any: ...


class Agreed(NamedTuple):
    """What follows is an epoch of this generation; ``number`` was the last one, 0 of a new job."""

    job: str
    generation: int
    number: int


class Offer(NamedTuple):
    """What one shelf holds."""

    path: str
    committed: Part | None
    prepared: Part | None
    step: int | None  # of what is prepared

    def parts(self) -> list[Part]:
        return [part for part in (self.committed, self.prepared) if part is not None]


def agree_on_start(shelf: Shelf, wire: Wire, rank: int, members: int, timeout: float) -> Agreed:
    """Commits or abandons what is prepared here, by what all ranks found. Blocks until all came.

    Raises the same on all ranks: what one of them met, UnresolvedError where one did not come,
    CorruptError, StaleError or UnknownName where no epoch is whole, BadArgument where shelves are
    of other ranks, jobs or groups, or the store has messages of an older start.
    """
    own: ShelfError | None = None
    try:
        _refuse_second_start(wire, members)
        wire.put(_offer_key(rank), _encoded(_offer(shelf)))
    except ShelfError as error:
        own = error
        wire.put(_offer_key(rank), json.dumps({"error": _as_json(error)}).encode())
    if rank == 0:
        wire.put(_AGREED, _decided(wire, members, timeout))
    try:
        answer = json.loads(wire.take(_AGREED, seconds=timeout + _SLACK))
    except (RuntimeError, TimeoutError) as error:
        raise UnresolvedError(
            f"rank 0 did not say within {timeout:g} s what all go on from: {in_short(error)}",
            "Look for what became of it. Group(timeout=) says how long to wait.",
        ) from error
    if own is not None:
        raise own
    if "error" in answer:
        raise _error(answer["error"])
    todo = answer["todos"][rank]
    if todo != _core.Todo.nothing.name:
        shelf.resolve(todo)
    return Agreed(*answer["agreed"])


def _refuse_second_start(wire: Wire, members: int) -> None:
    """What an older start had agreed on would be taken for what this one has."""
    if wire.count(_CAME) > members:
        raise BadArgument(
            "the group's store has messages of an older start of the job",
            "Give each start a store of its own, or a torch.distributed.PrefixStore in it with "
            "another prefix; and start all ranks anew, not one alone.",
        )


def _offer_key(rank: int) -> str:
    return f"offer/{rank}"


def _offer(shelf: Shelf) -> Offer:
    committed = _committed(shelf) if RECORD in shelf else None
    waiting = shelf.prepared
    prepared = None if waiting is None else part_of_mark(waiting.id)
    if waiting is not None and prepared is None:
        raise UnresolvedError(
            f"{shelf._path} has version {waiting.version} prepared, and no group did that",
            "Decide on it with resolve(), as whoever prepared it would.",
        )
    return Offer(shelf._path, committed, prepared, None if waiting is None else waiting.step)


def _committed(shelf: Shelf) -> Part:
    try:
        return part_of_state(shelf.load(KEY)[KEY])
    except UnknownName as error:
        raise BadArgument(
            f"{shelf._path} holds a run that no group saved",
            "Give the group a shelf of its own.",
        ) from error


def _encoded(offer: Offer) -> bytes:
    return json.dumps({"offer": offer}).encode()


def _decoded(data: bytes) -> Offer:
    content = json.loads(data)
    if "error" in content:
        raise _error(content["error"])
    path, committed, prepared, step = content["offer"]
    return Offer(path, _part(committed), _part(prepared), step)


def _part(found: list[Any] | None) -> Part | None:
    return None if found is None else Part(*found)


def _as_json(error: ShelfError) -> list[str]:
    return [error.code, error.what, error.remedy]


def _error(found: list[str]) -> ShelfError:
    code, what, remedy = found
    return errors.from_core(code, what, remedy, 0)


# ---- on rank 0


def _decided(wire: Wire, members: int, timeout: float) -> bytes:
    try:
        agreed, todos = _agreed(_offers(wire, members, timeout))
    except ShelfError as error:
        return json.dumps({"error": _as_json(error)}).encode()
    return json.dumps({"agreed": agreed, "todos": [todo.name for todo in todos]}).encode()


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
            offer = _decoded(data)
        except ShelfError as error:
            raise type(error)(f"rank {rank}: {error.what}", error.remedy) from error
        _refuse_anothers(rank, offer)
        offers.append(offer)
    return offers


def _refuse_anothers(rank: int, offer: Offer) -> None:
    for part in offer.parts():
        if part.rank != rank:
            raise BadArgument(
                f"rank {rank} has opened {offer.path}, which holds the part of rank {part.rank} of "
                f"{part.members}",
                "Open it there: name shelves by the rank, or give Group(rank=) as it was.",
            )


def _agreed(offers: list[Offer]) -> tuple[Agreed, list[_core.Todo]]:
    members = len(offers)
    jobs = {part.job: offer.path for offer in offers for part in offer.parts()}
    if len(jobs) > 1:
        one, other, *_ = jobs.values()
        raise BadArgument(
            f"the shelves {one} and {other} are of different jobs",
            "Give each job shelves of its own; to begin one anew, remove all that it had.",
        )
    apart = _of_other_steps(offers)
    tuples: list[_core.GroupPartTuple] = []
    for rank, (_, committed, prepared, _) in enumerate(offers):
        known = committed or prepared
        tuples.append(
            (
                rank,
                known.members if known else members,
                [committed.epoch] if committed else [],
                prepared.epoch if prepared and prepared.epoch not in apart else None,
            )
        )
    (_, number), todos, _ = _core.agree(tuples, members)
    for rank, offer in enumerate(offers):
        if offer.prepared and offer.prepared.epoch in apart:
            todos[rank] = _core.Todo.abandon
    seen = max((part.generation for offer in offers for part in offer.parts()), default=0)
    generation = _core.next_generation(seen, secrets.randbits(32))
    job = next(iter(jobs), uuid.uuid4().hex)
    return Agreed(job, generation, number), todos


def _of_other_steps(offers: list[Offer]) -> set[tuple[int, int]]:
    """Epochs in which ranks had saved different steps: the coordinator cannot have committed them,
    though all have their parts.
    """
    steps: dict[tuple[int, int], set[int | None]] = {}
    for offer in offers:
        if offer.prepared:
            steps.setdefault(offer.prepared.epoch, set()).add(offer.step)
    return {epoch for epoch, found in steps.items() if len(found) > 1}
