"""Keeps an assignment whole against persist() and against other assignments to the same tensor.

The store orders single writes. One assignment may be several (a value converted in blocks, or a
part that is read, changed and written back), and must not be cut in two by another thread's
persist() or lose another thread's update. So an assignment holds the stripe of its tensor's name,
and persist() holds every stripe.

Nothing is counted, so nothing can be left counted: Ctrl-C may strike between any two steps of
Python code, but not between taking a lock of the interpreter's own and entering its with block,
nor between leaving the block and releasing it. All locks here are held by such blocks alone.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tensorshelf._errors import UnsupportedError

_T = TypeVar("_T")


class Gate:
    """Shared by assignments to tensors of different stripes, exclusive to persist()."""

    __slots__ = ("_door", "_owned", "_pid", "_stripes")

    def __init__(self) -> None:
        # persist() holds the door while it collects the stripes, so that no stream of assignments
        # can keep it waiting; an assignment only passes through.
        self._door: Any = threading.RLock()
        self._stripes: tuple[Any, ...] = tuple(threading.RLock() for _ in range(8))
        self._owned = tuple(lock._is_owned for lock in (self._door, *self._stripes))
        self._pid = os.getpid()

    def assigning(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """To be entered at once, and held while the tensor is being assigned."""
        if os.getpid() != self._pid:  # a forked child: the store refuses, the locks may be held
            return contextlib.nullcontext()
        self._refuse_inside("a tensor was assigned")
        with self._door:
            pass
        stripe: contextlib.AbstractContextManager[Any] = self._stripes[hash(name) & 7]
        return stripe

    def alone(self, body: Callable[[], _T]) -> _T:
        """Calls the body while no assignment is under way, here or in another thread."""
        if os.getpid() != self._pid:
            return body()
        self._refuse_inside("persist() was called")
        s = self._stripes
        with self._door, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]:
            return body()

    def _refuse_inside(self, what: str) -> None:
        """Raises where this thread is inside already: it would see, or overwrite, half a value."""
        for owned in self._owned:
            if owned():
                raise UnsupportedError(
                    f"{what} from inside an assignment or a persist() of the same thread",
                    "In a signal handler, set a flag, and do it in the main loop.",
                )
