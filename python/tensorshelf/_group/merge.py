"""Shelves of a group's ranks as one, which needs no group: offline, when no rank runs."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tensorshelf import _core
from tensorshelf._group import export
from tensorshelf._group.part import KEY, Part, part_of_mark, part_of_state
from tensorshelf._group.pieces import filled
from tensorshelf._group.whole import Whole, names_in, whole_of
from tensorshelf._open import open as open_shelf
from tensorshelf._progress import Report, reporter
from tensorshelf._shelf import Shelf
from tensorshelf._state import record
from tensorshelf._state.checked import Checked
from tensorshelf._state.paths import RECORD
from tensorshelf._state.reader import Reader
from tensorshelf._state.tensors import as_stored
from tensorshelf.errors import BadArgument, StaleError, UnknownName, UnresolvedError


@dataclass(frozen=True)
class Merged:
    """What merge() made."""

    tensors: int  # how many, by names of their own
    nbytes: int  # of all of them
    step: int | None  # of the version that was merged
    left_out: tuple[str, ...]  # paths of what is no tensor, where a file has tensors alone


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
    progress: Report | bool | None = None,
) -> Merged:
    """Makes one shelf of those that the ranks of a group saved, as one process would have.

        ts.merge(["run.0.shelf", "run.1.shelf"], "whole.shelf")
        ts.merge(["run.0.shelf", "run.1.shelf"], "whole.safetensors")

    Tensors that are sharded over ranks (DTensors, and each ``Shard``) are whole again; all else is
    as rank 0 saved it: what other ranks have of their own, generators and loaders say, is left out.
    ``load()`` and ``autosave()`` take the new shelf as any. ``size`` is as for ``open()``;
    ``progress`` is True for a bar, or a function of bytes done and bytes in all.

    The whole of a DTensor lies under the name that rank 0 has its part by, that of Shards under
    theirs; a tensor of rank 0 that has such a name already gets another (``name~2``). Of parts that
    several ranks have, that of the first of them is taken. What rank 0 has no Shard of lies in the
    state where another rank has it.

    A path that ends with ``.safetensors`` becomes a file of that format, with the package of that
    name, in place of a shelf: the tensors, by the names that they would have in the shelf or else
    by their paths, tied ones once. What is no tensor is left out. It takes the memory for all of
    them, while a shelf takes that for one.

    Raises BadArgument where the shelves are not those of all ranks of one job, or where there is no
    place in rank 0's state for a Shard that it has not, UnresolvedError
    where a version waits for the group's decision, StaleError where they are of different epochs,
    ShelfExists where there is something at ``to``, and CorruptError for what is damaged; no file is
    left then.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise BadArgument(f"{paths!r} is one path", "Give a list of the paths of all ranks.")
    to_file = os.fspath(to).endswith(export.SUFFIX)
    if to_file:
        if size is not None:
            raise BadArgument(f"size={size!r} is of a shelf, and {to} is none", "Leave it out.")
        export.check(to)
    with contextlib.ExitStack() as stack:
        shelves = [stack.enter_context(open_shelf(path, "r")) for path in paths]
        ranks = _all_of_one_epoch([_rank(shelf) for shelf in shelves])
        report = stack.enter_context(reporter(progress, "merge"))
        if to_file:
            return _to_file(ranks, to, report)
        merged = stack.enter_context(open_shelf(to, "x", size=size))
        try:
            return _to_shelf(ranks, merged, report)
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


def _whole(ranks: list[_Rank]) -> Whole:
    return whole_of([rank.saved.tree for rank in ranks], [rank.reader for rank in ranks])


def _to_shelf(ranks: list[_Rank], merged: Shelf, report: Report | None) -> Merged:
    whole = _whole(ranks)
    for name, value in _values(ranks, whole, report):
        merged[name] = value
    merged[RECORD] = record.encoded(record.Record(whole.tree, names_in(whole.tree)))
    made = merged.persist(ranks[0].shelf.step)
    count = len(whole.made) + len(whole.copied)
    return Merged(count, _size(ranks, whole), made.step, ())


def _to_file(ranks: list[_Rank], path: str | os.PathLike[str], report: Report | None) -> Merged:
    whole = _whole(ranks)
    wanted, left_out = export.named(whole.tree)
    step = ranks[0].shelf.step
    export.write(path, wanted, _values(ranks, whole, report), step)
    nbytes = sum(tensor.nbytes for tensor in wanted.values())
    return Merged(len(wanted), nbytes, step, left_out)


def _values(ranks: list[_Rank], whole: Whole, report: Report | None) -> Iterator[tuple[str, Any]]:
    """Of all tensors, by the names that they get; each is done with when the next is asked for."""
    readers = [rank.reader for rank in ranks]
    done, total = 0, _size(ranks, whole)
    for tensor in whole.made:
        yield tensor.about.place, as_stored(filled(tensor.about, tensor.parts, readers))
        done += tensor.about.nbytes
        if report is not None:
            report(done, total)
    for new, old in whole.copied.items():
        handle = ranks[0].shelf[old]
        yield new, handle
        done += handle.nbytes
        if report is not None:
            report(done, total)


def _size(ranks: list[_Rank], whole: Whole) -> int:
    made = sum(tensor.about.nbytes for tensor in whole.made)
    return made + sum(ranks[0].shelf[old].nbytes for old in whole.copied.values())
