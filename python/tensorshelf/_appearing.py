"""Files that are there whole and durable, or not at all."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator

from tensorshelf.errors import IoError, ShelfExists

_REMEDY = "Give another path, or remove it."


@contextlib.contextmanager
def appearing(target: str | os.PathLike[str]) -> Iterator[str]:
    """A path in the same folder to make a file at, durable. It gets its name when that is closed,
    in the place of nothing, or goes. (Where the file system has no hard links, something that
    appears under the name in the very moment is replaced.) Raises ShelfExists and OSError, and
    IoError where it has its name, which may not outlive a power cut.

    A crash leaves it as ``.NAME.PID.*.tmp``; of a shelf with a name of up to 180 characters, the
    next one of that name removes that.
    """
    folder, name = os.path.split(os.path.abspath(target))
    path = os.path.join(folder, f".{name[:180]}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
    try:
        yield path
        _rename(path, os.fspath(target))
        if os.access(folder, os.R_OK):  # else nobody can ask for that
            _sync_name(folder, os.fspath(target))  # it has its name behind a power cut, too
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def sync(path: str) -> None:
    """A file's bytes are durable, or of a folder which names lead to what."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)  # for who calls
    except OSError as error:  # some file systems have nothing to sync of a folder
        if error.errno != errno.EINVAL or not os.path.isdir(path):
            raise
    finally:
        os.close(handle)


def _sync_name(folder: str, target: str) -> None:
    try:
        sync(folder)  # for who calls
    except OSError as error:
        raise IoError(
            f"{target} is there, and its name may not outlive a power loss: {error}",
            "Check the device (dmesg).",
            error.errno or 0,
        ) from error


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
