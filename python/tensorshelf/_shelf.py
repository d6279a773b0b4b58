"""The shelf as Python sees it: a mapping of names to tensors, persist(), and what was persisted."""

import html
import itertools
import os
import signal
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from tensorshelf import _display, _exit, _metrics
from tensorshelf._assignments import Assignments
from tensorshelf._auto.autosave import Autosave
from tensorshelf._auto.feed import Feed
from tensorshelf._closing import close_shelf, let_go
from tensorshelf._commit import Commit, SaveOnItsWay
from tensorshelf._core import PendingCommit, TensorRef
from tensorshelf._core import Shelf as NativeShelf
from tensorshelf._drain.options import Drain
from tensorshelf._group.group import Group
from tensorshelf._info import (
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
from tensorshelf._mapping import TensorMapping
from tensorshelf._numbers import id_bytes, step_number, version_number
from tensorshelf._opening import Opening
from tensorshelf._options import encoded_path, new_options
from tensorshelf._progress import Report, reporter
from tensorshelf._state import fill as _fill
from tensorshelf._state import load as _load
from tensorshelf._state import save as _save
from tensorshelf._state.flatten import Flat, flatten
from tensorshelf._state.load_report import LoadReport
from tensorshelf._state.split import Exchange
from tensorshelf._tensor import Tensor
from tensorshelf._versions import RetainedVersion, Transaction
from tensorshelf.errors import BadArgument, ShelfError, UnsupportedError


class Shelf(TensorMapping):
    """Named tensors under one version. ``tensorshelf.open`` gives one.

    ``shelf.x = array`` and ``shelf["x"] = array`` create a tensor, or write into the one of that
    name when dtype and shape are the same. Any UTF-8 text is a name as an item; as an attribute,
    names that are identifiers, do not start with an underscore, and are not the shelf's own.

    Assignments are readable at once and durable at ``persist()``, all of them as one version.
    Nothing is persisted implicitly: closing drops what was assigned since. Threads may assign
    to different tensors at once. A forked child may not use what it inherited (ForkedError); a
    shelf with mode "r" can be pickled, and opens itself anew in the process that gets it.
    """

    __slots__ = (
        "__weakref__",
        "_assignments",
        "_core",
        "_feed",
        "_flight",
        "_opening",
        "_path",
        "_pid",
    )

    _assignments: Assignments
    _core: NativeShelf
    _feed: Feed | None  # of autosave()
    _flight: PendingCommit | SaveOnItsWay | None  # the last in the background
    _opening: Opening
    _path: str
    _pid: int

    def __init__(self, core: NativeShelf, opening: Opening) -> None:
        self._core = core
        self._opening = opening
        self._feed = None
        self._flight = None
        self._pid = os.getpid()
        info = self.info()
        self._assignments = Assignments(core, writable=info.writable)
        self._path = info.path  # the last of its parts: __del__ asks for it
        _exit.close_at_exit(self)

    # ---- versions

    def persist(self, step: int | None = None, *, wait: bool = True) -> Commit:
        """Makes everything assigned, created and deleted so far durable, as one version.

        ``step`` is your own number, stored with the version; without one the last is kept. With
        ``wait=False`` it returns as soon as the version is closed to further assignments, which go
        into the next one, and goes on in the background; with ``in_flight`` versions on their way
        it waits for the first of them.
        With no change it still makes a version, so that a step can be recorded. Raises IoError or
        ShelfFailed where the medium failed: the last version is then intact; reopen. Raises
        ShelfGone where the file was deleted or replaced meanwhile: copy what there is elsewhere.
        """
        number = None if step is None else step_number(step)
        self._assignments.refuse_within_edit("persist()")
        if wait:
            return Commit(self._core.persist(self._assignments.session, number))
        self._flight = self._core.persist_async(self._assignments.session, number)
        return Commit(self._flight)

    def save(
        self,
        state: Any,
        *,
        step: int | None = None,
        wait: bool = True,
        default: Callable[[Any], Any] | None = None,
    ) -> Commit:
        """Stores any state of a run and persists it, as one version.

            shelf.save({"model": model, "optimizer": optimizer, "epoch": 3}, step=100)

        ``state`` is a dict, or a list, tuple or single value, of: None, bool, int, float, complex,
        str, bytes; NumPy arrays and scalars; torch tensors, dtypes, sizes and devices; models,
        optimizers, generators and whatever has ``state_dict()``; and more of such containers, sets
        and Counters too. Nothing is pickled. Tensors lie in the shelf by their paths
        (``model.layers.0.weight``), tied ones once; all else is one more tensor, ``__state__``.
        Parameters go by the names that they have without DistributedDataParallel and compile, and
        what an optimizer keeps of them too, where the model is in the state.

        ``default`` is called for what cannot be stored, as in json, and gives what to store in its
        place. ``step`` and ``wait`` are as for ``persist()``. What the last state had and this one
        has not is deleted; other tensors of the shelf stay.

        Raises NotStorable, with the path of what cannot be stored, before anything is assigned.
        Where saving fails later, what it had assigned is discarded. Raises UnsupportedError beside
        an ``autosave()``, whose state it would take the place of.
        """
        if self._feed is not None and not self._feed.closed:
            raise UnsupportedError(
                "this shelf holds the run that autosave() saves, and save() would put another "
                "state in its place",
                "Give it to autosave() under a name of its own, or assign what is a tensor: "
                'shelf["name"] = value. Or close() the autosave first.',
            )
        return self._save(flatten(state, default), step=step, wait=wait)

    def _save(self, flat: Flat, *, step: int | None, wait: bool) -> Commit:
        uncommitted = self._core.has_uncommitted()
        return _save.save(
            self, flat, lambda: self.persist(step, wait=wait), uncommitted=uncommitted
        )

    def _prepare(self, flat: Flat, *, step: int, id: bytes) -> None:
        uncommitted = self._core.has_uncommitted()
        _save.save(self, flat, lambda: self.prepare(step, id=id), uncommitted=uncommitted)

    def load(
        self,
        keys: str | Iterable[str] | None = None,
        *,
        rename: Mapping[str, str] | Callable[[str], str] | None = None,
        progress: Report | bool | None = None,
    ) -> Any:
        """The state that ``save()`` stored, in memory of its own; every checksum is checked.

        Objects come back as their states: ``model.load_state_dict(shelf.load("model")["model"])``.
        Tied tensors are one again, and keys have their types.

        keys      parts to load, by their dotted paths, with * and ?: "model", "model.layers.0.*"
        rename    {"old.path": "new.path"}, for what lies below them too, or a function of a path
        progress  True for a bar, or a function of (done, total) in bytes

        Raises UnknownName where there is no state, or no such key, and CorruptError where what was
        saved is damaged, or something else was assigned in its place.
        """
        with reporter(progress, "loading") as report:
            return _load.load(self, keys, rename, report)

    def load_into(
        self,
        state: Any,
        *,
        strict: bool = True,
        rename: Mapping[str, str] | Callable[[str], str] | None = None,
        progress: Report | bool | None = None,
    ) -> LoadReport:
        """Loads what ``save()`` stored into a state of the same form, in place.

            shelf.load_into({"model": model, "optimizer": optimizer, "epoch": 0})

        Tensors and arrays are filled, models, optimizers, generators and whatever has
        ``load_state_dict()`` are given theirs, in tuples too; other values are replaced; an
        empty dict, and a list that holds only such values, get all that was saved. Keys that only
        one of the two has raise KeyMismatch, with nothing changed; ``strict=False`` loads the rest.
        Shapes must be the same (LayoutError). Where a checksum fails (CorruptError), some tensors
        hold new values and others old ones. ``rename`` and ``progress`` are as for ``load()``;
        names are those of the saved state.
        """
        with reporter(progress, "loading") as report:
            return _fill.load_into(
                self, state, step=self.step, strict=strict, rename=rename, report=report
            )

    def _load_whole_into(
        self,
        state: Any,
        exchange: Exchange | None,
        *,
        strict: bool,
        rename: Mapping[str, str] | Callable[[str], str] | None,
    ) -> LoadReport:
        """As load_into(), and what lies here in pieces is whole by what ``exchange`` has."""
        return _fill.load_into(
            self,
            state,
            step=self.step,
            strict=strict,
            rename=rename,
            report=None,
            exchange=exchange,
        )

    def autosave(
        self,
        *,
        every: int | Literal["auto"] = 1,
        mtbi: float | None = None,
        on_busy: Literal["wait", "skip"] = "wait",
        on_error: Literal["raise", "warn"] = "raise",
        signals: Iterable[int] = (signal.SIGTERM,),
        deadline: float = 10.0,
        overlap: bool = True,
        grads: bool | None = None,
        pipeline: Mapping[str, Any] | None = None,
        group: Group | None = None,
        drain: Drain | None = None,
        **state: Any,
    ) -> Autosave:
        """Saves a run as it goes, and resumes it.

            auto = shelf.autosave(model=model, optimizer=optimizer, rng=ts.RNG())
            for step in range(auto.resume(), steps):
                ...
                auto.step(step + 1)

        state     as for ``save()``, by name: models, optimizers, schedulers, generators, ...
        every     steps between two saves; "auto" chooses by what they cost and ``mtbi``, the mean
                  time between interruptions in seconds (``ts.plan`` is the formula)
        on_busy   "skip" leaves a save out while the one before is on its way, and counts it in
                  ``auto.skipped``; "wait" waits, with ``in_flight`` of them on their way
        on_error  "warn" logs what failed, and the run goes on unsaved
        signals   on which the save on its way is waited for, ``deadline`` seconds at most, before
                  they do what they did without this; only where the main thread calls
        overlap   False: ``step()`` returns when everything is copied, whatever changes it next
        grads     True saves gradients, too, so that a run resumes while they are being added up;
                  None refuses to save there, False leaves them out
        pipeline  options of the threads that copy: ``nice`` (0 to 19), ``cpus`` that they keep to,
                  ``workers`` (1; where CUDA is in use half of the cores, or as many as ``cpus``,
                  and 8 at most),
                  ``bytes_per_second`` while nobody waits, and ``check_one_in``: so many chunks are
                  copied for one that is compared once more (1 for all); and ``trace`` for
                  ``auto.write_trace()`` to tell of each tensor
        group     ranks that save together: a version is committed when all have theirs. Each rank
                  has a shelf of its own, saves the same steps, and calls ``resume()`` first. With
                  ``in_flight=2`` of the shelf a save need not wait for the one before
        drain     a remote place that whole versions are copied to, ``ts.Drain("/mnt/nfs/run1")``;
                  ``auto.drain.info()`` says how far it is, and ``ts.fetch()`` brings them back

        Returns at once and saves nothing yet. Raises BadArgument for what has no state that could
        be resumed, and UnsupportedError for optimizers that step within backward.
        """
        self._refuse_closed()
        return Autosave(
            self,
            state,
            every=every,
            mtbi=mtbi,
            on_busy=on_busy,
            on_error=on_error,
            signals=signals,
            deadline=deadline,
            overlap=overlap,
            grads=grads,
            pipeline=pipeline or {},
            group=group,
            drain=drain,
        )

    def prepare(self, step: int | None = None, *, id: bytes | str = b"") -> Prepared:
        """The first half of ``persist``, for those that must agree with others before they commit.

        Everything assigned so far is durable when it returns, and not yet the shelf's: that is for
        ``resolve`` to decide. A crash, or closing, leaves it prepared; ``id``, of at most 256
        bytes, tells whoever opens the shelf then whose decision it waits for. Assignments go on
        behind it; ``persist``, and those that need one of its slots, raise UnresolvedError.
        """
        self._assignments.refuse_within_edit("prepare()")
        made = self._core.prepare(self._assignments.session, step_number(step), id_bytes(id))
        return Prepared(**made)

    @property
    def prepared(self) -> Prepared | None:
        """What waits for ``resolve``; also where opening the shelf found it."""
        return prepared_from(self._core.prepared())

    def resolve(self, decision: Literal["commit", "abandon"]) -> Commit | None:
        """Commits what is prepared, or abandons it.

        Abandoned, it never was; what was assigned behind it goes with it, and where there was
        something, changes then raise AbandonedError until ``discard()``, so that nobody persists
        the rest. One that opening the shelf found is read and checked before it is committed:
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

        An exception, Ctrl-C too, discards them. Everything that is changed meanwhile belongs to it,
        by whatever thread; ``persist``, ``discard``, ``rollback`` and another transaction wait for
        its end in other threads, and raise TransactionError in this one. ``t.step`` may be set
        within, and ``t.commit`` is what ``persist`` would return. Raises UncommittedError where
        something was changed before it and not persisted.
        """
        return Transaction(
            self._core, self._assignments, step_number(step), self._before_transaction_ends
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
        return RetainedVersion(self._core.at(version_number(version)), self._path)

    def diff(self, before: int, after: int | None = None) -> VersionDiff:
        """What ``after`` (the newest version, if left out) has otherwise than ``before``.

        Told by what the versions say of their chunks: no tensor is read. Raises StaleError where
        one of them is not, or no longer, among ``versions``.
        """
        after = self.version if after is None else version_number(after)
        return VersionDiff(**self._core.diff(version_number(before), after))

    def snapshot(
        self,
        path: str | os.PathLike[str],
        version: int | None = None,
        *,
        keep: int | None = None,
        in_flight: int | None = None,
        tier: str = "auto",
        progress: Report | bool | None = None,
    ) -> Commit:
        """Writes one of ``versions`` (the newest, if left out) as a new shelf at ``path``.

        The file appears, durable, when it is whole; what a crash leaves is a hidden file beside it,
        ``.NAME.PID.*.tmp``, which the next shelf of that name removes. It is a shelf at version 1,
        with the step of the one it was made from, and every checksum is checked on the way.
        Other threads go on meanwhile. The version stays as it is: who needs one of its slots
        waits for the snapshot, and so does persist() for one version more than ``keep`` and
        ``in_flight`` provide for. What is not persisted is not in it.

        keep, in_flight, tier   as for ``open()``, of the new shelf
        progress                True for a bar, or a function of (done, total) in bytes, which may
                                read this shelf, and not change it

        Raises ShelfExists where there is something at ``path``, StaleError where the version is not
        among ``versions``, CorruptError where it is damaged; no file is left then.
        """
        options = new_options(None, tier, None, keep, in_flight, None)
        number = None if version is None else version_number(version)
        with reporter(progress, "copying") as report:
            return Commit(self._core.snapshot(encoded_path(path), options, number, report))

    def rollback(self, version: int) -> Commit:
        """Makes one of ``versions`` the newest again, as a version of its own; no data is copied.

        Handles stay with their tensors. Raises StaleError where it is not among ``versions``, and
        UncommittedError where something is not persisted yet, or on its way.
        """
        known = self._assignments
        known.refuse_within_edit("rollback()")
        return Commit(self._core.rollback(known.session, version_number(version)))

    def verify(self, *, progress: Report | bool | None = None) -> VerifyReport:
        """Reads the durable version whole and checks every checksum; damage is told, not raised."""
        with reporter(progress, "verifying") as report:
            return report_from(self._core.verify(report))

    @property
    def version(self) -> int:
        """The durable version's number; 0 for a new shelf."""
        return self._core.version

    @property
    def step(self) -> int | None:
        """The step that the durable version was persisted with."""
        return self._core.step

    @property
    def free(self) -> int:
        """Bytes there is room for without growing.

        A tensor takes 1 + keep + in_flight times its own size: twice, unless more was asked for.
        """
        return self._core.free_bytes

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

    def close(self) -> None:
        """Waits for a commit in flight, raises what it raised, and lets the file go.

        What was assigned since the last persist() is dropped, with a warning in the log; so it is
        where an exception leaves a ``with`` block, or where nobody refers to an open shelf any
        more. Arrays that were lent stay readable. Closing twice is allowed.
        """
        close_shelf(self)

    def __del__(self) -> None:
        if not hasattr(self, "_path"):  # it failed to open, and lacks parts
            return
        try:
            if not self.closed:  # one that is was told; late, this module may be empty already
                let_go(self)
        except ShelfError:  # what is wrong now, others were told
            pass

    def __enter__(self) -> "Shelf":
        self._refuse_closed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()  # which warns after an error too: SystemExit, for one, says nothing

    # ---- looks

    def tree(self) -> str:
        """The names as a tree, split at dots and slashes."""
        return _display.tree(self._line(), self.values())

    def __repr__(self) -> str:
        try:
            return f"<{self._line()}>"
        except ShelfError as error:
            return f"<Shelf '{self._path}': {_display.in_words(error)}>"

    def _repr_html_(self) -> str:
        if self.closed:
            return html.escape(repr(self))
        shown = [self[name] for name in itertools.islice(self, _display.TABLE_ROWS)]
        return _display.table(self._line(), [(x, x._ref._info()) for x in shown], len(self))

    def _line(self) -> str:
        return _display.line(self.info(), self.prepared)

    # ---- inner, and used by the package

    def _refuse_closed(self) -> None:
        """Raises ClosedError where it is closed, and ForkedError where it is the parent's."""
        self._core.version  # noqa: B018 - whatever asks the store does

    def _before_transaction_ends(self) -> None:  # of the shelf, so that it stays open till then
        self._assignments.refuse_within_edit("the end of a transaction")

    def _handle(self, ref: TensorRef) -> Tensor:
        return Tensor(self, self._assignments, ref)

    def _opening_for_another(self) -> Opening:
        """How another process opens it too. Raises TypeError where it is open for writing."""
        self._refuse_closed()
        if self._assignments.writable:
            raise TypeError(
                f"{self._path} is open for writing, which one process at a time can do: it cannot "
                'be pickled. Give workers the path, or a shelf opened with mode="r".'
            )
        return self._opening
