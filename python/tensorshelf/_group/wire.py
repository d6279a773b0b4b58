"""What carries the messages of a group: a store of torch.distributed's, as TCPStore is one.

It loses nothing, and a wait ends when what is waited for is there. Keys that nobody waits for any
more are deleted. Each call costs a wait for the GIL, 5 ms beside a trainer in pure Python: so what
can be said in one call is.
"""

import contextlib
import datetime
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from tensorshelf.errors import ShelfError, UnresolvedError

_FIRST_NAP, _LONGEST_NAP = 0.0005, 0.02  # seconds
_FOR_GOOD = datetime.timedelta(days=30)  # who stops waiting is woken by a message


class Store(Protocol):
    """What is asked of a store."""

    def clone(self) -> "Store": ...

    def add(self, key: str, amount: int, /) -> int: ...

    def set(self, key: str, value: str | bytes, /) -> None: ...

    def multi_set(self, keys: list[str], values: list[bytes], /) -> None: ...

    def get(self, key: str, /) -> bytes: ...

    def set_timeout(self, timeout: datetime.timedelta, /) -> None: ...

    def check(self, keys: list[str], /) -> bool: ...

    def delete_key(self, key: str, /) -> bool: ...


def in_short(error: BaseException) -> str:
    """What torch says of a store, without the stack that it puts below."""
    return str(error).partition("\n")[0]


@contextlib.contextmanager
def of_store(what: str) -> Iterator[None]:
    """Raises UnresolvedError where torch says that the store is gone, and with it ``what``: it goes
    with the rank, or the launcher, that holds it.
    """
    try:
        yield
    except ShelfError:
        raise
    except RuntimeError as error:  # torch's
        raise UnresolvedError(
            f"the group's store is gone, and with it {what}: {in_short(error)}",
            "Look for what became of the process that holds it, and start the job anew.",
        ) from error


class Wire:
    """A connection of one thread's own: who waits by it holds up nobody else's."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store.clone()
        self._store.set_timeout(_FOR_GOOD)
        self._prefix = prefix
        self._queues = _queues_of(self._store)  # of all ranks' stores, or of none

    def place(self) -> tuple[Store, str]:
        """The connection, and what its keys begin with."""
        return self._store, self._prefix

    @property
    def has_queues(self) -> bool:
        return self._queues is not None

    def put(self, key: str, value: bytes) -> None:
        self._store.set(self._prefix + key, value)

    def put_all(self, keys: Sequence[str], value: bytes) -> None:
        """The same under each."""
        self._store.multi_set([self._prefix + key for key in keys], [value] * len(keys))

    def take(self, key: str, *, seconds: float | None = None) -> bytes:
        """Waits for it; with ``seconds`` signals are heard meanwhile, and takes some ms more.
        Raises TimeoutError where it does not come, and RuntimeError where the store is gone.
        """
        if seconds is not None:
            self._look_for(key, seconds)
        return self._store.get(self._prefix + key)  # which waits, and takes the GIL once

    def _look_for(self, key: str, seconds: float) -> None:
        end, nap = time.monotonic() + seconds, _FIRST_NAP
        while not self.has(key):
            if time.monotonic() > end:
                raise TimeoutError(f"{key!r} did not come within {seconds:g} s")
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP)

    def has(self, key: str) -> bool:
        return self._store.check([self._prefix + key])

    def answers(self, seconds: float) -> bool:
        """Whether the store does, within that time. torch waits for good for one whose host is
        stopped, and hears no signal meanwhile: who must end asks before it calls anything else.
        """
        asks = threading.Thread(target=self._ask, name="tensorshelf-store", daemon=True)
        asks.start()
        asks.join(seconds)
        return not asks.is_alive()

    def _ask(self) -> None:
        with contextlib.suppress(RuntimeError):  # one that is gone is told by the next call
            self.has("is it there?")

    def drop(self, key: str) -> None:
        with contextlib.suppress(RuntimeError):  # some stores cannot
            self._store.delete_key(self._prefix + key)

    def count(self, key: str) -> int:
        """How often this was called for the key."""
        return self._store.add(self._prefix + key, 1)

    def post(self, box: str, value: bytes) -> None:
        """Behind all that was posted there before."""
        if self._queues is not None:
            self._queues.queue_push(self._prefix + box, value)
            # Answered when it is there: pushing is not. (torch's queue_len() holds the GIL for as
            # long as the store takes: a store that is stopped would stop the trainer.)
            self.has(box)
        else:
            self.put(_posted(box, self.count(box)), value)

    def next_of(self, box: str, number: int) -> bytes:
        """Waits for the number-th that was posted there, from 1; asked for in turn, by one."""
        if self._queues is not None:
            found: bytes = self._queues.queue_pop(self._prefix + box)
            return found
        return self.take(_posted(box, number))

    def done_with(self, box: str, number: int) -> None:
        """Takes it away."""
        if self._queues is None:
            self.drop(_posted(box, number))


def connected(store: Store, prefix: str, seconds: float) -> Wire:
    """To a store that answers, within that time. torch waits for good for one whose host is
    stopped, and hears no signal meanwhile; this hears them. Raises UnresolvedError else.
    """
    made: Future[Wire] = Future()
    asks = threading.Thread(
        target=_connect, args=(store, prefix, made), name="tensorshelf-store", daemon=True
    )
    asks.start()
    with of_store("what ranks say to each other"):
        try:
            return made.result(seconds)
        except TimeoutError as error:
            raise UnresolvedError(
                f"the group's store did not answer within {seconds:g} s",
                "Look for the process that holds it, which may be stopped, and start the job anew. "
                "Group(timeout=) says how long to wait.",
            ) from error


def _connect(store: Store, prefix: str, made: Future[Wire]) -> None:
    try:
        wire = Wire(store, prefix)
        wire.has("is it there?")
        made.set_result(wire)
    except BaseException as error:
        made.set_exception(error)


def _queues_of(store: Any) -> Any:
    """The store, where it has queues that wake who waits: a TCPStore with libuv, which is torch's
    usual one. A HashStore's push wakes one thread, whatever that one waits for.
    """
    base = store
    while hasattr(base, "underlying_store"):  # of a PrefixStore
        base = base.underlying_store
    return store if getattr(base, "libuvBackend", False) and hasattr(base, "queue_pop") else None


def _posted(box: str, number: int) -> str:
    return f"{box}/{number}"
