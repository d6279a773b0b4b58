"""What may be chosen for a shelf, checked: from what a user writes to what the store takes."""

import operator
import os
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tensorshelf import _core
from tensorshelf._size import parse_size
from tensorshelf.errors import BadArgument

_T = TypeVar("_T")

_PLACEMENTS = {
    "whole": _core.Placement.whole,
    "by_chunk": _core.Placement.by_chunk,
}
_MOST = 15  # versions beside the newest, kept and on their way


@dataclass(frozen=True)
class BlockOptions:
    """Tuning of the block medium: files on any file system, and block devices.

    buffer       size of one registered buffer, a multiple of 1 MiB
    queue_depth  buffers, and writes in flight at most
    io_uring     False: write with pwrite
    direct       False: write through the page cache instead of O_DIRECT
    """

    buffer: int | str = "2MiB"
    queue_depth: int = 16
    io_uring: bool = True
    direct: bool = True

    def _tuning(self) -> _core.BlockTuning:
        tuning = _core.BlockTuning()
        tuning.buffer_bytes = parse_size(self.buffer, "buffer")
        tuning.queue_depth = number("queue_depth", self.queue_depth, 1, 1024)
        tuning.io_uring = switch("io_uring", self.io_uring)
        tuning.direct = switch("direct", self.direct)
        return tuning


def new_options(
    size: int | str | None,
    tier: str,
    block: BlockOptions | None,
    keep: int | None,
    in_flight: int | None,
    placement: str | None,
    threads: int | None = None,
) -> _core.OpenOptions:
    """Those that concern the medium, how a shelf divides it, and who copies to it."""
    options = _core.OpenOptions()
    options.max_size_bytes = 0 if size is None else parse_size(size)
    options.tier, options.block = on_medium(tier, block)
    options.keep = None if keep is None else number("keep", keep, 0, _MOST - 1)
    options.in_flight = None if in_flight is None else number("in_flight", in_flight, 1, _MOST)
    if placement is not None:
        options.placement = choice("placement", placement, _PLACEMENTS)
    if threads is not None:
        options.threads = number("threads", threads, 1, 64)
    return options


def on_medium(tier: str, block: BlockOptions | None) -> tuple[str, _core.BlockTuning]:
    """Which medium, and how it is tuned."""
    known_tier = choice("tier", tier, {name: name for name in _core.tiers()})
    if block is not None and not isinstance(block, BlockOptions):
        raise BadArgument(
            f"block={block!r} is not a BlockOptions", "Use tensorshelf.BlockOptions(...)."
        )
    return known_tier, (block or BlockOptions())._tuning()


def encoded_path(path: str | os.PathLike[str]) -> bytes:
    """As the operating system takes it; "~" and "~name" in front are home directories."""
    try:
        native = os.fsencode(os.path.expanduser(path))
    except (TypeError, UnicodeEncodeError) as error:
        raise BadArgument(f"path={path!r} is not a path", "Use a str or a pathlib.Path.") from error
    if b"\0" in native:
        raise BadArgument(f"path={path!r} holds a NUL character", "Remove it.")
    return native


def number(what: str, given: int, least: int, most: int) -> int:
    remedy = f"Use {least} to {most}."
    try:
        if isinstance(given, (bool, np.bool_)):
            raise TypeError
        number = operator.index(given)
    except TypeError:
        raise BadArgument(f"{what}={given!r} is not a number", remedy) from None
    if not least <= number <= most:
        raise BadArgument(f"{what}={given!r} is out of range", remedy)
    return number


def switch(option: str, given: object) -> bool:
    """True or False: a text, as an environment has them, would be True whatever it says."""
    if isinstance(given, (bool, np.bool_)):
        return bool(given)
    raise BadArgument(f"{option}={given!r} is neither True nor False", "Write one of these.")


def choice(what: str, given: str, known: dict[str, _T]) -> _T:
    """One of those that are known, by the name that a user gave."""
    try:
        return known[given]
    except (KeyError, TypeError):
        names = ", ".join(f'"{name}"' for name in known)
        raise BadArgument(f"{what}={given!r} is unknown", f"Use one of {names}.") from None
