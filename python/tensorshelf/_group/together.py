"""Saves of a rank, each committed when all ranks have their parts of it."""

import contextlib
import logging
import sys
from typing import Any

from tensorshelf import _core
from tensorshelf._commit import Commit, SavedInto, save_into
from tensorshelf._group.drains import Drains, NoDrain
from tensorshelf._group.drift import Chunk, Chunks
from tensorshelf._group.exchange import Exchange
from tensorshelf._group.group import Group, GroupInfo
from tensorshelf._group.group_save import GroupSave
from tensorshelf._group.moments import Moments
from tensorshelf._group.part import KEY, Identity, Part
from tensorshelf._group.parted import Ranks, parted
from tensorshelf._group.renewal import Renewal
from tensorshelf._group.schedule import BEHIND
from tensorshelf._group.start import Agreed
from tensorshelf._group.started import MOMENT, GroupShelf, Left, Started, start
from tensorshelf._group.wire import in_short
from tensorshelf._state.flatten import Flat, flatten
from tensorshelf.errors import ClosedError, UnresolvedError, UnsupportedError

logger = logging.getLogger("tensorshelf")

_FAREWELL = 10.0  # seconds that it stays for others: what was decided they have soon


class Together:
    """The commits of one autosave, in place of ``Alone``. For one thread. Keeps no shelf alive."""

    alone = False

    def __init__(self, group: Group, *, chooses: bool = False) -> None:
        """``chooses``: the ranks choose the interval, together."""
        self._group = group
        self._chooses = chooses
        self._wish = 0  # the interval that this rank would have
        self._every = 1  # that holds
        self._passed: list[tuple[int, bool]] = []  # steps, and whether they were to be saved anyway
        group._take(self.info)
        self._identity = Identity()
        self.state: dict[str, Any] = {KEY: self._identity}
        self.moments: Moments | None = None
        self._started: Started | None = None
        self._agreed: Agreed | None = None  # at the last start; counted on by each save
        self._left = Left()
        self._begun: tuple[Part, int] | None = None  # and not given to the member yet
        self._saved: SavedInto = []  # what the pipeline gave for that
        self._given: GroupSave | None = None  # of that; a signal may have come as it was submitted
        self._anew: GroupSave | None = None  # the last that may have made tensors
        self._alike: Chunk | None = None  # of what all ranks hold alike, as that has it
        self._chunks: Chunks | None = None  # where each saves a piece of it
        self._drain_words: str | None = None
        self._drains: Drains = NoDrain()

    def drained(self, drain: str, drains: Drains | None) -> None:
        """What it saves is drained. ``drain``: in words, how; the same on all ranks."""
        assert drains is not None
        self._drain_words, self._drains = drain, drains

    def start(self, shelf: GroupShelf) -> None:
        """Agrees with all ranks on what they go on from."""
        if not self.close():
            raise UnresolvedError(
                f"saves of rank {self._group.rank} into {shelf._path} wait for the others still: "
                "what all go on from is not known",
                "Start the job anew.",
            )
        self._passed, self._every = [], 1
        self._started, self._agreed = start(shelf, self._group, self._drain_words, self._drains)
        self.moments = self._started.moments

    def _running(self) -> Started:
        """Raises UnsupportedError before a start, and behind close()."""
        if self._started is None:
            raise UnsupportedError(
                "ranks that save together agree first on what they go on from",
                "Call resume() on all of them, also for a new run.",
            )
        return self._started

    def mend(self, shelf: GroupShelf) -> bool:
        """After a CorruptError of what was loaded; True where it is whole again."""
        if self._started is None or self._started.exchange.has_begun:
            return False
        return self._started.replicas.mend(shelf)

    def loading(self) -> contextlib.AbstractContextManager[Exchange]:
        """Around loading what was saved, by which ranks have the pieces of others."""
        return self._running().exchange.loading()

    def flat(self, state: Any) -> Flat:
        """The flattened state, of which this rank saves its pieces, where it is to."""
        flat, group = flatten(state), self._group
        if not group.partition or group.members == 1 or self._agreed is None:
            return flat
        ranks = Ranks(group.rank, group.members, self._agreed.writers, group._is_numbered_anew)
        parts = parted(flat, state, ranks)
        self._chunks = Chunks(parts.alike, parts.of_first)
        return parts.flat

    def interval(self, step: int, every: int, *, forced: bool) -> int:
        """The one that holds at that step. Waits where this rank could not hear before what holds,
        for a rank that did not vote in time; the steps that it passes meanwhile, and others save,
        are epochs of its own, too: they come to nothing, and the next ones are those of all.
        """
        if not self._chooses or self._started is None or self._agreed is None:
            return every
        member = self._started.member
        self._passed.append((step, forced))
        while True:
            member.wait_decided(but=BEHIND)
            found = member.schedule.every(self._agreed.number)
            passed, anyway = self._passed.pop(0)
            if found != self._every:
                logger.info("group: from step %d on every %d are saved", passed, found)
                self._every = found
            if not self._passed:
                return found
            if anyway or passed % found == 0:
                self.left_out(passed, _not_known(passed))

    def chosen(self, every: int) -> int:
        """With the save that begins next, the interval that this rank would have is told."""
        if not self._chooses:
            return every
        self._wish = every
        return self._every

    def resumed(self, shelf: GroupShelf) -> None:
        """Copies that lack what was loaded are made anew, by the group's thread."""
        started = self._running()
        epoch, _ = started.member.committed
        if epoch and (lacking := started.replicas.lacking(epoch)):
            started.member.renew(Renewal(lacking, shelf._core, epoch))

    def begin(self, shelf: GroupShelf, step: int) -> bool:
        self._number(step)
        # One that is prepared, and with slots for it one that is copied behind that.
        self._running().member.wait_decided(but=min(shelf.info().in_flight, 2) - 1)
        return self._anew is not None and self._anew.has_failed()

    def left_out(self, step: int, error: Exception) -> None:
        """Else the epochs of this rank would be of other steps than those of the others."""
        self._number(step)
        self.failed(error)

    def _number(self, step: int) -> None:
        """Counts the epoch that begins, a save of every rank, though it comes to nothing."""
        self._running().member.refuse_lost()
        assert self._agreed is not None
        job, generation, number, *_ = self._agreed
        part = Part(job, self._group.rank, self._group.members, generation, number + 1)
        self._agreed = self._agreed._replace(number=part.number)
        self._identity.part = part
        self._saved, self._given = [], None
        self._begun = part, step

    def planned(
        self, shelf: GroupShelf, pipeline: _core.Pipeline, plan: _core.SavePlan, saved: SavedInto
    ) -> GroupSave:
        part, step = self._compared()
        self._saved = saved
        self._running().member.pipeline = pipeline
        try:
            save_into(saved, pipeline, shelf._assignments.session, plan, step, part.mark())
        except ClosedError:
            self._running().member.refuse_lost()  # who is lost closes it
            raise
        return self._submit(saved[0])

    def anew(self, shelf: GroupShelf, flat: Flat) -> Commit:
        self._running().member.wait_decided()  # nothing is frozen behind what is prepared
        part, step = self._compared()
        shelf._prepare(flat, step=step, id=part.mark())
        self._anew = self._submit(None)
        return Commit(self._anew)

    def _compared(self) -> tuple[Part, int]:
        """What was begun, with a hash for the other ranks: it is within step(), and nothing of the
        state changes before that returns.
        """
        assert self._begun is not None
        part, step = self._begun
        if self._chunks is not None:
            self._alike = self._chunks.chunk(part.number)
            part = part._replace(alike=self._alike.known)
            self._begun = part, step
        return part, step

    def failed(self, error: BaseException) -> None:
        """What was begun comes to nothing: the others hear of it."""
        if self._begun is None:
            return
        if self._given is not None:
            self._give(self._given)
            return
        if self._saved:  # a signal came behind that: it goes on
            self._submit(self._saved[0])
            return
        part, step = self._begun
        save = self._save(part, step, None)
        save.ended(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        self._give(save)

    def close(self) -> bool:
        """Waits for what is under way, and leaves the group; False where others did not decide on
        it. Who takes the votes of others, and where the store may lie, stays till they have left.
        Where an exception ends this rank, the others may be waiting for it: then it waits for them
        a moment alone.
        """
        started, self._started = self._started, None
        if started is None:
            return self._left.settled
        wire, member, station = started.wire, started.member, started.station
        self._left = Left(False, member.committed, (), started.replicas.keeps())  # whatever ends it
        failing = sys.exc_info()[0] is not None or _dies_of_an_error()
        seconds = MOMENT if failing else self._group.timeout
        try:
            settled = member.close(seconds, wire)
            self._left = self._left._replace(settled=settled, held_by=started.held_by())
            started.replicas.close(wire, min(seconds, _FAREWELL), settled=settled)
            station.leave(wire, min(seconds, _FAREWELL), keeps_store=self._group._keeps_store)
        except (RuntimeError, TimeoutError) as error:  # torch's, of its store; nobody came
            rank = self._group.rank
            logger.info("group: rank %d left before others had: %s", rank, in_short(error))
        finally:
            if wire.answers(MOMENT):
                station.end(wire)
            self._left = self._left._replace(committed=member.committed)
        return self._left.settled

    def info(self) -> GroupInfo:
        agreed, started, left, group = self._agreed, self._started, self._left, self._group
        epoch, step = left.committed if started is None else started.member.committed
        return GroupInfo(
            job=None if agreed is None else agreed.job,
            rank=group.rank,
            members=group.members,
            generation=None if agreed is None else agreed.generation,
            epoch=epoch,
            step=step,
            undecided=0 if started is None else started.member.undecided(),
            keepers=() if agreed is None else tuple(agreed.keepers[group.rank]),
            held_by=left.held_by if started is None else started.held_by(),
            keeps=left.keeps if started is None else started.replicas.keeps(),
            awaited=None if started is None else started.awaited(),
            partition=group.partition is not False,
            writers=() if agreed is None else tuple(agreed.writers),
        )

    def _submit(self, pending: _core.PendingSave | None) -> GroupSave:
        assert self._begun is not None
        save = self._save(*self._begun, pending)
        self._give(save)
        return save

    def _save(self, part: Part, step: int, pending: _core.PendingSave | None) -> GroupSave:
        started = self._running()
        return GroupSave(
            part,
            step,
            pending,
            timeout=self._group.timeout,
            awaited=started.station.awaited.have,
            every=self._wish,
            where=started.member.where(),
            alike=self._alike,
        )

    def _give(self, save: GroupSave) -> None:
        self._given = save
        self._running().member.submit(save)
        self._begun = None


def _dies_of_an_error() -> bool:
    """Whether an exception that nobody caught ends this process. A prompt goes on behind one."""
    return getattr(sys, "last_type", None) is not None and not hasattr(sys, "ps1")


def _not_known(step: int) -> UnresolvedError:
    return UnresolvedError(
        f"whether step {step} is saved was not known in time: a save before it was undecided",
        "Look for the rank that had not voted. Group(timeout=) says how long to wait.",
    )
