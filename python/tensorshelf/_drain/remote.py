"""A place where objects lie by their names, as draining sees it."""

import os
import re
from collections.abc import Iterable
from typing import Any, Protocol

from tensorshelf.errors import BadArgument

_LOCAL = re.compile(r"\A(?:file|local)://")  # as fsspec names the directories of this machine


class Remote(Protocol):
    """Any thread. Paths are relative, with slashes.

    Raises FileNotFoundError for an object that is not there, and IoError for all that fails.
    """

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of all objects below a folder, by their paths within it."""

    def folders(self) -> list[str]:
        """Names of the folders at the top."""

    def read(self, path: str) -> bytes: ...

    def put(self, path: str, data: bytes) -> None:
        """Whole, or not at all; in place of what is there."""

    def settle(self) -> None:
        """What was put before is durable when it returns, and what was deleted is gone for good.

        Where it raises, a later one makes what was put durable all the same, but what had been
        deleted by then may come back.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Those that are there."""

    def tidy(self, folder: str) -> None:
        """Removes what puts that were cut short have left in a folder. For its only writer."""


def as_text(path: Any) -> str | None:
    """None for what names nothing that a file system could have."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        return None
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return None
    return text


def shown(remote: str | os.PathLike[str]) -> str:
    """As text. Raises BadArgument for what is neither path nor URL."""
    text = as_text(remote)
    if text is None:
        raise BadArgument(
            f"{remote!r} is no place to drain to",
            'Give a directory ("/mnt/nfs/run1"), or a URL that fsspec knows ("s3://bucket/run1").',
        )
    return text


def open_remote(remote: str | os.PathLike[str], below: str = "") -> Remote:
    """The place, or a folder of it. Asks it nothing yet, and makes nothing."""
    text = shown(remote)
    text = _LOCAL.sub("", text)
    if "://" in text or "::" in text:
        from tensorshelf._drain.objects import Objects

        return Objects(text, below)
    from tensorshelf._drain.directory import Directory

    return Directory(text, below)
