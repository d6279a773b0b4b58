"""What autosave() is told besides the state that it saves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tensorshelf._drain.options import Drain
from tensorshelf._group.group import Group


@dataclass(frozen=True, kw_only=True)
class AutosaveOptions:
    """As given, and as ``Shelf.autosave`` tells of them; checked.py says what cannot be."""

    every: int | Literal["auto"]
    mtbi: float | None
    on_busy: Literal["wait", "skip"]
    on_error: Literal["raise", "warn"]
    signals: Iterable[int]
    deadline: float
    overlap: bool
    grads: bool | None
    pipeline: Mapping[str, Any]
    group: Group | None
    drain: Drain | None
