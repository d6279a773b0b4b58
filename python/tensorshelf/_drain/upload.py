"""What of a version a remote lacks, sent to it."""

import threading
import time
from collections.abc import Callable

from tensorshelf._drain import codec
from tensorshelf._drain.catalog import Entry
from tensorshelf._drain.manifest import CHUNKS, Manifest, Stored, chunk_name, hash_of
from tensorshelf._drain.remote import Remote
from tensorshelf._drain.side_by_side import for_each
from tensorshelf._drain.stage import Spool, Staged

_RELIST_SECONDS = 600.0  # who cleans up at a remote may take what lies there


class Pace:
    """Holds back who sends. Any thread."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def take(self, nbytes: int) -> float:
        """Seconds to wait before so many bytes are sent."""
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next)
            self._next = begin + nbytes / self._rate
            return begin - now


class Pieces:
    """Those that lie at a remote. Any thread but for ``list``."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._stored: dict[str, Stored] = {}  # by their hashes
        self._unsure: dict[str, int] = {}  # bytes of those that may be cut short, by their names
        self._listed: float | None = None

    def list(self, entries: list[Entry[Manifest]]) -> None:
        """Asks the remote, where that was long ago, or ``forget`` was called.

        A piece is told by its size: a plain one by that of its bytes, and a compressed one by what
        a manifest says. One that none names with that size may be cut short, whatever puts it
        there: it counts when its bytes were compressed anew, and came to that size.
        """
        if not self.is_old:
            return
        now = time.monotonic()
        named = {stored for entry in entries for stored in entry.manifest.stored}
        found: dict[str, Stored] = {}
        unsure: dict[str, int] = {}
        for path, nbytes in self._remote.sizes(CHUNKS).items():
            hash, dot, ending = path.rpartition("/")[2].partition(".")
            stored = Stored(hash, dot + ending, nbytes)
            if stored.suffix == codec.PLAIN or stored in named:
                found[hash] = stored
            else:
                unsure[path] = nbytes
        self._stored, self._unsure = found, unsure
        self._listed = now

    @property
    def is_old(self) -> bool:
        """Whether ``list`` would ask."""
        return self._listed is None or time.monotonic() - self._listed >= _RELIST_SECONDS

    def forget(self) -> None:
        """The remote failed: what lies there is asked anew."""
        self._listed = None

    def find(self, hash: str, nbytes: int) -> Stored | None:
        """``nbytes``: of the piece, before compression."""
        found = self._stored.get(hash)
        if found is None or (found.suffix == codec.PLAIN and found.nbytes != nbytes):
            return None
        return found

    def has(self, stored: Stored) -> bool:
        """Whether it lies there, of just that size: what ``find`` did not know."""
        return self._unsure.get(chunk_name(stored.hash, stored.suffix)) == stored.nbytes

    def add(self, stored: Stored) -> None:
        self._stored[stored.hash] = stored

    def drop(self, names: set[str]) -> None:
        """Forgets objects that were deleted. Their names are those within CHUNKS."""
        for name in names:
            self._unsure.pop(name, None)
            self._stored.pop(name.rpartition("/")[2].partition(".")[0], None)


def send(
    remote: Remote,
    staged: Staged,
    spool: Spool,
    pieces: Pieces,
    *,
    suffix: str,
    threads: int,
    wait: Callable[[int], None],
    moved: Callable[[int], None],
) -> None:
    """Hashes what was spooled, and sends what of it lacks. ``wait`` is called before so many bytes
    are sent, and ``moved`` when they were.
    """
    begun: set[str] = set()
    lock = threading.Lock()

    def work(index: int) -> None:
        raw = spool.read(*staged.spooled[index])
        staged.hashes[index] = hash = hash_of(raw)
        with lock:
            if hash in begun or pieces.find(hash, len(raw)) is not None:
                return
            begun.add(hash)
        data, ending = codec.encode(raw, suffix)
        stored = Stored(hash, ending, len(data))
        there = pieces.has(stored)
        if not there:
            wait(len(data))
            remote.put(stored.path, data)
        pieces.add(stored)
        moved(0 if there else len(data))

    for_each(staged.spooled, work, threads=threads)
