"""Methods that are called from elsewhere for as long as their object is there."""

import weakref
from collections.abc import Callable
from typing import Any


def weakly(method: Callable[..., object]) -> Callable[..., None]:
    """Calls a bound method, and does nothing once its object is gone, which this does not keep."""
    found = weakref.WeakMethod(method)

    def call(*values: Any) -> None:
        if (alive := found()) is not None:
            alive(*values)

    return call
