"""Work that several threads share. They are daemons: one that is stuck ends with the process."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def for_each(items: Iterable[_T], work: Callable[[_T], None], *, threads: int) -> None:
    """Calls ``work`` for each item, and returns when all calls have. Raises what one of them did
    first; no other call begins behind that.
    """
    shared = _Shared(iter(items), work)
    helpers = [
        threading.Thread(target=shared.run, name="tensorshelf-drain", daemon=True)
        for _ in range(threads - 1)
    ]
    begun = []
    with contextlib.suppress(RuntimeError):  # no more threads can be had: those there are do it
        for helper in helpers:
            helper.start()
            begun.append(helper)
    shared.run()
    for helper in begun:
        helper.join()
    if shared.failure is not None:
        raise shared.failure


class _Shared:
    def __init__(self, items: Iterator[_T], work: Callable[[_T], None]) -> None:
        self._items = items
        self._work = work
        self._lock = threading.Lock()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while True:
                with self._lock:
                    if self.failure is not None:
                        return
                    try:
                        item = next(self._items)
                    except StopIteration:
                        return
                self._work(item)
        except BaseException as error:
            with self._lock:
                self.failure = self.failure or error
