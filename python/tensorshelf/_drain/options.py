"""What a user asks of draining, checked."""

import math
import os
from dataclasses import dataclass
from typing import Literal

from tensorshelf._drain import codec
from tensorshelf._drain.remote import as_text, shown
from tensorshelf._options import choice, number
from tensorshelf._size import parse_size
from tensorshelf.errors import BadArgument

_MOST = 1 << 31
_LONGEST_WAIT = 1e9  # seconds


@dataclass(frozen=True)
class Drain:
    """Where versions of a shelf are copied to, and which stay: ``shelf.autosave(drain=...)``.

        ts.Drain("/mnt/nfs/run1")
        ts.Drain("s3://bucket/run1", keep=2, keep_every=1000, best="min", compress="zlib")

    remote            a directory, which is made where there is none, or a URL that fsspec knows.
                      One job drains to it at a time
    every             versions whose step is a multiple of it are drained, and the last one
    keep              so many of the newest versions stay, 1 or more
    keep_every        the first version at or behind each multiple of so many steps stays, too
    best              "min" or "max": the version with the best ``auto.step(n, metric=...)`` stays;
                      of a group, by what rank 0 says
    compress          "zlib", or "zstd" where the package zstandard is; what it does not make
                      smaller is copied as it is. Nothing is lost
    bytes_per_second  the most that is sent, a number or a text ("50MB"); None for no limit
    threads           that compress and send side by side
    timeout           seconds that ``close()`` waits while nothing moves, before it leaves a version
                      undrained and says so
    spool             a local directory for what is read of a version and not sent yet: the tensors
                      that were written since the last. By default the shelf's own folder
    """

    remote: str | os.PathLike[str]
    every: int = 1
    keep: int = 1
    keep_every: int | None = None
    best: Literal["min", "max"] | None = None
    compress: Literal["zlib", "zstd"] | None = None
    bytes_per_second: int | str | None = None
    threads: int = 4
    timeout: float = 60.0
    spool: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        shown(self.remote)
        numbers = {"every": _MOST, "keep": _MOST, "keep_every": _MOST, "threads": 64}
        for name, most in numbers.items():
            if getattr(self, name) is not None or name != "keep_every":
                # As int: what is said of one of NumPy's is no bool, and JSON takes none of either.
                object.__setattr__(self, name, number(name, getattr(self, name), 1, most))
        if self.best is not None:
            choice("best", self.best, {"min": "min", "max": "max"})
        if self.bytes_per_second is not None:
            parse_size(self.bytes_per_second, "bytes_per_second")
        check_seconds(self.timeout)
        codec.check(self.compress)
        if self.spool is not None and as_text(self.spool) is None:
            raise BadArgument(
                f"spool={self.spool!r} is no directory", "Give the path of a local one, or None."
            )

    @property
    def stays(self) -> str:
        """In words, which versions are drained, and which stay."""
        names = ("every", "keep", "keep_every", "best")
        return "Drain({})".format(", ".join(f"{name}={getattr(self, name)!r}" for name in names))

    @property
    def rate(self) -> float:
        """Bytes a second."""
        if self.bytes_per_second is None:
            return math.inf
        return parse_size(self.bytes_per_second, "bytes_per_second")


def check_seconds(timeout: float) -> float:
    """How long is waited, and no longer than a thread can."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise BadArgument(f"timeout={timeout!r} is no time", "Give seconds, 0 or more.")
    return min(timeout, _LONGEST_WAIT)
