"""Before an optimizer steps, something is done: what is being saved is copied first."""

import weakref
from collections.abc import Callable
from typing import Any

from tensorshelf._state import objects


class Gates:
    """Hooks on all optimizers of a state, until ``remove()``. They keep nothing alive."""

    def __init__(self, state: Any, gate: Callable[[], None]) -> None:
        self._handles = [_hook(o, weakref.WeakMethod(gate)) for o in objects.optimizers(state)]

    def remove(self) -> None:
        """The optimizers step as before."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _hook(optimizer: Any, gate: "weakref.WeakMethod[Callable[[], None]]") -> Any:
    def wait(*_: object) -> None:
        call = gate()
        if call is not None:
            call()

    return optimizer.register_step_pre_hook(wait)
