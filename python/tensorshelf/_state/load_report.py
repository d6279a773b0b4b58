"""What load_into() tells of keys."""

from dataclasses import dataclass

from tensorshelf.errors import KeyMismatch

SHOWN = 5  # keys in the text of an error


@dataclass(frozen=True)
class LoadReport:
    """What load_into() did."""

    step: int | None  # of the version that was loaded
    missing_keys: tuple[str, ...]  # in the state that was given, and not in the saved one
    unexpected_keys: tuple[str, ...]  # in the saved one alone


def told(report: LoadReport) -> str:
    """Which keys are on one side alone."""
    parts = []
    for what, keys in (
        ("given and not saved", report.missing_keys),
        ("saved and not given", report.unexpected_keys),
    ):
        if keys:
            more = ", ..." if len(keys) > SHOWN else ""
            shown_keys = ", ".join(map(repr, keys[:SHOWN]))
            parts.append(f"{len(keys)} {what} ({shown_keys}{more})")
    return f"the state has other keys than the saved one: {', '.join(parts)}"


def mismatch(report: LoadReport) -> KeyMismatch:
    """Where keys are on one side alone."""
    error = KeyMismatch(
        f"{told(report)}; nothing was loaded",
        "Give the state that was saved; strict=False loads what both have; rename= maps old names.",
    )
    error.missing_keys, error.unexpected_keys = report.missing_keys, report.unexpected_keys
    return error
