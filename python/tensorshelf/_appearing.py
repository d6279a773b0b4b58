"""Files that are there whole and durable, or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator

from tensorshelf.errors import ShelfExists

_REMEDY = "Give another path, or remove it."


@contextlib.contextmanager
def appearing(target: str | os.PathLike[str]) -> Iterator[str]:
    """A path in the same folder to make a file at, durable. It gets its name when that is closed,
    in the place of nothing, or goes. Raises ShelfExists and OSError.

    A crash leaves it as ``.NAME.PID.*.tmp``; of a shelf, the next one of that name removes that.
    """
    folder, name = os.path.split(os.path.abspath(target))
    path = os.path.join(folder, f".{name[:180]}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
    try:
        yield path
        _rename(path, os.fspath(target))
        if os.access(folder, os.R_OK):  # else nobody can ask for that
            sync(folder)  # it has its name behind a power cut, too
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def sync(path: str) -> None:
    """A file's bytes are durable, or of a folder which names lead to what."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)  # for who calls
    finally:
        os.close(handle)


def refuse_existing(target: str | os.PathLike[str]) -> None:
    """Raises ShelfExists where something is there already."""
    if os.path.lexists(target):
        raise _exists(target)


def _rename(path: str, target: str) -> None:
    try:
        os.link(path, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # a file system without links
        refuse_existing(target)
        os.rename(path, target)


def _exists(target: str | os.PathLike[str]) -> ShelfExists:
    return ShelfExists(f"there is something at {os.fspath(target)} already", _REMEDY)
