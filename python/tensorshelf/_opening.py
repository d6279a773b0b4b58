"""How a shelf was opened: to open it anew elsewhere, and to say who holds it."""

import os
import sys
import types
from dataclasses import dataclass
from typing import Any

from tensorshelf._media import FurtherMedia

_PACKAGE = os.path.dirname(__file__) + os.sep


@dataclass(frozen=True)
class Opening:
    """The arguments of one ``open()``, where it was called, and which file it found."""

    path: str  # absolute: another process may work in another directory
    tier: str
    verify: str
    block: Any
    heal: bool
    salvage: bool
    further: FurtherMedia
    caller: str  # "train.py, line 12"
    file: tuple[int, int] | None  # which stays when the file is moved


def file_id(path: str | bytes) -> tuple[int, int] | None:
    """The device and inode of what lies at a path; of a device node, the device it stands for."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_rdev, 0) if found.st_rdev else (found.st_dev, found.st_ino)


def outside() -> tuple[types.FrameType, int]:
    """Who called the package: that frame, and its level, where who asks is level 1."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return frame, level


def caller() -> str:
    """The file and line that called the package."""
    frame, _ = outside()
    return f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"
