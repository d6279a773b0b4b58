"""How a rank hears that its part was committed: DCP gives it no call behind ``write_data``.

But it sends each rank the Metadata that ``finish`` returned with, when the coordinator's commit is
durable. So the Metadata has a part that, where it arrives, commits what it says is committed. That
is true whenever and wherever it arrives, and where it does not, the next save or loading asks the
coordinator's shelf.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch.distributed.checkpoint.metadata import StorageMeta

from tensorshelf.dcp._home import Home, homes
from tensorshelf.dcp._shares import Share
from tensorshelf.errors import ShelfError

logger = logging.getLogger("tensorshelf")


@dataclass
class GroupMeta(StorageMeta):
    """``storage_meta`` of the Metadata of a save: the ids of the parts that it committed."""

    parts: tuple[bytes, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.checkpoint_id, self.parts)


def news_of(path: str, shares: Iterable[Share]) -> GroupMeta:
    """What to send when they are committed, and durably so."""
    return GroupMeta(checkpoint_id=path, parts=tuple(share.id for share in shares))


def _arrived(path: str, parts: tuple[bytes, ...]) -> GroupMeta:
    for home in homes():
        with home.lock:
            _commit(home, parts)
    return GroupMeta(checkpoint_id=path, parts=parts)


def _commit(home: Home, parts: tuple[bytes, ...]) -> None:
    try:
        shelf = home.shelf
        waiting = None if shelf is None else shelf.prepared
        if shelf is not None and waiting is not None and waiting.id in parts:
            shelf.resolve("commit")
            home.let_go()
    except ShelfError as error:  # for the next save to say, which opens it anew
        logger.warning("%s: committing what its group has committed: %s", home.path, error)
        home.drop()
