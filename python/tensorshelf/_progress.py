"""Progress of what takes seconds: the caller's callback, or a bar on stderr."""

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator

from tensorshelf._size import format_size
from tensorshelf.errors import BadArgument

Report = Callable[[int, int], object]


@contextlib.contextmanager
def reporter(progress: Report | bool | None, label: str) -> Iterator[Report | None]:
    """What to call with (bytes done, bytes in all), or None for silence.

    ``progress`` is such a callable, or True for a bar: tqdm's where it is installed, else a line
    of text. What the callable raises ends the work.
    """
    if progress is None or progress is False:
        yield None
    elif progress is True:
        bar = _tqdm_bar if importlib.util.find_spec("tqdm") else _plain_bar
        with bar(label) as report:
            yield report
    elif callable(progress):
        yield progress
    else:
        raise BadArgument(
            f"progress={progress!r} cannot be called",
            "Pass True for a bar, or a function of (done, total) in bytes.",
        )


@contextlib.contextmanager
def _tqdm_bar(label: str) -> Iterator[Report]:
    from tqdm.auto import tqdm

    with tqdm(desc=label, unit="B", unit_scale=True, unit_divisor=1024, leave=False) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


@contextlib.contextmanager
def _plain_bar(label: str) -> Iterator[Report]:
    shown_at = 0.0

    def report(done: int, total: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - shown_at >= 0.2 or done >= total:
            shown_at = now
            percent = 100 * done // total if total else 100
            text = f"\r{label}: {percent:3d}% of {format_size(total)}"
            sys.stderr.write(text)
            sys.stderr.flush()

    try:
        yield report
    finally:
        if shown_at:
            sys.stderr.write("\n")
