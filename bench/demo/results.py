"""All that the tables and the report are made of, and the judgement on the whole."""

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from killing import Outcome
from medium import MediumFacts
from models import MODELS
from stores import STORES, Saved
from trainer import Job, Measured

if TYPE_CHECKING:
    from language import Language

ENOUGH_KILLS = 20
WARM_UP = 3  # saves that create files and are not counted as the cost of an iteration


@dataclass
class Results:
    seed: int
    place: Path
    medium: MediumFacts
    measured: dict[str, Measured]
    outcomes: list[Outcome] = field(default_factory=list)
    final: dict[str, Saved] = field(default_factory=dict)  # read from the killed shelf, by model
    left_out: list[Job] = field(default_factory=list)  # for want of time
    language: "Language | None" = None  # without torch
    seconds: float = 0.0

    def of(self, model: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.job.model == model]

    @property
    def shelf(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if STORES[outcome.job.store].is_shelf]

    @property
    def shelf_kills(self) -> int:
        return sum(len(outcome.kills) for outcome in self.shelf)

    def added_seconds(self, model: str) -> dict[str, float]:
        """Median seconds that each store adds to an iteration."""
        return {
            name: statistics.median(seconds[WARM_UP:])
            for name, seconds in self.measured[model].save.items()
        }

    def survives(self, store: str) -> str:
        """What an acknowledged save outlives in the place where the demo saved."""
        return STORES[store].survives or self.medium.survives

    def compute_seconds(self, model: str) -> float:
        """Median seconds of an iteration without any saving."""
        return statistics.median(self.measured[model].compute)

    def failures(self) -> list[str]:
        """Each broken promise as a sentence; empty when all held."""
        bad = [
            f"{outcome.job.model}: kill {number} left the shelf with {kill.verdict.value} "
            f"(acknowledged: {kill.acknowledged}) {kill.detail}"
            for outcome in self.shelf
            for number, kill in enumerate(outcome.kills, start=1)
            if not kill.verdict.good
        ]
        bad += [
            f"{outcome.job.model}, {outcome.job.store}: the final state differs from that of the "
            "uninterrupted run"
            for outcome in self.outcomes
            if not outcome.identical
        ]
        if self.shelf_kills < ENOUGH_KILLS:
            bad.append(f"only {self.shelf_kills} kills hit the shelf, {ENOUGH_KILLS} are needed")
        if self.language is not None:
            bad += [f"the transformer: {failure}" for failure in self.language.failures]
        missing = [name for name in MODELS if name not in self.final]
        return bad + [f"{name}: the shelf is empty at the end" for name in missing]
