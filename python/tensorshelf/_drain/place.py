"""One place that versions of a shelf are drained to: what lies there, and one more of them."""

import logging
import os
from collections.abc import Callable

from tensorshelf import _core
from tensorshelf._drain import codec, manifest
from tensorshelf._drain.catalog import Entry, manifests_at
from tensorshelf._drain.layout import size_of
from tensorshelf._drain.manifest import Manifest
from tensorshelf._drain.options import Drain
from tensorshelf._drain.remote import open_remote
from tensorshelf._drain.retain import Collector
from tensorshelf._drain.stage import Hashes, Spool, Staged, stage
from tensorshelf._drain.upload import Pieces, send
from tensorshelf._drain.writer import Writer
from tensorshelf.errors import IoError

logger = logging.getLogger("tensorshelf")


class Place:
    """For one thread. What goes on in it may be told to others by ``on_read`` and ``on_sent``.

    ``below``: the folder of a rank; of a shelf alone none. ``wait`` is called before so many bytes
    are sent, and with 0 before a commit: it raises where nobody waits for that any more.
    """

    def __init__(
        self,
        drain: Drain,
        below: str,
        *,
        wait: Callable[[int], None],
        on_read: Callable[[int], None],
        on_sent: Callable[[int], None],
    ) -> None:
        self._drain = drain
        self._in_group = bool(below)
        self._remote = open_remote(drain.remote, below)
        self._suffix = codec.check(drain.compress)
        self.catalog = manifests_at(self._remote)
        self._collector = Collector(self._remote, self.catalog)
        self._pieces = Pieces(self._remote)
        self._hashes = Hashes()
        self._writer = Writer(self._remote, manifest.FOLDER, os.fspath(drain.remote))
        self._wait, self._on_read, self._on_sent = wait, on_read, on_sent

    def begin(self) -> list[Entry[Manifest]]:
        """Looks what lies there, which is durable from then on: a job that died may have put it."""
        entries = self.catalog.look()
        self._remote.settle()  # what was found, before it is told
        if self.catalog.damaged:
            logger.warning(
                "drain: %d manifests at %s are damaged, and count for nothing; while they are "
                "there no piece is deleted",
                len(self.catalog.damaged),
                self._drain.remote,
            )
        self._writer.begin([*(entry.name for entry in entries), *self.catalog.damaged])
        return entries

    def look_for_pieces(self) -> None:
        """Before ``stage``, which asks the remote nothing; it asks seldom."""
        self._pieces.list(self.catalog.entries())

    @property
    def knows_pieces(self) -> bool:
        """Whether ``look_for_pieces`` has nothing to ask."""
        return not self._pieces.is_old

    def stage(self, core: _core.Shelf, version: int, spool: Spool) -> Staged:
        """Reads a version of the shelf. Raises StaleError where it is retained no more."""
        return stage(
            core,
            version,
            known=self._hashes,
            lies_there=lambda hash, nbytes: self._pieces.find(hash, nbytes) is not None,
            in_group=self._in_group,
            spool=spool,
            threads=self._drain.threads,
            moved=self._on_read,
        )

    def put(
        self, staged: Staged, spool: Spool, *, metric: float | None, milestone: bool
    ) -> Entry[Manifest]:
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
        self._hashes.keep(staged)
        self._remote.settle()  # all that the manifest names is durable
        made = self._manifest(staged, metric, milestone)
        name = self._writer.next_name()
        self._wait(0)  # who was given up commits nothing: another may have its place
        self._remote.put(name.path, made.encode())
        self._remote.settle()  # before it is told, and pieces of others go
        self.catalog.add(name, made)
        return Entry(name, made)

    def _manifest(self, staged: Staged, metric: float | None, milestone: bool) -> Manifest:
        stored = []
        for hash, piece in zip(staged.hashes, staged.pieces, strict=True):
            there = None if hash is None else self._pieces.find(hash, size_of(piece))
            if there is None:  # nothing is committed that names what does not lie there
                raise IoError(
                    f"{self._drain.remote} has no piece {hash}, which it was to have",
                    "It is sent by the next try.",
                )
            stored.append(there)
        return Manifest(
            shelf=staged.shelf,
            version=staged.version,
            step=staged.step,
            time_ns=staged.time_ns,
            metric=metric,
            milestone=milestone,
            group=staged.group,
            tensors=staged.tensors,
            pieces=staged.pieces,
            stored=stored,
        )

    def collect(self, kept: list[Entry[Manifest]], going: list[Entry[Manifest]]) -> None:
        """Deletes what goes, and pieces that nobody names."""
        self._pieces.drop(self._collector.collect(kept, going))

    def failed(self) -> None:
        """What lies there is asked anew, before the next version is read."""
        self._pieces.forget()
