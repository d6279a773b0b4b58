"""The place of a shelf that saves alone: what stays there is its own to say."""

import logging
from collections.abc import Callable

from tensorshelf import _core
from tensorshelf._drain.catalog import Entry
from tensorshelf._drain.manifest import Manifest
from tensorshelf._drain.options import Drain
from tensorshelf._drain.place import Place
from tensorshelf._drain.retain import best_of, is_better, is_milestone, last_of, rule_of, split
from tensorshelf._drain.stage import Spool, Staged

logger = logging.getLogger("tensorshelf")


class Site:
    """For one thread."""

    def __init__(
        self,
        drain: Drain,
        shelf_id: str,
        *,
        wait: Callable[[int], None],
        on_read: Callable[[int], None],
        on_sent: Callable[[int], None],
    ) -> None:
        self._drain = drain
        self._rule = rule_of(drain, shelf_id)
        self._place = Place(drain, "", wait=wait, on_read=on_read, on_sent=on_sent)

    def begin(self) -> Manifest | None:
        """Looks what lies there. Returns what of this shelf was drained last."""
        entries = self._place.begin()
        others = sum(entry.manifest.shelf != self._rule.shelf for entry in entries)
        if others:
            logger.info(
                "drain: %s holds %d versions of other shelves, which stay",
                self._drain.remote,
                others,
            )
        return last_of(self._rule, entries)

    def wants(self, step: int | None, metric: float | None) -> bool:
        """Whether a version is one that stays: a milestone, or the best."""
        entries = self._place.catalog.entries()
        best = best_of(self._rule, entries)
        than = None if best is None else best.manifest.metric
        return self._is_milestone(step, entries) or is_better(self._rule, metric, than)

    def _is_milestone(self, step: int | None, entries: list[Entry[Manifest]]) -> bool:
        return is_milestone(self._rule, last_of(self._rule, entries), step)

    def stage(self, core: _core.Shelf, version: int, spool: Spool) -> Staged:
        """Reads a version of the shelf. Raises StaleError where it is retained no more."""
        self._place.look_for_pieces()
        return self._place.stage(core, version, spool)

    def put(self, staged: Staged, spool: Spool, metric: float | None) -> Manifest:
        """Sends what lacks, and commits."""
        milestone = self._is_milestone(staged.step, self._place.catalog.entries())
        return self._place.put(staged, spool, metric=metric, milestone=milestone).manifest

    def collect(self) -> None:
        """Deletes what need not stay."""
        self._place.collect(*split(self._rule, self._place.catalog.look()))

    def failed(self) -> None:
        """What lies there is asked anew."""
        self._place.failed()
