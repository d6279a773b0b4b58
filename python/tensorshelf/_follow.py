"""Each new version that a reader is shown, at its pace."""

import time
from collections.abc import Callable, Iterator

from tensorshelf._info import VersionInfo
from tensorshelf._numbers import is_number, seconds_of
from tensorshelf.errors import BadArgument

_LONGEST = 1e9  # that a sleep takes

WaitFor = Callable[[int, float | None], bool]  # a version, for so many seconds


def followed(
    wait_for: WaitFor, newest: Callable[[], VersionInfo], timeout: float | None, every: float
) -> Iterator[VersionInfo]:
    """``newest()`` whenever ``wait_for()`` has one beyond the last, until it has none.

    An item comes ``every`` seconds after the one before at the earliest. Raises BadArgument.
    """
    if not is_number(every, least=0) or every > _LONGEST:
        raise BadArgument(
            f"every={every!r} is no number of seconds up to {_LONGEST:.0e}", "Use 0 or more."
        )
    return _items(wait_for, newest, newest().version, seconds_of(timeout, "timeout"), float(every))


def _items(
    wait_for: WaitFor,
    newest: Callable[[], VersionInfo],
    shown: int,
    timeout: float | None,
    every: float,
) -> Iterator[VersionInfo]:
    last = -every
    while True:
        time.sleep(max(0.0, last + every - time.monotonic()))
        if not wait_for(shown + 1, timeout):
            return
        last = time.monotonic()
        new = newest()
        shown = new.version
        yield new
