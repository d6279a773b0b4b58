"""SIGTERM and the like: what is in flight lands first, and then the signal does what it does."""

import os
import signal
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any


def _nothing(number: int) -> None:
    pass


class Signals:
    """Calls ``first`` when one of the signals comes, then whoever had it before.

    Only the main thread may install it; elsewhere it does nothing. What the signal did before, it
    does afterwards: a handler is called, and by default the process ends by it.
    """

    def __init__(self, signals: Iterable[int], first: Callable[[int], object]) -> None:
        self._first = first
        self._pid = os.getpid()
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in signals:
            self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: types.FrameType | None) -> None:
        before = self._before.get(number)
        if os.getpid() == self._pid:  # a forked child has nothing in flight
            self._first(number)
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def restore(self) -> None:
        """Gives the signals back. Who took one since may call us first: then we still call on."""
        self._first = _nothing
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before if before is not None else signal.SIG_DFL)
