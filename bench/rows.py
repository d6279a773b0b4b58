"""A figure beside what it is to reach, and how the programs in C++ are asked for it."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30


@dataclass
class Row:
    """One line of the table. `reached` is the figure, `goal` what it is to reach."""

    figure: str
    medium: str
    reached: float | None
    goal: float
    at_least: bool  # False: the figure must not exceed the goal
    unit: str
    detail: str

    @property
    def met(self) -> bool | None:
        if self.reached is None:
            return None
        return self.reached >= self.goal if self.at_least else self.reached <= self.goal


@dataclass
class Settings:
    build: Path
    mapped: Path  # a directory on a mapped medium: FS-DAX, or tmpfs
    block: Path  # a directory on a disk
    quick: bool

    @property
    def bytes(self) -> int:
        return GIB // 8 if self.quick else GIB

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 9


def program(settings: Settings, name: str, *args: str) -> list[str]:
    return [str(settings.build / "bench" / name), *args]


def run_cases(
    command: list[str], before: Callable[[], None] | None = None
) -> Iterator[dict[str, object]]:
    """`before` runs in the new process."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=before)
    for line in done.stdout.splitlines():
        yield json.loads(line)


def ratio(pairs: dict[str, object]) -> float:
    """Limit over ours, pair by pair, the median: 1 is as fast as the limit."""
    return statistics.median(
        limit / ours
        for ours, limit in zip(pairs["ours"], pairs["limit"], strict=True)  # type: ignore[call-overload]
    )


def speed(pairs: dict[str, object], side: str) -> str:
    gigabytes = float(pairs["bytes"]) / 1e9  # type: ignore[arg-type]
    return f"{gigabytes / statistics.median(pairs[side]):.2f} GB/s"  # type: ignore[type-var]


def show(rows: list[Row]) -> None:
    header = ("figure", "medium", "measured", "to reach", "", "detail")
    lines = [header]
    for row in rows:
        measured = "skipped" if row.reached is None else f"{row.reached:.2f} {row.unit}"
        goal = f"{'>=' if row.at_least else '<='} {row.goal:g}"
        verdict = {True: "yes", False: "NO", None: "-"}[row.met]
        lines.append((row.figure, row.medium, measured, goal, verdict, row.detail))
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        print(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        )
