"""What carries the messages of a group: a store of torch.distributed's, as TCPStore is one.

It loses nothing, and a wait ends when what is waited for is there. Keys that nobody waits for any
more are deleted.
"""

import contextlib
import datetime
from typing import Protocol

_FOR_GOOD = datetime.timedelta(days=30)  # who stops waiting is woken by a message


class Store(Protocol):
    """What is asked of a store."""

    def clone(self) -> "Store": ...

    def add(self, key: str, amount: int, /) -> int: ...

    def set(self, key: str, value: str | bytes, /) -> None: ...

    def get(self, key: str, /) -> bytes: ...

    def wait(self, keys: list[str], timeout: datetime.timedelta, /) -> None: ...

    def check(self, keys: list[str], /) -> bool: ...

    def delete_key(self, key: str, /) -> bool: ...


def in_short(error: BaseException) -> str:
    """What torch says of a store, without the stack that it puts below."""
    return str(error).partition("\n")[0]


class Wire:
    """A connection of one thread's own: who waits by it holds up nobody else's."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store.clone()
        self._prefix = prefix

    def put(self, key: str, value: bytes) -> None:
        self._store.set(self._prefix + key, value)

    def take(self, key: str, *, seconds: float | None = None) -> bytes:
        """Waits for it. Raises RuntimeError where it does not come, or the store is gone."""
        full = self._prefix + key
        timeout = _FOR_GOOD if seconds is None else datetime.timedelta(seconds=seconds)
        self._store.wait([full], timeout)
        return self._store.get(full)

    def has(self, key: str) -> bool:
        return self._store.check([self._prefix + key])

    def drop(self, key: str) -> None:
        with contextlib.suppress(RuntimeError):  # some stores cannot
            self._store.delete_key(self._prefix + key)

    def count(self, key: str) -> int:
        """How often this was called for the key."""
        return self._store.add(self._prefix + key, 1)

    def post(self, box: str, value: bytes) -> None:
        """Behind all that was posted there before."""
        self.put(f"{box}/{self.count(box)}", value)

    def next_of(self, box: str, number: int) -> bytes:
        """Waits for the number-th that was posted there, from 1, and takes it away."""
        key = f"{box}/{number}"
        value = self.take(key)
        self.drop(key)
        return value
