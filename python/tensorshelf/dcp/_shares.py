"""What ranks tell each other of a save: values, made to be sent."""

import itertools
import os
import uuid
from dataclasses import dataclass
from typing import Any

_PREFIX = b"tensorshelf.dcp"


@dataclass(frozen=True)
class Share:
    """What one rank has of a group save."""

    rank: int
    file: str  # the name of its shelf
    shelf_id: str
    version: int  # that its part has there, or will have
    id: bytes  # of this part alone: no other save, nor other rank, ever has the same


@dataclass(frozen=True)
class Written:
    """Where an item was written: ``storage_data`` of a WriteResult."""

    share: Share
    name: str
    nbytes: int


@dataclass(frozen=True)
class Piece:
    """Where an item lies: ``storage_data`` of the Metadata."""

    rank: int
    name: str
    nbytes: int


@dataclass
class Word:
    """What the coordinator says to a rank with its plan: ``storage_data`` of a SavePlan."""

    coordinator: str  # the identity of its shelf
    committed: bytes | None  # that rank's part of the newest group save
    # A planner that keeps plans gives an old one again: with this set, or from before the save.
    heard: bool = False
    arrived: int = 0  # the moment

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.arrived = moment()

    def __deepcopy__(self, memo: object) -> "Word":
        return self  # a copy has not arrived


@dataclass(frozen=True)
class Vouched:
    """What the loading coordinator says to a rank: ``storage_data`` of a LoadPlan."""

    id: bytes  # of the group save that all load
    durable: bool  # its record is known to be


_moments = itertools.count(1)


def moment() -> int:
    """Later ones are larger, in this process."""
    return next(_moments)


def new_id(coordinator: str) -> bytes:
    """For a part of a save whose decision lies in the coordinator's shelf of this identity."""
    return b" ".join([_PREFIX, coordinator.encode(), uuid.uuid4().hex.encode()])


def coordinator_of(part: bytes) -> str | None:
    """The identity of the shelf that the decision lies in; None where DCP did not prepare it."""
    words = part.split(b" ")
    if len(words) != 3 or words[0] != _PREFIX:
        return None
    return words[1].decode("ascii", "replace")


def file_name(path: str) -> str:
    """As it stands in the record; the folder may be another where it is read."""
    return os.path.basename(path)
