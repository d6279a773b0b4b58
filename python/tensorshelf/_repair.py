"""repair(): makes a shelf writable again that no open takes, without what is lost of it."""

import errno
import logging
import os
from dataclasses import dataclass
from typing import Any

from tensorshelf import _core
from tensorshelf._info import Damage, damage_from
from tensorshelf._media import Also, Mirror, Without, further_media
from tensorshelf._open import held_here
from tensorshelf._options import BlockOptions, encoded_path, on_medium
from tensorshelf._progress import Report, reporter
from tensorshelf.errors import ShelfBusy

logger = logging.getLogger("tensorshelf")


@dataclass(frozen=True)
class Repair:
    """What ``repair()`` found and did. ``print()`` shows it as a table."""

    repaired: bool  # False: the shelf opens as it is, and nothing was written
    version: int  # the newest now
    step: int | None
    lost: tuple[int, ...]  # versions given up, which may have been acknowledged
    damage: tuple[Damage, ...]  # chunks that fail: assigning the whole tensor heals them
    notes: tuple[str, ...]  # what kept it from opening, what was done

    @property
    def damaged(self) -> tuple[str, ...]:
        """The names of the tensors that are damaged: reading them raises CorruptError."""
        return tuple(dict.fromkeys(each.tensor for each in self.damage if not each.in_mirror))

    def __str__(self) -> str:
        rows = [
            ("repaired", "yes" if self.repaired else "no, there was no need"),
            ("version", f"{self.version} (step {self.step})"),
            ("lost", ", ".join(f"version {version}" for version in self.lost) or "no version"),
            ("damaged", ", ".join(map(repr, self.damaged)) or "no tensor"),
            *(("note", note) for note in self.notes),
        ]
        return "\n".join(f"{label:<9} {text}" for label, text in rows)


def repair(
    path: str | os.PathLike[str],
    *,
    tier: str = "auto",
    progress: Report | bool | None = None,
    block: BlockOptions | None = None,
    also: Also = (),
    mirror: Mirror | None = None,
    without: Without = (),
) -> Repair:
    """Makes a shelf writable again that ``open()`` calls corrupt, and verifies every tensor of it.

    Look first: ``open(path, mode="r", salvage=True)`` shows what this takes, and writes nothing.
    The newest version whose metadata is whole becomes the newest there is. What is left of a later
    one is wiped, also where it was acknowledged: ``lost`` names it. Damaged tensors stay, raise
    CorruptError when they are read, and are healed by assigning them whole.

    Where the shelf opens, nothing is written. A crash within leaves it as it was or repaired, and
    it may be called again. ``progress`` is for verifying; the other arguments are those of
    ``open()``.

    Raises CorruptError where there is nothing to go on from, and what ``open()`` raises besides:
    ShelfNotFound, ShelfBusy, NotAShelf, TruncatedError, ...
    """
    options = _core.OpenOptions()
    options.tier, options.block = on_medium(tier, block)
    further_media(also, mirror, without).tell(options, None)
    native_path = encoded_path(path)
    try:
        with reporter(progress, "verifying") as report:
            found = _core.repair(path=native_path, options=options, progress=report)
    except ShelfBusy as error:
        if error.errno == errno.EDEADLK:
            raise held_here(native_path, error) from None
        raise
    result = _repair_from(found)
    if result.repaired:
        for note in result.notes:
            logger.warning("%s: %s", os.fsdecode(native_path), note)
    return result


def _repair_from(found: dict[str, Any]) -> Repair:
    kept = {name: tuple(found[name]) for name in ("lost", "notes")}
    return Repair(**{**found, **kept, "damage": damage_from(found["damage"])})
