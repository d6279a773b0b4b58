"""A group's save over how many ranks write it: FastPersist's figures 8 and 12 on throttled drives.

Ranks of one node hold a state alike, and save it together in pieces: by every rank, by one of each
of two sockets, and by those that Group(partition=True) chooses. The drives are throttled loop
devices (throttled.py), the sockets are said (Group(socket=)): there are two cores here, and what
the drives leave of their time is what the figure is about. For 128 ranks there is arithmetic, from
what one writer took.
"""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from ranks import run_ranks, together
from throttled import CannotThrottle, Drives, throttled

import tensorshelf as ts
from tensorshelf._group.writers import Site, chosen

OUT = Path(__file__).resolve().parent.parent / "out" / "bench"
RATE = 240e6  # bytes a second of all drives of the node together
RANKS = (1, 2, 4, 8, 16)
SOCKETS = 2
CHOSEN = "chosen"
SETS: dict[str, Any] = {"every rank": "every_rank", "one per socket": "per_socket", CHOSEN: True}
_TENSOR = 16 << 20  # bytes
_SMALL = 64 << 10  # bytes: of a save that shows what none is spared

# Of the projection.
NODE_RANKS = 8
MANY = (1, 2, 4, 8, 16, 32, 64, 128)
STATE = 16 << 30  # bytes


def _site(rank: int, drives: int) -> Site:
    """Nodes have so many drives, each on one of the sockets."""
    local = rank % NODE_RANKS
    return Site(f"node {rank // NODE_RANKS}", local % SOCKETS, str(local % drives))


def _sets(sites: list[Site]) -> dict[str, tuple[int, ...]]:
    """Who writes, by the names of sets."""
    return {name: tuple(chosen(choice, sites)) for name, choice in SETS.items()}


# ---- measured


def _model(nbytes: int) -> torch.nn.Module:
    size = min(nbytes, _TENSOR)
    return torch.nn.ParameterList([torch.ones(size // 4) for _ in range(nbytes // size)])


def _saved(
    rank: int, world: int, drives: Drives, choices: list[Any], sizes: list[int], rounds: int
) -> list[dict[str, Any]]:
    """Saves by all ranks, of each size by each choice in turn."""
    drives.join()
    found = []
    for nbytes in sizes:
        model = _model(nbytes)
        found += [_saved_by(choice, rank, drives, model, rounds) for choice in choices]
    return found


def _saved_by(
    choice: Any, rank: int, drives: Drives, model: torch.nn.Module, rounds: int
) -> dict[str, Any]:
    """Seconds of each save, bytes that the drives took for one, and who wrote."""
    path = drives.folders[rank % len(drives.folders)] / f"run.{rank}.shelf"
    with ts.open(path, tier="block", in_flight=1) as shelf:
        group = ts.Group(partition=choice, node="node", socket=rank % SOCKETS)
        auto = shelf.autosave(group=group, signals=(), model=model)
        auto.resume()

        def save(step: int) -> float:
            return together(lambda: (auto.step(step), auto.wait()))

        save(1)
        before = drives.written()
        seconds = [save(step) for step in range(2, 2 + rounds)]
        written = (drives.written() - before) / rounds
        writers = group.info().writers
        together(auto.close)
    path.unlink()
    return {"seconds": seconds, "writers": writers, "written": written}


def measured(where: Path, drives: int, nbytes: int, rounds: int, most: int) -> dict[str, Any]:
    """Of one node with so many drives, up to ``most`` ranks. Sets that are of the same ranks are
    measured once. Raises CannotThrottle.
    """
    saves: dict[int, dict[str, Any]] = {}
    with throttled(where, drives, RATE / drives) as made:
        print(
            f"\n  {drives} x {RATE / drives / 1e6:.0f} MB/s"
            f" (by dd {min(made.rates) / 1e6:.1f} to {max(made.rates) / 1e6:.1f}),"
            f" {nbytes >> 20} MiB:",
            flush=True,
        )
        for ranks in (each for each in RANKS if each <= most):
            sets = _sets([Site("node", r % SOCKETS, str(r % drives)) for r in range(ranks)])
            once = {writers: SETS[name] for name, writers in reversed(sets.items())}
            found = run_ranks(ranks, _saved, made, list(once.values()), [nbytes], rounds)
            by_writers = {each["writers"]: each for each in found}
            saves[ranks] = {name: by_writers[writers] for name, writers in sets.items()}
            cells = (
                f"{name} {_rate(nbytes, each) / 1e6:.0f} MB/s by {len(each['writers'])}"
                for name, each in saves[ranks].items()
            )
            print(f"    {ranks:2} ranks: {', '.join(cells)}", flush=True)
        small, _ = run_ranks(1, _saved, made, ["every_rank"], [_SMALL, _SMALL], 9)
    fixed = float(statistics.median(small["seconds"]))
    rates = {
        ranks // drives: nbytes / drives / (nbytes / _rate(nbytes, by["every rank"]) - fixed)
        for ranks, by in saves.items()
        if ranks >= drives
    }
    told = ", ".join(f"{rate / 1e6:.1f} by {writers}" for writers, rate in rates.items())
    print(f"    {fixed * 1e3:.1f} ms for {_SMALL >> 10} KiB; beyond that MB/s of a drive: {told}")
    return {
        "drives": drives,
        "bytes": nbytes,
        "dd_bytes_per_second": made.rates,
        "saves": saves,
        "fixed_seconds": fixed,
        "drive_bytes_per_second": rates,
    }


def _rate(nbytes: int, found: dict[str, Any]) -> float:
    return nbytes / float(statistics.median(found["seconds"]))


# ---- more ranks than there are here: arithmetic


def projected(of: dict[str, Any], ranks: int) -> dict[str, float]:
    """Bytes a second by set, on nodes as that one: a small save, and then the drive that takes
    longest, at the rate that so many writers got out of one. What more ranks have to say to each
    other is left out.
    """
    sites = [_site(rank, of["drives"]) for rank in range(ranks)]
    found = {}
    for name, writers in _sets(sites).items():
        of_drives = Counter((sites[rank].node, sites[rank].drive) for rank in writers)
        share, rates = STATE / len(writers), of["drive_bytes_per_second"]
        longest = max(count * share / rates[count] for count in of_drives.values())
        found[name] = STATE / (of["fixed_seconds"] + longest)
    return found


# ---- pictures

STYLES: dict[str, dict[str, Any]] = {
    "every rank": {"color": "#7c3aed", "marker": "v"},
    "one per socket": {"color": "#c2410c", "marker": "^", "linestyle": (0, (3, 2))},
    CHOSEN: {"color": "#0f766e", "marker": "o", "linewidth": 0, "markerfacecolor": "none"},
}
_TICKS = (0.03, 0.1, 0.3, 1, 3)  # GB/s


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """A column for each kind of node: above what was measured, below what is projected."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, len(results), figsize=(9.6, 6.6), sharey="row", squeeze=False, layout="constrained"
    )
    for (above, below), of in zip(axes.T, results, strict=True):
        count, each = of["drives"], RATE / of["drives"] / 1e6
        drives = "one drive" if count == 1 else f"{count} drives"
        there = f"{drives} of {each:.0f} MB/s"
        saves, many = of["saves"], {ranks: projected(of, ranks) for ranks in MANY}
        for name, style in STYLES.items():
            options = {"linewidth": 1.4, "markersize": 5, **style}
            options |= (
                {"markersize": 10, "label": "Group(partition=True)"} if name == CHOSEN else {}
            )
            label = {"label": name, **options}
            rates = [_rate(of["bytes"], by[name]) / 1e6 for by in saves.values()]
            above.plot(list(saves), rates, **label)
            below.plot(list(many), [by[name] / 1e9 for by in many.values()], **options)
        above.axhline(RATE / 1e6, color="#1d2733", linewidth=0.8)
        above.text(1, 1.07 * RATE / 1e6, "the drives' rate", fontsize=8, color="#66727f")
        above.set_title(f"measured: a node with {there}", loc="left", fontsize=10)
        above.set_ylabel(f"MB/s, a save of {of['bytes'] >> 20} MiB")
        above.set_ylim(0, 1.2 * RATE / 1e6)
        below.set_title(f"simulated: nodes of {NODE_RANKS} ranks, {there}", loc="left", fontsize=10)
        below.set_ylabel(f"GB/s, a save of {STATE >> 30} GiB")
        below.set_yscale("log")
        below.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        below.minorticks_off()
        for axis, ticks in ((above, list(saves)), (below, list(MANY))):
            axis.set_xscale("log", base=2)
            axis.set_xticks(ticks, [str(tick) for tick in ticks])
            axis.tick_params(labelleft=True)
            axis.set_xlabel("data-parallel ranks")
            axis.grid(axis="y", color="#e3e8ed")
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(STYLES), frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def run(block: Path, quick: bool) -> dict[str, Any]:
    nbytes, rounds, most = (32 << 20, 1, 8) if quick else (256 << 20, 3, RANKS[-1])
    results = []
    try:
        for drives in (1, 8):
            results.append(measured(block, drives, nbytes, rounds, most))
    except CannotThrottle as error:
        print(f"  skipped: no drive can be throttled here: {error}")
        return {"skipped": str(error)}
    for of in results:
        print(
            f"\n  simulated, {STATE >> 30} GiB over nodes of {NODE_RANKS} ranks and {of['drives']}"
        )
        for ranks in MANY:
            cells = (f"{name} {rate / 1e9:.2f} GB/s" for name, rate in projected(of, ranks).items())
            print(f"    {ranks:3} ranks: {', '.join(cells)}")
    draw(results, OUT / "writers.png")
    print("written: out/bench/writers.png")
    return {"machine_rate": RATE, "nodes": results, "projected_bytes": STATE}
