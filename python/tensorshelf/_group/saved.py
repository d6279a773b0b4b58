"""What the ranks of a group have saved: their shelves, opened for reading, all of one epoch."""

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

from tensorshelf import _core
from tensorshelf._group.checked import check_paths
from tensorshelf._group.part import KEY, Part, part_of_mark, part_of_state, refused
from tensorshelf._open import open as open_shelf
from tensorshelf._shelf import Shelf
from tensorshelf._state import record
from tensorshelf._state.checked import Checked
from tensorshelf._state.reader import Reader
from tensorshelf.errors import BadArgument, UnknownName, UnresolvedError

Paths = Iterable[str | os.PathLike[str]]


class Saved(NamedTuple):
    """By one of them."""

    shelf: Shelf
    part: Part
    saved: Checked
    reader: Reader


def open_ranks(paths: Paths, stack: contextlib.ExitStack) -> list[Saved]:
    """In their order; the stack closes them. Raises BadArgument where they are not those of all
    ranks of one job, UnresolvedError where a version waits for the group's decision, and StaleError
    where they are of different epochs.
    """
    check_paths(paths)
    shelves = [stack.enter_context(open_shelf(path, "r")) for path in paths]
    return _all_of_one_epoch([_saved(shelf) for shelf in shelves])


def _saved(shelf: Shelf) -> Saved:
    saved = record.find(shelf)
    if saved is None:
        raise UnknownName(
            f"no state was saved in {shelf._path}", "Give the shelves in which a group saved."
        )
    try:
        part = part_of_state(shelf.load(KEY)[KEY])
    except UnknownName as error:
        raise BadArgument(
            f"{shelf._path} holds a run that no group saved", "Give shelves of a group alone."
        ) from error
    return Saved(shelf, part, saved, Reader(shelf, saved))


def _all_of_one_epoch(ranks: list[Saved]) -> list[Saved]:
    """In their order."""
    if not ranks:
        raise BadArgument("there are no shelves", "Give the shelves of all ranks.")
    ranks = sorted(ranks, key=lambda rank: rank.part.rank)
    members = ranks[0].part.members
    found = [rank.part.rank for rank in ranks]
    if {(rank.part.job, rank.part.members) for rank in ranks} != {(ranks[0].part.job, members)}:
        raise BadArgument("the shelves are of different jobs", "Give those of one.")
    if found != list(range(members)):
        raise BadArgument(
            f"the group has {members} ranks, and the shelves are of {found}",
            "Give the shelf of each rank once.",
        )
    _refuse_undecided(ranks)
    return ranks


def _refuse_undecided(ranks: list[Saved]) -> None:
    """What is prepared, and would be committed by the next start. Raises StaleError where ranks are
    of different epochs.
    """
    waiting = [rank.shelf.prepared for rank in ranks]
    prepared = [None if each is None else part_of_mark(each.id) for each in waiting]
    known = [(p, w.step) for p, w in zip(prepared, waiting, strict=True) if p and w]
    apart = refused(known)
    tuples: list[_core.GroupPartTuple] = [
        (
            rank.part.rank,
            rank.part.members,
            [rank.part.epoch],
            None if part is None or part.epoch in apart else part.epoch,
        )
        for rank, part in zip(ranks, prepared, strict=True)
    ]
    _, todos, _ = _core.agree(tuples, len(ranks))
    for rank, todo in zip(ranks, todos, strict=True):
        if todo == _core.Todo.commit:
            raise UnresolvedError(
                f"all ranks have a later version than {rank.shelf._path} has committed",
                "Start the job once more, up to resume(); or open that shelf and call "
                'resolve("commit").',
            )
