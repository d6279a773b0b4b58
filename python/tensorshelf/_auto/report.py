"""auto.report(): where the time of a run went, as one HTML file with pictures."""

import io
import os
from collections.abc import Iterable, Sequence
from html import escape
from statistics import median, quantiles
from typing import Any

from tensorshelf._auto.files import write_text
from tensorshelf._auto.measured import costs
from tensorshelf._auto.start import Start
from tensorshelf._auto.timeline import Span, Timeline
from tensorshelf._auto.trace import LANES
from tensorshelf._info import Info, survives
from tensorshelf._size import format_size
from tensorshelf.errors import UnsupportedError

_SHOWN = 4  # steps of the timeline picture
_COLOURS = {
    "compute": "#8aa4bd",
    "gate": "#c2410c",
    "step()": "#d9a441",
    "copy": "#0f766e",
    "compare": "#5eaaa3",
    "wait for the save before": "#b9c3cc",
    "write": "#5b7f95",
    "barrier": "#33475b",
    "flip": "#c2410c",
    "barrier of the flip": "#33475b",
}
_MEANINGS = {
    "compute": "the trainer, between two calls of step(), gates included",
    "gate": "an optimizer waits for the copies",
    "step()": "all that changes otherwise is copied",
    "copy": "what optimizers step is copied, beside the trainer",
    "compare": "whether it changed meanwhile",
    "wait for the save before": "saves become durable in order",
    "write": "the rest, and the version's metadata, to the medium",
    "barrier": "until all of it is durable",
    "flip": "the version word",
    "barrier of the flip": "until that is durable",
}
_STYLE = """
  body { margin: 0; background: #f6f8fa; color: #1d2733;
         font: 15px/1.5 "DejaVu Sans", "Segoe UI", Helvetica, Arial, sans-serif; }
  main { max-width: 1040px; margin: 0 auto; padding: 32px 24px 56px; }
  h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 26px 0 6px; }
  .muted { color: #5b6875; font-size: 13px; } svg { max-width: 100%; height: auto; }
  table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
  th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid #e3e8ed; }
  th { color: #5b6875; } th:first-child, td:first-child, td:last-child { text-align: left; }
"""


def write_report(
    path: str | os.PathLike[str], timeline: Timeline, start: Start | None, info: Info, skipped: int
) -> None:
    """Raises UnsupportedError without matplotlib, where there is something to draw."""
    saves = [save for save in timeline.saves if save.seconds is not None]
    spans = list(timeline.spans())
    title, saved = f"{info.path}, nothing saved", "No save became durable."
    if saves:
        title = f"{info.path}, steps {saves[0].step} to {saves[-1].step}"
        size = format_size(round(median(save.nbytes for save in saves)))
        saved = (
            f"{len(saves)} saves became durable, of {size} each; {skipped} were skipped, for the "
            "one before was on its way."
        )
    facts = [
        saved,
        f"Medium: {info.promises.medium}, {info.promises.detail}; "
        f"a version survives {survives(info.promises)}.",
    ]
    if start is not None:
        facts.append(f"{start}.")
    facts += _verdict(timeline)
    pictures = []
    if saves and timeline.stalled:
        pictures = [
            ("Each step", _picture(_draw_steps, timeline)),
            ("The last steps", _picture(_draw_lanes, spans)),
        ]
    body = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(fact)}</p>" for fact in facts)]
    for heading, svg in pictures:
        body += [f"<h2>{heading}</h2>", svg]
    if spans:
        body += ["<h2>Where the time goes</h2>", _table(spans)]
    body.append('<p class="muted">Of the last 1,000 steps and saves, by this process\'s clock.</p>')
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    page = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n'
    write_text(path, page + "\n".join(body) + "\n</main></body></html>\n")


def _verdict(timeline: Timeline) -> list[str]:
    measured = costs(timeline)
    if measured is None:
        return []
    rate = f"{format_size(round(measured.bytes_per_second))}/s"
    return [
        f"A step computes for {_time(measured.step)}; a save holds it up for "
        f"{_time(measured.stall)}, and is durable {_time(measured.save)} later ({rate})."
    ]


def _table(spans: Iterable[Span]) -> str:
    seconds: dict[str, list[float]] = {}
    for span in spans:
        seconds.setdefault(span.name, []).append(span.ended - span.began)
    rows = ["<tr><th>what<th>times<th>median<th>19 of 20 below<th>longest<th></tr>"]
    for name in _COLOURS:
        if name not in seconds:
            continue
        each = seconds[name]
        high = quantiles(each, n=20, method="inclusive")[-1] if len(each) > 1 else each[0]
        cells = (name, len(each), _time(median(each)), _time(high), _time(max(each)))
        row = "".join(f"<td>{escape(str(cell))}" for cell in (*cells, _MEANINGS[name]))
        rows.append(f"<tr>{row}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


# ---- pictures


def _picture(draw: Any, what: Any) -> str:
    """As SVG, without a display or a change of the caller's settings."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError(
            "the report's pictures need matplotlib", "Install it: pip install matplotlib"
        ) from error
    figure = Figure(figsize=(10, 2.9), layout="constrained")
    FigureCanvasSVG(figure)
    axis = figure.add_subplot()
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    draw(axis, what)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _draw_steps(axis: Any, timeline: Timeline) -> None:
    """What the trainer did in each step, one above the other."""
    worked = list(timeline.worked)
    steps = [span.step for span in timeline.computed]
    stalls = {span.step: span.ended - span.began for span in timeline.stalled}
    gates = [
        span.ended - span.began - work for span, work in zip(timeline.computed, worked, strict=True)
    ]
    bottom = [0.0] * len(steps)
    parts: Sequence[tuple[str, list[float]]] = (
        ("compute", worked),
        ("gate", gates),
        ("step()", [stalls.get(step, 0.0) for step in steps]),
    )
    for name, seconds in parts:
        height = [each * 1e3 for each in seconds]
        axis.bar(steps, height, 1.0, bottom=bottom, color=_COLOURS[name], label=name, linewidth=0)
        bottom = [low + each for low, each in zip(bottom, height, strict=True)]
    axis.set_xlabel("step")
    axis.set_ylabel("ms")
    axis.margins(x=0.01)
    if bottom:  # the first steps, which warm up, would hide all others
        axis.set_ylim(0, 1.3 * sorted(bottom)[int(0.98 * (len(bottom) - 1))] or 1)
    axis.legend(ncols=3, loc="upper right", frameon=False)


def _draw_lanes(axis: Any, spans: Sequence[Span]) -> None:
    """Who did what in the last steps that were saved, below each other."""
    began = [span.began for span in spans if span.name == "step()"][-_SHOWN - 1 :]
    first, last = began[0], max(span.ended for span in spans if span.began >= began[0])
    known: set[str] = set()
    for span in spans:
        if span.ended < first:
            continue
        left = max(span.began, first)
        at = (len(LANES) - span.lane - 0.36, 0.72)
        label = None if span.name in known else span.name
        known.add(span.name)
        bar = [((left - first) * 1e3, (span.ended - left) * 1e3)]
        axis.broken_barh(bar, at, color=_COLOURS[span.name], linewidth=0, label=label)
    axis.set_yticks(range(len(LANES)), reversed(LANES))
    axis.set_xlim(0, (last - first) * 1e3)
    axis.set_xlabel("ms")
    axis.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.28), frameon=False)
