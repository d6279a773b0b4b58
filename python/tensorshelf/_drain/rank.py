"""What of a rank's shelf is copied next: what all ranks agreed on (meeting.py).

Besides, where somebody waits, and at the end, what this rank has newest: there the others have the
same.

What was agreed on is copied till it is done, for the others do so: it is read at once, and what
cannot be sent stays in the spool. While it is read the version is pinned, so nothing is waited for
before that: this thread is free only while it asks the remote nothing. A rank that could not read a
version is not free before it could read one.
"""

import time
from typing import NamedTuple

from tensorshelf._drain.alone import is_of
from tensorshelf._drain.copier import DrainedShelf, Turns, spool_folder
from tensorshelf._drain.meeting import Meeting
from tensorshelf._drain.metrics import Metrics
from tensorshelf._drain.options import Drain
from tensorshelf._drain.rank_site import RankSite
from tensorshelf._drain.stage import Spool, Staged
from tensorshelf._drain.standing import Standing
from tensorshelf._group.group import Group
from tensorshelf.errors import StaleError

_FIRST_NAP, _LONGEST_NAP, _HURRIED_NAP = 0.05, 5.0, 0.5  # seconds between looks at the remote
_LINGERS = 5.0  # seconds, at the end, for rank 0 to delete what need not stay


class _Copied(NamedTuple):
    """What is read, and not sent yet."""

    staged: Staged
    spool: Spool
    sent_before: int
    floor: int = 0  # as RankSite.floor, once this is there


class RankWork:
    """For one thread."""

    def __init__(
        self,
        shelf: DrainedShelf,
        drain: Drain,
        group: Group,
        standing: Standing,
        metrics: Metrics,
        meeting: Meeting,
    ) -> None:
        self._drain = drain
        self._standing = standing
        self._metrics = metrics
        self._meeting = meeting
        self._spool_folder = spool_folder(drain, shelf._path)
        self._site = RankSite(
            drain,
            shelf._core.info()["shelf_id"],
            group.rank,
            group.members,
            wait=Turns(drain, standing).wait,
            on_read=lambda nbytes: standing.moved(read=nbytes),
            on_sent=lambda nbytes: standing.moved(sent=nbytes),
        )
        self._on_its_way: _Copied | None = None
        self._reads = True  # the last version could be read
        self._looked_at, self._nap = 0.0, _FIRST_NAP
        self._untidy_until: float | None = None  # rank 0 has something to delete still
        self._pieces = (0.0, 0)  # of the first rank that lacks, and when that was seen

    def begin(self) -> None:
        last = self._site.begin()
        if last is not None and is_of(self._standing, last):
            self._standing.found(last)
        pending = self._site.pending
        if pending is not None and is_of(self._standing, pending.manifest):
            self._wait_for_others(pending.manifest.version)
        else:
            self._site.pending = None

    def turn(self) -> bool | None:
        self._standing.refuse_given_up()
        idle = self._is_idle()
        may_begin, agreed = self._meeting.turn(idle=idle)
        if not may_begin:
            return None if self._waits() or not idle else False
        done = True
        if self._on_its_way is not None:
            self._send(self._on_its_way)
        elif agreed is not None:
            version, floor = agreed.version, agreed.floor
            try:
                self._on_its_way = self._read(version)._replace(floor=floor)
            finally:
                del agreed  # and with it the pin
            self._send(self._on_its_way)
        elif not self._reads:
            self._read(self._standing.opened().version).spool.close()
            self._standing.set_on_its_way(None)
        elif (newest := self._wanted()) is not None:
            self._site.ready()
            self._on_its_way = self._read(newest)
            self._send(self._on_its_way)
        else:
            done = self._look_now_and_then()
        self._site.ready()
        pending = self._site.pending
        group = None if pending is None else pending.manifest.group
        self._meeting.rest(0 if group is None else group.number)
        return True if done else None if self._waits() else False

    def _wanted(self) -> int | None:
        """The newest version, where somebody waits for it and it is not there."""
        standing = self._standing
        core = standing.opened()
        if standing.wanted <= standing.base or core.version <= standing.base:
            return None
        newest = core.versions()[-1]
        if self._site.is_pending(newest["version"], newest["time_ns"]):
            return None
        return int(newest["version"])

    def _read(self, version: int) -> _Copied:
        self._standing.set_on_its_way(version)
        spool = Spool(self._spool_folder)
        self._reads = False
        try:
            staged = self._site.stage(self._standing.opened(), version, spool)
        except BaseException as error:
            spool.close()
            self._standing.set_on_its_way(None)
            self._reads = isinstance(error, StaleError)  # it was overtaken, and none is unreadable
            raise
        self._reads = True
        return _Copied(staged, spool, self._standing.sent)

    def _send(self, copied: _Copied) -> None:
        staged = copied.staged
        self._look()  # at the one before, which this one overtakes
        metric = self._metrics.of(staged.step, staged.version)
        self._site.put(staged, copied.spool, metric)
        # Not before: below may be this rank's pending part, with pieces that this one names.
        self._site.floor = max(self._site.floor, copied.floor)
        self._on_its_way = None
        copied.spool.close()
        spared = staged.nbytes - (self._standing.sent - copied.sent_before)
        self._standing.all_sent(spared=spared)
        self._wait_for_others(staged.version)
        self._standing.refuse_given_up()
        self._site.collect()
        self._look()

    def _wait_for_others(self, version: int) -> None:
        self._standing.set_on_its_way(version)
        self._standing.lack(())
        self._nap, self._pieces = _FIRST_NAP, (time.monotonic(), 0)

    def _look_now_and_then(self) -> bool:
        now = time.monotonic()
        if not self._looks_at(now):
            return False
        self._looked_at, self._nap = now, min(2 * self._nap, _LONGEST_NAP)
        return self._look()

    def _looks_at(self, now: float) -> bool:
        hurried = self._standing.closing or self._standing.wanted > self._standing.base
        nap = min(self._nap, _HURRIED_NAP if hurried else _LONGEST_NAP)
        return now >= self._looked_at + nap and self._waits()

    def _is_idle(self) -> bool:
        return (
            self._on_its_way is None
            and self._reads
            and self._site.is_ready
            and self._wanted() is None
            and not self._looks_at(time.monotonic())
        )

    def _waits(self) -> bool:
        """For others: to put their parts, to name the version, or to delete one."""
        if self._untidy_until is not None and time.monotonic() > self._untidy_until:
            self._untidy_until = None
        return self._site.pending is not None or self._untidy_until is not None

    def _look(self) -> bool:
        """Whether what this rank has put is a version of all by now."""
        if self._site.pending is None:
            if self._untidy_until is not None and self._site.collect():
                self._untidy_until = None
            return False
        versions, lacking = self._site.look()
        for made in versions:
            self._standing.copied(made, every=self._drain.every)
        if self._site.pending is not None:
            self._standing.lack(lacking)
            self._see_whether_it_moves(lacking)
        elif self._on_its_way is None:
            self._standing.set_on_its_way(None)
        if not versions:
            return False
        self._standing.refuse_given_up()
        self._nap = _FIRST_NAP
        self._untidy_until = None if self._site.collect() else time.monotonic() + _LINGERS
        return True

    def _see_whether_it_moves(self, lacking: tuple[int, ...]) -> None:
        """Who waits here waits as long as the first of those that lack sends something."""
        now, (seen, before) = time.monotonic(), self._pieces
        if not lacking or now - seen < _LONGEST_NAP:
            return
        pieces = self._site.pieces_of(lacking[0])
        self._pieces = now, pieces
        if pieces != before:
            self._standing.moved()

    def failed(self) -> None:
        self._site.failed()

    def end(self) -> None:
        self._meeting.end()
        if self._on_its_way is not None:
            self._on_its_way.spool.close()
