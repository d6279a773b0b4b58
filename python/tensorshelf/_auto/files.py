"""Files for people: traces and reports."""

import os
from pathlib import Path

from tensorshelf.errors import IoError


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """In the place of what is there. Raises IoError."""
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise IoError(
            f"{os.fspath(path)} cannot be written: {error.strerror}",
            "Give a path in a folder that is there and can be written.",
            error.errno or 0,
        ) from error
