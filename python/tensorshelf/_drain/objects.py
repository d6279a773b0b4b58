"""A remote that fsspec knows by its URL: an object store, mostly.

One put makes one object, whole. Of a file system over which a put may be cut short (sftp, say) what
is left then is told by its size, where it is a piece, and by its checksum, where it is a manifest.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from tensorshelf.errors import BadArgument, IoError, ShelfError, UnsupportedError


class Objects:
    """A place that fsspec knows, as the remote of one job. Any thread."""

    def __init__(self, url: str, below: str = "") -> None:
        self._url = url
        try:
            import fsspec
        except ImportError as error:
            raise UnsupportedError(
                f"{url} needs the package fsspec, which is not installed",
                "Install fsspec, or give a directory.",
            ) from error
        try:
            self._system, root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise UnsupportedError(
                f"{url}: {error}", "Install the package that it names."
            ) from error
        except ValueError as error:
            raise BadArgument(f"{url}: {error}", "Give a URL that fsspec knows.") from error
        self._root = root.rstrip("/") + (f"/{below}" if below else "")

    def sizes(self, folder: str) -> dict[str, int]:
        top = self._path(folder)
        with self._told("listed", top):
            self._system.invalidate_cache()
            try:
                found: dict[str, Any] = self._system.find(top, detail=True)
            except FileNotFoundError:
                return {}
        start = len(top.strip("/")) + 1
        return {
            path.strip("/")[start:]: int(about["size"])
            for path, about in found.items()
            if about["type"] == "file"
        }

    def folders(self) -> list[str]:
        with self._told("listed", self._root):
            self._system.invalidate_cache()
            try:
                found = self._system.ls(self._root, detail=True)
            except FileNotFoundError:
                return []
        names = [each["name"] for each in found if each["type"] == "directory"]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in names)

    def read(self, path: str) -> bytes:
        with self._told("read", path):
            return bytes(self._system.cat_file(self._path(path)))

    def put(self, path: str, data: bytes) -> None:
        target = self._path(path)
        with self._told("written", path):
            try:
                self._system.pipe_file(target, data)
            except FileNotFoundError:  # it has folders, which are to be made first
                self._system.makedirs(target.rpartition("/")[0], exist_ok=True)
                self._system.pipe_file(target, data)

    def settle(self) -> None:
        """An object is durable when its put returns."""

    def delete(self, paths: Iterable[str]) -> None:
        targets = [self._path(path) for path in paths]
        if not targets:
            return
        with self._told("deleted", f"{len(targets)} objects"):
            try:
                self._system.rm(targets)  # many at once, where it can
            except FileNotFoundError:
                for target in targets:
                    with contextlib.suppress(FileNotFoundError):
                        self._system.rm_file(target)

    def tidy(self, folder: str) -> None:
        """Puts that are cut short leave nothing."""

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @contextlib.contextmanager
    def _told(self, what: str, path: str) -> Iterator[None]:
        """Whatever the package raises as the shelf's; missing objects stay FileNotFoundError."""
        try:
            yield
        except (FileNotFoundError, ShelfError):
            raise
        except Exception as error:
            raise IoError(
                f"{self._url}: {path} could not be {what}: {error!r}",
                "See that it can be reached, and may be written to.",
                getattr(error, "errno", None) or 0,
            ) from error
