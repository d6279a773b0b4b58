"""The media of a shelf beside its first, as ``open()`` and ``repair()`` are told of them."""

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorshelf import _core
from tensorshelf._options import encoded_path
from tensorshelf.errors import BadArgument, ShelfNotFound

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Also = Path | Iterable[Path]
Mirror = Path | Mapping[int, Path]
Without = int | Iterable[int]


@dataclass(frozen=True)
class FurtherMedia:
    """Absolute paths: another process may work in another directory."""

    also: tuple[bytes, ...] = ()
    mirror: tuple[tuple[int, bytes], ...] = ()  # each with the number of what it mirrors
    without: tuple[int, ...] = ()

    def tell(
        self, options: _core.OpenOptions, place: Callable[[str, int], list[int]] | None
    ) -> None:
        options.set_media(list(self.also), place, list(self.mirror), list(self.without))

    def absent(self) -> list[str]:
        """Those of which nothing is there, as one that was mistyped, or is lost."""
        given = [("medium", path) for path in self.also]
        given += [("mirror", path) for _, path in self.mirror]
        return [f"{what} {os.fsdecode(path)}" for what, path in given if not os.path.exists(path)]


def further_media(also: Also, mirror: Mirror | None, without: Without) -> FurtherMedia:
    """What a user wrote, checked. Raises BadArgument."""
    return FurtherMedia(
        tuple(_absolute(path) for path in _paths(also)),
        tuple((of, _absolute(path)) for of, path in _mirrors(mirror)),
        tuple(_numbers("without", without)),
    )


def _absolute(path: Any) -> bytes:
    native = encoded_path(path)
    if not native:
        raise BadArgument("a medium's path is empty", "Name a file or a device.")
    try:
        return os.path.abspath(native)
    except FileNotFoundError:
        raise ShelfNotFound(
            f"{os.fsdecode(native)} is relative, and the working directory is gone",
            "Give an absolute path, or change to a directory that exists.",
            errno.ENOENT,
        ) from None


def _paths(also: Any) -> list[Any]:
    if isinstance(also, (str, bytes, os.PathLike)):
        return [also]
    if isinstance(also, Mapping):
        raise BadArgument(
            f"also={also!r} is a dict", "Use paths. mirror={1: path} mirrors one of them."
        )
    try:
        return list(also)
    except TypeError:
        raise BadArgument(f"also={also!r} is no path, nor a list of them", "Use paths.") from None


def _mirrors(mirror: Any) -> list[tuple[int, Any]]:
    if mirror is None:
        return []
    if isinstance(mirror, (str, bytes, os.PathLike)):
        return [(0, mirror)]
    if not isinstance(mirror, Mapping):
        raise BadArgument(
            f"mirror={mirror!r} is no path, nor a dict of them", "Use a path, or {1: path}."
        )
    return list(zip(_numbers("mirror", mirror), mirror.values(), strict=True))


def _numbers(argument: str, given: Any) -> list[int]:
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    numbers = list(several)
    for each in numbers:
        known = isinstance(each, (int, np.integer)) and not isinstance(each, bool)
        if not known or not 0 <= each < _core.MAX_MEDIA:
            raise BadArgument(
                f"{argument}={given!r}: {each!r} is no number of a medium",
                f"Use numbers of info().media, 0 to {_core.MAX_MEDIA - 1}.",
            )
    return [int(each) for each in numbers]
