"""Shelves of a group's ranks, read as one by any number of ranks."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from tensorshelf._group.exchange import Exchange
from tensorshelf._group.group import Group, check_group
from tensorshelf._group.own import own_keys
from tensorshelf._group.saved import Paths, open_ranks
from tensorshelf._group.shared import SharedOut
from tensorshelf._group.state import JoinedState
from tensorshelf._progress import Report, reporter
from tensorshelf._state import fill as _fill
from tensorshelf._state import load as _load
from tensorshelf._state.load_report import LoadReport
from tensorshelf._state.paths import shown
from tensorshelf._state.record import Reads
from tensorshelf.errors import ClosedError, LayoutError


class MergedView:
    """What ``open_merged()`` gives. For one thread at a time."""

    def __init__(self, paths: Paths) -> None:
        with contextlib.ExitStack() as stack:
            ranks = open_ranks(paths, stack)
            self._state: JoinedState | None = JoinedState(ranks)
            self._own = own_keys(ranks)
            self._ranks, self._step = len(ranks), ranks[0].shelf.step
            part = ranks[0].part
            self._save = f"epoch {part.number} (generation {part.generation}) of job {part.job}"
            self._stack = stack.pop_all()

    @property
    def step(self) -> int | None:
        """The step of the version that all ranks have."""
        return self._step

    @property
    def ranks(self) -> int:
        """How many have saved."""
        return self._ranks

    def load(
        self,
        keys: str | Iterable[str] | None = None,
        *,
        rename: Mapping[str, str] | Callable[[str], str] | None = None,
        progress: Report | bool | None = None,
    ) -> Any:
        """The state with whole tensors, all else as rank 0 saved it; as ``Shelf.load()``."""
        with reporter(progress, "loading") as report:
            return _load.load(self._opened(), keys, rename, report)

    def load_into(
        self,
        state: Any,
        *,
        strict: bool = True,
        rename: Mapping[str, str] | Callable[[str], str] | None = None,
        progress: Report | bool | None = None,
        group: Group | None = None,
    ) -> LoadReport:
        """Loads into a state of this rank, as ``Shelf.load_into()``: of each tensor its own part.

        Of a dict only those keys are loaded that it has, and ``strict`` is about what is in them.
        ``group`` has the ranks that load now, all with the same keys. What all need whole, and was
        not sharded before, they read in equal pieces, which they give to each other: so it is read
        once, and each waits for the others. Without ``group`` each rank reads all that it has.

        Raises LayoutError for a key below which ranks had numbers or texts that differ, as those of
        generators and loaders do: what is of one rank is no other's. And, on all ranks, where those
        of the group have opened different saves.
        """
        joined = self._opened()
        if group is not None:
            check_group(group)
        if isinstance(state, dict):
            for key in state:
                self._refuse_own(key)
        with reporter(progress, "loading") as report:

            def load_from(reads: Reads, exchange: Exchange | None = None) -> LoadReport:
                return _fill.load_into(
                    reads,
                    state,
                    step=self.step,
                    strict=strict,
                    rename=rename,
                    report=report,
                    given_only=True,
                    exchange=exchange,
                )

            if group is None:
                return load_from(joined)
            wire = group._meet("load_into()")
            exchange = Exchange(
                wire, group.rank, group.members, group.timeout, meanwhile=True, save=self._save
            )
            with exchange.loading():
                keys = state if isinstance(state, dict) and rename is None else joined.keys()
                shared = SharedOut(joined, keys, group.rank, group.members)
                return load_from(shared, exchange=exchange)

    def _refuse_own(self, key: Any) -> None:
        if key in self._own:
            raise LayoutError(
                f"{shown(None) if key is None else repr(key)} is of each rank alone: ranks 0 and "
                f"{self._own[key]} of {self._ranks} have saved different values there",
                "Leave it out, and begin it anew; or go on with as many ranks as there were, by "
                "autosave(group=). Nothing was loaded.",
            )

    def close(self) -> None:
        """Closes the shelves. Closing twice is allowed."""
        self._state = None
        self._stack.close()

    def _opened(self) -> JoinedState:
        if self._state is None:
            raise ClosedError("this view of the ranks' shelves is closed", "Open it again.")
        return self._state

    def __enter__(self) -> "MergedView":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._state is None:
            return "<MergedView (closed)>"
        return f"<MergedView of {self._ranks} ranks, {len(self._state)} tensors, step {self._step}>"


def open_merged(paths: Paths) -> MergedView:
    """Opens the shelves that the ranks of a group saved as one state, to be loaded by any number.

        with ts.open_merged(["run.0.shelf", "run.1.shelf"]) as saved:
            saved.load_into({"model": model, "optimizer": optimizer})
            step = saved.step

    The state is that of the shelf which ``merge()`` would make, and nothing is made: each rank
    reads what it has of each tensor (a DTensor, a ``Shard``, or all of it) where it lies, and
    checks what it reads. The shelves are opened with mode "r"; the ranks that save may not run.

    Raises what ``merge()`` does for shelves that are not those of all ranks of one job and epoch.
    """
    return MergedView(paths)
