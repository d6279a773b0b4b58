"""What a rank has found when a job starts: its shelf, and copies of other ranks' parts."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tensorshelf import _core
from tensorshelf._group.part import KEY, Part, part_of_mark, part_of_state
from tensorshelf._group.writers import Choice, Site
from tensorshelf._state.paths import RECORD
from tensorshelf._versions import RetainedVersion
from tensorshelf.errors import (
    BadArgument,
    CorruptError,
    StaleError,
    UnknownName,
    UnresolvedError,
)

logger = logging.getLogger("tensorshelf")

_ROOM_BYTES = 8 << 20


class Held(NamedTuple):
    """What one shelf holds."""

    path: str
    committed: Part | None
    prepared: Part | None
    step: int | None  # of what is prepared
    damaged: bool = False  # what is prepared
    blank: bool = False  # no version was ever committed: a shelf that is new, as one that was lost

    def parts(self) -> list[Part]:
        return [part for part in (self.committed, self.prepared) if part is not None]


class Offer(NamedTuple):
    """What one rank has found, and what it was told."""

    site: Site
    replicate: int  # copies of each part that it was told to keep with others
    own: Held
    copies: Mapping[int, Held]  # that it keeps, by whose part it is
    partition: Choice = False  # who is to save pieces of what all hold alike
    drain: str | None = None  # of what is drained what stays, as it was told
    queues: bool = False  # its store has them, and its votes lie there


def held(core: _core.Shelf, path: str) -> Held:
    """Raises BadArgument for what no group saved, and UnresolvedError for what none prepared."""
    committed, prepared = _parts(core, path)
    waiting = core.prepared()
    if waiting is None:
        return Held(path, committed, None, None, blank=core.version == 0)
    damaged = _is_damaged(core, waiting["version"], path)
    return Held(path, committed, prepared, waiting["step"], damaged, core.version == 0)


def parts_of(core: _core.Shelf, path: str) -> list[Part]:
    """Committed and prepared: whose shelf it is. Raises as ``held`` does, and reads no tensor."""
    return [part for part in _parts(core, path) if part is not None]


def _parts(core: _core.Shelf, path: str) -> tuple[Part | None, Part | None]:
    version = RetainedVersion(core.at(core.version), path)
    committed = _committed(version, path) if RECORD in version else None
    waiting = core.prepared()
    prepared = None if waiting is None else part_of_mark(waiting["id"])
    if waiting is not None and prepared is None:
        raise UnresolvedError(
            f"{path} has version {waiting['version']} prepared, and no group did that",
            "Decide on it with resolve(), as whoever prepared it would.",
        )
    return committed, prepared


def _is_damaged(core: _core.Shelf, version: int, path: str) -> bool:
    """What is prepared: nobody commits it then. Reads all of it, before anybody decides."""
    room = np.empty(_ROOM_BYTES, dtype=np.uint8)
    try:
        prepared = core.at(version)
        for name in prepared.names():
            tensor = prepared.find(name)
            assert tensor is not None
            nbytes = tensor._info().nbytes
            for offset in range(0, nbytes, _ROOM_BYTES):
                tensor._read_into(room[: min(_ROOM_BYTES, nbytes - offset)], offset)
    except (CorruptError, StaleError) as error:  # or its pages cannot be loaded
        logger.warning("group: what is prepared in %s is damaged: %s", path, error)
        return True
    return False


def _committed(version: RetainedVersion, path: str) -> Part:
    try:
        return part_of_state(version.load(KEY)[KEY])
    except UnknownName as error:
        raise BadArgument(
            f"{path} holds a run that no group saved", "Give the group a shelf of its own."
        ) from error


def offer_of(said: list[Any]) -> Offer:
    """Out of JSON."""
    site, replicate, own, copies, *others = said
    kept = {int(owner): _held(copy) for owner, copy in copies.items()}
    return Offer(Site(*site), replicate, _held(own), kept, *others)


def _held(found: list[Any]) -> Held:
    path, committed, prepared, *rest = found
    return Held(path, _part(committed), _part(prepared), *rest)


def _part(found: list[Any] | None) -> Part | None:
    return None if found is None else Part(*found)
