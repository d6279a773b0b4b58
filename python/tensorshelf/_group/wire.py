"""What carries the messages of a group: a store of torch.distributed's, as TCPStore is one.

It loses nothing, and a wait ends when what is waited for is there. Keys that nobody waits for any
more are deleted. Each call costs a wait for the GIL, 5 ms beside a trainer in pure Python: so what
can be said in one call is.
"""

import contextlib
import datetime
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any, Protocol

from tensorshelf.errors import ShelfError, UnresolvedError

_FIRST_NAP, _LONGEST_NAP = 0.0005, 0.02  # seconds
_MOMENT = 1.0  # seconds
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

    def _call(self, do: Callable[..., Any], *args: Any) -> Any:
        """Calls the store."""
        return do(*args)

    def place(self) -> tuple[Store, str]:
        """The connection, and what its keys begin with."""
        return self._store, self._prefix

    @property
    def has_queues(self) -> bool:
        return self._queues is not None

    def put(self, key: str, value: bytes) -> None:
        self._call(self._store.set, self._prefix + key, value)

    def put_all(self, keys: Sequence[str], value: bytes) -> None:
        """The same under each."""
        names = [self._prefix + key for key in keys]
        self._call(self._store.multi_set, names, [value] * len(keys))

    def take(self, key: str, *, seconds: float | None = None) -> bytes:
        """Waits for it; with ``seconds`` signals are heard meanwhile, and takes some ms more.
        Raises TimeoutError where it does not come, and RuntimeError where the store is gone.
        """
        if seconds is not None:
            self._look_for(key, seconds)
        found: bytes = self._call(self._store.get, self._prefix + key)  # takes the GIL once
        return found

    def _look_for(self, key: str, seconds: float) -> None:
        end, nap = time.monotonic() + seconds, _FIRST_NAP
        while not self.has(key):
            if time.monotonic() > end:
                raise TimeoutError(f"{key!r} did not come within {seconds:g} s")
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP)

    def has(self, key: str) -> bool:
        return bool(self._call(self._store.check, [self._prefix + key]))

    def drop(self, key: str) -> None:
        with contextlib.suppress(RuntimeError):  # some stores cannot
            self._call(self._store.delete_key, self._prefix + key)

    def count(self, key: str) -> int:
        """How often this was called for the key."""
        return int(self._call(self._store.add, self._prefix + key, 1))

    def post(self, box: str, value: bytes) -> None:
        """Behind all that was posted there before."""
        if self._queues is not None:
            self._call(self._queues.queue_push, self._prefix + box, value)
            # Answered when it is there: pushing is not. (torch's queue_len() holds the GIL for as
            # long as the store takes: a store that is stopped would stop the trainer.)
            self.has(box)
        else:
            self.put(_posted(box, self.count(box)), value)

    def next_of(self, box: str, number: int) -> bytes:
        """Waits for the number-th that was posted there, from 1; asked for in turn, by one."""
        if self._queues is not None:
            popped: bytes = self._call(self._queues.queue_pop, self._prefix + box)
            return popped
        return self.take(_posted(box, number))

    def done_with(self, box: str, number: int) -> None:
        """Takes it away."""
        if self._queues is None:
            self.drop(_posted(box, number))


class TrainersWire(Wire):
    """One for the trainer's thread. torch waits for good for a store whose host is stopped, and for
    minutes for one that is gone; and hears no signal meanwhile. So a thread of its own makes the
    calls: who waits here hears signals. Raises UnresolvedError where one takes so many seconds.
    """

    def __init__(self, store: Store, prefix: str, seconds: float) -> None:
        self._seconds = seconds
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._last: Future[Any] | None = None
        self._given = store
        weakref.finalize(self, self._asked.put, None)
        asks = threading.Thread(
            target=_answer_all, args=(self._asked,), name="tensorshelf-store", daemon=True
        )
        asks.start()
        with of_store("what ranks say to each other"):
            self._call(super().__init__, store, prefix)
            self.has("is it there?")

    def _call(self, do: Callable[..., Any], *args: Any) -> Any:
        seconds = self._seconds
        if self._last is not None and not self._last.done():  # a signal ended that wait, or time
            seconds = min(seconds, _MOMENT)
        return self._answer(seconds, do, *args)

    def _answer(self, seconds: float, do: Callable[..., Any], *args: Any) -> Any:
        answer: Future[Any] = Future()
        self._last = answer
        self._asked.put((answer, do, args))
        if not _is_answered(answer, seconds):
            raise UnresolvedError(
                f"the group's store did not answer within {seconds:g} s",
                "Look for the process that holds it, which may be stopped, and start the job anew. "
                "Group(timeout=) says how long to wait.",
            )
        return answer.result()

    def answers(self, seconds: float) -> bool:
        """Whether the store does, within that time: who must end asks before anything else."""
        try:
            self._answer(seconds, self._store.check, [self._prefix + "is it there?"])
        except UnresolvedError:
            return False
        except RuntimeError:  # it is gone, which the next call tells
            return True
        return True

    def within(self, name: str) -> "TrainersWire":
        """The same, with keys that begin with that besides."""
        self._prefix += f"{name}/"
        return self

    def for_a_thread(self) -> Wire:
        """Another connection, for one that waits for nothing else. Its keys are the same."""
        made: Wire = self._call(Wire, self._given, self._prefix)
        return made


_Asked = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


def _is_answered(answer: Future[Any], seconds: float) -> bool:
    done, _ = wait([answer], seconds)
    return bool(done)


def _answer_all(asked: "queue.SimpleQueue[_Asked | None]") -> None:
    while (one := asked.get()) is not None:
        answer, do, args = one
        try:
            answer.set_result(do(*args))
        except BaseException as error:
            answer.set_exception(error)
        del one, answer, do, args  # nothing is kept that the caller lets go


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
