"""How a save becomes a version: by itself, or with those of other ranks (_group/together.py)."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from tensorshelf import _core
from tensorshelf._assignments import Assignments
from tensorshelf._commit import Commit, SavedInto, SaveOnItsWay, save_into
from tensorshelf._group.drains import Drains
from tensorshelf._group.moments import Moments
from tensorshelf._state.flatten import Flat, flatten
from tensorshelf._state.split import Exchange


class CommittedShelf(Protocol):
    """What saving asks of a shelf."""

    _assignments: Assignments

    def _save(self, flat: Flat, *, step: int | None, wait: bool) -> Commit: ...


class Commits(Protocol):
    """The commits of one autosave. For one thread; each save is begun, and then planned, anew or
    failed. Keeps no shelf alive.
    """

    alone: bool  # there are no other ranks
    state: dict[str, Any]  # saved with every version
    moments: Moments | None  # what it did with others

    def drained(self, drain: str, drains: Drains | None) -> None:
        """What it saves is drained. ``drain``: in words, how; the same on all ranks, which meet by
        ``drains``.
        """

    def start(self, shelf: Any) -> None:
        """Before what was saved is loaded."""

    def mend(self, shelf: Any) -> bool:
        """What was saved last is damaged; True where it has been had back from elsewhere."""

    def interval(self, step: int, every: int, *, forced: bool) -> int:
        """The one that holds at that step, where it was ``every`` before. ``forced``: it is saved
        whatever that is.
        """

    def chosen(self, every: int) -> int:
        """The interval from here on, where this rank would have that one."""

    def resumed(self, shelf: Any) -> None:
        """After ``resume()`` has loaded what was agreed on."""

    def loading(self) -> AbstractContextManager[Exchange | None]:
        """Around loading what was saved; what it gives has what lies in pieces with other ranks."""

    def flat(self, state: Any) -> Flat:
        """What is to be stored of a state."""

    def begin(self, shelf: Any, step: int) -> bool:
        """Before anything of the save is looked at. True where a save that made tensors has come to
        nothing: they are gone, and a plan has them still.
        """

    def planned(
        self, shelf: Any, pipeline: _core.Pipeline, plan: _core.SavePlan, saved: SavedInto
    ) -> SaveOnItsWay:
        """Copied by the pipeline, whose save is in ``saved`` also where a signal's handler raises
        in the midst of this.
        """

    def anew(self, shelf: Any, flat: Flat) -> Commit:
        """Copied before this returns."""

    def failed(self, error: BaseException) -> None:
        """One of these three did not come to its end."""

    def left_out(self, step: int, error: Exception) -> None:
        """A save was due, and is not begun."""

    def close(self) -> bool:
        """Waits for what is on its way with others; False where it is undecided still."""


class Alone:
    """Each save is a version as soon as it is durable."""

    alone = True

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.moments: Moments | None = None
        self._step = 0

    def drained(self, drain: str, drains: Drains | None) -> None:
        """Nobody else needs to know."""

    def start(self, shelf: CommittedShelf) -> None:
        """The shelf's newest version is what there is."""

    def mend(self, shelf: CommittedShelf) -> bool:
        """There is nowhere else."""
        return False

    def interval(self, step: int, every: int, *, forced: bool) -> int:
        """There is nobody to agree with."""
        return every

    def chosen(self, every: int) -> int:
        return every

    def resumed(self, shelf: CommittedShelf) -> None:
        """Nobody else needs it."""

    def loading(self) -> AbstractContextManager[None]:
        """There are no others."""
        return nullcontext()

    def flat(self, state: Any) -> Flat:
        """All of it."""
        return flatten(state)

    def begin(self, shelf: CommittedShelf, step: int) -> bool:
        self._step = step
        return False

    def planned(
        self,
        shelf: CommittedShelf,
        pipeline: _core.Pipeline,
        plan: _core.SavePlan,
        saved: SavedInto,
    ) -> SaveOnItsWay:
        save_into(saved, pipeline, shelf._assignments.session, plan, self._step, None)
        return saved[0]

    def anew(self, shelf: CommittedShelf, flat: Flat) -> Commit:
        return shelf._save(flat, step=self._step, wait=False)

    def failed(self, error: BaseException) -> None:
        """Nobody else waits for it."""

    def left_out(self, step: int, error: Exception) -> None:
        """Nor for that."""

    def close(self) -> bool:
        """The pipeline waits for what it has."""
        return True
