"""The loaders of a run, in the order in which they came."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensorshelf._auto.batches import Batches
from tensorshelf._auto.place import is_place


class Loaders:
    """The loaders that ``batches()`` made, whether before or after resuming."""

    def __init__(self) -> None:
        self.made: list[Batches] = []
        self.asked: Callable[[], None] | None = (
            None  # called when a loop asks for a batch behind another
        )
        self._saved: list[dict[str, Any]] = []

    def add(self, loader: Iterable[Any], *, by_sampler: bool) -> Batches:
        for known in self.made:
            if known.loader is loader:
                return known
        batches = Batches(loader, by_sampler=by_sampler, asked=self.asked)
        if len(self.made) < len(self._saved):
            batches.load_state_dict(self._saved[len(self.made)])
        self.made.append(batches)
        return batches

    def skip(self, batches: int) -> None:
        """Leaves so many out of each, whether it was given to ``batches()`` or is to come."""
        for known in self.made:
            known.skip(batches)
        for at in range(len(self.made), len(self._saved)):
            left_out = self._saved[at].get("left_out", 0) + batches
            self._saved[at] = {**self._saved[at], "left_out": left_out}

    def forget_left_alone(self) -> int:
        """How many were saved and not given to ``batches()``, now that an epoch begins: it trains
        without them, so they begin anew where they come after all.
        """
        if self.made and not any(batches.began_anew for batches in self.made):
            return 0  # others may come at its end
        left = max(0, len(self._saved) - len(self.made))
        del self._saved[len(self.made) :]
        return left

    def state_dict(self) -> dict[str, Any]:
        """The places of all loaders: of those that did not come again yet, what was saved."""
        made = [batches.state_dict() for batches in self.made]
        return {"batches": made + self._saved[len(made) :]}

    def _fits_state(self, state: Any) -> bool:
        """Raises LayoutError where a loader that came cannot go on from there."""
        if not isinstance(state, Mapping) or not isinstance(state.get("batches"), list):
            return False
        if not all(map(is_place, state["batches"])):
            return False
        for batches, saved in zip(self.made, state["batches"], strict=False):
            batches.check(saved)
        return True

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._saved = state["batches"]
        for batches, saved in zip(self.made, self._saved, strict=False):
            batches.load_state_dict(saved)
        for batches in self.made[len(self._saved) :]:
            batches.restart()

    def restart(self) -> None:
        """What is loaded says nothing of loaders."""
        self._saved = []
        for batches in self.made:
            batches.restart()
