"""What a loop changes behind ``step()`` and before its next batch: a run that resumes there has
neither the change nor the code that would make it again.
"""

import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tensorshelf._auto.rng import RNG
from tensorshelf._state import objects
from tensorshelf._values._torch import is_tensor

_LOOKED_AT = 3  # saves, from the first on: a loop does the same each time
_DEEPEST = 4


class Behind:
    """Compares small parts of a state, which are copied as ``step()`` saves: generators, schedules,
    buffers of models, values in containers. For one thread.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state
        self._left = _LOOKED_AT
        self._saved: dict[str, Any] = {}
        self._step: int | None = None

    def saved(self, step: int, *, asked: bool) -> None:
        """That step was saved just now; whether somebody may ask what changed since."""
        self._saved = dict(_marks(self._state)) if asked and self._left else {}
        self._left -= self._left > 0 and step != self._step
        self._step = step

    def changed(self) -> tuple[int, list[str]] | None:
        """The step that was saved last, and the keys of what changed since: once."""
        saved, self._saved = self._saved, {}
        if not saved or self._step is None:
            return None
        now = dict(_marks(self._state))
        keys = [key for key, mark in saved.items() if mark != now.get(key, mark)]
        if not keys:
            return None
        self._left = 0
        return self._step, keys


def _marks(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """By key, what is another when the value has changed; None where that is not looked at."""
    for key, value in state.items():
        if isinstance(key, str):
            yield key, _mark(value, _DEEPEST)


def _mark(value: Any, deep: int) -> Any:
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, RNG):
        return _generators()
    if is_tensor(value):
        return _version(value)
    if objects.is_module(value):
        return tuple(map(_version, value.buffers()))
    if _is_schedule(value):
        return repr(value.state_dict())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if deep and isinstance(value, dict):
        return tuple((str(key), _mark(each, deep - 1)) for key, each in value.items())
    if deep and isinstance(value, list | tuple):
        return tuple(_mark(each, deep - 1) for each in value)
    return None


def _version(tensor: Any) -> int | None:
    """None for one of inference mode, of which torch counts no changes."""
    return None if tensor.is_inference() else tensor._version


def _generators() -> tuple[Any, ...]:
    torch = sys.modules.get("torch")
    own = b"" if torch is None else torch.get_rng_state().numpy().tobytes()
    return random.getstate(), repr(np.random.get_state(legacy=False)), own


def _is_schedule(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.lr_scheduler.LRScheduler)
