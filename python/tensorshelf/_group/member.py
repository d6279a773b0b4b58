"""A rank's thread: it waits for a part to be prepared, votes, and does what was decided."""

import contextlib
import functools
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Protocol

from tensorshelf import _core
from tensorshelf._assignments import Assignments
from tensorshelf._core import CommitResult
from tensorshelf._group import drift
from tensorshelf._group.copies import Copy
from tensorshelf._group.drains import BUSY, Drains
from tensorshelf._group.group_save import GroupSave
from tensorshelf._group.moments import Epoch, Moments
from tensorshelf._group.posted import LEAVES, Posted, decision_key
from tensorshelf._group.renewal import Renewal
from tensorshelf._group.schedule import Schedule
from tensorshelf._group.wire import TrainersWire, Wire, in_short
from tensorshelf.errors import (
    AbandonedError,
    GroupError,
    ShelfError,
    UnknownName,
    UnresolvedError,
)

logger = logging.getLogger("tensorshelf")

_PATIENCE = 1.0  # seconds


class MemberShelf(Protocol):
    """What a member asks of a shelf."""

    _assignments: Assignments
    _core: _core.Shelf
    _path: str

    @property
    def step(self) -> int | None: ...


class _Bug(UnresolvedError):
    """Ours; an assert would say nothing under ``python -O``, and a wrong vote would be cast."""


def _bug(what: str) -> _Bug:
    return _Bug(
        f"{what}: that is a bug of tensorshelf",
        "Report it, and start the job anew: what is prepared is decided then.",
    )


class Member:
    """A rank in one generation of a group. ``last``: the epoch that all go on from, in this
    generation. ``copies`` are those of its part, which have it before this rank votes into the
    ``box``.
    """

    def __init__(
        self,
        shelf: MemberShelf,
        wire: Wire,
        *,
        last: tuple[int, int],
        copies: list[Copy],
        box: str,
        nodes: list[str],
        moments: Moments,
        drains: Drains,
    ) -> None:
        self._core = shelf._core  # not the shelf: who lets it go ends this
        self._session = shelf._assignments.session
        self._path = shelf._path
        self._wire = wire
        self._rank = moments.rank
        self._copies = copies
        self._box = box
        self._nodes = nodes  # of all ranks
        self._drains = drains
        self.schedule = Schedule()
        self._moments = moments
        self.committed: tuple[int, int | None] = (last[1], shelf.step)  # epoch, and its step
        self._machine = _core.Participant(moments.rank, last)
        self._saves: queue.SimpleQueue[GroupSave | Renewal | None] = queue.SimpleQueue()
        self._under_way: list[GroupSave] = []  # the oldest first
        self._lost: Exception | None = None  # why nothing is decided any more
        self.pipeline: _core.Pipeline | None = None  # that copies its saves
        self._aborted: GroupError | None = None  # the last epoch was
        self._resolving = threading.Lock()
        self._left = False
        self._other_left: _core.GroupMessage | None = None  # an abort, as all are from then on
        self._given_up = False  # by close(): the next start decides
        self._thread = threading.Thread(target=self._run, name="tensorshelf-group", daemon=True)
        self._thread.start()

    def renew(self, renewal: Renewal) -> None:
        """Before what is submitted behind that."""
        self._saves.put(renewal)

    def submit(self, save: GroupSave) -> None:
        """In the order of their epochs. One that failed already is voted against. Again where a
        signal ended the call: one that was submitted twice is once.
        """
        if save.is_settled():
            return
        if save not in self._under_way:
            self._under_way.append(save)
        self._saves.put(save)

    def refuse_lost(self) -> None:
        """Raises where nothing is decided any more: a save would wait for that for good."""
        if self._lost is not None:
            raise self._lost

    def wait_decided(self, *, but: int = 0) -> None:
        """Until no more saves of this rank than so many are under way. Raises UnresolvedError where
        nothing is decided in time; what failed is for others to tell.
        """
        under_way = list(self._under_way)
        for save in under_way[: max(0, len(under_way) - but)]:
            save.wait_settled()

    def undecided(self) -> int:
        """How many saves of this rank are under way."""
        return sum(not save.done() for save in list(self._under_way))

    def close(self, seconds: float, wake: TrainersWire) -> bool:
        """Waits so long for what is under way, and leaves the group. False where that did not end:
        it stays prepared, and the next start decides. The thread ends, for one that waits in the
        store's own code when the interpreter ends would end the process by SIGABRT. Raises
        TimeoutError, and the thread stays, where the store does not answer.
        """
        self._saves.put(None)
        self._thread.join(seconds)
        if not self._thread.is_alive():
            return self._left
        answers = wake.answers(_PATIENCE)
        with self._resolving if answers else contextlib.nullcontext():  # it may ask within that
            self._given_up = True
        under_way = list(self._under_way)
        for save in under_way:
            save.ended(save.undecided("when the shelf was closed"))
        if not answers:
            raise TimeoutError(f"the store did not answer within {_PATIENCE:g} s")
        for save in under_way:  # whom nobody else wakes; and all have ended where the store is gone
            wake.put(decision_key(save.part.number, self._rank), b"")
        self._thread.join(_PATIENCE)
        return False

    def _run(self) -> None:
        while (save := self._saves.get()) is not None:
            if isinstance(save, Renewal):
                self._or_lose(functools.partial(self._renew, save))
                continue
            if save.is_settled():  # it was submitted twice, perhaps as it settled
                if save in self._under_way:
                    self._under_way.remove(save)
                continue
            self._or_lose(functools.partial(self._bring_to_its_end, save))
            if self._lost is not None:
                save.ended(self._lost)
            save.settled()  # before it is under way no more: it could be submitted again between
            self._under_way.remove(save)
            del save  # and with it what it was copied from
            if self._given_up:
                return
        if self._machine.ended:
            with contextlib.suppress(RuntimeError):  # torch's, of its store
                self._leave()

    def _renew(self, renewal: Renewal) -> None:
        renewal.run(
            self._moments,
            save_waits=lambda: bool(self._under_way),
            stopped=lambda: self._given_up,
        )

    def _or_lose(self, call: Callable[[], None]) -> None:
        """What the store raises, which is torch's, ends the group, and no error passes unheard."""
        if self._lost is not None:
            return
        try:
            call()
        except _Bug as error:
            self._lose(error)
        except Exception as error:
            lost = UnresolvedError(
                f"the messages of the group do not come through to rank {self._rank}, "
                f"{self.where()}: {in_short(error)}",
                "Start the job anew: what is prepared is decided then.",
            )
            lost.__cause__ = error
            self._lose(lost)

    def _lose(self, error: Exception) -> None:
        """What is prepared stays so. Who waits in the pipeline for its decision waits no more."""
        self._lost = error
        if self.pipeline is not None:
            with contextlib.suppress(ShelfError):
                self.pipeline.close()

    def _bring_to_its_end(self, save: GroupSave) -> None:
        epoch = self._machine.begin()
        if epoch != save.part.epoch:  # else it would vote for a save that is none of that epoch
            raise _bug(f"rank {self._rank} is at epoch {epoch}, and its save is of another")
        told = self._moments.begin(epoch[1], save.step)
        alike = 0
        try:
            failed = save.error
            if failed is None:
                save.wait_prepared()
                told.at("prepared")
                alike = 0 if save.alike is None else save.alike.hash()
                self._send(save, told)
        except Exception as error:
            failed = error
        if failed is None:
            vote = self._machine.prepared()
        else:
            save.ended(self._blamed(failed))  # whatever others say: nobody waits for it
            # Before the vote: a start that finds all prepared takes it for undecided.
            self._drop_what_is_left(save)
            vote = self._machine.refused(self._cause(failed))
        if self._other_left is None:
            try:
                self._hear(save, vote, told, alike)
            finally:
                self._drains.over()
        else:  # who takes votes may have left, too
            no = self._other_left
            self._do(
                save,
                self._machine.receive(_core.GroupMessage(no.kind, epoch, no.rank, no.cause)),
            )
        told.made = self.committed[0] == epoch[1]
        told.at("ended")
        if failed is not None:
            self._tell_copies(save, None)

    def _hear(self, save: GroupSave, vote: _core.GroupMessage, told: Epoch, alike: int) -> None:
        """Votes, and does what is decided."""
        told.at("votes")
        yes = vote.kind == _core.GroupMessageKind.yes
        drains = self._drains.offer(save.part.number, save.step) if yes else BUSY
        self._wire.post(self._box, Posted(vote, save.step, save.every, alike, drains).pack())
        save.voted = yes
        told.at("voted")
        key = decision_key(save.part.number, self._rank)
        while not self._machine.ended:
            found = Posted.unpack(self._wire.take(key))
            told.at("decided")
            with self._resolving:
                if self._given_up:
                    return
                self.schedule.told(save.part.number, found.every)
                if found.is_last:
                    self._other_left = found.message
                self._do(save, self._machine.receive(found.message))
                if found.drains and self.committed[0] == save.part.number:
                    self._drains.agreed(found.drains)
            self._wire.drop(key)

    def _send(self, save: GroupSave, told: Epoch) -> None:
        """What is prepared here is prepared in its copies, too."""
        for copy in self._copies:
            began = time.monotonic()
            nbytes = copy.put(self._core, save.part, save.step)
            told.copied(copy.pair.keeper, nbytes, began)
        if self._copies:
            told.at("kept")

    def _do(self, save: GroupSave, todo: _core.Todo) -> None:
        if todo == _core.Todo.nothing:
            return
        commit = todo == _core.Todo.commit
        self._aborted = None if commit else self._told(save)
        try:
            made = self._resolve(commit=commit)
            if commit and made is None:  # else wait() would say that it is durable
                raise _bug(f"{self.where()} had nothing to commit")
        except Exception as error:  # the medium's: what is prepared waits for the next start
            save.ended(error)
            self._lose(error)
            return
        if made is not None:
            self.committed = save.part.number, save.step
        self._tell_copies(save, None if made is None else made.version)
        end = self._aborted or made
        assert end is not None
        save.ended(end)

    def _tell_copies(self, save: GroupSave, version: int | None) -> None:
        for copy in self._copies:
            copy.decided(save.part, version)

    def _resolve(self, *, commit: bool) -> CommitResult | None:
        return self._core.resolve(self._session, commit)

    def _drop_what_is_left(self, save: GroupSave) -> None:
        """Abandons what is prepared of a save voted against: Ctrl-C may have come behind that."""
        found = self._core.prepared()
        if found is not None and found["id"] == save.part.mark():
            try:
                self._resolve(commit=False)
            except ShelfError as error:  # a start at which all have it prepared commits it
                logger.error(
                    "group: %s: what this rank votes against stays prepared: %s",
                    self.where(),
                    error,
                )

    def _told(self, save: GroupSave) -> GroupError:
        """What a rank said no for, on all others."""
        no = self._machine.aborted
        assert no is not None
        differ = drift.told(no.cause, save.step, save.alike)
        if differ is not None:
            return differ
        cause, host = no.cause.decode("utf-8", "replace"), self._nodes[no.rank]
        on = "" if f" on {host})" in cause else f" ({host})"
        error = GroupError(
            f"nothing was saved at step {save.step} on any rank: rank {no.rank}{on} could not: "
            + cause,
            "The version before stands on all ranks, and the next save is tried anew.",
        )
        error.rank = no.rank
        return error

    def _blamed(self, error: Exception) -> Exception:
        """What was behind an aborted save went with it: what ended that one is told."""
        gone = isinstance(error, (AbandonedError, UnknownName))  # or tensors that it had made
        if gone and self._aborted is not None:
            return self._aborted
        return error

    def _cause(self, error: Exception) -> bytes:
        return f"{error} ({type(error).__name__}, {self.where()})".encode(errors="replace")

    def where(self) -> str:
        """The path and the host of this rank's shelf, for messages."""
        return f"{self._path} on {socket.gethostname()}"

    def _leave(self) -> None:
        """Who saves on, without this rank, hears of it at once."""
        self._machine.begin()
        cause = f"it has closed its shelf, or autosave ({self.where()})"
        vote = self._machine.refused(cause.encode(errors="replace"))
        self._wire.post(self._box, Posted(vote, LEAVES).pack())
        self._left = True
