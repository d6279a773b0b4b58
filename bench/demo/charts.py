"""The pictures of the report, as PNG files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from digits import SIDE
from killing import Outcome

INK, MUTED, GRID = "#1d2733", "#66727f", "#e3e8ed"
SHELF, DURABLE, FRAGILE, KILL = "#0f766e", "#8aa4bd", "#d9a441", "#c2410c"

plt.rcParams.update(
    {
        "figure.dpi": 160,
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "axes.edgecolor": GRID,
        "axes.labelcolor": MUTED,
        "axes.titlecolor": INK,
        "axes.titlesize": 10.5,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "text.color": INK,
    }
)


def digit_grid(centers: NDArray[Any], file: Path) -> Path:
    """Draw rows of `centers` as 8 x 8 images; white is 0."""
    columns = min(len(centers), 12)
    rows = -(-len(centers) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(columns * 0.78, rows * 0.78), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, center in zip(axes.flat, centers, strict=False):
        axis.imshow(center.reshape(SIDE, SIDE), cmap="gray_r", vmin=0, vmax=1)
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.995, wspace=0.08, hspace=0.08)
    return _save(figure, file)


def convergence(history: NDArray[Any], outcome: Outcome, what: str, file: Path) -> Path:
    """Draw the persisted history and a line for each kill of the run that wrote it."""
    figure, axis = plt.subplots(figsize=(9.6, 2.9))
    for kill in outcome.kills:
        style = "-" if kill.mid_save else (0, (2, 2))
        axis.axvline(kill.acknowledged, color=KILL, alpha=0.75, linewidth=1.0, linestyle=style)
    axis.plot(np.arange(1, len(history) + 1), history, color=SHELF, linewidth=1.8)
    low, high = np.nanpercentile(history, 3), np.nanmax(history)  # the first value may be far off
    axis.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    axis.set_xlabel("iteration")
    axis.set_title(what, pad=22)
    axis.grid(axis="y", color=GRID)
    axis.set_axisbelow(True)
    axis.margins(x=0.01)
    _legend(
        axis,
        [
            Line2D([], [], color=SHELF, linewidth=1.8, label="history read from the shelf"),
            Line2D([], [], color=KILL, label="SIGKILL inside persist"),
            Line2D([], [], color=KILL, linestyle=(0, (2, 2)), label="SIGKILL elsewhere"),
        ],
    )
    figure.tight_layout()
    return _save(figure, file)


def losses(values: Sequence[float], kills: Sequence[int], file: Path) -> Path:
    """Draw the losses of a run that was killed, and a line for each kill."""
    figure, axis = plt.subplots(figsize=(9.6, 2.9))
    for kill in kills:
        axis.axvline(kill, color=KILL, alpha=0.75, linewidth=1.0)
    axis.plot(np.arange(1, len(values) + 1), values, color=SHELF, linewidth=1.8)
    axis.set_xlabel("step")
    axis.set_title("loss, nats per byte", pad=22)
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", color=GRID)
    axis.set_axisbelow(True)
    axis.margins(x=0.01)
    handles = [
        Line2D([], [], color=SHELF, linewidth=1.8, label="losses read from the shelf"),
        Line2D([], [], color=KILL, label="SIGKILL"),
    ]
    _legend(axis, handles)
    figure.tight_layout()
    return _save(figure, file)


def added_time(
    seconds: Mapping[str, Mapping[str, float]], colours: Mapping[str, str], file: Path
) -> Path:
    """Draw, for each model, the median milliseconds that each store adds to an iteration."""
    figure, axes = plt.subplots(1, len(seconds), figsize=(9.6, 3.1), sharey=True)
    for axis, (model, stores) in zip(np.atleast_1d(axes), seconds.items(), strict=True):
        _bars(axis, stores, colours)
        axis.set_title(model)
    figure.tight_layout(w_pad=2.5)
    return _save(figure, file)


def _bars(axis: Axes, stores: Mapping[str, float], colours: Mapping[str, str]) -> None:
    names = list(stores)[::-1]
    values = [1e3 * stores[name] for name in names]
    bars = axis.barh(names, values, color=[colours[name] for name in names], height=0.66)
    axis.bar_label(bars, labels=[f" {value:.2f}" for value in values], color=INK, fontsize=9)
    axis.set_xlabel("ms added to an iteration (median)")
    axis.margins(x=0.14)
    axis.grid(axis="x", color=GRID)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0, labelcolor=INK)


def _legend(axis: Axes, handles: Sequence[Line2D]) -> None:
    axis.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=len(handles),
        frameon=False,
        fontsize=8.5,
    )


def _save(figure: Figure, file: Path) -> Path:
    figure.savefig(file)
    plt.close(figure)
    return file
