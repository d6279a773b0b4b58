"""Numbers and ids that users give: of steps, versions, shapes and what is prepared."""

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorshelf.errors import BadArgument, LayoutError

LARGEST = (1 << 63) - 1


def step_number(step: object) -> int | None:
    """The number of a step, or None for none."""
    if step is None:
        return None
    if isinstance(step, (bool, np.bool_)):
        raise BadArgument(
            f"step={step!r} is not a number",
            "Give the number of the step, or none: persist(). "
            "Not to wait for the medium: persist(wait=False).",
        )
    try:
        number = operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        raise BadArgument(
            f"step={step!r} is not a whole number", "Use 0 to 2**63 - 1, or None."
        ) from None
    if not 0 <= number <= LARGEST:
        raise BadArgument(f"step={number} is out of range", "Use 0 to 2**63 - 1.")
    return number


def steps_done(step: object) -> int:
    """The number of steps that are done."""
    number = step_number(step)
    if number is None:
        raise BadArgument("step=None is not a number", "Give the number of steps that are done.")
    return number


def count_of(given: object, option: str) -> int:
    """How many, where none is as good as some."""
    try:
        if isinstance(given, (bool, np.bool_)):
            raise TypeError
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise BadArgument(f"{option}={given!r} is no whole number", "Use 0 or more.") from None
    if number < 0:
        raise BadArgument(f"{option}={number} is below 0", "Use 0 or more.")
    return number


def id_bytes(given: object) -> bytes:
    """The id of a prepared version, as it is stored."""
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise BadArgument(f"id={given!r} is not valid Unicode", "Give it as bytes.") from None
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise BadArgument(
            f"id={given!r} is neither bytes nor text", "Give one of these, of at most 256 bytes."
        )
    return bytes(given)


def version_number(version: object) -> int:
    """The number of a version."""
    try:
        if isinstance(version, (bool, np.bool_)):
            raise TypeError
        number = operator.index(version)  # type: ignore[arg-type]
    except TypeError:
        raise BadArgument(
            f"version={version!r} is not a number", "shelf.versions lists those there are."
        ) from None
    if not 0 <= number <= LARGEST:
        raise BadArgument(f"version={number} is out of range", "Use 0 to 2**63 - 1.")
    return number


def shape_lengths(shape: int | Sequence[int]) -> list[int]:
    """The lengths of a shape's axes."""
    try:
        lengths = [operator.index(shape)]  # type: ignore[arg-type]
    except TypeError:
        try:
            lengths = [operator.index(item) for item in shape]  # type: ignore[union-attr]
        except TypeError:
            raise LayoutError(
                f"shape={shape!r} is no shape", "Use a whole number, or a tuple of them."
            ) from None
    for length in lengths:
        if not 0 <= length <= LARGEST:
            raise LayoutError(f"shape {tuple(lengths)} has a length out of range", "Use 0 or more.")
    return lengths


def row_count(rows: object) -> int:
    """How many rows a tensor is to have."""
    remedy = "Use one whole number, 0 or more."
    try:
        if isinstance(rows, (bool, np.bool_)) or str(getattr(rows, "dtype", "")).endswith("bool"):
            raise TypeError
        count = operator.index(rows)  # type: ignore[arg-type]
    except TypeError:
        raise LayoutError(f"rows={rows!r} is no number of rows", remedy) from None
    if not 0 <= count <= LARGEST:
        raise LayoutError(f"rows={rows!r} is no number of rows", remedy)
    return count


def seconds_of(given: object, option: str) -> float | None:
    """How long to wait, or None for as long as it takes."""
    if given is None:
        return None
    if not is_number(given, least=0):
        raise BadArgument(f"{option}={given!r} is no number of seconds", "Use 0 or more, or None.")
    return float(given)  # type: ignore[arg-type]


# ---- whether it is one at all: NumPy's too, and no bool


def is_whole(given: Any) -> bool:
    """Whether it is a whole number."""
    return isinstance(given, numbers.Integral) and not isinstance(given, bool)


def is_number(given: Any, *, above: float = -math.inf, least: float = -math.inf) -> bool:
    """Whether it is a number that a float can hold, and no NaN."""
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        return False
    try:
        return above < float(given) and float(given) >= least
    except OverflowError:
        return False


def is_finite(given: Any, *, above: float = -math.inf, least: float = -math.inf) -> bool:
    """The same, and no infinity."""
    return is_number(given, above=above, least=least) and math.isfinite(given)
