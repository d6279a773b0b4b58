"""What persist() returns: one version of the whole shelf, durable or on its way."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Protocol

from tensorshelf._core import (
    CommitResult,
    PendingCommit,
    PendingSave,
    Pipeline,
    SavePlan,
    Session,
)
from tensorshelf.errors import ShelfError


class SaveOnItsWay(Protocol):
    """A save that copies in the background: PendingSave, or a part of a group's."""

    def staged(self) -> bool: ...

    def wait_staged(self) -> None: ...

    def done(self) -> bool: ...

    def wait(self) -> CommitResult: ...

    def times(self) -> dict[str, float]: ...

    def copies(self) -> list[tuple[int, int, float, float]]: ...


SavedInto = list[PendingSave]


def save_into(
    saved: SavedInto,
    pipeline: Pipeline,
    session: Session,
    plan: SavePlan,
    step: int | None,
    id: bytes | None,
) -> None:
    """No signal comes between the save and its place there: extend() is one step to Python."""
    calls = itertools.starmap(pipeline.save, [(session, plan, step, id)])
    saved.extend(filter(None, calls))  # it skips none


class Commit:
    """One committed version. With ``persist(wait=False)`` it may still be on its way to the medium.

    ``done()`` asks, ``wait()`` blocks; every other attribute waits first. A failed commit raises
    from each of them, and from the shelf's next call besides. One of ``autosave()`` may not even be
    staged: until it is, nothing may change the model's parameters and what optimizers keep.
    """

    def __init__(
        self,
        result: CommitResult | PendingCommit | SaveOnItsWay,
        when_staged: Callable[[bool], None] | None = None,
    ) -> None:
        """``when_staged`` is called once, before anybody is told that it is staged, with True; with
        False where it failed before it was.
        """
        self._result: CommitResult | None = None
        self._pending: PendingCommit | SaveOnItsWay | None = None
        self._save: SaveOnItsWay | None = None
        self._when_staged = when_staged
        if isinstance(result, CommitResult):
            self._result = result
            return
        self._pending = result
        if not isinstance(result, PendingCommit):
            self._save = result

    def staged(self) -> bool:
        """True when everything is copied, and may change, or when it has failed."""
        return self._noted(self._save is None or self._save.staged())

    def wait_staged(self) -> "Commit":
        """Blocks until everything is copied; raises what made it fail."""
        try:
            if self._save is not None:
                self._save.wait_staged()
        except ShelfError:
            self._noted(True)
            raise
        self._noted(True)
        return self

    def done(self) -> bool:
        """True when the version is durable, or has failed."""
        return self._noted(self._pending is None or self._pending.done())

    def wait(self) -> "Commit":
        """Blocks until the version is durable; raises what made it fail."""
        self._get()
        return self

    @property
    def version(self) -> int:
        """The version's number: one more than the last."""
        return self._get().version

    @property
    def step(self) -> int | None:
        """The caller's step number, stored with the version."""
        return self._get().step

    @property
    def nbytes(self) -> int:
        """Bytes of tensors assigned for this version."""
        return self._get().data_bytes

    @property
    def metadata_nbytes(self) -> int:
        """Bytes of names, layouts, checksums and roots written for this version."""
        return self._get().metadata_bytes

    @property
    def seconds(self) -> float:
        """Time inside persist(), without the assignments before it; of a commit in the background,
        from when its turn came until it is durable.
        """
        return self._get().seconds

    @property
    def times(self) -> dict[str, float]:
        """When it passed each stage, by ``time.monotonic()``; what is to come is not there.

        A save of ``autosave()``: ``began``; ``released``: the trainer went on; ``copied``;
        ``staged``: and compared; ``launched``: on its way. Any commit: ``sealing``: its turn came;
        ``written``; ``ordered``: what it refers to is durable; ``flipped``; ``durable``.
        """
        times = {} if self._save is None else self._save.times()
        # A save that failed before it was launched is told to the first who hears of it: not here.
        if self.done() and (self._save is None or "launched" in times):
            with contextlib.suppress(ShelfError):
                times |= self._get().times
        return times

    @property
    def copies(self) -> list[tuple[int, int, float, float]]:
        """Source, thread, begin and end of each copy; where the pipeline has ``trace``."""
        return [] if self._save is None else self._save.copies()

    def _get(self) -> CommitResult:
        if self._result is None:
            assert self._pending is not None
            self._result = self._pending.wait()
            self._pending = None
            self._noted(True)
        return self._result

    def _noted(self, staged: bool) -> bool:
        if staged and self._when_staged is not None:
            call, self._when_staged = self._when_staged, None
            call(not self._came_to_nothing())
        return staged

    def _came_to_nothing(self) -> bool:
        """Whether it is a save that failed before it was launched."""
        return self._save is not None and self._save.done() and "launched" not in self._save.times()

    def __repr__(self) -> str:
        if not self.done():
            return "Commit(pending)"
        return (
            f"Commit(version={self.version}, step={self.step}, nbytes={self.nbytes}, "
            f"seconds={self.seconds:.6f})"
        )
