"""Before an optimizer steps, something is done: what is being saved is copied first."""

import weakref
from collections.abc import Callable
from typing import Any

from tensorshelf._state import objects


class Gates:
    """Hooks on all optimizers of a state, until ``remove()``. They keep nothing alive."""

    def __init__(self, state: Any, before: Callable[[], None], behind: Callable[[], None]) -> None:
        self._handles: list[Any] = []
        for optimizer in objects.optimizers(state):
            self._handles.append(optimizer.register_step_pre_hook(_heard(before)))
            self._handles.append(optimizer.register_step_post_hook(_heard(behind)))

    def remove(self) -> None:
        """The optimizers step as before."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _heard(call: Callable[[], None]) -> Callable[..., None]:
    method = weakref.WeakMethod(call)

    def hear(*_: object) -> None:
        found = method()
        if found is not None:
            found()

    return hear
