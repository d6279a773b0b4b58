"""Memory of this machine in the place of a CUDA device's: its bytes by their axes, one by one."""

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

Axes = Sequence[tuple[int, int]]


def _rows(address: int, nbytes: int, axes: Axes) -> Iterator[tuple[int, int]]:
    """Where each row lies, in their order, and of how many bytes it is."""
    for count, _ in axes:
        assert nbytes % count == 0
        nbytes //= count
    for at in itertools.product(*(range(count) for count, _ in axes)):
        yield address + sum(i * step for i, (_, step) in zip(at, axes, strict=True)), nbytes


def gathered(where: dict[str, Any]) -> bytes:
    """What the native half would copy from there."""
    rows = _rows(where["address"], where["nbytes"], where["axes"])
    return b"".join(ctypes.string_at(*row) for row in rows)


def scatter(where: dict[str, Any], data: bytes) -> None:
    """As the native half would copy it there."""
    done = 0
    for address, nbytes in _rows(where["address"], where["nbytes"], where["axes"]):
        ctypes.memmove(address, data[done : done + nbytes], nbytes)
        done += nbytes
    assert done == len(data)
