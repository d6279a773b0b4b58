"""A state that is saved again and again, copied by threads of the pipeline's own."""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from tensorshelf import _core
from tensorshelf._assignments import Assignments
from tensorshelf._auto.checked import pipeline_options
from tensorshelf._auto.commits import Commits
from tensorshelf._auto.early import Early, TooEarly
from tensorshelf._auto.ending import Ending
from tensorshelf._auto.notices import Notices
from tensorshelf._auto.save_plan import SavePlan, planned
from tensorshelf._auto.start import Sources
from tensorshelf._auto.steps import Steps
from tensorshelf._commit import Commit, SavedInto, SaveOnItsWay
from tensorshelf._core import PendingCommit
from tensorshelf._drain.drainer import Drainer
from tensorshelf._state import paths
from tensorshelf._state.looks import Changed
from tensorshelf._state.memories import Counted
from tensorshelf._state.save import holds
from tensorshelf.errors import ShelfError, TornSave, UnresolvedError

logger = logging.getLogger("tensorshelf")

NAP_SECONDS = 0.005
_TORN_BEFORE_GIVING_UP = 2  # saves in a row

_MOST_WORKERS = 8  # one copies 12 to 15 GB/s from an H200, whose bus carries 55


class _Begun(NamedTuple):
    """A save that the pipeline may have by now, which is in ``saved`` then."""

    early: Early
    counted: Counted
    step: int
    saved: SavedInto


class FedShelf(Protocol):
    """What feeding asks of a shelf."""

    _assignments: Assignments
    _core: _core.Shelf
    _flight: PendingCommit | SaveOnItsWay | None

    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str) -> Any: ...


def _workers(cpus: Collection[int]) -> int:
    """1 where no CUDA device is used: on two cores it copies as fast as memory. Else one for each
    of ``cpus``, or for two cores, at most 8: the bus carries more than one thread copies.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 1
    cores = len(cpus) or len(os.sched_getaffinity(0)) // 2
    return max(1, min(_MOST_WORKERS, cores))


class Feed:
    """The pipeline of one shelf, and the plan of the state that it saves. For one thread."""

    def __init__(
        self,
        shelf: FedShelf,
        options: Mapping[str, Any],
        notices: Notices,
        commits: Commits,
        steps: Steps,
        *,
        overlap: bool,
    ) -> None:
        chosen = pipeline_options(options)
        if "workers" not in chosen:
            chosen["workers"] = _workers(chosen["cpus"])
        self._pipeline = _core.Pipeline(shelf._core, **chosen)
        self._plan: SavePlan | None = None
        self._staging: SavePlan | None = None  # by which the pipeline may be copying
        self._plain = False  # the state cannot be looked at again: it is saved as save() does
        self._torn = 0  # in a row
        self._eager: set[str] = set()  # names of what was changed too early once
        self._too_early: TooEarly | None = None  # the last of them, until somebody is told
        self.saved_names: tuple[str, ...] = ()  # of the last save's sources; none of a first one's
        self._pid = os.getpid()
        self._last: Commit | None = None
        self._begun: _Begun | None = None  # until somebody has what it gave
        self._notices = notices
        self._commits = commits
        self._steps = steps
        self.overlap = overlap
        self._newest: Commit | None = None
        self.drainer: Drainer | None = None  # of what becomes durable; it ends with this
        self.closed = False
        self._gave_up = False

    def plan_ahead(self, shelf: FedShelf, state: Any) -> None:
        """Plans saves of a state that was loaded: else the first would walk it, while training goes
        on.

        No plan is made where a save would make other tensors than there are, or cannot be planned.
        What cannot be stored is the first save's to tell. Behind a first save there is nothing to
        do, and the pipeline may be copying by the plan that there is.
        """
        if self._staging is not None or paths.RECORD not in shelf:
            return
        try:
            flat = self._commits.flat(state)
            if holds(shelf, flat):
                self._plan = planned(shelf, state, flat, self._eager if self.overlap else None)
        except (Changed, ShelfError) as error:
            logger.debug("the first save makes its own plan: %r", error)

    def save(self, shelf: FedShelf, state: Any, step: int) -> Commit:
        """The version on its way."""
        try:
            if self._commits.begin(shelf, step):
                self._plan = None
            self._newest = self._begin(shelf, state, step)
            return self._newest
        except BaseException as error:
            self._commits.failed(error)
            raise

    def _begin(self, shelf: FedShelf, state: Any, step: int) -> Commit:
        plan, counted = self._plan, None
        if plan is not None:
            with contextlib.suppress(Changed):
                counted = plan.prepare(shelf, state)
        if plan is None or counted is None:
            return self._begin_anew(shelf, state)
        shelf._assignments.refuse_within_edit("a save")
        begun = _Begun(plan.early, counted, step, [])
        # Before it is begun, for a signal may end this call anywhere behind that. By what was here
        # before nothing is copied any more: another plan is made behind drain() alone.
        self._staging, self._begun = plan, begun
        pending = self._commits.planned(shelf, self._pipeline, plan.native, begun.saved)
        self._compare_last()  # it waited until the one before was on its way
        self.saved_names = plan.sources.eager + plan.sources.lazy
        shelf._flight = pending  # for who lets the shelf go, and nobody asks
        self._last = self._commit(pending, begun)
        if self._plan is None:  # what was compared changed too early, and this copies it as late
            with contextlib.suppress(ShelfError):  # who waits for it hears of that
                self._last.wait_staged()
        return self._last

    def _commit(self, pending: SaveOnItsWay, begun: _Begun) -> Commit:
        return Commit(
            pending,
            lambda made: self._compare(begun, is_made=made),
        )

    def taken(self) -> None:
        """The caller for whom the save was begun holds it now."""
        self._begun = None

    def lost(self) -> Commit | None:
        """The save that was begun last, where a signal's handler raised before anybody had it. It
        is, until it is taken.
        """
        begun = self._begun
        if begun is None or not begun.saved:
            return None
        self._compare_last()
        self._last = self._newest = self._commit(begun.saved[0], begun)
        return self._last

    def _compare_last(self) -> None:
        """The tensors of the last save are compared now, where nobody asked for it yet: it is on
        its way, and from here on they may change.
        """
        last, self._last = self._last, None
        if last is not None:
            last.staged()

    def _compare(self, begun: _Begun, *, is_made: bool) -> None:
        changed = begun.early.changed(begun.counted)
        if not changed:
            return
        if is_made:
            self._too_early = TooEarly(changed[0], begun.step)
        self._eager.update(changed)
        self._plan = None

    def _begin_anew(self, shelf: FedShelf, state: Any) -> Commit:
        """Everything is copied before this returns; the plan is for the next."""
        self._plan, self.saved_names, self._begun = None, (), None
        self._pipeline.drain()  # else what is assigned here would be in the version on its way
        self._compare_last()
        flat = self._commits.flat(state)
        commit = self._commits.anew(shelf, flat)
        if not self._plain:
            try:
                self._plan = planned(shelf, state, flat, self._eager if self.overlap else None)
            except ShelfError as error:  # other ranks have refused it meanwhile: it tells
                logger.debug("the next save makes its own plan: %r", error)
            except Changed:
                logger.info(
                    "the state is copied before step() returns: it has tensors that a "
                    "pipeline cannot copy by itself"
                )
                self._plain = True
        return commit

    def _close_pipeline(self, decided: bool) -> None:
        ending = Ending()
        with ending.part():
            try:
                self._pipeline.close()
            except UnresolvedError:  # it gives up what is undecided
                if decided:
                    raise
        with ending.part():
            self._finish_drainer(decided)
        ending.tell()

    def _finish_drainer(self, decided: bool) -> None:
        """The last version, too: whoever resumes next is to be told its step."""
        if os.getpid() != self._pid:
            return
        try:
            # Not wait(), which would take what it fails with from whom that is to be told.
            while decided and self._newest is not None and not self._newest.done():
                time.sleep(NAP_SECONDS)
        finally:
            if self.drainer is not None:
                self.drainer.close()

    @property
    def sources(self) -> Sources | None:
        """The sources of the saves to come; None where there is no plan."""
        return None if self._plan is None else self._plan.sources

    def note(self, error: Exception | None) -> None:
        """What became of a save: where tensors change too early again and again, it is told."""
        torn = isinstance(error, TornSave)
        self._torn = self._torn + 1 if torn else 0
        if error is not None and not torn:
            self._plan = None  # tensors of it may be gone
        if self._torn < _TORN_BEFORE_GIVING_UP or not self.overlap:
            return
        self.overlap = False
        self._plan = None
        logger.warning(
            "autosave: %d saves in a row were abandoned, for tensors changed while they were "
            "copied (%s). From here on step() copies everything before it returns; "
            "autosave(overlap=False) says so from the start.",
            self._torn,
            error,
        )

    def tell_too_early(self) -> None:
        """What was changed before its save was staged, where that is known by now. The save that
        was begun meanwhile is staged, too, and the next ones copy it at once. Raises TornSave, or
        warns.
        """
        found, self._too_early = self._too_early, None
        if found is not None:
            self._notices.changed_too_early(found)

    def close(self) -> None:
        """Brings what was begun to the medium. Raises what failed that nobody has heard, and
        TornSave for what was changed behind the last save.
        """
        forked = os.getpid() != self._pid
        if not self.closed and not forked and sys.exc_info()[0] is None:
            self._steps.warn_of_unsaved()
        self.closed = True
        decided = forked
        ending = Ending()
        with ending.part():
            decided = forked or self._commits.close()
        self._gave_up = self._gave_up or not decided  # of a save that others never decided on
        with ending.part():  # or its thread goes on, and waits for ever
            self._close_pipeline(not self._gave_up)
        with ending.part():
            if not forked:
                self._compare_last()
        with ending.part():
            self.tell_too_early()
        ending.tell()
