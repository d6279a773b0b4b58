"""shelf.autosave(): the state of a run, saved every so many steps, and resumed."""

import logging
import operator
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from tensorshelf._auto.batches import Batches
from tensorshelf._auto.behind import Behind
from tensorshelf._auto.checked import check_options, check_signals, check_state
from tensorshelf._auto.commits import Alone, Commits
from tensorshelf._auto.ending import note_besides
from tensorshelf._auto.feed import Feed
from tensorshelf._auto.flight import Flight
from tensorshelf._auto.gates import Gates, has_unsaved_schedule, unsaved_parameters
from tensorshelf._auto.gradients import Accumulation, error_in_the_middle, refuse_in_backward
from tensorshelf._auto.interval import Interval
from tensorshelf._auto.notices import Notices
from tensorshelf._auto.options import AutosaveOptions
from tensorshelf._auto.report import write_report
from tensorshelf._auto.run import OWN_KEYS, Run, Saves
from tensorshelf._auto.signals import Signals
from tensorshelf._auto.start import Start
from tensorshelf._auto.steps import Steps
from tensorshelf._auto.timeline import Timeline
from tensorshelf._auto.weak import weakly
from tensorshelf._commit import Commit
from tensorshelf._drain.drainer import Drainer
from tensorshelf._group.together import Together
from tensorshelf._numbers import count_of, steps_done
from tensorshelf._spelling import spelled
from tensorshelf.errors import (
    AbandonedError,
    BadArgument,
    CorruptError,
    ShelfError,
    UnknownName,
    UnsupportedError,
)

logger = logging.getLogger("tensorshelf")


class Autosave:
    """Saves a state every so many steps, in the background; ``shelf.autosave(...)`` gives one.

    ``step()`` returns when all that may change before an optimizer's next step is copied. What
    optimizers step and keep is copied by the pipeline's threads during the next forward and
    backward, and each optimizer's ``step()`` waits for that. The version becomes durable meanwhile.
    For one thread; one for each shelf, for a shelf holds one state.
    """

    def __init__(self, shelf: Saves, state: dict[str, Any], options: AutosaveOptions) -> None:
        # What can be refused is refused before anything is done, options of the pipeline when the
        # feed is made: an autosave that the shelf has already goes on then.
        check_state(state, OWN_KEYS)
        check_options(options)
        caught = check_signals(options.signals)
        overlap, grads, group = options.overlap, options.grads, options.group
        if overlap:
            refuse_in_backward(state)
        chooses = options.every == "auto"
        self.every = 1 if options.every == "auto" else operator.index(options.every)
        self.skipped = 0  # saves that on_busy="skip" left out
        self._on_busy = options.on_busy
        self._notices = Notices(raises=options.on_error == "raise")
        self._commits: Commits = Alone() if group is None else Together(group, chooses=chooses)
        self._run = Run(shelf, state, self._commits.state, grads=bool(grads))
        self._steps = Steps()
        self._behind = Behind(state)
        self._run.loaders.asked = weakly(self._look_behind)
        self._accumulation = Accumulation(state) if grads is None else None
        self._timeline = Timeline()
        self._interval = Interval(self._timeline, mtbi=options.mtbi)
        self._began: Start | None = None
        self._feed = Feed(
            shelf, options.pipeline, self._notices, self._commits, self._steps, overlap=overlap
        )
        # The one before gives way. Where closing it raises what it failed with, this is none, and
        # that is closed: the next try finds nothing in its way.
        if shelf._feed is not None:
            shelf._feed.close()
        shelf._feed = self._feed
        if options.drain is not None:
            self._feed.drainer = Drainer(shelf, options.drain, group)
            self._commits.drained(options.drain.stays, self._feed.drainer.meeting)
        self._flight = Flight(
            self._feed, self._timeline, deadline=options.deadline, all_heard=group is not None
        )
        # Optimizers and signals may call at once, so that all they need is there by now. Signals
        # are last: where something behind them raised, nobody would give them back.
        self._gates = Gates(
            state,
            self._before_optimizer,
            self._behind_optimizer,
            self._unknown_optimizer,
        )
        for kind, count in unsaved_parameters(state):
            self._notices.unsaved_parameters(kind, count)
        if has_unsaved_schedule(state):
            self._notices.unsaved_schedule()
        self._signals = Signals(caught, weakly(self._land))

    @spelled
    def batches(
        self, loader: Iterable[Any], *, epoch: int | None = None, by_sampler: bool = False
    ) -> Batches:
        """The loader, to be iterated in its place: it resumes in the middle of an epoch.

        The same loader gives the same again, so that it may be called for each epoch. For several
        loaders, call it in the same order in each run.

        ``epoch`` is the number of the epoch in your loop. The first iteration after resuming gives
        the rest of the epoch that was saved, which is nothing where all its batches had been given;
        where ``epoch`` is a later one it begins that. Raises BadArgument for an earlier one.

        What an epoch had given is drawn and dropped when it is resumed. ``by_sampler=True`` draws
        it from the sampler alone and loads nothing: for a torch DataLoader whose dataset and
        workers draw no random numbers of their own, which would be others then.
        """
        return self._run.loaders.add(loader, by_sampler=by_sampler).of_epoch(epoch)

    @spelled
    def resume(
        self,
        *,
        strict: bool = True,
        rename: Mapping[str, str] | Callable[[str], str] | None = None,
    ) -> int:
        """Loads what was saved last, into the objects given; returns its step, or 0 for a new run.

        ``strict`` and ``rename`` are those of ``load_into()``, which says what is raised. With
        ``strict=False`` the log says what was not loaded. Call it before iterating over loaders;
        again, to go back to what was saved last. What ``save()`` saved can be resumed, too.

        Ranks of a group agree here on what all go on from, and wait for each other: call it on all
        of them. Raises the same on each where they cannot.
        """
        if self._commits.alone:  # ranks agree on what all have, and give up the rest
            self.wait()  # else what is on its way would be newer than the step that is told
        self._commits.start(self._run.shelf)
        with self._commits.loading() as exchange:
            try:
                step = self._run.resume(strict=strict, rename=rename, exchange=exchange)
            except CorruptError:
                if not self._commits.mend(self._run.shelf):
                    raise
                step = self._run.resume(strict=strict, rename=rename, exchange=exchange)
        self._steps.resumed(step)
        self._feed.plan_ahead(self._run.shelf, self._run.state)
        self._commits.resumed(self._run.shelf)
        return step

    def step(self, n: int, *, force: bool = False, metric: float | None = None) -> Commit | None:
        """Saves, where it is time to; ``n`` is the number of steps that are done.

        ``force`` saves whatever ``every`` and ``on_busy`` say: at the end of a run, say. The same
        number may come again, where something changed behind a step, as a validation does.
        ``metric`` says what the version is worth to ``Drain(best=)``, where it is time to save.

        Raises what a save in the background failed with since. Returns the version that is on its
        way, or None. Raises UnsupportedError where the shelf holds a run that was not resumed,
        another ``autosave()`` took the place of this one, or gradients are being added up.
        """
        self._check_turn()
        begin = time.monotonic()
        number = self._steps.tell(steps_done(n))
        try:
            self.every = self._commits.interval(number, self.every, forced=force)
        except ShelfError as error:
            self._tell(error)
            return None
        due = force or self._is_due(number)
        if self._accumulation is not None and self._accumulation.step_is_in_the_middle() and due:
            self._leave_out(number)
            due = False
        self._measured(number, metric, due)
        saved = heard = None
        try:
            heard = self._hear(instead=not due or self._commits.alone)
            saved = self._save(number) if due else None
        except ShelfError as error:
            if heard is not None:
                note_besides(error, heard)
            self._tell(self._what_ended(error))
        finally:
            self._timeline.stepped(number, begin, time.monotonic(), saved=saved is not None)
        if heard is not None:
            self._notices.not_saved(heard)
        self._feed.tell_too_early()
        if self.drain is not None:
            self.drain.tell_if_stuck()
        return saved

    def gate(self) -> None:
        """Waits until what was saved may change. Optimizers call it before they step.

        Where something else changes parameters, or an optimizer runs no hooks, call it yourself.
        What a save failed with, the next ``step()`` raises.
        """
        self._flight.gate()

    def wait(self) -> None:
        """Waits until what was saved is durable. Raises what made it fail."""
        try:
            self._flight.wait()
        except ShelfError as error:
            self._tell(error)
        self._feed.tell_too_early()

    def rollback(self, step: int, *, skip_batches: int = 0) -> int:
        """Goes back within the running job to what was saved at that step, and returns the step.

        For a loss that went astray: the objects are as they were then, and the loaders leave out
        ``skip_batches`` batches behind that point, also where the job is resumed from there. Leave
        the loop over ``batches()`` and begin it anew: to go on with the old one raises
        UnsupportedError. Needs a shelf opened with ``keep=``. Raises UnknownName where no version
        of that step is kept, and KeyMismatch or LayoutError where the state has another form by
        now, with nothing changed.
        """
        if not self._commits.alone:
            raise UnsupportedError(
                "one rank of a group cannot go back by itself",
                "Start the job anew: all ranks go on from the version that they have in common.",
            )
        step, skipped = steps_done(step), count_of(skip_batches, "skip_batches")
        self.wait()
        if self.drain is not None:  # what it makes is another version of that step
            self.drain.measured(step, None)
        self._run.go_back(step, skip_batches=skipped)
        self._steps.went_back(step)
        if skipped:
            self._save(step)
            self.wait()
        return step

    @property
    def drain(self) -> Drainer | None:
        """What copies versions to a remote; None without ``drain=``."""
        return self._feed.drainer

    @property
    def start(self) -> Start | None:
        """What is saved, how, and into which room; None before the first save."""
        return self._began

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes when the trainer and the saves did what, for the last 1,000 steps and saves.

        A Chrome trace: open it with Perfetto (ui.perfetto.dev). With ``pipeline={"trace": True}``
        the copy of each tensor is in it. ``join_traces()`` makes one of those of all ranks. Raises
        IoError where it cannot be written.
        """
        self._timeline.write(path, self._commits.moments)

    def report(self, path: str | os.PathLike[str]) -> None:
        """One HTML file with pictures: where the time of the last steps and saves went.

        Needs matplotlib, and raises UnsupportedError without it; IoError where it cannot be
        written.
        """
        write_report(path, self._timeline, self._began, self._run.shelf.info(), self.skipped)

    def close(self) -> None:
        """Waits for what is on its way, and gives the signals back."""
        if not self._feed.closed and sys.exc_info()[0] is None:  # else something else ends it
            self._steps.warn_of_unsaved()
        try:
            self.wait()
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)

    def _end(self, failure: BaseException | None) -> None:
        """``failure`` is raised already."""
        self._signals.restore()
        self._gates.remove()
        try:
            self._feed.close()
        except ShelfError as second:
            if failure is None:
                raise
            note_besides(failure, second)

    def __repr__(self) -> str:
        closed = " (closed)" if self._feed.closed else ""
        return f"<Autosave of {self._run}, every {self.every}{closed}>"

    def __enter__(self) -> "Autosave":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _measured(self, number: int, metric: float | None, due: bool) -> None:
        if self.drain is None:
            if metric is not None:
                raise BadArgument(
                    "a metric is given, and nothing is drained",
                    "Use autosave(drain=Drain(best=...)).",
                )
        elif due:  # before the version is durable; of none, too: an older save's is not its own
            self.drain.measured(number, metric)

    def _is_due(self, number: int) -> bool:
        if number % self.every != 0:
            return False
        if self._on_busy == "wait" or self._flight.has_landed():
            return True
        self.skipped += 1
        return False

    def _check_turn(self) -> None:
        if self._feed.closed:
            raise UnsupportedError(
                "this autosave is closed: it was, or its shelf, or another took its place",
                "A shelf holds one state: give one autosave() all that belongs to the run.",
            )
        self._run.refuse_to_save()
        if left_alone := self._run.loaders.forget_left_alone():
            self._notices.loaders_left_alone(left_alone)

    def _look_behind(self) -> None:
        self._notices.changed_behind(self._behind.changed())

    def _before_optimizer(self) -> None:
        self._steps.optimizer_stepped = True
        if self._feed.overlap:
            self.gate()

    def _behind_optimizer(self) -> None:
        if self._accumulation is not None:
            self._accumulation.optimizer_stepped()

    def _unknown_optimizer(self, kind: str) -> None:
        if not self._feed.closed:  # else another autosave may have it
            self._notices.unknown_optimizer(kind)

    def _hear(self, *, instead: bool) -> ShelfError | None:
        """What a save failed with since: raised, where nothing is to be saved then. A rank of a
        group saves, for the others do, which may hear of it a step later.
        """
        try:
            self._flight.hear()
        except ShelfError as error:
            if instead:
                raise
            self._flight.failed(error)
            return error
        return None

    def _what_ended(self, error: ShelfError) -> ShelfError:
        """A save of a group that is abandoned takes along what is copied behind it."""
        gone = isinstance(error, (AbandonedError, UnknownName))  # or tensors that it had made
        if gone and not self._commits.alone:
            try:
                self._flight.wait()
            except ShelfError as before:
                note_besides(before, error)
                return before
        return error

    def _save(self, number: int) -> Commit:
        wished = self._interval.after(
            self.every, load_seconds=self._run.load_seconds, alone=self._commits.alone
        )
        self.every = self._commits.chosen(wished)
        saved = self._flight.begin(self._run, number)
        self._steps.saved = number
        self._behind.saved(number, asked=bool(self._run.loaders.made))
        self._timeline.saved(number, saved, self._feed.saved_names)
        if self._began is None and self._feed.sources is not None:
            self._began = Start.of(self._run.shelf.info(), self._feed.sources)
            logger.info("autosave: %s", self._began)
        return saved

    def _leave_out(self, number: int) -> None:
        try:
            self._commits.left_out(number, error_in_the_middle(number))
        except ShelfError as error:  # nothing is decided any more
            self._tell(error)
            return
        self._notices.in_the_middle(number)  # what is on its way goes on

    def _tell(self, error: ShelfError) -> None:
        self._flight.failed(error)
        self._notices.not_saved(error)

    def _land(self, signal: int) -> None:
        self._flight.land(signal)
