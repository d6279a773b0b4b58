"""Whether what was saved of a loader is a place in its batches."""

from collections.abc import Callable, Mapping
from typing import Any

from tensorshelf._auto.rng import RNG
from tensorshelf._numbers import is_whole


def _is_count(value: Any) -> bool:
    return is_whole(value) and value >= 0


def _is_begin(value: Any) -> bool:
    """Of an epoch: the states of the global generators, and of the loader's own."""
    return (
        isinstance(value, Mapping)
        and RNG()._fits_state(value.get("global"))
        and isinstance(value.get("own"), list)
    )


def _is_form(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        _is_count(value.get(key, 0)) for key in ("num_workers", "workers")
    )


_NEEDED: dict[str, Callable[[Any], bool]] = {
    "given": _is_count,
    "epoch": _is_count,
    "before": lambda value: value is None or _is_begin(value),
}
_MAY_BE: dict[str, Callable[[Any], bool]] = {  # not in states of every earlier release
    "length": lambda value: value is None or _is_count(value),
    "loop": lambda value: value is None or is_whole(value),
    "left_out": _is_count,
    "skipped": _is_count,
    "form": lambda value: value is None or _is_form(value),
    "behind": lambda value: isinstance(value, list),
    "had_workers": lambda value: isinstance(value, bool),
}


def is_place(saved: Any) -> bool:
    """Whether it is what ``state_dict()`` of `Batches` gives, in this release or an earlier one."""
    return (
        isinstance(saved, Mapping)
        and saved.keys() >= _NEEDED.keys()
        and all(check(saved[key]) for key, check in _NEEDED.items())
        and all(check(saved[key]) for key, check in _MAY_BE.items() if key in saved)
    )
