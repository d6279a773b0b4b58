"""Memory that the ranks of one machine have in common: each fills a room of its own, and all read
it. It has no name in any folder, and goes with the last rank that has it.
"""

import contextlib
import json
import mmap
import os
import pathlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorshelf._values._dtypes import Array

_NAME = "tensorshelf-room"
_KEY_BYTES = 16
_BOOT = pathlib.Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = "/proc/self/ns/pid"  # the numbers of processes mean something within one of these


class _Door(NamedTuple):
    """Where others find a room."""

    machine: str
    process: int
    file: int
    key: str  # what lies in it before it is used: by that it is known


class Room:
    """This rank's room, to be filled by it. ``offer`` is empty where the machine lends none."""

    def __init__(self, nbytes: int) -> None:
        self.offer = ""
        self._file = -1
        self.memory: Array = np.empty(0, np.uint8)
        with contextlib.suppress(OSError):
            self._file = os.memfd_create(_NAME, os.MFD_CLOEXEC)
            os.posix_fallocate(self._file, 0, nbytes)  # else there might be none when it is filled
            self.memory = _mapped(self._file, nbytes)
            machine = f"{_BOOT.read_text().strip()} {os.readlink(_PROCESSES)}"
            key = secrets.token_bytes(_KEY_BYTES)
            self.memory[:_KEY_BYTES] = np.frombuffer(key, np.uint8)
            self.offer = json.dumps(_Door(machine, os.getpid(), self._file, key.hex()))

    def shut(self) -> None:
        """No other rank finds it from here on; who has it keeps it."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def of_one_machine(offers: Sequence[str]) -> bool:
    """Whether all of these are, by what they say."""
    return all(offers) and len({json.loads(offer)[0] for offer in offers}) == 1


def entered(offer: str, nbytes: int) -> Array | None:
    """The room of that offer, to be read; None where this process does not find it."""
    found = _Door(*json.loads(offer))
    path = f"/proc/{found.process}/fd/{found.file}"
    try:
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
            return None
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            memory = _mapped(file, nbytes) if os.fstat(file).st_size == nbytes else None
        finally:
            os.close(file)
    except OSError:  # of another user, say
        return None
    if memory is None or memory[:_KEY_BYTES].tobytes().hex() != found.key:
        return None
    return memory


def _mapped(file: int, nbytes: int) -> Array:
    return np.frombuffer(mmap.mmap(file, nbytes), np.uint8)
