"""The report: one HTML file with its pictures inside, and the same pictures as PNG beside it."""

import base64
import platform
from pathlib import Path

import jinja2
import numpy as np

import charts
from judge import Verdict
from killing import Outcome
from models import MODELS
from results import Results
from stores import STORES

NOT_POWER_LOSS = (
    "SIGKILL is not a power loss: the kernel still writes what a killed process had handed to it, "
    "so this demo shows safety from process crashes only. Torn and lost writes at a power loss are "
    "the business of the crash explorer: ./run crashtest."
)


def write(results: Results, out: Path) -> Path:
    """Write report.html and its pictures into `out`; return the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["inline"] = _inline
    page = out / "report.html"
    page.write_text(
        environment.get_template("report.html.j2").render(
            results=results,
            failures=results.failures(),
            models=[_model(results, name, out) for name in MODELS if name in results.final],
            times_picture=_times(results, out),
            times=_time_rows(results),
            language=results.language,
            losses=_losses(results, out),
            not_power_loss=NOT_POWER_LOSS,
            machine=f"{platform.machine()}, Linux {platform.release()}, Python "
            f"{platform.python_version()}, NumPy {np.__version__}",
        ),
        encoding="utf-8",
    )
    return page


def _model(results: Results, name: str, out: Path) -> dict[str, object]:
    model, saved = MODELS[name], results.final[name]
    stem = name.replace(" ", "-").lower()
    shelf = next(outcome for outcome in results.shelf if outcome.job.model == name)
    return {
        "name": name,
        "caption": model.caption,
        "state_kb": sum(array.nbytes for array in saved.state.values()) / 1e3,
        "tensors": len(saved.state),
        "steps": model.steps,
        "digits": charts.digit_grid(saved.state[model.pictured], out / f"{stem}-digits.png"),
        "curve": charts.convergence(
            saved.state["history"], shelf, model.curve_title, out / f"{stem}-curve.png"
        ),
        "rows": [_kill_row(outcome) for outcome in results.of(name)],
    }


def _kill_row(outcome: Outcome) -> dict[str, object]:
    counts = outcome.counts
    return {
        "store": outcome.job.store,
        "is_shelf": STORES[outcome.job.store].is_shelf,
        "kills": len(outcome.kills),
        "mid_save": outcome.mid_save,
        "last": counts[Verdict.LAST],
        "next": counts[Verdict.NEXT],
        "older": counts[Verdict.OLDER],
        "mixed": counts[Verdict.MIXED],
        "torn": counts[Verdict.TORN],
        "unreadable": counts[Verdict.UNREADABLE],
        "lost": outcome.lost,
        "restarts": outcome.failures,
        "identical": outcome.identical,
    }


def _losses(results: Results, out: Path) -> Path | None:
    language = results.language
    if language is None or not language.losses:
        return None
    return charts.losses(language.losses, language.kills, out / "transformer-losses.png")


def _times(results: Results, out: Path) -> Path:
    colours = {name: _colour(name) for name in STORES}
    seconds = {
        f"{model}: an iteration computes for {1e3 * results.compute_seconds(model):.1f} ms": (
            results.added_seconds(model)
        )
        for model in MODELS
    }
    return charts.added_time(seconds, colours, out / "added-time.png")


def _colour(name: str) -> str:
    if STORES[name].is_shelf:
        return charts.SHELF
    return charts.DURABLE if name.endswith("durable") else charts.FRAGILE


def _time_rows(results: Results) -> list[dict[str, object]]:
    return [
        {
            "store": name,
            "is_shelf": store.is_shelf,
            "atomic": store.atomic,
            "survives": results.survives(name),
            "ms": [1e3 * results.added_seconds(model)[name] for model in MODELS],
        }
        for name, store in STORES.items()
    ]


def _inline(picture: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode("ascii")
