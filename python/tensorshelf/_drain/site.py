"""One place that versions are drained to: what lies there, and one more version of it."""

import logging
import secrets
from collections.abc import Callable, Collection

from tensorshelf import _core
from tensorshelf._drain import codec
from tensorshelf._drain.catalog import (
    Catalog,
    Entry,
    Epoch,
    in_common,
    names_at,
    rank_folder,
    ranks_at,
)
from tensorshelf._drain.layout import size_of
from tensorshelf._drain.manifest import Manifest, Name
from tensorshelf._drain.options import Drain
from tensorshelf._drain.remote import open_remote
from tensorshelf._drain.retain import Collector, best_of, is_better, is_milestone, rule_of, split
from tensorshelf._drain.stage import Hashes, Spool, Staged, stage
from tensorshelf._drain.upload import Pieces, send
from tensorshelf.errors import ShelfBusy

logger = logging.getLogger("tensorshelf")


class Site:
    """For one thread. What goes on in it may be told to others by ``on_read`` and ``on_sent``."""

    def __init__(
        self,
        drain: Drain,
        shelf_id: str,
        rank: int | None,
        *,
        wait: Callable[[int], None],
        on_read: Callable[[int], None],
        on_sent: Callable[[int], None],
    ) -> None:
        below = "" if rank is None else rank_folder(rank)
        self._drain = drain
        self._rank = rank
        self._remote = open_remote(drain.remote, below)
        self._suffix = codec.check(drain.compress)
        self._catalog = Catalog(self._remote)
        self._others: dict[int, Catalog] = {}
        self._collector = Collector(self._remote, self._catalog)
        self._rule = rule_of(drain, shelf_id)
        self._pieces = Pieces(self._remote)
        self._hashes = Hashes()
        self._token = secrets.token_hex(8)
        self._generation: int | None = None
        self._wait, self._on_read, self._on_sent = wait, on_read, on_sent

    def begin(self) -> Manifest | None:
        """Looks what lies there. Returns what of this shelf was drained last."""
        entries = self._catalog.look()
        if self._catalog.damaged:
            logger.warning(
                "drain: %d manifests at %s are damaged, and count for nothing",
                len(self._catalog.damaged),
                self._drain.remote,
            )
        if self._generation is None:
            known = [*(entry.name for entry in entries), *self._catalog.damaged]
            self._generation = 1 + max((name.generation for name in known), default=0)
        last = self._last(entries)
        others = sum(entry.manifest.shelf != self._rule.shelf for entry in entries)
        if others:
            logger.info(
                "drain: %s holds %d versions of other shelves, which stay",
                self._drain.remote,
                others,
            )
        return last

    def _last(self, entries: list[Entry]) -> Manifest | None:
        own = [entry.manifest for entry in entries if entry.manifest.shelf == self._rule.shelf]
        return own[-1] if own else None

    def wants(self, step: int | None, metric: float | None) -> bool:
        """Whether a version is one that stays: a milestone, or the best."""
        entries = self._catalog.entries()
        best = best_of(self._rule, entries)
        than = None if best is None else best.manifest.metric
        return is_milestone(self._rule, self._last(entries), step) or is_better(
            self._rule, metric, than
        )

    def stage(self, core: _core.Shelf, version: int, spool: Spool) -> Staged:
        """Reads a version of the shelf. Raises StaleError where it is retained no more."""
        self._pieces.list(self._catalog.entries())
        return stage(
            core,
            version,
            known=self._hashes,
            lies_there=lambda hash, nbytes: self._pieces.find(hash, nbytes) is not None,
            in_group=self._rank is not None,
            spool=spool,
            threads=self._drain.threads,
            moved=self._on_read,
        )

    def put(self, staged: Staged, spool: Spool, metric: float | None) -> Manifest:
        """Sends what lacks, and commits: the version is the remote's when the manifest is."""
        send(
            self._remote,
            staged,
            spool,
            self._pieces,
            suffix=self._suffix,
            threads=self._drain.threads,
            wait=self._wait,
            moved=self._on_sent,
        )
        self._hashes.keep(staged.tensors, staged.pieces, staged.hashes)
        self._remote.settle()  # all that the manifest names is durable
        made = self._manifest(staged, metric)
        name = self._next_name()
        self._wait(0)  # who was given up commits nothing: another may have its place
        self._remote.put(name.path, made.encode())
        self._remote.settle()
        self._catalog.add(name, made)
        return made

    def _manifest(self, staged: Staged, metric: float | None) -> Manifest:
        stored = []
        for hash, piece in zip(staged.hashes, staged.pieces, strict=True):
            assert hash is not None
            there = self._pieces.find(hash, size_of(piece))
            assert there is not None
            stored.append(there)
        return Manifest(
            shelf=staged.shelf,
            version=staged.version,
            step=staged.step,
            time_ns=staged.time_ns,
            metric=metric,
            milestone=is_milestone(self._rule, self._last(self._catalog.entries()), staged.step),
            group=staged.group,
            tensors=staged.tensors,
            pieces=staged.pieces,
            stored=stored,
        )

    def _next_name(self) -> Name:
        """Raises ShelfBusy where another job has begun to drain there."""
        names = names_at(self._remote)
        assert self._generation is not None
        mine = (self._generation, self._token)
        if any((name.generation, name.token) > mine for name in names):
            raise ShelfBusy(
                f"another job drains to {self._drain.remote}, and has begun later",
                "Give each job a place of its own. This one drains no more.",
            )
        sequence = 1 + max((name.sequence for name in names), default=0)
        return Name(sequence, self._generation, self._token)

    def collect(self) -> None:
        """Deletes what need not stay."""
        kept, going = split(self._rule, self._catalog.look(), self._common())
        self._pieces.drop(self._collector.collect(kept, going))

    def _common(self) -> Collection[Epoch] | None:
        """Of which all ranks of the group have drained their parts."""
        if self._rank is None:
            return None
        top = open_remote(self._drain.remote)
        for rank in ranks_at(top):
            if rank != self._rank and rank not in self._others:
                self._others[rank] = Catalog(open_remote(self._drain.remote, rank_folder(rank)))
        catalogs = [self._catalog, *self._others.values()]
        return in_common([catalog.look() for catalog in catalogs])

    def failed(self) -> None:
        """What lies there is asked anew."""
        self._pieces.forget()
