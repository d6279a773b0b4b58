"""Shelves of a group's ranks as one, which needs no group: offline, when no rank runs."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tensorshelf._appearing import appearing, refuse_existing
from tensorshelf._group import export
from tensorshelf._group.checked import path_of
from tensorshelf._group.saved import Paths, open_ranks
from tensorshelf._group.state import JoinedState
from tensorshelf._open import open as open_shelf
from tensorshelf._progress import Report, reporter
from tensorshelf._shelf import Shelf
from tensorshelf._state.paths import RECORD
from tensorshelf.errors import BadArgument

# Who says so expects no shelf.
_OF_OTHERS = (".pt", ".pth", ".bin", ".ckpt", ".npz", ".npy", ".h5", ".pkl")


@dataclass(frozen=True)
class Merged:
    """What merge() made."""

    tensors: int  # how many, by names of their own
    nbytes: int  # of all of them
    step: int | None  # of the version that was merged
    left_out: tuple[str, ...]  # paths of what is no tensor, where a file has tensors alone


def merge(
    paths: Paths,
    to: str | os.PathLike[str],
    *,
    size: int | str | None = None,
    progress: Report | bool | None = None,
) -> Merged:
    """Makes one shelf of those that the ranks of a group saved, as one process would have.

        ts.merge(["run.0.shelf", "run.1.shelf"], "whole.shelf")
        ts.merge(["run.0.shelf", "run.1.shelf"], "whole.safetensors")

    Tensors that are sharded over ranks (DTensors, and each ``Shard``) are whole again, and so is
    what ``Group(partition=True)`` saved in pieces; all else is as rank 0 saved it: what other ranks
    have of their own, as generators and loaders, is left out.
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
    place in rank 0's state for a Shard that it has not, UnresolvedError where a version waits for
    the group's decision, StaleError where they are of different epochs, ShelfExists where there is
    something at ``to``, ShelfFull where it does not fit, and CorruptError for what is damaged. The
    file appears, durable, when it is whole; where that fails, none is left.
    """
    target = path_of("to", to)
    to_file = target.endswith(export.SUFFIX)
    if to_file and size is not None:
        raise BadArgument(f"size={size!r} is of a shelf, and {target} is none", "Leave it out.")
    if to_file:
        export.require()
    elif (suffix := os.path.splitext(target)[1]) in _OF_OTHERS:
        raise BadArgument(
            f"{target} would be a shelf, and {suffix} is of another format",
            f"Let it end with {export.SUFFIX}, for a file of that, or as a shelf's does.",
        )
    refuse_existing(target)
    with contextlib.ExitStack() as stack:
        ranks = open_ranks(paths, stack)
        state, step = JoinedState(ranks), ranks[0].shelf.step
        report = stack.enter_context(reporter(progress, "merge"))
        if to_file:
            return _to_file(state, step, target, report)
        beside = stack.enter_context(appearing(target))  # so a kill leaves nothing there, either
        merged = stack.enter_context(open_shelf(beside, "x", size=size))
        try:
            return _to_shelf(state, step, merged, report)
        except BaseException:
            merged.discard()
            raise


def _to_shelf(state: JoinedState, step: int | None, to: Shelf, report: Report | None) -> Merged:
    for name, value in _told(state, report):
        to[name] = value
    to[RECORD] = state.record
    made = to.persist(step)
    return Merged(len(state), state.nbytes, made.step, ())


def _to_file(state: JoinedState, step: int | None, path: str, report: Report | None) -> Merged:
    wanted, left_out = export.named(state.tree)
    export.write(path, wanted, _told(state, report), step)
    nbytes = sum(tensor.nbytes for tensor in wanted.values())
    return Merged(len(wanted), nbytes, step, left_out)


def _told(state: JoinedState, report: Report | None) -> Iterator[tuple[str, Any]]:
    done, total = 0, state.nbytes
    for name, value in state.values():
        yield name, value
        done += state[name].nbytes
        if report is not None:
            report(done, total)
