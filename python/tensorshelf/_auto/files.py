"""Files for people: traces and reports."""

import os
from pathlib import Path

from tensorshelf._options import encoded_path
from tensorshelf.errors import IoError


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """In the place of what is there. Raises IoError."""
    target = os.fsdecode(encoded_path(path))
    try:
        Path(target).write_text(text, "utf-8")
    except OSError as error:
        raise IoError(
            f"{target} cannot be written: {error.strerror}",
            "Give a path in a folder that is there and can be written.",
            error.errno or 0,
        ) from error
