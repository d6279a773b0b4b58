"""The shelf as Python sees it: a mapping of names to tensors, its versions, and a run's state."""

import html
import itertools
import os
import signal
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal
from weakref import WeakSet

from tensorshelf import _display, _exit
from tensorshelf._assignments import Assignments
from tensorshelf._auto.autosave import Autosave
from tensorshelf._auto.feed import Feed
from tensorshelf._auto.options import AutosaveOptions
from tensorshelf._closing import close_shelf, let_go
from tensorshelf._commit import Commit
from tensorshelf._core import Shelf as NativeShelf
from tensorshelf._core import TensorRef
from tensorshelf._drain.options import Drain
from tensorshelf._group.group import Group
from tensorshelf._numbers import id_bytes, step_number
from tensorshelf._opening import Opening
from tensorshelf._progress import Report, reporter
from tensorshelf._spelling import spelled
from tensorshelf._state import fill as _fill
from tensorshelf._state import save as _save
from tensorshelf._state.flatten import Flat, flatten
from tensorshelf._state.load_report import LoadReport
from tensorshelf._state.split import Exchange
from tensorshelf._tensor import Tensor
from tensorshelf._versioned import Versioned
from tensorshelf.errors import ShelfError, UnsupportedError


class Shelf(Versioned):
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
        "_pins",
        "_scrub",
    )

    _assignments: Assignments
    _core: NativeShelf
    _feed: Feed | None  # of autosave()
    _opening: Opening
    _pid: int

    def __init__(self, core: NativeShelf, opening: Opening) -> None:
        self._core = core
        self._opening = opening
        self._feed = None
        self._flight = None
        self._pid = os.getpid()
        self._pins = WeakSet()
        self._scrub = None
        info = self.info()
        self._assignments = Assignments(core, writable=info.writable)
        self._path = info.path  # the last of its parts: __del__ asks for it
        _exit.close_at_exit(self)

    @spelled
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
        has not is deleted. Other tensors of the shelf stay; one that has the name and layout of a
        tensor of the state becomes the state's.

        Raises NotStorable, with the path of what cannot be stored, before anything is assigned.
        Where saving fails later, what it had assigned is discarded. Raises UnsupportedError beside
        an ``autosave()``, whose state it would replace.
        """
        if self._feed is not None and not self._feed.closed:
            raise UnsupportedError(
                "this shelf holds the run that autosave() saves, and save() would put another "
                "state in its place",
                "Give it to autosave() under a name of its own, or assign what is a tensor: "
                'shelf["name"] = value. Or close() the autosave first.',
            )
        return self._save(flatten(state, default), step=step, wait=wait)

    def rollback(self, version: int) -> Commit:
        if self._feed is not None and not self._feed.closed:
            raise UnsupportedError(
                "this shelf holds the run that autosave() saves, whose objects would not go back "
                "with it",
                "auto.rollback(step) takes both back. Or close() the autosave first.",
            )
        return self._roll_back(version)

    rollback.__doc__ = Versioned.rollback.__doc__

    def _own_step(self, step: int | None) -> int | None:
        number = super()._own_step(step)
        if self._feed is None or self._feed.closed or number in (None, self.step):
            return number
        raise UnsupportedError(
            f"this shelf holds the run that autosave() saves, and step={number} would pass for the "
            "step that resume() goes on from",
            "persist() without a step keeps that of the run.",
        )

    def _save(self, flat: Flat, *, step: int | None, wait: bool) -> Commit:
        self._assignments.refuse_within_transaction("save()")
        uncommitted = self._core.has_uncommitted()
        return _save.save(
            self, flat, lambda: self._persist(step_number(step), wait=wait), uncommitted=uncommitted
        )

    def _prepare(self, flat: Flat, *, step: int, id: bytes) -> None:
        uncommitted = self._core.has_uncommitted()
        _save.save(
            self,
            flat,
            lambda: self._prepare_as(step_number(step), id_bytes(id)),
            uncommitted=uncommitted,
        )

    @spelled
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
        empty dict gets all that was saved, and so does a list without tensors, arrays or objects.
        Keys that only one of the two has raise KeyMismatch, with nothing changed; ``strict=False``
        loads the rest. (The entry in which ``autosave()`` keeps where its loaders were may be left
        out.) Shapes must be the same (LayoutError). Where a checksum fails (CorruptError), some
        tensors hold new values and others old ones. ``rename`` and ``progress`` are as for
        ``load()``; names are those of the saved state.
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
                  ``auto.skipped``; "wait" waits while ``in_flight`` saves are on their way
        on_error  "warn" logs what failed, and the run goes on unsaved
        signals   that wait for the save on its way, ``deadline`` seconds at most, before they do
                  what they did without this; only where the main thread calls
        overlap   False: ``step()`` returns when everything is copied, whatever changes it next
        grads     True saves gradients, too, so that a run resumes while they are being added up;
                  None refuses to save there, False leaves them out
        pipeline  options of the threads that copy: ``nice`` (0 to 19), ``cpus`` that they keep to,
                  ``workers`` (1; where CUDA is in use half of the cores, or as many as ``cpus``,
                  and 8 at most), ``bytes_per_second`` while nobody waits, and ``check_one_in``:
                  one of so many copied chunks is compared once more (1: each); ``device_pieces``
                  of ``device_piece_bytes`` each, through which tensors on a device come (2, or 4
                  on block media, of 8 MiB; 1 is single buffering); and ``trace`` for
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
            AutosaveOptions(
                every=every,
                mtbi=mtbi,
                on_busy=on_busy,
                on_error=on_error,
                signals=signals,
                deadline=deadline,
                overlap=overlap,
                grads=grads,
                pipeline={} if pipeline is None else pipeline,
                group=group,
                drain=drain,
            ),
        )

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
