"""Reading that goes on while what it has read is used already."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

_THREADS = 4


class Ahead:
    """Threads that read in this order; a job returns how many bytes. Around the use of them."""

    def __init__(self, jobs: Sequence[Callable[[], int]]) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "tensorshelf-ahead")
        self._waiting = [self._pool.submit(job) for job in jobs]
        self._waiting.reverse()
        self._there = 0

    def arrived(self, nbytes: int) -> None:
        """Waits until so many are there. Raises what reading them did. For one thread."""
        while self._there < nbytes:
            self._there += self._waiting.pop().result()

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """What nobody has waited for is not read any more."""
        self._pool.shutdown(cancel_futures=True)
