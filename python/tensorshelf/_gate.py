"""Keeps an assignment whole against persist() and against other assignments to the same tensor.

The store orders single writes. One assignment may be several (a value converted in blocks, or a
part that is read, changed and written back), and must not be cut in two by another thread's
persist() or lose another thread's update. So assignments hold the gate together, each tensor is
assigned by one thread at a time, and persist() holds the gate alone.
"""

import contextlib
import os
import threading
from collections.abc import Iterator

from tensorshelf._errors import UnsupportedError


class Gate:
    """Shared by assignments, exclusive to persist(). Re-entrant within a thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._assigning: dict[int, int] = {}  # thread -> how deep
        self._persisting: int | None = None
        self._tensors: dict[str, threading.RLock] = {}
        self._pid = os.getpid()

    def assigning(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Held while the tensor is being assigned."""
        if os.getpid() != self._pid:  # a forked child: the store refuses, the locks may be held
            return contextlib.nullcontext()
        return _Assigning(self, name)

    def _enter(self, name: str) -> threading.RLock:
        """Counts this thread in, and gives the tensor's own lock."""
        me = threading.get_ident()
        with self._changed:
            while me not in self._assigning and self._persisting not in (None, me):
                self._changed.wait()
            self._assigning[me] = self._assigning.get(me, 0) + 1
            tensor = self._tensors.get(name)
            if tensor is None:
                tensor = self._tensors[name] = threading.RLock()
            return tensor

    def _leave(self) -> None:
        me = threading.get_ident()
        with self._changed:
            self._assigning[me] -= 1
            if not self._assigning[me]:
                del self._assigning[me]
                self._changed.notify_all()

    @contextlib.contextmanager
    def persisting(self) -> Iterator[None]:
        """Held until the next version is closed to further assignments."""
        if os.getpid() != self._pid:
            yield
            return
        me = threading.get_ident()
        with self._changed:
            if me in self._assigning or self._persisting == me:
                raise UnsupportedError(
                    "persist() was called from inside an assignment of the same thread",
                    "In a signal handler, set a flag, and persist in the main loop.",
                )
            while self._persisting is not None:
                self._changed.wait()
            self._persisting = me
            try:
                while self._assigning:
                    self._changed.wait()
            except BaseException:
                self._release()
                raise
        try:
            yield
        finally:
            with self._changed:
                self._release()

    def forget(self, name: str) -> None:
        """Drops what is kept for a tensor that was deleted."""
        self._tensors.pop(name, None)

    def _release(self) -> None:
        self._persisting = None
        self._changed.notify_all()


class _Assigning:
    """One assignment; a class, for a generator would cost as much as a small tensor's copy."""

    __slots__ = ("_gate", "_name", "_tensor")

    def __init__(self, gate: Gate, name: str) -> None:
        self._gate = gate
        self._name = name

    def __enter__(self) -> None:
        self._tensor = self._gate._enter(self._name)
        try:
            self._tensor.acquire()
        except BaseException:  # Ctrl-C while waiting
            self._gate._leave()
            raise

    def __exit__(self, *error: object) -> None:
        self._tensor.release()
        self._gate._leave()
