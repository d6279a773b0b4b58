"""A rank's shelf as a group save has it, for reading; where it is prepared only, committed first.

That the coordinator's record names the part is what makes it the group's. But a record can be read
that is not durable yet, and a part must not be committed before its record is: so somebody vouches
for it, whose commit has returned, or who has opened the shelf for writing, which is a recovery.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tensorshelf._open import open as open_shelf
from tensorshelf._options import BlockOptions
from tensorshelf._shelf import Shelf
from tensorshelf.dcp import _record, _verdicts
from tensorshelf.dcp._home import find_home, wait_or_raise
from tensorshelf.dcp._places import Places
from tensorshelf.dcp._shares import Share
from tensorshelf.errors import (
    CorruptError,
    ReadOnlyError,
    ShelfBusy,
    ShelfError,
    StaleError,
    UnresolvedError,
)

Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Access:
    """How a reader opens shelves."""

    tier: str
    verify: str
    block: BlockOptions | None
    lock_wait: float  # seconds

    def open(self, path: str, mode: str = "r") -> Shelf:
        return open_shelf(path, mode, tier=self.tier, verify=self.verify, block=self.block)


class GroupSave:
    """The shelves of one group save: of the ranks that its record names."""

    def __init__(self, places: Places, access: Access, head: _record.Head) -> None:
        self._places = places
        self._access = access
        self.head = head
        self.vouched = False

    @contextlib.contextmanager
    def part(self, rank: int) -> Iterator[Tensors]:
        """The tensors of a rank. Raises ShelfError, and says which rank and shelf it is of."""
        share, path = self.head.shares[rank], self._places.of(rank)
        try:
            shelf = self._committed(share, path)
            try:
                tensors = _holding(shelf, share)
                assert tensors is not None
                yield tensors
            finally:
                shelf.close()
        except ShelfError as error:
            error.add_note(f"This is of rank {rank}, whose shelf is {path}.")
            raise

    def settle_here(self) -> None:
        """Commits the parts whose shelves a writer of this process has open: nobody else can."""
        for rank, share in self.head.shares.items():
            home = find_home(self._places.of(rank))
            if home is None:
                continue
            with home.lock:
                if home.shelf is not None and _waits(home.shelf, share):
                    self._await_durable()
                    _verdicts.commit(home.shelf)

    def vouch(self) -> bool:
        """Whether the record is durable, as far as this process knows without waiting."""
        home = None if self.vouched else find_home(self._places.of(0))
        if home is not None:
            with home.lock:  # so that no commit of its is on its way
                self.vouched = home.shelf is not None and self._is_newest(home.shelf)
        return self.vouched

    def _committed(self, share: Share, path: str) -> Shelf:
        """The rank's shelf, once the part is no more waiting."""
        deadline = time.monotonic() + self._access.lock_wait
        while True:
            shelf = self._access.open(path)
            try:
                if _holding(shelf, share) is not None:
                    return shelf
                if not _waits(shelf, share):
                    raise _lacking(shelf, share)
            except BaseException:
                shelf.close()
                raise
            shelf.close()
            self._commit(share, path, deadline)

    def _commit(self, share: Share, path: str, deadline: float) -> None:
        try:
            if not self.vouched:
                self._make_durable()
            with self._access.open(path, "r+") as shelf:
                if _waits(shelf, share):
                    _verdicts.commit(shelf)
        except ShelfBusy as error:
            wait_or_raise(_held(path, error), deadline)
        except ReadOnlyError as error:
            raise UnresolvedError(
                f"{path} holds its part of the save prepared, and may not be written from here "
                f"({error.what}), so that it cannot be committed",
                "Load once where the shelves may be written, or save once more",
            ) from error

    def _make_durable(self) -> None:
        if self.vouch():
            return
        with self._access.open(self._places.of(0), "r+") as shelf:
            if not self._is_newest(shelf):
                raise StaleError(
                    f"{self._places.of(0)} holds another save than when loading began",
                    "Load again.",
                )
        self.vouched = True

    def _await_durable(self) -> None:
        """The same, with time for whoever has the coordinator's shelf open."""
        deadline = time.monotonic() + self._access.lock_wait
        while not self.vouched:
            try:
                self._make_durable()
            except ShelfBusy as error:
                wait_or_raise(error, deadline)

    def _is_newest(self, shelf: Shelf) -> bool:
        """A save on its way has assigned to it perhaps: what is committed counts."""
        found = _record.find(shelf.at(shelf.version)) if shelf.version else None
        return found is not None and found.id == self.head.id


def _waits(shelf: Shelf, share: Share) -> bool:
    return shelf.prepared is not None and shelf.prepared.id == share.id


def _holding(shelf: Shelf, share: Share) -> Tensors | None:
    """The version of a shelf that has the part: its newest, or one that it keeps."""
    found = _record.find(shelf)
    if found is not None and found.id == share.id:
        return shelf
    if share.version in [version.version for version in shelf.versions[:-1]]:
        old = shelf.at(share.version)
        found = _record.find(old)
        if found is not None and found.id == share.id:
            return old
    return None


def _lacking(shelf: Shelf, share: Share) -> ShelfError:
    """The error for a shelf that has not what the record says: what it has instead."""
    info, waiting = shelf.info(), shelf.prepared
    found = _record.find(shelf)
    part = "no DCP save" if found is None else f"part {found.id!r}"
    also = "" if waiting is None else f", and version {waiting.version} prepared as {waiting.id!r}"
    other = "" if info.shelf_id == share.shelf_id else f" It is shelf {info.shelf_id}, another one."
    what = (
        f"{info.path} does not hold part {share.id!r} of the group save, which was version "
        f"{share.version} of shelf {share.shelf_id}: it holds version {info.version} with {part}"
        f"{also}.{other}"
    )
    if info.version > share.version and not other:
        return StaleError(what, "Load again: a newer save went on. The writer's keep= keeps more.")
    return CorruptError(what, f"Put {share.file} of that save back, or save anew.")


def _held(path: str, error: ShelfBusy) -> ShelfBusy:
    return ShelfBusy(
        f"{path} holds its part of the save prepared, and cannot be committed for loading: "
        f"{error.what}",
        "Let its writer close(), or make it with keep_open=False; its next save commits it, too.",
        error.errno or 0,
    )
