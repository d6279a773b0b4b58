"""What stays at a remote, and what is deleted: manifests first, and then what none names.

Never is a piece deleted that a manifest names. A crash between the two leaves pieces that nobody
names, which the first sweep of the next job finds.
"""

from collections.abc import Collection
from typing import NamedTuple, TypeVar

from tensorshelf._drain.catalog import Catalog, Entry, Version
from tensorshelf._drain.manifest import CHUNKS, FOLDER, Manifest, Name
from tensorshelf._drain.options import Drain
from tensorshelf._drain.remote import Remote

_V = TypeVar("_V", bound=Version)


class Rule(NamedTuple):
    """What one drain is to keep."""

    shelf: str  # what others drained there stays
    keep: int
    keep_every: int | None
    best: str | None


def rule_of(drain: Drain, shelf: str) -> Rule:
    """As it was asked for."""
    return Rule(shelf, drain.keep, drain.keep_every, drain.best)


def is_milestone(rule: Rule, before: Version | None, step: int | None) -> bool:
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


def best_of(rule: Rule, entries: list[Entry[_V]]) -> Entry[_V] | None:
    """The oldest of the best of this shelf."""
    best: Entry[_V] | None = None
    for entry in entries:
        than = None if best is None else best.manifest.metric
        if entry.manifest.shelf == rule.shelf and is_better(rule, entry.manifest.metric, than):
            best = entry
    return best


def last_of(rule: Rule, entries: list[Entry[_V]]) -> _V | None:
    """The newest of this shelf."""
    own = [entry.manifest for entry in entries if entry.manifest.shelf == rule.shelf]
    return own[-1] if own else None


def split(rule: Rule, entries: list[Entry[_V]]) -> tuple[list[Entry[_V]], list[Entry[_V]]]:
    """What stays, and what goes."""
    own = [entry for entry in entries if entry.manifest.shelf == rule.shelf]
    kept = {entry.name for entry in own[-rule.keep :]}
    kept |= {entry.name for entry in own if entry.manifest.milestone}
    if (best := best_of(rule, own)) is not None:
        kept.add(best.name)
    return _parted(entries, {entry.name for entry in own} - kept)


def split_parts(
    job: str, entries: list[Entry[Manifest]], named: Collection[Name], floor: int
) -> tuple[list[Entry[Manifest]], list[Entry[Manifest]]]:
    """What stays of a rank's parts, and what goes. ``named``: by versions of the group. All else of
    this job goes that none will name: they are named in their order, and none from here on whose
    number is below ``floor``. What is newer may be named yet.
    """
    last = max((entry.name for entry in entries if entry.name in named), default=None)
    gone = set()
    for name, made in entries:
        if name in named or made.group is None or made.group.job != job:
            continue
        if (last is not None and name < last) or made.group.number < floor:
            gone.add(name)
    return _parted(entries, gone)


def _parted(
    entries: list[Entry[_V]], gone: Collection[Name]
) -> tuple[list[Entry[_V]], list[Entry[_V]]]:
    stays = [entry for entry in entries if entry.name not in gone]
    return stays, [entry for entry in entries if entry.name in gone]


class Collector:
    """Deletes what one drain keeps no more. For one thread."""

    def __init__(self, remote: Remote, catalog: Catalog[Manifest]) -> None:
        self._remote = remote
        self._catalog = catalog
        self._swept = False  # nothing lies there that nobody names
        self._ghosts: list[Entry[Manifest]] = []  # deleted, and may come back

    def collect(self, kept: list[Entry[Manifest]], going: list[Entry[Manifest]]) -> set[str]:
        """Deletes what goes. Returns the names of pieces that went, within CHUNKS."""
        if self._swept and not going:
            return set()
        swept, self._swept = self._swept, False
        if self._catalog.damaged:  # what it names is not known: no piece goes
            self._delete(going)
            return set()
        if not swept:
            self._remote.tidy(FOLDER)
            self._remote.tidy(CHUNKS)
            there = set(self._remote.sizes(CHUNKS))
        else:
            there = _pieces(going)
        self._delete(going)
        unnamed = there - _pieces(kept) - _pieces(self._ghosts)
        self._remote.delete(f"{CHUNKS}/{name}" for name in sorted(unnamed))
        self._swept = True
        return unnamed

    def _delete(self, going: list[Entry[Manifest]]) -> None:
        """A power cut may bring back one that settle() did not come to: its pieces stay."""
        ghosts = len(self._ghosts)
        self._ghosts += going  # before anything that may fail
        self._remote.delete(entry.name.path for entry in going)
        self._remote.settle()  # else it might bring back one whose pieces are gone
        del self._ghosts[ghosts:]


def _pieces(entries: list[Entry[Manifest]]) -> set[str]:
    return {
        stored.path.removeprefix(f"{CHUNKS}/")
        for entry in entries
        for stored in entry.manifest.stored
    }
