"""Sizes as text: read from what a user writes, written for what a user reads."""

import operator
import re

import numpy as np

from tensorshelf.errors import BadArgument

_UNITS: dict[str, int] = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)},
}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", re.ASCII)
_REMEDY = 'Write a number of bytes, or a text such as "64MiB", "1GiB", "1.5 TiB" or "500 MB".'
_LARGEST = 1 << 62
_DIGITS = 40  # more say nothing


def parse_size(size: int | str, what: str = "size") -> int:
    """Bytes from an int, or from a text with a unit ("1GiB" is 2**30, "1GB" is 10**9).

    Raises BadArgument for anything else, zero and negative sizes among them.
    """
    if isinstance(size, str):
        count: int = _parse_text(size, what)
    else:
        try:
            if isinstance(size, (bool, np.bool_)):
                raise TypeError
            count = operator.index(size)
        except TypeError:
            raise BadArgument(f"{what}={size!r} is no size", _REMEDY) from None
    if not 0 < count <= _LARGEST:
        raise BadArgument(f"{what}={size!r} is out of range: 1 byte to 4 EiB", _REMEDY)
    return count


def _parse_text(text: str, what: str) -> int:
    found = _TEXT.fullmatch(text)
    if found is None:
        raise BadArgument(f"{what}={text!r} is no size", _REMEDY)
    number, unit = found.groups()
    if unit.lower() in ("k", "m", "g", "t", "p"):
        letter = unit.upper()
        raise BadArgument(
            f"{what}={text!r} is ambiguous",
            f'Write "{number}{letter}iB" (powers of 1024) or "{number}{letter}B" (powers of 1000).',
        )
    factor = _UNITS.get(unit.lower() or "b")
    if factor is None:
        raise BadArgument(f"{what}={text!r} has an unknown unit {unit!r}", _REMEDY)
    if len(number) > _DIGITS:
        raise BadArgument(f"{what} has {len(number)} digits", _REMEDY)
    whole, _, fraction = number.partition(".")
    scale = int(10 ** len(fraction))
    return int(whole + fraction) * factor // scale


def format_size(count: int) -> str:
    """12 B, 1.5 KiB, 3.0 GiB."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if value < 1024 or unit == "PiB":
            break
    return f"{value:.1f} {unit}"
