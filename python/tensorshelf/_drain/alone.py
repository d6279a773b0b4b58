"""What of a shelf that saves alone is copied next: always the newest that is due.

A version is pinned while it is read (stage.py), and never while a remote is waited for: one that is
stuck holds up the drain's thread alone. What fails is tried again with the version that is the
newest then.
"""

from tensorshelf._drain.copier import DrainedShelf, Turns, spool_folder
from tensorshelf._drain.manifest import Manifest
from tensorshelf._drain.metrics import Metrics
from tensorshelf._drain.options import Drain
from tensorshelf._drain.site import Site
from tensorshelf._drain.stage import Spool
from tensorshelf._drain.standing import Standing


class AloneWork:
    """For one thread."""

    def __init__(
        self, shelf: DrainedShelf, drain: Drain, standing: Standing, metrics: Metrics
    ) -> None:
        self._drain = drain
        self._standing = standing
        self._metrics = metrics
        self._spool_folder = spool_folder(drain, shelf._path)
        self._site = Site(
            drain,
            shelf._core.info()["shelf_id"],
            wait=Turns(drain, standing).wait,
            on_read=lambda nbytes: standing.moved(read=nbytes),
            on_sent=lambda nbytes: standing.moved(sent=nbytes),
        )

    def begin(self) -> None:
        last = self._site.begin()
        if last is not None and is_of(self._standing, last):
            self._standing.found(last)

    def turn(self) -> bool:
        version = self._next()
        if version is None:
            return False
        self._copy(version)
        return True

    def _next(self) -> int | None:
        """The oldest that is to stay of those that are retained, or else the newest."""
        core, after = self._standing.opened(), self._standing.base
        if core.version <= after:
            return None
        there = [found for found in core.versions() if found["version"] > after]
        due = [found for found in there if self._is_due(found["step"])]
        if self._standing.wanted > after:
            due = due or there
        for found in due:
            if self._site.wants(found["step"], self._metrics.of(found["step"], found["version"])):
                return int(found["version"])
        return int(due[-1]["version"]) if due else None

    def _is_due(self, step: int | None) -> bool:
        return self._drain.every == 1 or (step is not None and step % self._drain.every == 0)

    def _copy(self, version: int) -> None:
        standing = self._standing
        standing.set_on_its_way(version)
        spool = Spool(self._spool_folder)
        try:
            staged = self._site.stage(standing.opened(), version, spool)
            before = standing.sent
            metric = self._metrics.of(staged.step, version)
            made = self._site.put(staged, spool, metric)
        finally:
            spool.close()
            standing.set_on_its_way(None)
        standing.all_sent(spared=staged.nbytes - (standing.sent - before))
        standing.copied(made, every=self._drain.every)
        standing.refuse_given_up()
        self._site.collect()

    def failed(self) -> None:
        self._site.failed()

    def end(self) -> None: ...


def is_of(standing: Standing, last: Manifest) -> bool:
    """Whether it is a version of the shelf as it is, and not of one that was lost behind it."""
    core = standing.opened()
    for found in core.versions():
        if found["version"] == last.version:
            return bool(found["time_ns"] == last.time_ns)
    return last.version < core.version
