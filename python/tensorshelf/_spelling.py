"""Options that a call does not have: which one may be meant."""

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tensorshelf.errors import BadArgument

Given = ParamSpec("Given")
Result = TypeVar("Result")

# What others call so: where that is with us.
_ELSEWHERE = {
    "map_location": "Tensors come to host memory. Build the objects on the device: load_into() and "
    "resume() fill them there.",
    "weights_only": "Nothing is unpickled here: leave it out.",
    "mmap": "numpy(copy=False) lends a tensor where it lies in the file.",
}


def spelled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """BadArgument, with the options that there are, in place of a bare TypeError."""
    options = [
        name
        for name, each in inspect.signature(function).parameters.items()
        if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD) and name != "self"
    ]

    @functools.wraps(function)
    def call(*args: Given.args, **given: Given.kwargs) -> Result:
        if unknown := next((name for name in given if name not in options), None):
            raise _unknown(function.__name__, unknown, options)
        return function(*args, **given)

    return call


def _unknown(call: str, name: str, options: list[str]) -> BadArgument:
    near = next(iter(difflib.get_close_matches(name, options, n=1)), None)
    meant = "" if near is None else f"; did you mean {near}=?"
    there = f"{call}() takes {', '.join(options)}."
    return BadArgument(f"{call}() has no option {name}={meant}", _ELSEWHERE.get(name, there))
