"""Which rank takes which part, by the shelves that each has found. Without I/O; rank 0 computes it.

Parts are as many as ranks. A part goes to a rank that sees the newest shelf of it: to that of its
own number first, so that nothing changes where nothing has to. One that nobody sees, or more than
a node has ranks for, goes to a rank that is left over.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from tensorshelf._group.part import Part
from tensorshelf.errors import BadArgument, ShelfNotFound

logger = logging.getLogger("tensorshelf")

_Epoch = tuple[int, int]


class Seen(NamedTuple):
    """A file that is named as a shelf of the group's is."""

    path: str
    number: int  # in its name
    parts: list[Part]  # committed and prepared, of one rank; none of what is new
    unread: str | None = None  # why it cannot be told what it is


class Sight(NamedTuple):
    """What a rank sees from its node."""

    node: str
    files: list[Seen]


class Taken(NamedTuple):
    """The part that a rank takes, and where it lies."""

    part: int
    path: str | None  # None: a new shelf


def placed(sights: list[Sight], *, has_copies: bool = True) -> list[Taken]:
    """By ranks. Raises BadArgument where shelves are of different jobs, or of another number of
    ranks, or where something lies in the way of a new one; and ShelfNotFound where a part lies
    where no rank is left, and nobody has a copy of it.
    """
    members = len(sights)
    _refuse_others([file for sight in sights for file in sight.files], members)
    seen = [_best_of(sight) for sight in sights]
    newest: dict[int, _Epoch] = {}
    for paths in seen:
        for part, (epoch, _) in paths.items():
            newest[part] = max(newest.get(part, epoch), epoch)
    part_of = _matched([_up_to_date(paths, newest) for paths in seen], members)
    left = sorted(set(newest) - set(part_of.values()))
    _give_what_is_left(part_of, members)
    for part in left:
        _, path = max(paths[part] for paths in seen if part in paths)
        if not has_copies:  # it may be all that tells of what was saved
            raise ShelfNotFound(
                f"part {part} lies in {path}, and no rank is left there to open it",
                "Start as many ranks on that node as there were, or move the shelf to another.",
            )
        logger.warning("group: part %d goes elsewhere than %s: no rank is left there", part, path)
    places = []
    for rank, sight in enumerate(sights):
        part = part_of[rank]
        place = Taken(part, seen[rank][part][1] if part in seen[rank] else None)
        _refuse_in_the_way(sight, place)
        places.append(place)
    return places


def _is_of_a_part(file: Seen) -> bool:
    return bool(file.parts)


def _refuse_others(files: Iterable[Seen], members: int) -> None:
    first: Seen | None = None
    for file in filter(_is_of_a_part, files):
        if len({part.rank for part in file.parts}) > 1:
            raise BadArgument(f"{file.path} has parts of two ranks", "Put it back from a copy.")
        first = first or file
        if file.parts[0].job != first.parts[0].job:
            raise BadArgument(
                f"the shelves {first.path} and {file.path} are of different jobs",
                "Give each job shelves of its own; to begin one anew, remove all that it had.",
            )
        if file.parts[0].members != members or file.parts[0].rank >= members:
            raise BadArgument(
                f"{file.path} is of a group of {file.parts[0].members} ranks, and these are "
                f"{members}",
                "Start as many; or make one shelf of all with tensorshelf.merge().",
            )


def _best_of(sight: Sight) -> dict[int, tuple[_Epoch, str]]:
    """The newest shelf of each part that a rank sees."""
    found: dict[int, tuple[_Epoch, str]] = {}
    for file in filter(_is_of_a_part, sight.files):
        of = max(part.epoch for part in file.parts), file.path
        part = file.parts[0].rank
        found[part] = max(found.get(part, of), of)
    return found


def _up_to_date(paths: dict[int, tuple[_Epoch, str]], newest: dict[int, _Epoch]) -> set[int]:
    return {part for part, (epoch, _) in paths.items() if epoch == newest[part]}


def _matched(seen: list[set[int]], members: int) -> dict[int, int]:
    """Parts by ranks, as many as can be: along augmenting paths (Kuhn's algorithm)."""
    rank_of = {part: part for part in range(members) if part in seen[part]}
    for start in sorted(set(range(members)) - set(rank_of)):
        came: dict[int, int] = {}  # parts that were reached: by which rank
        waiting = [start]
        while waiting:
            rank = waiting.pop(0)
            part = next((p for p in sorted(seen[rank]) if p not in came and p not in rank_of), None)
            if part is not None:
                came[part] = rank
                _shift(rank_of, came, part, start)
                break
            for other in sorted(seen[rank] - came.keys()):
                came[other] = rank
                waiting.append(rank_of[other])
    return {rank: part for part, rank in rank_of.items()}


def _shift(rank_of: dict[int, int], came: dict[int, int], part: int, start: int) -> None:
    """Each on the way gives up its part for the next one."""
    while True:
        rank = came[part]
        before = next((p for p, r in rank_of.items() if r == rank), None)
        rank_of[part] = rank
        if rank == start:
            return
        assert before is not None
        part = before


def _give_what_is_left(part_of: dict[int, int], members: int) -> None:
    free = set(range(members)) - set(part_of.values())
    for rank in (rank for rank in range(members) if rank in free and rank not in part_of):
        part_of[rank] = rank
        free.discard(rank)
    spare = (rank for rank in range(members) if rank not in part_of)
    part_of.update(zip(list(spare), sorted(free), strict=True))


def _refuse_in_the_way(sight: Sight, place: Taken) -> None:
    if place.path is not None:
        return
    for file in sight.files:
        if file.number != place.part or not (file.unread or file.parts):
            continue
        why = file.unread or f"it holds the part of rank {file.parts[0].rank}"
        raise BadArgument(
            f"{file.path} on {sight.node} is in the way of a new shelf for part {place.part}: "
            f"{why}",
            "Move it away: with replicate= the part is had back from its copy.",
        )
