"""Before an optimizer steps, something is done: what is being saved is copied first."""

import weakref
from collections.abc import Callable
from typing import Any

from tensorshelf._auto.rng import RNG
from tensorshelf._auto.weak import weakly
from tensorshelf._state import objects


class Gates:
    """Hooks on all optimizers that step parameters of a state, until ``remove()``. They keep
    nothing alive. ``unknown`` hears the kind of one that is not in the state itself.
    """

    def __init__(
        self,
        state: Any,
        before: Callable[[], None],
        behind: Callable[[], None],
        unknown: Callable[[str], None],
    ) -> None:
        self._before = weakly(before)
        self._behind = weakly(behind)
        self._unknown = weakly(unknown)
        self._known = weakref.WeakSet(objects.optimizers(state))
        self._others = weakref.WeakKeyDictionary[Any, bool]()  # whether they step a parameter of it
        self._parameters = set(map(id, objects.parameters(state)))
        self._handles: list[Any] = []
        for optimizer in self._known:
            self._handles.append(optimizer.register_step_pre_hook(_alone(self._before)))
            self._handles.append(optimizer.register_step_post_hook(_alone(self._behind)))
        if self._parameters:
            self._watch_others()

    def _watch_others(self) -> None:
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        self._handles.append(register_optimizer_step_pre_hook(_of_whom(weakly(self._before_other))))
        self._handles.append(
            register_optimizer_step_post_hook(_of_whom(weakly(self._behind_other)))
        )

    def remove(self) -> None:
        """The optimizers step as before."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _is_other(self, optimizer: Any) -> bool:
        if optimizer in self._known:
            return False
        found = self._others.get(optimizer)
        if found is None:
            stepped = objects.stepped_by(optimizer)
            found = any(id(parameter) in self._parameters for parameter in stepped)
            self._others[optimizer] = found
        return found

    def _before_other(self, optimizer: Any) -> None:
        if not self._is_other(optimizer):
            return
        self._unknown(type(optimizer).__name__)
        self._before()

    def _behind_other(self, optimizer: Any) -> None:
        if self._is_other(optimizer):
            self._behind()


def unsaved_parameters(state: Any) -> list[tuple[str, int]]:
    """The kind of each optimizer in the state that steps parameters which are nowhere else in it,
    and how many these are.
    """
    saved = set(map(id, objects.parameters(state)))
    found = []
    for optimizer in objects.optimizers(state):
        stepped = objects.stepped_by(optimizer)
        others = [parameter for parameter in stepped if id(parameter) not in saved]
        places = {_place(tensor) for tensor in objects.tensors(state)} if others else set()
        lost = [parameter for parameter in others if _place(parameter) not in places]
        if lost:
            found.append((type(optimizer).__name__, len(lost)))
    return found


def has_unsaved_schedule(state: Any) -> bool:
    """Whether a schedule steps an optimizer of the state, and nothing in it can be or have that."""
    if any(not isinstance(value, RNG) for value in objects.with_state_alone(state)):
        return False
    groups = [group for optimizer in objects.optimizers(state) for group in optimizer.param_groups]
    return any("initial_lr" in group for group in groups)  # that a schedule of torch's leaves there


def _place(tensor: Any) -> int | None:
    """None for what has no memory of its own, a sparse one say."""
    try:
        return int(tensor.data_ptr())
    except RuntimeError:
        return None


def _alone(call: Callable[..., None]) -> Callable[..., None]:
    """A hook of one optimizer."""
    return lambda *_: call()


def _of_whom(call: Callable[..., None]) -> Callable[..., None]:
    """A hook of all optimizers."""
    return lambda optimizer, *_: call(optimizer)
