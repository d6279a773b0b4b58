"""On which media of a shelf a new tensor lies: from what a user writes to their numbers."""

import fnmatch
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorshelf._info import MediumInfo
from tensorshelf._size import parse_size
from tensorshelf.errors import BadArgument

# A number of info().media, the path of one, "stripe" for all that are not mapped, or several.
Where = int | str | os.PathLike[str] | Sequence[int | str | os.PathLike[str]]
Rules = int | str | Mapping[str, Where] | Callable[[str, int], Where | None]

_SMALLEST = 4096
_RULES = 'Use a size as "8MiB", {"*": 1} for one medium, or a function of name and size.'
_USE = (
    'Use a number or path of info().media, "stripe", or a list of numbers and paths to stripe over.'
)


@dataclass
class Placing:
    """``open(place=)``, as the native half calls it. Which media there are is told behind that."""

    rules: Rules | None
    media: tuple[MediumInfo, ...] = field(default=())

    def __post_init__(self) -> None:
        rules = self.rules
        if isinstance(rules, Mapping):
            for pattern in rules:
                if not isinstance(pattern, str):
                    raise BadArgument(
                        f"place={{{pattern!r}: ...}}: a pattern of names is text", 'Use "opt.*".'
                    )
        elif rules is not None and not callable(rules):
            try:
                limit = parse_size(rules, "place")
            except BadArgument as error:
                raise BadArgument(error.what, _RULES) from None
            if limit < _SMALLEST:  # a medium's number, more likely
                raise BadArgument(f"place={rules!r} is a size, below 4 KiB", _RULES)
            self.rules = _by_size(limit)

    def __call__(self, name: str, nbytes: int) -> list[int]:
        """None of them: as ever."""
        rules = self.rules
        if callable(rules):
            where = rules(name, nbytes)
        elif isinstance(rules, Mapping):
            where = next((rules[p] for p in rules if fnmatch.fnmatchcase(name, p)), None)
        else:
            where = None
        return [] if where is None else self.numbers(where)

    def numbers(self, where: Where) -> list[int]:
        """Those that a user means. Raises BadArgument."""
        if isinstance(where, str) and where == "stripe":
            there = [each for each in self.media if not each.retired and each.mirrors is None]
            unmapped = [each.number for each in there if not each.promises.mapped]
            return unmapped or [each.number for each in there]
        if isinstance(where, Iterable) and not isinstance(where, (str, bytes)):
            numbers = [number for each in where for number in self.numbers(each)]
            if not numbers:
                raise BadArgument("a list of no media is no place for a tensor", _USE)
            return numbers
        if isinstance(where, (int, np.integer)) and not isinstance(where, bool):
            return [self._number(int(where))]
        return [self._at(where)]

    def _number(self, number: int) -> int:
        if any(each.number == number for each in self.media):
            return number
        raise BadArgument(f"{number} is none of the shelf's media ({self._there()})", _USE)

    def _there(self) -> str:
        return ", ".join(f"{each.number}: {each.path}" for each in self.media)

    def _at(self, path: Any) -> int:
        try:
            asked = os.path.abspath(os.path.expanduser(os.fspath(path)))
        except TypeError:
            raise BadArgument(f"{path!r} is no place for a tensor", _USE) from None
        for each in self.media:
            if os.path.abspath(each.path) == asked:
                return each.number
        raise BadArgument(f"{path!r} is none of the shelf's media ({self._there()})", _USE)


def _by_size(limit: int) -> Callable[[str, int], Where]:
    return lambda name, nbytes: 0 if nbytes < limit else "stripe"
