"""Shelves of a group's ranks as one, which needs no group: offline, when no rank runs."""

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

from tensorshelf import _core
from tensorshelf._commit import Commit
from tensorshelf._group.part import KEY, Part, part_of_mark, part_of_state
from tensorshelf._group.pieces import filled
from tensorshelf._group.whole import names_in, whole_of
from tensorshelf._open import open as open_shelf
from tensorshelf._shelf import Shelf
from tensorshelf._state import record
from tensorshelf._state.checked import Checked
from tensorshelf._state.paths import RECORD
from tensorshelf._state.reader import Reader
from tensorshelf._state.tensors import as_stored
from tensorshelf.errors import BadArgument, StaleError, UnknownName, UnresolvedError


class _Rank(NamedTuple):
    """One of them, with what it has saved."""

    shelf: Shelf
    part: Part
    saved: Checked
    reader: Reader


def merge(
    paths: Iterable[str | os.PathLike[str]],
    to: str | os.PathLike[str],
    *,
    size: int | str | None = None,
) -> Commit:
    """Makes one shelf of those that the ranks of a group saved, as one process would have.

        ts.merge(["run.0.shelf", "run.1.shelf"], "whole.shelf")

    Tensors that are sharded over ranks (DTensors, and each ``Shard``) are whole again; all else is
    as rank 0 saved it: what other ranks have of their own, generators and loaders say, is left out.
    ``load()`` and ``autosave()`` take the new shelf as any. ``size`` is as for ``open()``.

    The whole of a DTensor lies under the name that rank 0 has its part by, that of Shards under
    theirs; a tensor of rank 0 that has such a name already gets another (``name~2``). Of parts that
    several ranks have, that of the first of them is taken. What rank 0 has no Shard of lies in the
    state where another rank has it.

    Raises BadArgument where the shelves are not those of all ranks of one job, or where there is no
    place in rank 0's state for a Shard that it has not, UnresolvedError
    where a version waits for the group's decision, StaleError where they are of different epochs,
    ShelfExists where there is something at ``to``, and CorruptError for what is damaged; no file is
    left then.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise BadArgument(f"{paths!r} is one path", "Give a list of the paths of all ranks.")
    with contextlib.ExitStack() as stack:
        shelves = [stack.enter_context(open_shelf(path, "r")) for path in paths]
        ranks = _all_of_one_epoch([_rank(shelf) for shelf in shelves])
        merged = stack.enter_context(open_shelf(to, "x", size=size))
        try:
            return _merge(ranks, merged)
        except BaseException:
            merged.discard()
            merged.close()
            with contextlib.suppress(OSError):
                os.unlink(to)
            raise


def _rank(shelf: Shelf) -> _Rank:
    saved = record.get(shelf)
    try:
        part = part_of_state(shelf.load(KEY)[KEY])
    except UnknownName as error:
        raise BadArgument(
            f"{shelf._path} holds a run that no group saved", "Merge shelves of a group alone."
        ) from error
    return _Rank(shelf, part, saved, Reader(shelf, saved))


def _all_of_one_epoch(ranks: list[_Rank]) -> list[_Rank]:
    """In their order."""
    if not ranks:
        raise BadArgument("there is nothing to merge", "Give the shelves of all ranks.")
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
    epochs = [rank.part.epoch for rank in ranks]
    if len(set(epochs)) > 1:
        oldest = min(ranks, key=lambda rank: rank.part.epoch)
        raise StaleError(
            f"{oldest.shelf._path} has an older version than other ranks have",
            "Was it put back from a copy? Bring the newer one back.",
        )
    return ranks


def _refuse_undecided(ranks: list[_Rank]) -> None:
    """What is prepared, and would be committed by the next start."""
    tuples: list[_core.GroupPartTuple] = []
    for rank in ranks:
        waiting = rank.shelf.prepared
        prepared = None if waiting is None else part_of_mark(waiting.id)
        tuples.append(
            (
                rank.part.rank,
                rank.part.members,
                [rank.part.epoch],
                None if prepared is None else prepared.epoch,
            )
        )
    _, todos, _ = _core.agree(tuples, len(ranks))
    for rank, todo in zip(ranks, todos, strict=True):
        if todo == _core.Todo.commit:
            raise UnresolvedError(
                f"all ranks have a later version than {rank.shelf._path} has committed",
                "Start the job once more, up to resume(); or open that shelf and call "
                'resolve("commit").',
            )


# ---- making it whole


def _merge(ranks: list[_Rank], merged: Shelf) -> Commit:
    first, *_ = ranks
    readers = [rank.reader for rank in ranks]
    whole = whole_of([rank.saved.tree for rank in ranks], readers)
    for tensor in whole.made:
        merged[tensor.about.place] = as_stored(filled(tensor.about, tensor.parts, readers))
    for new, old in whole.copied.items():
        merged[new] = first.shelf[old]
    merged[RECORD] = record.encoded(record.Record(whole.tree, names_in(whole.tree)))
    return merged.persist(first.shelf.step)
