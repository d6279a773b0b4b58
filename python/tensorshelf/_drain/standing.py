"""How far a drain has come: its thread writes it, and any thread may ask."""

import contextlib
import threading
import time
import weakref

from tensorshelf import _core
from tensorshelf._drain.info import DrainInfo
from tensorshelf._drain.manifest import Manifest
from tensorshelf.errors import ClosedError


class GivenUp(Exception):
    """close() has: nobody waits for the drain's thread any more."""


class Standing:
    """``changed`` is the lock of what the drain's thread and others both change, and tells of
    changes. What that thread alone writes it writes without, as noted there.
    """

    def __init__(self, core: _core.Shelf, remote: str, rank: int | None) -> None:
        self.changed = threading.Condition()
        self.closing = False  # what is durable by now is drained, and nothing behind that
        self.hurried = False  # somebody waits
        self.given_up = False
        self.ended = False  # the thread has
        self.wanted = 0  # a version that somebody waits for, though it is not due
        self.version: int | None = None  # that was drained last
        self.step: int | None = None
        self.on_its_way: int | None = None
        self.moved_at = time.monotonic()
        self.busy_since: float | None = None  # the thread's turn began
        self.error: str | None = None
        self._core: _core.Shelf | None = core
        self._asked = weakref.ref(core)  # when it was given up, too: it may save on
        self._remote = remote
        self._time_ns: int | None = None
        self._before = max(core.version - 1, 0)  # versions that never were to be drained
        self._newest = _newest(core)
        self._drained = self._skipped = self._failures = 0
        self._read = self._sent = self._spared = 0
        self._rank = rank
        self._lacking: tuple[int, ...] = ()
        self._busy: tuple[int, ...] = ()
        self.agreed = rank is None  # with the others of its group, on what all go on from

    # ---- for who asks

    def info(self) -> DrainInfo:
        with self.changed:
            newest, time_ns = self._noted()
            versions: int | None = max(newest - self.base, 0)
            seconds = None if self._time_ns is None else max(time_ns - self._time_ns, 0) / 1e9
            if not self._can_be_asked:  # and may have saved on, before it was closed
                versions = seconds = None
            return DrainInfo(
                remote=self._remote,
                version=self.version,
                step=self.step,
                on_its_way=self.on_its_way,
                drained=self._drained,
                skipped=self._skipped,
                lag_versions=versions,
                lag_seconds=seconds,
                read_bytes=self._read,
                sent_bytes=self._sent,
                spared_bytes=self._spared,
                moved_seconds=time.monotonic() - self.moved_at,
                failures=self._failures,
                error=self.error,
                lagging=self.lagging,
            )

    @property
    def base(self) -> int:
        """The last version that needs no draining."""
        return self._before if self.version is None else self.version

    @property
    def lagging(self) -> tuple[int, ...] | None:
        """The ranks that the newest version waits for; None where that is not known."""
        return (self._lacking or self._busy) if self._rank == 0 else None

    def want_newest(self) -> int:
        """With the lock: the newest durable version, which is drained though it be not due. Of a
        rank that has not agreed with the others yet it may be no version of theirs.
        """
        self.wanted = self._noted()[0] if self.agreed else self.base
        self.hurried = True
        self.changed.notify_all()
        return self.wanted

    def awaited(self) -> tuple[int, float] | None:
        """The version that is on its way, or one that waits behind what the thread is busy with;
        and since when nothing moves.
        """
        with self.changed:
            if self.on_its_way is not None:
                return self.on_its_way, self.moved_at
            since = self.busy_since  # the thread writes it without the lock
            newest, _ = self._noted()
            if since is None or self.ended or newest <= self.base:
                return None
            return newest, max(self.moved_at, since)

    def give_up(self) -> tuple[int, int]:
        """The newest version, and how many are left behind. The shelf may end then, whatever the
        thread is stuck in.
        """
        with self.changed:
            newest = self._noted()[0]
            self.given_up = True
            self._core = None
            left = max(newest - self.base, 0) if self.agreed else 0
            self._skipped += left
            self.changed.notify_all()
            return newest, left

    @property
    def is_open(self) -> bool:
        return self._core is not None

    def _noted(self) -> tuple[int, int]:
        """The newest version of a shelf that may be closed meanwhile, and its time."""
        core = self._asked()
        if core is not None:
            with contextlib.suppress(ClosedError):
                self._newest = _newest(core)
        return self._newest

    @property
    def _can_be_asked(self) -> bool:
        core = self._asked()
        return core is not None and not core.closed

    def newest(self) -> int:
        """The durable version; of a shelf that is closed, as it was asked last."""
        with self.changed:
            return self._noted()[0]

    # ---- for the thread

    def opened(self) -> _core.Shelf:
        """Raises GivenUp."""
        core = self._core
        if core is None:
            raise GivenUp
        return core

    def refuse_given_up(self) -> None:
        if self.given_up:
            raise GivenUp

    def moved(self, *, read: int = 0, sent: int = 0) -> None:
        """Bytes did. Raises GivenUp."""
        with self.changed:
            self._read += read
            self._sent += sent
            self.moved_at = time.monotonic()
        self.refuse_given_up()

    @property
    def sent(self) -> int:
        return self._sent

    def found(self, last: Manifest) -> None:
        """A version lies at the remote already."""
        with self.changed:
            self._set(last)

    def all_sent(self, *, spared: int) -> None:
        """All of a version, or of a rank's part, is sent; so many bytes needed not be."""
        with self.changed:
            self._spared += spared
            self.error = None

    def copied(self, made: Manifest, *, every: int) -> None:
        """A version is whole at the remote."""
        with self.changed:
            self._skipped += self._passed_over(made, every)
            self._drained += 1
            self._lacking = self._busy = ()
            self._set(made)

    def lack(self, ranks: tuple[int, ...]) -> None:
        """On rank 0 of a group: these ranks' parts of the version on its way are not there."""
        with self.changed:
            self._lacking = ranks

    def lag(self, ranks: tuple[int, ...]) -> None:
        """Their drains were busy when a save was decided."""
        with self.changed:
            self._busy = ranks

    def failed(self, error: Exception) -> None:
        with self.changed:
            self.error = str(error)
            self._failures += 1

    def set_on_its_way(self, version: int | None) -> None:
        with self.changed:
            self.on_its_way = version

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.on_its_way = None
            self.changed.notify_all()

    def _passed_over(self, made: Manifest, every: int) -> int:
        """Versions that were due, and are not drained."""
        after = max(self._before, self.version or 0)
        if every == 1:
            return max(made.version - after - 1, 0)
        if self.step is None or made.step is None:
            return 0
        return max((made.step - 1) // every - self.step // every, 0)

    def _set(self, made: Manifest) -> None:
        self.version, self.step, self._time_ns = made.version, made.step, made.time_ns
        self.moved_at = time.monotonic()
        self.changed.notify_all()


def _newest(core: _core.Shelf) -> tuple[int, int]:
    """The durable version's number, and when it was persisted."""
    versions = core.versions()
    return (versions[-1]["version"], versions[-1]["time_ns"]) if versions else (0, 0)
