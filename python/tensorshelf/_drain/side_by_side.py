"""Work that several threads share. They are daemons: one that is stuck ends with the process."""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
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


def in_order(
    count: int, work: Callable[[int], _T], *, threads: int, ahead: int
) -> Generator[_T, None, None]:
    """What ``work`` gives for 0, 1, ...; so many calls are begun ahead. Raises what a call did, in
    its turn. Who closes it waits for no call.
    """
    asked: queue.SimpleQueue[tuple[int, Future[_T]] | None] = queue.SimpleQueue()

    def run() -> None:
        while (task := asked.get()) is not None:
            item, made = task
            if made.set_running_or_notify_cancel():
                try:
                    made.set_result(work(item))
                except BaseException as error:
                    made.set_exception(error)

    helpers = [
        threading.Thread(target=run, name="tensorshelf-drain", daemon=True) for _ in range(threads)
    ]
    waiting: deque[Future[_T]] = deque()
    try:
        for helper in helpers:
            helper.start()
        begun = 0
        for _ in range(count):
            while begun < count and len(waiting) < ahead:
                waiting.append(Future())
                asked.put((begun, waiting[-1]))
                begun += 1
            yield waiting.popleft().result()
    finally:
        for left in waiting:
            left.cancel()
        for _ in helpers:
            asked.put(None)
