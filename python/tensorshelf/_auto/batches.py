"""A loader that resumes in the middle of an epoch, with the batches that would have come."""

import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tensorshelf._auto.rng import RNG

logger = logging.getLogger("tensorshelf")


class Batches:
    """Iterates over a loader, and knows how many batches it has given; ``auto.batches(loader)``.

    Each iteration is an epoch. The generators are noted before it begins, for a loader shuffles by
    them: the global ones, and those that it or its samplers have as ``generator``. Batches are
    counted as they are given, not as workers fetch them. After resuming, the first iteration begins
    with those generators, draws and drops what was given already, and goes on with the global
    generators as they are. A loader with a ``state_dict()`` (torchdata's StatefulDataLoader)
    resumes by that.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self._own = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._rng = RNG()
        self._before: dict[str, Any] | None = None  # the generators when this epoch began
        self._resumed = False
        self.given = 0  # batches of this epoch
        self.epoch = 0  # the number of this one, or of the first; from 0

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        if self._resumed:
            iterator = self._again()
        else:
            self.epoch += self._before is not None
            self.given = 0
            own = [generator.get_state() for generator in _generators(self.loader)]
            self._before = {"global": self._rng.state_dict(), "own": own}
            iterator = iter(self.loader)
        for batch in iterator:
            self.given += 1
            yield batch

    def _again(self) -> Iterator[Any]:
        """The loader's iterator, behind the batches that were given."""
        self._resumed = False
        if self._own:
            return iter(self.loader)
        begin = time.monotonic()
        assert self._before is not None
        now = self._rng.state_dict()
        self._rng.load_state_dict(self._before["global"])
        for generator, state in zip(_generators(self.loader), self._before["own"], strict=False):
            generator.set_state(state)
        iterator = iter(self.loader)
        for _ in zip(range(self.given), iterator, strict=False):
            pass
        self._rng.load_state_dict(now)
        taken = time.monotonic() - begin
        logger.info("epoch %d: %d batches drawn again in %.1f s", self.epoch, self.given, taken)
        return iterator

    def skip(self, batches: int) -> None:
        """Drops so many more when the epoch is resumed."""
        self.given += batches

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        state = {"given": self.given, "epoch": self.epoch, "before": self._before}
        if self._own:
            state["loader"] = self.loader.state_dict()  # type: ignore[attr-defined]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there."""
        self.given, self.epoch = state["given"], state["epoch"]
        self._before = state["before"]
        self._resumed = self._before is not None
        if self._own and "loader" in state:
            self.loader.load_state_dict(state["loader"])  # type: ignore[attr-defined]


def _generators(loader: Any) -> list[Any]:
    """Those that a loader of torch and its samplers were given."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    holders = (loader, getattr(loader, "sampler", None), batch_sampler)
    inner = getattr(batch_sampler, "sampler", None)
    found: list[Any] = []
    for holder in (*holders, inner):
        generator = getattr(holder, "generator", None)
        if hasattr(generator, "get_state") and all(generator is not known for known in found):
            found.append(generator)
    return found


class Loaders:
    """The loaders that ``batches()`` made, whether before or after resuming."""

    def __init__(self) -> None:
        self.made: list[Batches] = []
        self._saved: list[dict[str, Any]] = []

    def add(self, loader: Iterable[Any]) -> Batches:
        for known in self.made:
            if known.loader is loader:
                return known
        batches = Batches(loader)
        if len(self.made) < len(self._saved):
            batches.load_state_dict(self._saved[len(self.made)])
        self.made.append(batches)
        return batches

    def state_dict(self) -> dict[str, Any]:
        return {"batches": [batches.state_dict() for batches in self.made]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._saved = state["batches"]
        for batches, saved in zip(self.made, self._saved, strict=False):
            batches.load_state_dict(saved)
