"""What the demo says on the terminal: progress while it runs, then tables."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from judge import Verdict
from killing import Outcome
from models import MODELS
from results import Results
from stores import STORES

if TYPE_CHECKING:
    from language import Language

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
except ImportError:  # the plain tables say the same
    Console = None  # type: ignore[assignment, misc]

KILL_HEADINGS = (
    "saved with",
    "kills",
    "in a\nsave",
    "last or\nnext",
    "mixed,\ntorn",
    "un-\nreadable",
    "restarts\nfrom 0",
    "steps\nlost",
    "same\nbits",
)


LEGEND = """
last or next  whole: the last acknowledged iteration, or the one in flight
mixed, torn   arrays of different iterations, or bytes of none; both load without an error
same bits     the finished run equals the uninterrupted one, bit for bit
neither       the next save, when interrupted, destroys it"""


def say(text: str, style: str = "") -> None:
    """Print a paragraph, in colour where the terminal has it."""
    if Console is None:
        print(text, flush=True)
    else:
        Console(highlight=False).print(text, style=style, markup=False, soft_wrap=True)


def progress(text: str) -> None:
    """Show a passing state on an interactive terminal; elsewhere nothing."""
    if sys.stdout.isatty():
        print(f"\r\033[K   {text}", end="", flush=True)


def progress_done(text: str) -> None:
    """Replace the passing state by a line that stays."""
    progress("")
    print(("\r" if sys.stdout.isatty() else "") + f"   {text}", flush=True)


def tables(results: Results) -> None:
    """Print the outcome of the kills and the time that each store adds."""
    for model in MODELS:
        rows = [_kill_row(outcome) for outcome in results.of(model)]
        _table(f"What SIGKILL left: {model}", KILL_HEADINGS, rows)
    added = {model: results.added_seconds(model) for model in MODELS}
    headings = ["saved with", "all at\nonce", "an acknowledged\nsave survives"]
    headings += [f"{name}\n{_ms(results.compute_seconds(name))} +" for name in MODELS]
    rows = [
        [
            name,
            "yes" if store.atomic else "no",
            results.survives(name),
            *(_ms(added[model][name]) for model in MODELS),
        ]
        for name, store in STORES.items()
    ]
    _table("Time that saving adds to an iteration, median", headings, rows)
    say(LEGEND, style="dim")
    if results.language is not None:
        _language(results.language)


def _language(language: "Language") -> None:
    say(
        f"\nA transformer in torch, {language.state_bytes / 1e6:.1f} MB of model and optimizer, "
        f"autosaved at each of {len(language.losses)} steps, of which {_ms(language.save)} are "
        f"auto.step(): {language.ratio:.2f} times {_ms(language.unsaved)}, the step of a training "
        f"that saves nothing. {len(language.kills)} kills; "
        f"loss {language.losses[0]:.2f} to {language.losses[-1]:.2f} nats a byte, every one and "
        "the final weights as those of the uninterrupted run, bit for bit."
        if language.losses and not language.failures
        else "\nA transformer in torch: FAILED"
    )


def _kill_row(outcome: Outcome) -> list[str]:
    counts = outcome.counts
    whole = sum(counts[verdict] for verdict in Verdict if verdict.good)
    unreadable = counts[Verdict.UNREADABLE]
    numbers = [
        len(outcome.kills),
        outcome.mid_save,
        whole,
        len(outcome.kills) - whole - unreadable,
        unreadable,
        outcome.failures,
        outcome.lost,
    ]
    return [outcome.job.store, *map(str, numbers), "yes" if outcome.identical else "NO"]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if Console is None:
        _plain_table(title, headings, rows)
        return
    table = Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0),
    )
    for heading, cell in zip(headings, rows[0], strict=True):
        side: Literal["left", "right"] = "right" if cell[0].isdigit() else "left"
        table.add_column(heading, justify=side, no_wrap=True)
    for row in rows:
        table.add_row(*row, style="green" if STORES[row[0]].is_shelf else "")
    Console(highlight=False, width=max(80, Console().width)).print(table)


def _plain_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [[heading.replace("-\n", "").replace("\n", " ") for heading in headings], *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{title}")
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
