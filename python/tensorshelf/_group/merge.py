"""Shelves of a group's ranks as one, which needs no group: offline, when no rank runs."""

import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tensorshelf import _core
from tensorshelf._commit import Commit
from tensorshelf._group.part import KEY, Part, part_of_mark, part_of_state
from tensorshelf._open import open as open_shelf
from tensorshelf._shelf import Shelf
from tensorshelf._state import record
from tensorshelf._state.checked import Checked
from tensorshelf._state.load import pairs
from tensorshelf._state.paths import RECORD
from tensorshelf._state.plain import Node
from tensorshelf._state.reader import Reader
from tensorshelf._values import _torch
from tensorshelf.errors import (
    BadArgument,
    CorruptError,
    StaleError,
    UnknownName,
    UnresolvedError,
)


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

    Tensors that are sharded over ranks are whole again; all else is as rank 0 saved it: what other
    ranks have of their own, generators and loaders say, is left out. ``load()`` and ``autosave()``
    take the new shelf as any. ``size`` is as for ``open()``.

    Raises BadArgument where the shelves are not those of all ranks of one job, UnresolvedError
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
    pieces = [list(_pieces(rank.saved.tree)) for rank in ranks]
    if len(set(map(len, pieces))) > 1:
        raise _unlike("have other tensors that are sharded")
    owned = set(first.saved.owned)
    for nodes in zip(*pieces, strict=True):
        name = _make_whole(ranks, nodes, merged)
        owned.discard(name)
    for name in owned:
        merged[name] = first.shelf[name]
    tree = _whole(_without_group(first.saved.tree))
    merged[RECORD] = record.encoded(record.Record(tree, first.saved.owned))
    return merged.persist(first.shelf.step)


def _pieces(node: Node) -> Iterator[Node]:
    """The nodes of what is sharded, in their order; ties to it are none of them."""
    if not isinstance(node, list) or node[0] in ("tensor", "tie"):
        return
    if node[0] == "part":
        if node[3][0] == "tensor":
            yield node
    else:
        for part in node[1:]:
            yield from _pieces(part)


def _make_whole(ranks: list[_Rank], nodes: tuple[Node, ...], merged: Shelf) -> str:
    """Assigns one tensor, of what each rank has of it, under the name that rank 0 has it by."""
    import torch

    _, shape, _, first = nodes[0]
    about = ranks[0].reader.about(first)
    whole = torch.empty(shape, dtype=_torch.dtype_of(about.element))
    covered: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for rank, (_, of, offsets, node) in zip(ranks, nodes, strict=True):
        if of != shape or rank.reader.about(node).element != about.element:
            raise _unlike(f"have another tensor in the place of {about.place!r}")
        part = rank.reader.tensor(node)
        rank.reader.read_all()
        rank.reader.forget(node)
        if part.numel():
            into = zip(offsets, part.shape, strict=True)
            whole[tuple(slice(begin, begin + length) for begin, length in into)] = part
            covered.add((tuple(offsets), tuple(part.shape)))
    if sum(math.prod(lengths) for _, lengths in covered) != math.prod(shape):
        raise _unlike(f"have not all of {about.place!r} together, or some of it twice")
    name = _name(about.place)
    merged[name] = whole
    return name


def _name(place: Any) -> str:
    """By which a part lies in its shelf. Sharded tensors share no memory."""
    if not isinstance(place, str):
        raise _unlike("have a sharded tensor within other memory")
    return place


def _whole(node: Node) -> Node:
    """The tree, with whole tensors in the place of parts."""
    if not isinstance(node, list) or node[0] in ("tensor", "tie"):
        return node
    if node[0] != "part":
        return [node[0], *(_whole(part) for part in node[1:])]
    _, shape, _, part = node
    if part[0] == "tie":
        return part
    _, library, element, _, place, _ = part
    return ["tensor", library, element, shape, place, None]


def _without_group(tree: Node) -> Node:
    kept = [item for key, part in pairs(tree) if key != KEY for item in (key, part)]
    return ["dict", *kept]


def _unlike(what: str) -> CorruptError:
    return CorruptError(f"the ranks {what}", "Were they saved by one and the same program?")
