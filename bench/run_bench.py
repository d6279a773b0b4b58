"""Runs the benches and says how each figure stands to what it should reach.

    .venv/bin/python bench/run_bench.py [NAME] [--build DIR] [--dir DIR] [--quick]

NAME: commit, open, versions, partition, pool, media, lent, compare, state, saves, feed, writes,
sweeps, dcp, group, writers, follow, compact, gpu; else all. Of dcp, --size says how many MiB the
state has, --kills how often ranks are killed; of compact, --size how many MiB the shelf has; of
follow, --seconds how long the readers follow; of feed, --only which figures, as "block, load".

Every figure is a ratio of medians measured in one run, ours and its limit in alternation, because
these machines drift. Writes out/bench/<name>.json, and of some a picture beside it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import store_rows
from commit_rows import commit
from rows import Settings, show

ROOT = Path(__file__).resolve().parent.parent

# Whose figures are rows of one table, by programs in C++.
TABLES = {
    "commit": commit,
    "open": store_rows.opening,
    "versions": store_rows.versions,
    "partition": store_rows.partition,
    "pool": store_rows.pool,
    "media": store_rows.media,
    "lent": store_rows.lent,
}


def compact(module: Any, settings: Settings, args: argparse.Namespace) -> object:
    nbytes = (args.size or (256 if args.quick else 4096)) << 20
    return module.run(settings.mapped, settings.block, nbytes, args.quick)


def dcp(module: Any, settings: Settings, args: argparse.Namespace) -> object:
    nbytes = (args.size or (32 if args.quick else 256)) << 20
    kills = args.kills if args.kills is not None else 4 if args.quick else 20
    return module.run(settings.block, nbytes, kills, args.quick)


def feed(module: Any, settings: Settings, args: argparse.Namespace) -> object:
    return module.run(settings.mapped, settings.block, args.quick, args.only)


def follow(module: Any, settings: Settings, args: argparse.Namespace) -> object:
    seconds = args.seconds or (2.0 if args.quick else 20.0)
    return module.run(settings.mapped, settings.block, seconds)


def on_both(module: Any, settings: Settings, args: argparse.Namespace) -> object:
    return module.run(settings.mapped, settings.block, args.quick)


def on_block(module: Any, settings: Settings, args: argparse.Namespace) -> object:
    return module.run(settings.block, args.quick)


Run = Callable[[Any, Settings, argparse.Namespace], object]

# Whose figures are printed by a module of their own, which imports what it compares with.
MODULES: dict[str, tuple[str, Run, str]] = {
    "compare": ("compare", on_both, "one durable, atomic save each, same paths"),
    "state": ("state", on_both, "of k-means, 303 kB in two arrays, saved cold"),
    "saves": ("saves", on_both, "of a torch model with its optimizer, saved cold"),
    "feed": ("feed", feed, "beside what else saves and loads a run"),
    "writes": ("writes", on_block, "one tensor made durable, over the shape of its buffers"),
    "sweeps": ("sweeps", on_both, "over how often a training is saved"),
    "dcp": ("dcp_bench", dcp, "torch.distributed.checkpoint over shelves and its own files"),
    "group": ("group_bench", on_both, "ranks that save together"),
    "writers": ("writers_bench", on_block, "a group's save over how many ranks write it"),
    "follow": ("follow_bench", follow, "readers that go on with a writer that never rests"),
    "compact": ("compact_bench", compact, "of a shelf that is half free, beside a trainer"),
    "gpu": ("gpu_bench", on_both, "saves from a CUDA device, loads into it, and a training"),
}


def machine() -> dict[str, str]:
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {"processor": model, "cores": str(os.cpu_count()), "kernel": platform.release()}


def write_json(name: str, body: object) -> None:
    out = ROOT / "out" / "bench"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(body, indent=1) + "\n")
    print(f"written: out/bench/{name}.json")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=[*TABLES, *MODULES, "all"], nargs="?", default="all")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--mapped", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--dir", type=Path, help="on a disk; default: out/bench of the repository")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, few rounds: a smoke test"
    )
    parser.add_argument("--size", type=int, help="MiB of dcp's state, or compact's shelf")
    parser.add_argument("--only", default="", help="of feed: what has this in its name")
    parser.add_argument("--kills", type=int, help="of each store of dcp's; default 20")
    parser.add_argument("--seconds", type=float, help="that follow's readers follow; default 20")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    (ROOT / "out" / "bench").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.dir or ROOT / "out" / "bench") as block:
        settings = Settings(args.build, args.mapped, Path(block), args.quick)
        for name, table in TABLES.items():
            if args.what not in (name, "all"):
                continue
            print(f"\n{name}: ours and its limit in alternation, medians\n", flush=True)
            rows = table(settings)
            show(rows)
            body = {"machine": machine(), "rows": [asdict(row) | {"met": row.met} for row in rows]}
            write_json(name, body)
        for name, (module, run, what) in MODULES.items():
            if args.what in (name, "all"):
                print(f"\n{name}: {what}\n", flush=True)
                write_json(name, run(importlib.import_module(module), settings, args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
