"""A remote that is a directory of this machine: a mounted one, mostly.

A file is put under a temporary name, made durable and renamed. The rename is durable when its
folder is, which settle() sees to for all at once. A folder's fsync that fails is told once, and the
next may succeed without the names that the first one lost: these are put anew before it.
"""

import contextlib
import errno
import os
import secrets
import threading
from collections.abc import Iterable, Iterator

from tensorshelf._appearing import sync
from tensorshelf.errors import IoError, ShelfError

_TEMPORARY = ".tmp"


class Directory:
    """A directory as the remote of one job. Any thread."""

    def __init__(self, path: str, below: str = "") -> None:
        self._top = os.path.abspath(os.path.expanduser(path))
        self._root = os.path.join(self._top, below) if below else self._top
        self._lock = threading.Lock()
        self._settling = threading.Lock()
        self._made: set[str] = set()  # folders that are there
        # Folders with names that may not be durable, and those of them that were put here.
        self._unsettled: dict[str, set[str]] = {}
        self._doubtful: set[str] = set()  # paths of those whose folder could not be made durable

    def sizes(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        top = self._path(folder)
        with _told("listed", top):
            for where, inner, files in os.walk(top, onerror=_raise_but_missing):
                self._found(where)
                for name in files:
                    if not _is_temporary(name):
                        path = os.path.join(where, name)
                        with contextlib.suppress(FileNotFoundError):
                            size = os.stat(path).st_size
                            found[os.path.relpath(path, top).replace(os.sep, "/")] = size
                inner.sort()
        return found

    def _found(self, folder: str) -> None:
        """Another process may have made it, and those above, and not have settled any."""
        with self._lock:
            self._changed(folder)
            while folder not in self._made:
                self._made.add(folder)
                above = os.path.dirname(folder)
                if os.access(above, os.R_OK):
                    self._changed(above)
                if folder == self._top:
                    return
                folder = above

    def folders(self) -> list[str]:
        with _told("listed", self._root):
            try:
                with os.scandir(self._root) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir())
            except FileNotFoundError:
                return []

    def read(self, path: str) -> bytes:
        return _read(self._path(path))

    def put(self, path: str, data: bytes) -> None:
        self._put(self._path(path), data)

    def _put(self, target: str, data: bytes) -> None:
        folder, name = os.path.split(target)
        with _told("written", target):
            temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}{_TEMPORARY}")
            try:
                self._make(folder)
                with open(temporary, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())  # its bytes, before its name
                os.rename(temporary, target)
            except FileNotFoundError as error:  # somebody cleans up there
                with self._lock:
                    self._made.clear()
                raise IoError(
                    f"{folder} was removed", "It is made again by the next try.", errno.ENOENT
                ) from error
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        with self._lock:
            self._changed(folder, name)

    def settle(self) -> None:
        with self._settling:  # who finds nothing to do there waits for who does it
            self._put_doubtful_anew()
            with self._lock:
                waiting = self._unsettled
                self._unsettled = {}  # what changes meanwhile is settled next
            for folder in sorted(waiting):
                names = waiting.pop(folder)
                try:
                    with _told("made durable", folder), contextlib.suppress(FileNotFoundError):
                        sync(folder)  # names, and that they are gone
                except BaseException:
                    with self._lock:
                        self._doubtful |= {os.path.join(folder, name) for name in names}
                        self._changed(folder)
                        for other, unsettled in waiting.items():
                            self._changed(other, *unsettled)
                    raise

    def _put_doubtful_anew(self) -> None:
        """Their bytes are durable: it is their names that an fsync which failed may have lost."""
        for path in sorted(self._doubtful):
            with contextlib.suppress(FileNotFoundError):  # it was deleted
                self._put(path, _read(path))
            with self._lock:
                self._doubtful.discard(path)

    def _changed(self, folder: str, *names: str) -> None:
        """With the lock held."""
        self._unsettled.setdefault(folder, set()).update(names)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            target = self._path(path)
            with _told("deleted", target), contextlib.suppress(FileNotFoundError):
                os.unlink(target)
            with self._lock:
                self._changed(os.path.dirname(target))

    def tidy(self, folder: str) -> None:
        top = self._path(folder)
        with _told("deleted", top):
            for where, _, files in os.walk(top):
                for name in filter(_is_temporary, files):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(where, name))

    def _path(self, path: str) -> str:
        return os.path.join(self._root, *path.split("/")) if path else self._root

    def _make(self, folder: str) -> None:
        """A folder, and those above it, each of which is durable by what settle() does."""
        if folder in self._made:
            return
        above = os.path.dirname(folder)
        if folder == self._top and not os.path.isdir(above):
            raise IoError(
                f"{folder} cannot be made, for {above} is not there",
                "Is it mounted? Only the last folder of a path is made.",
                errno.ENOENT,
            )
        if folder != self._top:
            self._make(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        with self._lock:
            self._made.add(folder)
            self._changed(folder)
            if os.access(above, os.R_OK):
                self._changed(above)


def _read(path: str) -> bytes:
    with _told("read", path), open(path, "rb") as file:
        return file.read()


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(_TEMPORARY)


def _raise_but_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextlib.contextmanager
def _told(what: str, path: str) -> Iterator[None]:
    """Errors of the system as the shelf's; what is not there stays FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, ShelfError):
        raise
    except OSError as error:
        raise IoError(
            f"{path} could not be {what}: {os.strerror(error.errno or 0)}",
            "See that it is mounted, has room, and may be written to.",
            error.errno or 0,
        ) from error
