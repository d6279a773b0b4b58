"""What stays at a remote, and what is deleted: manifests first, and then what none names.

Never is a piece deleted that a manifest names. A crash between the two leaves pieces that nobody
names, which the first sweep of the next job finds.
"""

from collections.abc import Collection
from typing import NamedTuple

from tensorshelf._drain.catalog import Catalog, Entry, Epoch, epoch_of
from tensorshelf._drain.manifest import CHUNKS, FOLDER, Manifest
from tensorshelf._drain.options import Drain
from tensorshelf._drain.remote import Remote

_MOST_AHEAD = 16  # versions that wait for other ranks


class Rule(NamedTuple):
    """Of one drain."""

    shelf: str  # what others drained there stays
    keep: int
    keep_every: int | None
    best: str | None


def rule_of(drain: Drain, shelf: str) -> Rule:
    """As it was asked for."""
    return Rule(shelf, drain.keep, drain.keep_every, drain.best)


def is_milestone(rule: Rule, before: Manifest | None, step: int | None) -> bool:
    """Whether a version is the first at or behind a multiple of ``keep_every``.

    ``before`` is the version of this shelf that was drained last.
    """
    if rule.keep_every is None or step is None:
        return False
    last = 0 if before is None or before.step is None else before.step
    return step // rule.keep_every > last // rule.keep_every


def is_better(rule: Rule, metric: float | None, than: float | None) -> bool:
    """Whether one metric goes before another."""
    if metric is None or rule.best is None:
        return False
    if than is None:
        return True
    return metric < than if rule.best == "min" else metric > than


def best_of(rule: Rule, entries: list[Entry]) -> Entry | None:
    """The oldest of the best of this shelf."""
    best: Entry | None = None
    for entry in entries:
        than = None if best is None else best.manifest.metric
        if entry.manifest.shelf == rule.shelf and is_better(rule, entry.manifest.metric, than):
            best = entry
    return best


def split(
    rule: Rule, entries: list[Entry], common: Collection[Epoch] | None = None
) -> tuple[list[Entry], list[Entry]]:
    """What stays, and what goes. ``common``: of which all ranks of a group have their parts; from
    the newest of them on all stays, for the others may lag.
    """
    own = [entry for entry in entries if entry.manifest.shelf == rule.shelf]
    kept = {entry.name for entry in own[-rule.keep :]}
    kept |= {entry.name for entry in own if entry.manifest.milestone}
    if (best := best_of(rule, own)) is not None:
        kept.add(best.name)
    if common is not None:
        kept |= {entry.name for entry in _not_behind(own, common)}
    going = [entry for entry in own if entry.name not in kept]
    gone = {entry.name for entry in going}
    return [entry for entry in entries if entry.name not in gone], going


def _not_behind(own: list[Entry], common: Collection[Epoch]) -> list[Entry]:
    """The newest that all have, and what is newer: of that the last _MOST_AHEAD."""
    for index in reversed(range(len(own))):
        part = own[index].manifest.group
        if part is not None and epoch_of(part) in common:
            return [own[index], *own[index + 1 :][-_MOST_AHEAD:]]
    return own[-_MOST_AHEAD:]


class Collector:
    """Of one drain. For one thread."""

    def __init__(self, remote: Remote, catalog: Catalog) -> None:
        self._remote = remote
        self._catalog = catalog
        self._swept = False  # nothing lies there that nobody names

    def collect(self, kept: list[Entry], going: list[Entry]) -> set[str]:
        """Deletes what goes. Returns the names of pieces that went, within CHUNKS."""
        if self._swept and not going:
            return set()
        swept, self._swept = self._swept, False
        sweeps = not swept and not self._catalog.damaged
        if sweeps:
            self._remote.tidy(FOLDER)
            self._remote.tidy(CHUNKS)
            there = set(self._remote.sizes(CHUNKS))
        else:
            there = _pieces(going)
        self._remote.delete(entry.name.path for entry in going)
        self._remote.settle()  # else a power cut might bring back one whose pieces are gone
        unnamed = there - _pieces(kept)
        self._remote.delete(f"{CHUNKS}/{name}" for name in sorted(unnamed))
        self._swept = swept or sweeps
        return unnamed


def _pieces(entries: list[Entry]) -> set[str]:
    return {
        stored.path.removeprefix(f"{CHUNKS}/")
        for entry in entries
        for stored in entry.manifest.stored
    }
