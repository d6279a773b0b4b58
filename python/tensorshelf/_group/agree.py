"""What rank 0 finds out of the offers of all: what to go on from, and where that lies."""

import itertools
import logging
import secrets
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from tensorshelf import _core
from tensorshelf._group.offer import Held, Offer
from tensorshelf._group.part import Part, refused
from tensorshelf._group.writers import Site, chosen
from tensorshelf.errors import BadArgument

logger = logging.getLogger("tensorshelf")


class FoundPart(NamedTuple):
    """A part, where a rank has it: in its own shelf, or in a copy."""

    owner: int  # whose part it is
    rank: int  # that has found it
    held: Held


class Answer(NamedTuple):
    """Epochs of this generation follow; ``number`` was the last one, 0 of a new job. Lists are by
    ranks, and what they have by ranks, too.
    """

    job: str
    generation: int
    number: int
    todos: list[str]  # of each rank's own shelf
    copy_todos: list[dict[str, str]]  # of copies that it has, by owner
    keepers: list[list[int]]  # of its part from now on
    holding: list[list[int]]  # of these and others, those that have what is gone on from
    lost: list[bool]  # its own shelf has not
    nodes: list[str]
    writers: list[int]  # ranks that save pieces of what all hold alike


def answer(offers: list[Offer]) -> Answer:
    """Raises StaleError or ShelfNotFound where no epoch is whole, and BadArgument where
    shelves are of other ranks, jobs or groups.
    """
    members = len(offers)
    copies = _same_on_all(offers)
    _refuse_partition_on_some(offers)
    _refuse_other_drains(offers)
    _refuse_other_stores(offers)
    for rank, offer in enumerate(offers):
        _refuse_anothers(rank, offer)
    places = [*_own(offers), *_copies(offers)]
    jobs = {part.job: place.held.path for place in places for part in place.held.parts()}
    if len(jobs) > 1:
        one, other, *_ = jobs.values()
        raise BadArgument(
            f"the shelves {one} and {other} are of different jobs",
            "Give each job shelves of its own; to begin one anew, remove all that it had.",
        )
    nodes = [offer.site.node for offer in offers]
    (_, number), todos, behind = _decided(places, members)
    seen = max((part.generation for place in places for part in place.held.parts()), default=0)
    return Answer(
        job=next(iter(jobs), uuid.uuid4().hex),
        generation=_core.next_generation(seen, secrets.randbits(32)),
        number=number,
        todos=todos[:members],
        copy_todos=_by_rank(places, todos, members),
        keepers=keepers_of(nodes, copies, _racks([offer.site for offer in offers])),
        holding=_holding(places, behind, members) if number else [[] for _ in offers],
        lost=[rank in behind for rank in range(members)],
        nodes=nodes,
        writers=chosen(offers[0].partition, [offer.site for offer in offers]),
    )


def keepers_of(nodes: list[str], copies: int, racks: list[str] | None = None) -> list[list[int]]:
    """For each rank those that keep its part: on other racks than its own, where these are given,
    and all different, where that can be; else on such nodes, where that can be. Each keeps as many.
    """
    for what, names in (("racks", racks), ("nodes", nodes)):
        if names is None:
            continue
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        try:
            holders = _core.holders([numbers[name] for name in names], 1 + copies)
        except BadArgument:
            logger.warning(
                "group: parts and their copies (%d of each) do not fit on different %s: one that "
                "is lost may take both",
                copies,
                what,
            )
        else:
            return [held[1:] for held in holders]
    holders = _core.holders(list(range(len(nodes))), 1 + copies)
    return [held[1:] for held in holders]


def _racks(sites: list[Site]) -> list[str] | None:
    """By ranks; none where nobody knows. Raises BadArgument where some do, or a node is in two."""
    known = [site.rack for site in sites if site.rack is not None]
    if not known:
        return None
    rack_of: dict[str, str] = {}
    for rank, site in enumerate(sites):
        if site.rack is None:
            raise BadArgument(
                f"rank {rank} has no rack=, and others have", "Give it on all ranks, or on none."
            )
        if rack_of.setdefault(site.node, site.rack) != site.rack:
            raise BadArgument(
                f"rank {rank} has rack={site.rack!r}, and others of its node {site.node!r} have "
                f"rack={rack_of[site.node]!r}",
                "Give all ranks of a node the same rack, or each node= a name of its own.",
            )
    return known


def _same_on_all(offers: list[Offer]) -> int:
    first, *others = [offer.replicate for offer in offers]
    for rank, other in enumerate(others, 1):
        if other != first:
            raise BadArgument(
                f"rank {rank} has replicate={other}, and rank 0 {first}", "Give all the same."
            )
    return first


def _refuse_partition_on_some(offers: list[Offer]) -> None:
    first, *others = [offer.partition for offer in offers]
    for rank, other in enumerate(others, 1):
        if (type(other), other) != (type(first), first):  # True is 1, too
            raise BadArgument(
                f"rank {rank} has partition={other!r}, and rank 0 {first!r}", "Give all the same."
            )


def _refuse_other_drains(offers: list[Offer]) -> None:
    first, *others = [offer.drain for offer in offers]
    for rank, other in enumerate(others, 1):
        if other != first:
            raise BadArgument(
                f"rank {rank} has {other or 'no drain='}, and rank 0 {first or 'no drain='}",
                "Give all the same: they drain the same versions, and the same ones stay.",
            )


def _refuse_other_stores(offers: list[Offer]) -> None:
    """Votes would lie where nobody takes them."""
    for rank, offer in enumerate(offers):
        if offer.queues != offers[0].queues:
            has, lacks = (rank, 0) if offer.queues else (0, rank)
            raise BadArgument(
                f"the store of rank {has} has queues, and that of rank {lacks} has none",
                "Give all ranks stores of one kind: a TCPStore with use_libuv=True, say, which is "
                "torch's usual one.",
            )


def _refuse_anothers(rank: int, offer: Offer) -> None:
    for owner, held in ((rank, offer.own), *offer.copies.items()):
        for part in held.parts():
            if part.rank != owner:
                raise BadArgument(
                    f"rank {rank} has opened {held.path}, which holds the part of rank {part.rank} "
                    f"of {part.members}",
                    "Open it there: name shelves by the rank, give Group(rank=) as it was, or let "
                    "open_part() find it.",
                )


def _own(offers: list[Offer]) -> Iterator[FoundPart]:
    return itertools.starmap(
        FoundPart, ((rank, rank, offer.own) for rank, offer in enumerate(offers))
    )


def _copies(offers: list[Offer]) -> Iterator[FoundPart]:
    for rank, offer in enumerate(offers):
        for owner, held in offer.copies.items():
            yield FoundPart(owner, rank, held)


def _decided(places: list[FoundPart], members: int) -> tuple[tuple[int, int], list[str], set[int]]:
    """The epoch, what becomes of what is prepared in each place, and the places that lack it."""
    apart = refused((p.held.prepared, p.held.step) for p in places if p.held.prepared)
    newest = max((p.held.committed.epoch for p in places if p.held.committed), default=None)
    own = [place.held for place in places[:members]]
    tuples: list[_core.GroupPartTuple] = []
    for owner, _, held in places:
        known = held.committed or held.prepared
        counts = (
            held.prepared is not None
            and held.prepared.epoch not in apart
            and not held.damaged
            and (held is own[owner] or _may_be_undecided(held.prepared, own[owner], newest))
        )
        tuples.append(
            (
                owner,
                known.members if known else members,
                [held.committed.epoch] if held.committed else [],
                held.prepared.epoch if held.prepared and counts else None,
            )
        )
    epoch, todos, behind = _core.agree(tuples, members)
    names = [todo.name for todo in todos]
    for number, place in enumerate(places):
        if place.held.prepared and tuples[number][3] is None:
            names[number] = _core.Todo.abandon.name
    return epoch, names, set(behind)


def _may_be_undecided(copied: Part, own: Held, newest: tuple[int, int] | None) -> bool:
    """What is prepared in a copy. Its owner prepares before it puts, and abandons before it votes
    no: an own shelf that is of the newest epoch, without that one, has abandoned it. One that is
    blank may be lost: of the first epoch nobody can say, and what all have is taken, for a rank
    that is lost with its shelf may have told that it is durable.
    """
    if own.prepared and own.prepared.epoch == copied.epoch:
        return True
    if own.committed is None:
        return own.blank or newest is not None
    return newest is not None and own.committed.epoch < newest


def _by_rank(places: list[FoundPart], todos: list[str], members: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{} for _ in range(members)]
    for place, todo in list(zip(places, todos, strict=True))[members:]:
        found[place.rank][str(place.owner)] = todo
    return found


def _holding(places: list[FoundPart], behind: set[int], members: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(members)]
    for number, place in list(enumerate(places))[members:]:
        if number not in behind:
            found[place.owner].append(place.rank)
    return found
