"""What the shelf says about the place it was put in."""

from dataclasses import dataclass
from pathlib import Path

import tensorshelf as ts

MEANING = {
    "power loss": "crash and power loss",
    "process crash": "process crash only",
    "nothing": "nothing",
}


@dataclass(frozen=True)
class MediumFacts:
    name: str
    survives: str
    notes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """One line for a person."""
        return f"{self.name}. What persist() acknowledged survives: {self.survives}."


def facts(place: Path) -> MediumFacts:
    """Open a shelf in `place` for a moment and ask it."""
    file = place / "medium.shelf"
    with ts.open(file, mode="w") as shelf:
        promises = shelf.info().promises
    file.unlink()
    return MediumFacts(
        name=f"{promises.medium} ({promises.detail})",
        survives=MEANING[promises.survives],
        notes=tuple(promises.notes),
    )
