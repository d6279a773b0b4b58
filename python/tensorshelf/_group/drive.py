"""Which drive a shelf lies on."""

import os
import pathlib
import stat

_DEVICES = "/sys/dev/block"


def drive_of(path: str) -> str:
    """Alike for all that lies on one drive of this machine, partitions too. Where there is none (a
    network's file system, or one of several drives), that of its file system. What cannot be looked
    at counts as on one drive, for the start of a group must not fail by this on one rank alone.
    """
    try:
        return _found(path)
    except OSError:
        return "unknown"


def _found(path: str) -> str:
    about = os.stat(path)
    device = about.st_rdev if stat.S_ISBLK(about.st_mode) else about.st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    found = pathlib.Path(_DEVICES, number).resolve()
    if (found / "partition").exists():
        return (found.parent / "dev").read_text().strip()
    return number
