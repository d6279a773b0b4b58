"""What a run consists of, and going on with it from what the shelf holds."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tensorshelf._auto.commits import CommittedShelf
from tensorshelf._auto.feed import FedShelf, Feed
from tensorshelf._auto.gradients import Gradients
from tensorshelf._auto.loaders import Loaders
from tensorshelf._commit import Commit
from tensorshelf._group import part
from tensorshelf._group.started import GroupShelf
from tensorshelf._info import Info, VersionInfo
from tensorshelf._state.fill import LOADERS, load_version_into
from tensorshelf._state.load_report import LoadReport, told
from tensorshelf._state.paths import RECORD
from tensorshelf._state.record import Reads
from tensorshelf._state.split import Exchange
from tensorshelf.errors import BadArgument, KeyMismatch, UnknownName, UnsupportedError

logger = logging.getLogger("tensorshelf")

_GRADIENTS = "gradients"
OWN_KEYS = (LOADERS, _GRADIENTS, part.KEY)  # of what autosave itself saves

Rename = Mapping[str, str] | Callable[[str], str] | None


class Saves(FedShelf, CommittedShelf, GroupShelf, Protocol):
    """What autosave asks of a shelf."""

    _feed: Feed | None

    @property
    def step(self) -> int | None: ...

    @property
    def versions(self) -> list[VersionInfo]: ...

    def info(self) -> Info: ...

    def __contains__(self, name: object) -> bool: ...

    def load_into(
        self, state: Any, *, strict: bool = True, rename: Rename = None
    ) -> LoadReport: ...

    def _load_whole_into(
        self, state: Any, exchange: Exchange | None, *, strict: bool, rename: Rename
    ) -> LoadReport: ...

    def at(self, version: int) -> Reads: ...

    def _roll_back(self, version: int) -> Commit: ...


class Run:
    """What autosave() was given and what it adds, and the shelf that holds it. For one thread."""

    def __init__(
        self, shelf: Saves, given: dict[str, Any], added: Mapping[str, Any], *, grads: bool
    ) -> None:
        self.shelf = shelf
        self.loaders = Loaders()
        self.state = {**given, **added, LOADERS: self.loaders}
        if grads:
            self.state[_GRADIENTS] = Gradients(given)
        self.load_seconds = 0.0  # that resuming took
        self._resumed = False  # or begun, where there was nothing to resume

    def resume(self, *, strict: bool, rename: Rename, exchange: Exchange | None = None) -> int:
        """Loads what was saved last; returns its step, or 0 for a new run."""
        if RECORD not in self.shelf:
            self._resumed = True
            return 0
        begin = time.monotonic()

        def load(state: Any) -> LoadReport:
            return self.shelf._load_whole_into(state, exchange, strict=strict, rename=rename)

        try:
            report = self._load(load)
            self._tell_of_keys(report)
        except KeyMismatch as error:
            if part.KEY not in error.unexpected_keys:
                raise
            raise BadArgument(
                f"the shelf holds what one rank of a group saved: {self.shelf._path}",
                "Give autosave() its group=; or make one shelf of those of all ranks, with "
                "tensorshelf.merge().",
            ) from error
        self.load_seconds = time.monotonic() - begin
        self._resumed = True  # else step() would save over what could not be loaded
        return report.step or 0

    def _tell_of_keys(self, report: LoadReport) -> None:
        """What was left out with strict=False."""
        missing, unexpected = (
            tuple(key for key in keys if key not in OWN_KEYS)
            for keys in (report.missing_keys, report.unexpected_keys)
        )
        if missing or unexpected:
            nothing = self.state.keys() - OWN_KEYS <= {*missing}
            logger.warning(
                "resume(strict=False): %s; %s",
                told(LoadReport(report.step, missing, unexpected)),
                "nothing was loaded" if nothing else "the rest is loaded",
            )

    def _load(self, load: Callable[[Any], LoadReport]) -> LoadReport:
        """The state; without the loaders, where save() saved it."""
        try:
            return load(self.state)
        except KeyMismatch as error:
            if error.unexpected_keys or error.missing_keys != (LOADERS,):
                raise
            report = load({key: value for key, value in self.state.items() if key != LOADERS})
        logger.info("what save() saved is loaded: loaders begin an epoch")
        self.loaders.restart()
        return report

    def refuse_to_save(self) -> None:
        """Raises where a save would lose the run that the shelf holds, or have nothing in it."""
        # Who may not write hears that instead.
        if not self._resumed and RECORD in self.shelf and self.shelf.info().writable:
            step = "" if self.shelf.step is None else f", at step {self.shelf.step}"
            raise UnsupportedError(
                f"the shelf holds a run{step}, and step() would save over it",
                "Call resume() first; to begin anew, save to another path, or replace what it has: "
                'open it with mode="w".',
            )
        self._resumed = True  # what the shelf holds from here on, this run saved
        if not (self.state.keys() - OWN_KEYS) and not self.loaders.made:
            raise BadArgument(
                "autosave() was given nothing to save",
                "Give it what the run consists of: autosave(model=model, optimizer=optimizer).",
            )

    def go_back(self, step: int, *, skip_batches: int) -> None:
        """To the version of that step. Raises UnknownName where none is kept. The objects go first:
        where one of them fails, the shelf stays where it is.
        """
        kept = {version.step: version.version for version in self.shelf.versions}
        if step not in kept:
            there = ", ".join(str(known) for known in kept if known is not None)
            raise UnknownName(
                f"no version of step {step} is kept",
                f"Kept are those of the steps {there}. A shelf made with a larger keep= keeps more."
                if there
                else "Nothing was saved with a step.",
            )
        version = self.shelf.at(kept[step])
        self._load(lambda state: load_version_into(version, state, step))
        if kept[step] != self.shelf.versions[-1].version:
            self.shelf._roll_back(kept[step])
        self.loaders.skip(skip_batches)

    def __str__(self) -> str:
        """The keys that were given."""
        return ", ".join(key for key in self.state if key not in OWN_KEYS)
