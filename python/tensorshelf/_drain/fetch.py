"""A shelf made of a version that lies at a remote, checked whole."""

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from tensorshelf import _core
from tensorshelf._appearing import appearing, refuse_existing
from tensorshelf._commit import Commit
from tensorshelf._drain.catalog import (
    Entry,
    Epoch,
    Version,
    epoch_of,
    in_common,
    joints_at,
    manifests_at,
    rank_folder,
    ranks_at,
)
from tensorshelf._drain.info import Drained
from tensorshelf._drain.joint import Joint
from tensorshelf._drain.layout import Piece, Tensor
from tensorshelf._drain.manifest import Manifest, Name, damaged, decode, hash_of, unpacked
from tensorshelf._drain.remote import Remote, open_remote, shown
from tensorshelf._drain.side_by_side import in_order
from tensorshelf._open import open as open_shelf
from tensorshelf._options import encoded_path, number
from tensorshelf._progress import Report, reporter
from tensorshelf._shelf import Shelf
from tensorshelf.errors import (
    BadArgument,
    CorruptError,
    ShelfNotFound,
    StaleError,
    UnknownName,
)

_THREADS = 8
_AHEAD = 2 * _THREADS  # pieces that are asked for before they are needed

_V = TypeVar("_V", bound=Version)


def drained(remote: str | os.PathLike[str]) -> list[Drained]:
    """The versions that lie at a remote, whole, the oldest first.

    Of what a group drained: those of all its ranks. Raises IoError where the remote cannot be read,
    and UnsupportedError where a package for it is missing.
    """
    place = open_remote(remote)
    if joints := joints_at(place).look():
        return [_told(entry.manifest) for entry in joints]
    ranks = ranks_at(place)
    entries = _of_all(remote, ranks)[ranks[0]] if ranks else manifests_at(place).look()
    return [_told(entry.manifest) for entry in entries]


def fetch(
    remote: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    step: int | None = None,
    rank: int | None = None,
    size: int | str | None = None,
    keep: int | None = None,
    in_flight: int | None = None,
    tier: str = "auto",
    progress: Report | bool | None = None,
) -> Commit:
    """Makes a shelf at ``to`` of the newest version that lies at a remote.

        ts.fetch("s3://bucket/run1", "run.shelf")
        ts.fetch("s3://bucket/run1", "run.3.shelf", rank=3)  # what a group of ranks drained

    step      takes the newest version of that step
    rank      of a group: whose part. Each rank fetches its own, with ``step`` where the job drains
              on meanwhile; ``ts.merge()`` takes them, too
    size, keep, in_flight, tier   as for ``open()``, of the new shelf
    progress  True for a bar, or a function of (done, total) in bytes

    The file appears, durable, when it is whole and every checksum is right. It is a shelf at
    version 1, with the step of the one that was drained. Where that is deleted meanwhile, because
    newer ones came, it begins anew with the newest.

    Raises ShelfNotFound where no version lies there, or ``to`` is in no folder; UnknownName where
    none of that step does, BadArgument for a ``rank`` that is none, ShelfExists where there is
    something at ``to``, CorruptError for what is damaged, FormatTooNew for what a later tensorshelf
    drained, UnsupportedError for a URL that cannot be opened here, IoError for a remote that fails;
    no file is left then, but where the last step fails: that its name outlives a power loss.
    """
    target = os.fsdecode(encoded_path(to))
    refuse_existing(target)
    _refuse_homeless(target)
    tried: _Found | None = None
    while True:
        found = _chosen(remote, rank, step)
        if tried is not None and found.name == tried.name:
            raise CorruptError(
                f"{found.name} at {shown(remote)} names a piece that is not there",
                "Fetch another version, by its step; tensorshelf.drained() lists them.",
            )
        tried = found
        try:
            made = found.read()
            with (
                reporter(progress, "fetching") as report,
                appearing(target) as path,
                open_shelf(
                    path, "x", size=size, keep=keep, in_flight=in_flight, tier=tier
                ) as shelf,
            ):
                try:
                    return _fill(shelf, found.at, made, report)
                except BaseException:
                    shelf.discard()
                    raise
        except StaleError:  # deleted meanwhile
            continue


def _refuse_homeless(target: str) -> None:
    """Before a remote is asked; else what is made there first is told, by a name of its own."""
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise ShelfNotFound(
            f"{target} cannot be made: there is no folder {folder}",
            "Make the folder, or give another path.",
        )


def _told(made: Manifest | Joint) -> Drained:
    return Drained(
        step=made.step,
        version=made.version,
        shelf_id=made.shelf,
        time=datetime.datetime.fromtimestamp(made.time_ns / 1e9, datetime.UTC),
        nbytes=made.nbytes,
        metric=made.metric,
        milestone=made.milestone,
        ranks=None if made.group is None else made.group.members,
    )


# ---- which version


class _Found(NamedTuple):
    """A version that is to be fetched."""

    name: Name
    at: Remote
    read: Callable[[], Manifest]  # raises StaleError for what was deleted meanwhile


def _chosen(remote: str | os.PathLike[str], rank: int | None, step: int | None) -> _Found:
    top = open_remote(remote)
    joints, ranks = joints_at(top).look(), ranks_at(top)
    if rank is None:
        if joints or ranks:
            raise BadArgument(
                f"{shown(remote)} holds the parts of a group's ranks",
                "Say whose part to fetch: fetch(..., rank=0), and so for each.",
            )
        entry = _newest(remote, manifests_at(top).look(), step)
        return _Found(entry.name, top, lambda: entry.manifest)
    number("rank", rank, 0, (1 << 31) - 1)
    if joints:
        return _part(remote, _newest(remote, joints, step), rank)
    if rank not in ranks:
        there = f"of the ranks {ranks}" if ranks else "of one process alone"
        raise _nothing_of(remote, rank, there)
    by_rank = _of_all(remote, ranks)
    first = _newest(remote, by_rank[ranks[0]], step).manifest.group
    assert first is not None
    of_rank = next(found for found in by_rank[rank] if _is_of(found, epoch_of(first)))
    place = open_remote(remote, rank_folder(rank))
    return _Found(of_rank.name, place, lambda: of_rank.manifest)


def _part(remote: str | os.PathLike[str], entry: Entry[Joint], rank: int) -> _Found:
    parts = entry.manifest.parts
    if rank >= len(parts):
        raise _nothing_of(remote, rank, f"of the ranks {list(range(len(parts)))}")
    named, place = parts[rank], open_remote(remote, rank_folder(rank))

    def read() -> Manifest:
        path = f"{rank_folder(rank)}/{named.name.path}"
        try:
            data = place.read(named.name.path)
        except FileNotFoundError:
            raise StaleError(f"{path} is not there any more", "Fetch the newest one.") from None
        if hash_of(data) != named.hash:
            raise damaged(path)
        return decode(data, path)

    return _Found(entry.name, place, read)


def _nothing_of(remote: str | os.PathLike[str], rank: int, there: str) -> BadArgument:
    return BadArgument(
        f"{shown(remote)} has nothing of rank {rank}", f"What lies there is {there}."
    )


def _newest(
    remote: str | os.PathLike[str], entries: list[Entry[_V]], step: int | None
) -> Entry[_V]:
    if not entries:
        raise ShelfNotFound(
            f"no whole version lies at {shown(remote)}", "Is it where the job drained to?"
        )
    there = [entry for entry in entries if step is None or entry.manifest.step == step]
    if not there:
        steps = ", ".join(str(entry.manifest.step) for entry in entries)
        raise UnknownName(f"no version of step {step} lies there", f"Those are of steps {steps}.")
    return there[-1]


def _of_all(remote: str | os.PathLike[str], ranks: list[int]) -> dict[int, list[Entry[Manifest]]]:
    """By rank, the versions of which all ranks have their parts, the oldest first. So it is where
    no object says of a group's versions that they are there.
    """
    found = {rank: manifests_at(open_remote(remote, rank_folder(rank))).look() for rank in ranks}
    common = in_common(found.values())
    return {
        rank: [entry for entry in entries if any(_is_of(entry, epoch) for epoch in common)]
        for rank, entries in found.items()
    }


def _is_of(entry: Entry[Manifest], epoch: Epoch) -> bool:
    part = entry.manifest.group
    return part is not None and epoch_of(part) == epoch


# ---- making the shelf


def _fill(shelf: Shelf, place: Remote, made: Manifest, report: Report | None) -> Commit:
    tensors, session = made.tensors, shelf._assignments.session

    def create(tensor: Tensor) -> _core.Assignment:
        shape = list(tensor.shape)
        return shelf._core.create_with(session, tensor.name, tensor.dtype, shape)

    for tensor in tensors:
        if not tensor.nbytes:
            shelf._core.create(tensor.name, tensor.dtype, list(tensor.shape))
    done = 0
    with contextlib.ExitStack() as stack:
        into: _core.Assignment | None = None
        for piece, data in _in_order(place, made):
            values = np.frombuffer(data, np.uint8)
            at = 0
            for part in piece:
                if part.offset == 0:
                    stack.close()
                    into = stack.enter_context(create(tensors[part.tensor]))
                assert into is not None
                into._write(values[at : at + part.nbytes], part.offset)
                at += part.nbytes
            done += at
            if report is not None:
                report(done, made.nbytes)
    return shelf.persist(made.step)


def _in_order(place: Remote, made: Manifest) -> Iterator[tuple[Piece, bytes]]:
    """Each piece, checked, as the manifest names them; some are asked for ahead."""

    def read(index: int) -> bytes:
        stored, piece = made.stored[index], made.pieces[index]
        try:
            data = place.read(stored.path)
        except FileNotFoundError:
            raise StaleError(
                f"{stored.path} is not there any more", "Fetch the newest version."
            ) from None
        return unpacked(data, stored, piece)

    came = in_order(len(made.pieces), read, threads=_THREADS, ahead=_AHEAD)
    with contextlib.closing(came):
        yield from zip(made.pieces, came, strict=True)
