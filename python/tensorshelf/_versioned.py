"""The versions of a shelf: persist() makes one, others read, compare, copy and take back."""

import os
from collections.abc import Callable, Iterator
from typing import Literal
from weakref import WeakSet

from tensorshelf import _metrics
from tensorshelf._commit import Commit, SaveOnItsWay
from tensorshelf._core import PendingCommit
from tensorshelf._follow import followed
from tensorshelf._info import (
    Damage,
    Info,
    Prepared,
    VerifyReport,
    VersionDiff,
    VersionInfo,
    info_from,
    prepared_from,
    report_from,
    version_from,
)
from tensorshelf._numbers import count_of, id_bytes, seconds_of, step_number, version_number
from tensorshelf._options import encoded_path, new_options, switch
from tensorshelf._progress import Report, reporter
from tensorshelf._room import Roomy
from tensorshelf._scrub import Scrub, ScrubOptions
from tensorshelf._size import parse_size
from tensorshelf._spelling import spelled
from tensorshelf._versions import PinnedVersion, RetainedVersion, Transaction
from tensorshelf.errors import BadArgument, ReadOnlyError, UnsupportedError


class Versioned(Roomy):
    """One version for all tensors, whatever was assigned to which. ``Shelf`` is its heir."""

    __slots__: tuple[str, ...] = ()

    _flight: PendingCommit | SaveOnItsWay | None  # the last in the background
    _path: str
    _pins: WeakSet[PinnedVersion]
    _scrub: Scrub | None

    def persist(self, step: int | None = None, *, wait: bool = True) -> Commit:
        """Makes everything assigned, created and deleted so far durable, as one version.

        ``step`` is your own number, stored with the version; without one the last is kept. With
        ``wait=False`` it returns as soon as the version is closed to further assignments, which go
        into the next one, and goes on in the background; with ``in_flight`` versions on their way
        it waits for the first of them.
        With no change it still makes a version, so that a step can be recorded. Raises IoError or
        ShelfFailed where the medium failed: the last version is then intact; reopen. Raises
        ShelfGone where the file was deleted or replaced meanwhile: copy what there is elsewhere.
        Beside an ``autosave()``, whose step it would be, another step raises UnsupportedError.
        """
        return self._persist(self._own_step(step), wait=wait)

    def _persist(self, number: int | None, *, wait: bool) -> Commit:
        self._assignments.refuse_within_edit("persist()")
        if wait:
            return Commit(self._core.persist(self._assignments.session, number))
        self._flight = self._core.persist_async(self._assignments.session, number)
        return Commit(self._flight)

    def _own_step(self, step: int | None) -> int | None:
        return step_number(step)

    def prepare(self, step: int | None = None, *, id: bytes | str = b"") -> Prepared:
        """The first half of ``persist``, for those that must agree with others before they commit.

        Everything assigned so far is durable when it returns, and not yet the shelf's: that is for
        ``resolve`` to decide. A crash, or closing, leaves it prepared; ``id``, of at most 256
        bytes, tells whoever opens the shelf then whose decision it waits for. Assignments go on
        behind it; ``persist``, and those that need one of its slots, raise UnresolvedError.
        """
        return self._prepare_as(self._own_step(step), id_bytes(id))

    def _prepare_as(self, number: int | None, id: bytes) -> Prepared:
        self._assignments.refuse_within_edit("prepare()")
        return Prepared(**self._core.prepare(self._assignments.session, number, id))

    @property
    def prepared(self) -> Prepared | None:
        """What waits for ``resolve``; also where opening the shelf found it. With mode "r" what
        opening found, until a version of its number is shown: nobody tells a reader of an attempt
        that is abandoned, or prepared later.
        """
        return prepared_from(self._core.prepared())

    def resolve(self, decision: Literal["commit", "abandon"]) -> Commit | None:
        """Commits what is prepared, or abandons it.

        Abandoned, it never was, and what was assigned after it is dropped. Where anything was,
        changes raise AbandonedError until ``discard()``, so that nobody persists the later part of
        his changes alone. What opening the shelf found is read and checked before it is committed:
        CorruptError where it is damaged. Raises BadArgument where nothing is prepared.
        """
        if decision not in ("commit", "abandon"):
            raise BadArgument(f"{decision!r} is no decision", 'Use "commit" or "abandon".')
        known = self._assignments
        known.refuse_within_edit("resolve()")
        made = self._core.resolve(known.session, decision == "commit")
        return None if made is None else Commit(made)

    def transaction(self, step: int | None = None) -> Transaction:
        """``with shelf.transaction(step=7) as t:`` persists at its end, all changes or none.

        An exception, Ctrl-C too, discards them. Everything that any thread changes meanwhile
        belongs to it; ``persist``, ``discard``, ``rollback`` and another transaction wait for its
        end in other threads, and raise TransactionError in this one. ``t.step`` may be set within,
        and ``t.commit`` is what ``persist`` would return. Raises UncommittedError where something
        was changed before it and not persisted.
        """
        return Transaction(
            self._core,
            self._assignments,
            step,
            check_step=self._own_step,
            before_commit=self._before_transaction_ends,
        )

    def discard(self) -> None:
        """Drops everything assigned, created and deleted since the last ``persist()``.

        Handles of tensors that were created since are of no use any more, and deleted tensors are
        there again. Views keep what they show. An ``edit()`` under way in another thread ends with
        an error.
        """
        self._assignments.refuse_within_edit("discard()")
        self._core.discard(self._assignments.session)

    @property
    def versions(self) -> list[VersionInfo]:
        """The versions that can be read, the oldest first: the newest, and ``keep`` before it."""
        return [version_from(found) for found in self._core.versions()]

    def at(self, version: int) -> RetainedVersion:
        """One of ``versions``, to be read. Raises StaleError where it is not among them."""
        return RetainedVersion(self._core.at(version_number(version)), self._path, self)

    def pin(self, version: int | None = None) -> PinnedVersion:
        """One of ``versions`` (the newest, if left out), which stays as it is until it is let go.

            with reader.pin() as held:
                evaluate(held.load("model"))

        With mode "r" the writer, in whatever process, is told: it does not write over that version,
        goes on in its other slots, and where it has none to spare, waits for the reader
        (``open(on_pin=, pin_timeout=)``). Give the shelf one more ``in_flight=`` for each reader
        that holds a version: then the writer has a slot to spare. On a mapped medium
        ``held["x"].numpy(copy=False)`` is the slot itself. A process that dies lets go. Without
        ``version`` the shelf goes on to the newest first, as by ``refresh()``.

        With other modes this shelf's own assignments that need one of the version's slots wait
        until it is let go, and so does a ``persist()`` for which no slot is left: for
        ``pin_timeout``, behind which they raise PinnedError, whatever thread made the pin.

        Raises StaleError where the version is not, or no longer, among ``versions``; IoError where
        the file system locks no parts of a file; UnsupportedError of a mirror that is opened by
        itself, for its shelf's writer would not see the pin.
        """
        pin = self._core.pin(None if version is None else version_number(version))
        held = PinnedVersion(pin, self._core.at(pin.version), self._path)
        self._pins.add(held)
        return held

    def refresh(self) -> bool:
        """Goes on to the newest version that the writer has made; False where there is none newer.

        For a shelf that is open with mode "r", which shows what was there when it was opened until
        this is called; with other modes there is never anything newer. Handles follow their
        tensors; those of a tensor that was deleted raise UnknownName. What another thread reads
        meanwhile is of the one version or the other, tensor by tensor: read through
        ``at(shelf.version)`` what must be of one. Where there is nothing new, it costs a look at
        some words; of a new version the changed pages of the manifest are read, and all of it is
        validated.

        Where a version was lost and given up, the one that comes has its number again, or a lower
        one: True as well, and earlier handles raise UnknownName.

        Raises CorruptError where a newer version may be there and cannot be opened, ShelfGone where
        the file was deleted or replaced, StaleError where the writer is always faster, or a medium
        was exchanged, and UnsupportedError with ``salvage=True`` where a version is lost; what is
        shown then stays.
        """
        return self._core.refresh()

    def wait_for(self, version: int | None = None, timeout: float | None = None) -> bool:
        """Refreshes until ``version``, or a newer one, is shown; without it, until another is.

        False where that takes longer than ``timeout`` seconds. It looks every 10 ms at least.
        Raises what ``refresh()`` raises, and UnsupportedError where the shelf is open for writing,
        whose next version would come from nobody else.
        """
        number = None if version is None else version_number(version)
        return self._core.wait_for(number, seconds_of(timeout, "timeout"))

    def follow(self, timeout: float | None = None, every: float = 0.1) -> Iterator[VersionInfo]:
        """Each new version that comes, for a loop; those in between are left out.

            for new in shelf.follow(timeout=60):
                weights = shelf.at(new.version).load("model")

        When an item comes, the shelf shows that version. The next one comes ``every`` seconds
        later at the earliest: a reader that never rests takes time from its writer. The loop ends
        where none came for ``timeout`` seconds, and raises what ``wait_for()`` raises.
        """
        return followed(self._core.wait_for, lambda: self.versions[-1], timeout, every)

    def diff(self, before: int, after: int | None = None) -> VersionDiff:
        """What ``after`` (the newest version, if left out) has otherwise than ``before``.

        Either may be the older. Records of chunks are compared, and no tensor is read. A tensor
        that was renamed is erased under its old name and created under its new one; one that was
        replaced, resized or moved is erased and created under its name. Raises StaleError where
        one of the versions is not, or no longer, among ``versions``.
        """
        after = self.version if after is None else version_number(after)
        return VersionDiff(**self._core.diff(version_number(before), after))

    @spelled
    def snapshot(
        self,
        path: str | os.PathLike[str],
        version: int | None = None,
        *,
        keep: int | None = None,
        in_flight: int | None = None,
        tier: str = "auto",
        size: int | str | None = None,
        progress: Report | bool | None = None,
    ) -> Commit:
        """Writes one of ``versions`` (the newest, if left out) as a new shelf at ``path``.

        The file appears, durable, when it is whole; what a crash leaves is a hidden file beside it,
        ``.NAME.PID.*.tmp``, which the next shelf of that name removes. It is a shelf at version 1,
        with the step of the one it was made from, and every checksum is checked on the way.
        Other threads go on meanwhile. The version stays as it is: an assignment that needs one of
        its slots waits for the snapshot, and so does a ``persist()`` for which no slot is left.
        What is not persisted is not in it.

        keep, in_flight, tier, size
                                as for ``open()``, of the new shelf
        progress                True for a bar, or a function of (done, total) in bytes, which may
                                read this shelf, and not change it

        Raises ShelfExists where there is something at ``path``, StaleError where the version is not
        among ``versions``, CorruptError where it is damaged; no file is left then.
        """
        options = new_options(size, tier, None, keep, in_flight, None)
        number = None if version is None else version_number(version)
        with reporter(progress, "copying") as report:
            return Commit(self._core.snapshot(encoded_path(path), options, number, report))

    def rollback(self, version: int) -> Commit:
        """Makes one of ``versions`` the newest again, as a version of its own; no data is copied.

        Chunks that differ from the newest version are read first: CorruptError where one is
        damaged, and nothing changed. A handle raises UnknownName where that version lacks its
        tensor, and works again where it has it back. Raises StaleError where it is not among
        ``versions``, UncommittedError where something is not persisted yet, or on its way, and
        UnsupportedError beside an ``autosave()``, whose objects would stay as they are.
        """
        return self._roll_back(version)

    def _roll_back(self, version: int) -> Commit:
        known = self._assignments
        known.refuse_within_edit("rollback()")
        return Commit(self._core.rollback(known.session, version_number(version)))

    def verify(
        self, *, repair: bool = False, progress: Report | bool | None = None
    ) -> VerifyReport:
        """Reads the durable version whole and checks every checksum; damage is told, not raised.

        For each damaged chunk the report has a ``Damage``, which says what still holds:

        intact_in  those of the older ``versions`` whose own value of the chunk is sound
        healable   another slot of the tensor, or the mirror of its medium, has the very bytes
        in_mirror  the chunk is sound, and damaged on the mirror alone: mirrors are read, too

        ``repair=True`` restores what is healable, with bytes of the right checksum alone, as a
        version of its own with the same step: ``healed_as``. The rest stays damaged: assign it, or
        read an older version. A tensor that is placed whole is healed whole or not at all, and
        older versions stay as they are. Other threads wait while it restores.

        With ``repair=True`` it raises UncommittedError where something was changed and not
        persisted, also meanwhile, ReadOnlyError, UnresolvedError, TransactionError, ShelfGone,
        LeasedError where a view is in the way, and CorruptError where more is damaged by then.
        """
        if not switch("repair", repair):
            with reporter(progress, "verifying") as report:
                return report_from(self._core.verify(report))
        self._assignments.refuse_within_edit("verify(repair=True)")
        with reporter(progress, "verifying") as report:
            return report_from(self._core.heal(report))

    def scrub(
        self,
        bytes_per_second: int | str = "64MiB",
        *,
        repair: bool = False,
        on_damage: Callable[[Damage], object] | None = None,
        passes: int | None = None,
        pause: float = 60.0,
    ) -> Scrub:
        """Verifies the shelf in the background, again and again, at a bounded rate.

            scrub = shelf.scrub("20MiB", repair=True)
            ...
            scrub.report()  # passes, bytes, what is damaged

        bytes_per_second  the most that is read in a second: bytes, or text such as "20MiB", in
                          chunks of 1 MiB. Mirrors are read besides, as much again
        repair            True restores what is healable after each pass, as
                          ``verify(repair=True)``: a version of its own. While something is changed
                          and not persisted it waits, a minute at most, and tries again in the next
                          pass
        on_damage         called with each ``Damage`` that is found, in the scrub's thread; damage
                          that stays is found in each pass. What it raises ends the scrub
        passes            after so many it ends by itself; None: never
        pause             seconds between two of them

        Nothing is locked while it pauses, and the GIL is not held while it reads. What is damaged
        is an error in the log, too. It ends with ``stop()`` and with the shelf. One at a time:
        UnsupportedError while another is running. Raises ReadOnlyError for ``repair=True`` where
        the shelf is open for reading; with mode "r" it reads the version that is shown.
        """
        self._refuse_closed()
        options = ScrubOptions(
            parse_size(bytes_per_second, "bytes_per_second"),
            switch("repair", repair),
            on_damage,
            None if passes is None else count_of(passes, "passes"),
            seconds_of(pause, "pause") or 0.0,
        )
        if options.repair and not self._assignments.writable:
            raise ReadOnlyError(
                f'{self._path} is open with mode="r", and nothing can be restored',
                'Open it with mode "r+", or scrub() without repair=True.',
            )
        if self._scrub is not None and self._scrub.running:
            raise UnsupportedError(f"{self._path} is being scrubbed already", "stop() that first.")
        self._scrub = Scrub(self._core, self._path, options)
        return self._scrub

    @property
    def version(self) -> int:
        """The durable version's number; 0 for a new shelf."""
        return self._core.version

    @property
    def step(self) -> int | None:
        """The step that the durable version was persisted with."""
        return self._core.step

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._core.closed

    def info(self) -> Info:
        """Path, version, room, what the medium promises, and what opening found."""
        return info_from(self._core.info())

    def stats(self) -> dict[str, int | float]:
        """Counters since this shelf was opened: commits, bytes staged, barriers, seconds, ..."""
        return self._core.stats()

    def metrics(self) -> str:
        """``stats()``, version, step and room in the text format that Prometheus reads.

        Serve it as ``text/plain; version=0.0.4``, or write it where node_exporter's textfile
        collector looks.
        """
        gauges = {"version": self.version, "step": self.step, "free_bytes": self.free}
        return _metrics.text(self._path, self.stats(), gauges)

    # ---- the end

    def _refuse_closed(self) -> None:
        """Raises ClosedError where it is closed, and ForkedError where it is the parent's."""
        self._core.version  # noqa: B018 - whatever asks the store does

    def _before_transaction_ends(self) -> None:  # of the shelf, so that it stays open till then
        self._assignments.refuse_within_edit("the end of a transaction")
