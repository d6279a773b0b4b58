"""Runs the benches and says how each figure stands to what it should reach.

    .venv/bin/python bench/run_bench.py [NAME] [--build DIR] [--dir DIR] [--quick]

NAME: commit, open, versions, media, lent, pool, compare, state, saves, feed, writes, sweeps, dcp,
group, writers, follow, compact, gpu; else all. Of dcp, --size says how many MiB the state has,
--kills how often ranks are killed; of compact, --size how many MiB the shelf has; of follow,
--seconds how long the readers follow; of feed, --only which figures, as "block, load".

Every figure is a ratio of medians measured in one run, ours and its limit in alternation, because
these machines drift. Writes out/bench/<name>.json, and of some a picture beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fio import fio_seconds
from throttled import CannotThrottle, throttled

ROOT = Path(__file__).resolve().parent.parent
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


def full_mapped(settings: Settings) -> Iterator[Row]:
    cases = ((1, 1, "1 thread"), (2, 1, "2 tensors by a thread each"), (1, 2, "2 threads"))
    for threads, within, by in cases:
        command = program(settings, "bench_commit", "full", "--dir", str(settings.mapped))
        command += ["--threads", str(threads), "--within", str(within)]
        command += ["--bytes", str(settings.bytes)]
        for pairs in run_cases([*command, "--rounds", str(settings.rounds)]):
            yield Row(
                f"assign + persist of {settings.bytes >> 20} MiB, {by}",
                "mapped",
                ratio(pairs),
                0.95,
                True,
                "of raw non-temporal copy",
                f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}",
            )


def full_block(settings: Settings) -> Row:
    figure = f"assign + persist of {settings.bytes >> 20} MiB"
    unit = "of fio, 2 MiB x 16, one fdatasync"
    if subprocess.run(["sh", "-c", "command -v fio"], stdout=subprocess.DEVNULL).returncode:
        return Row(figure, "block", None, 0.90, True, unit, "fio is not installed")
    command = program(settings, "bench_commit", "block", "--dir", str(settings.block))
    command += ["--tier", "block", "--bytes", str(settings.bytes)]
    target = settings.block / "tensorshelf-bench-fio"
    ours: list[float] = []
    limit: list[float] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shelf:
        assert shelf.stdin
        assert shelf.stdout
        for round_number in range(-1, settings.rounds):
            seconds = fio_seconds(target, settings.bytes)
            print("go", file=shelf.stdin, flush=True)
            answer = json.loads(shelf.stdout.readline())
            if round_number >= 0:
                limit.append(seconds)
                ours.append(float(answer["value"]))
    target.unlink()
    pairs = {"ours": ours, "limit": limit, "bytes": settings.bytes}
    detail = f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}"
    return Row(figure, "block", ratio(pairs), 0.90, True, unit, detail)


def shape_cases(settings: Settings, medium: str, directory: Path) -> Iterator[Row]:
    common = ["--dir", str(directory), "--tier", "block" if medium == "block" else "auto"]
    common += ["--rounds", str(settings.rounds), "--bytes", str(settings.bytes)]
    common += ["--within", "1"]  # else the large tensor that is the limit is copied by two threads

    def case(name: str) -> dict[str, object]:
        return next(run_cases(program(settings, "bench_commit", name, *common)))

    pairs = case("many")
    goal = 0.8 if medium == "block" else 0.5
    detail = f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}"
    yield Row(
        "10,000 tensors of 4 KiB over one of 40 MB",
        medium,
        ratio(pairs),
        goal,
        True,
        "of one tensor",
        detail,
    )
    pairs = case("one")
    detail = "{:.1f} us of {:.1f} us".format(
        *(statistics.median(pairs[side]) / 20 * 1e6 for side in ("ours", "limit"))  # type: ignore[type-var,operator]
    )
    yield Row(
        "persist, 1 dirty of 10,000 over 1 of 10",
        medium,
        1 / ratio(pairs),
        3,
        False,
        "x",
        detail,
    )
    pairs = case("partial")
    detail = "{:.2f} ms of {:.0f} ms".format(
        *(statistics.median(pairs[side]) * 1e3 for side in ("ours", "limit"))  # type: ignore[type-var,operator]
    )
    yield Row(
        f"update of 1 % of {settings.bytes >> 20} MiB",
        medium,
        100 / ratio(pairs),
        3,
        False,
        "% of the full persist",
        detail,
    )
    value = float(case("memory")["value"])  # type: ignore[arg-type]
    limit = 0.01 * 2 * settings.bytes + (64 << 20 if medium == "block" else 0)
    yield Row(
        f"memory beside a tensor of {settings.bytes >> 20} MiB",
        medium,
        value / (1 << 20),
        limit / (1 << 20),
        False,
        "MiB",
        "anonymous memory, after three commits",
    )


def commit(settings: Settings) -> list[Row]:
    rows = list(full_mapped(settings))
    rows.append(full_block(settings))
    rows += shape_cases(settings, "mapped", settings.mapped)
    rows += shape_cases(settings, "block", settings.block)
    return rows


def pool(settings: Settings) -> list[Row]:
    rows = []
    # The library takes tmpfs for persistent memory then, and copies to it as it does there.
    emulation = ["env", "PMEM_IS_PMEM_FORCE=1"]
    for replicas, goal in ((1, 0.95), (2, 0.48)):
        figure = f"assign + persist of {settings.bytes >> 20} MiB, {replicas} replica(s)"
        unit = "of the mapped medium"
        if not (settings.build / "bench" / "bench_pool").exists():
            rows.append(Row(figure, "pool", None, goal, True, unit, "no libpmemobj"))
            continue
        command = program(settings, "bench_pool", "--dir", str(settings.mapped))
        command += ["--replicas", str(replicas), "--bytes", str(settings.bytes)]
        command += ["--rounds", str(settings.rounds)]
        pairs = next(run_cases([*emulation, *command]))
        plain = ratio(next(run_cases(command)))
        detail = f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}; tmpfs, PMEM emulation"
        detail += f"; {plain:.2f} without PMEM_IS_PMEM_FORCE"
        rows.append(Row(figure, "pool", ratio(pairs), goal, True, unit, detail))
    return rows


def media(settings: Settings) -> list[Row]:
    rows = []
    size = ["--bytes", str(settings.bytes), "--rounds", str(settings.rounds)]
    figure = f"assign + persist of {settings.bytes >> 20} MiB, striped over 2 files"
    command = program(settings, "bench_media", "stripe", *size)
    places = ["--dir", str(settings.block), "--second", str(settings.block)]
    pairs = next(run_cases([*command, *places]))
    detail = f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}; one disk"
    rows.append(Row(figure, "block", ratio(pairs), 0.98, True, "of one file", detail))
    rows.append(on_slow_drives(settings))
    for medium, folder in (("mapped", settings.mapped), ("block", settings.block)):
        places = ["--dir", str(folder), "--second", str(folder)]
        places += ["--tier", "block" if medium == "block" else "auto"]
        command = program(settings, "bench_media", "mirror", *size, *places)
        pairs = next(run_cases(command))
        figure = f"assign + persist of {settings.bytes >> 20} MiB, and its mirror"
        detail = f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}; both on one"
        rows.append(Row(figure, medium, ratio(pairs), 0.48, True, "of one file", detail))
    command = program(settings, "bench_media", "small", "--dir", str(settings.mapped))
    command += ["--second", str(settings.block), "--bytes", str(64 << 20)]
    pairs = next(run_cases([*command, "--rounds", str(settings.rounds)]))
    figure = "commit of 4 KiB on tmpfs, bulk on a disk"
    rows.append(Row(figure, "both", 1 / ratio(pairs), 1.2, False, "x without the disk", "median"))
    return rows


def on_slow_drives(settings: Settings) -> Row:
    """Two loop devices, which the kernel throttles."""
    rate, count = 100e6, 2
    nbytes = settings.bytes // 4
    figure = f"the same of {nbytes >> 20} MiB over 2 drives of {rate / 1e6:.0f} MB/s"
    with tempfile.TemporaryDirectory(dir=settings.block) as folder:
        try:
            with throttled(Path(folder), count, rate) as drives:
                first, second = (str(each) for each in drives.folders)
                command = program(settings, "bench_media", "stripe", "--dir", first)
                command += ["--second", second, "--bytes", str(nbytes), "--rounds", "3"]
                pairs = next(run_cases(command, drives.join))
        except CannotThrottle as error:
            return Row(figure, "block", None, 1.9, True, "x one drive", str(error))
    detail = f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}; throttled loop devices"
    return Row(figure, "block", ratio(pairs), 1.9, True, "x one drive", detail)


def lent(settings: Settings) -> list[Row]:
    command = program(settings, "bench_lent", "--dir", str(settings.block))
    command += ["--bytes", str(settings.bytes), "--rounds", str(settings.rounds)]
    rate, cpu = run_cases(command)
    size = f"{settings.bytes >> 20} MiB in pieces of 8 MiB"
    detail = f"{speed(rate, 'ours')} of {speed(rate, 'limit')}"
    rows = [Row(f"{size}, lent", "block", ratio(rate), 0.95, True, "x the rate of copied", detail)]
    seconds = [statistics.median(cpu[side]) for side in ("ours", "limit")]  # type: ignore[type-var]
    detail = "{:.2f} s of {:.2f} s, of all threads".format(*seconds)
    unit = "of the time of processors"
    rows.append(Row("the same", "block", seconds[0] / seconds[1], 0.75, False, unit, detail))
    return rows


def opening(settings: Settings) -> list[Row]:
    rows = []
    for medium, directory in (("mapped", settings.mapped), ("block", settings.block)):
        command = program(settings, "bench_open", "--dir", str(directory))
        command += ["--tier", "block" if medium == "block" else "auto"]
        if settings.quick:
            command += ["--large", str(GIB // 2), "--rounds", "5"]
        pairs, many = run_cases(command)
        ours = statistics.median(pairs["ours"])  # type: ignore[type-var]
        limit = statistics.median(pairs["limit"])  # type: ignore[type-var]
        size = float(pairs["bytes"]) / GIB  # type: ignore[arg-type]
        name = f"open a shelf of {size:.0f} GiB"
        rows.append(Row(name, medium, ours * 1e3, 5, False, "ms", f"100 MiB: {limit * 1e3:.2f} ms"))
        rows.append(Row(f"{name} over 100 MiB", medium, ours / limit, 1.25, False, "x", "median"))
        ours, few = (statistics.median(many[side]) * 1e3 for side in ("ours", "limit"))  # type: ignore[type-var,operator]
        name = f"open a shelf of {many['bytes']:,.0f} tensors"
        rows.append(Row(name, medium, ours, 50, False, "ms", f"1,000 tensors: {few:.2f} ms"))
    return rows


def versions(settings: Settings) -> list[Row]:
    rows = []
    for medium, directory in (("mapped", settings.mapped), ("block", settings.block)):
        common = ["--dir", str(directory), "--tier", "block" if medium == "block" else "auto"]
        common += ["--rounds", str(settings.rounds), "--bytes", str(settings.bytes)]

        def cases(name: str, common: list[str] = common) -> list[dict[str, object]]:
            return list(run_cases(program(settings, "bench_versions", name, *common)))

        size = f"{settings.bytes >> 20} MiB"
        steady, after_open = (100 * float(case["value"]) for case in cases("update"))  # type: ignore[arg-type]
        unit = "% of the tensor"
        goal = 2.1 if medium == "mapped" else 1.1
        detail = "bytes to the medium, each time elsewhere"
        rows.append(Row(f"update of 1 % of {size}", medium, steady, goal, False, unit, detail))
        if medium == "block":
            name = "the same, right after an open"
            rows.append(Row(name, medium, after_open, goal, False, unit, detail))
        pairs = cases("rollback")[0]
        detail = "{:.1f} us of {:.1f} us".format(
            *(statistics.median(pairs[side]) * 1e6 for side in ("ours", "limit"))  # type: ignore[type-var,operator]
        )
        name = f"rollback of {size} over an empty persist"
        rows.append(Row(name, medium, 1 / ratio(pairs), 1.25, False, "x", detail))
        pairs = cases("open")[0]
        ours, alone = (statistics.median(pairs[side]) * 1e3 for side in ("ours", "limit"))  # type: ignore[type-var,operator]
        rows.append(
            Row("open with keep=4", medium, ours, 5, False, "ms", f"keep=0: {alone:.2f} ms")
        )
        pairs = cases("overlap")[0]
        detail = f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}"
        name = "saves back to back, in_flight=2 over 1"
        rows.append(Row(name, medium, ratio(pairs), 1, True, "x the rate", detail))
        pairs = cases("snapshot")[0]
        detail = f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}, each durable"
        name = f"snapshot of {size} over a raw copy of the file"
        rows.append(Row(name, medium, ratio(pairs), 0.9, True, "of the rate", detail))
        pairs = cases("diff")[0]
        took = statistics.median(pairs["ours"]) * 1e3  # type: ignore[type-var,operator]
        detail = "100 of them changed"
        rows.append(Row("diff of 10,000 tensors", medium, took, 5, False, "ms", detail))
        finished = float(cases("reader")[0]["value"])  # type: ignore[arg-type]
        name = "reads of 300 MB beside a writer, keep=2"
        rows.append(Row(name, medium, 100 * finished, 100, True, "% finish", "saves without pause"))
    for pairs in run_cases(program(settings, "bench_versions", "simulated")):
        detail = f"{speed(pairs, 'ours')} of {speed(pairs, 'limit')}; {pairs['case']}"
        name = "saves back to back, in_flight=2 over 1"
        rows.append(Row(name, "simulated", ratio(pairs), 1.5, True, "x the rate", detail))
    return rows


def partition(settings: Settings) -> list[Row]:
    rows = []
    for case in run_cases(program(settings, "bench_partition")):
        name, value = str(case["case"]), float(case["value"])  # type: ignore[arg-type]
        if name.startswith("imbalance"):
            rows.append(Row(name, "-", value, 1, False, "blocks", "a state of GPT-3's shape"))
        else:
            detail = "over 4,096 writers, and one's pieces"
            rows.append(Row(name, "-", value, 1, False, "s", detail))
    return rows


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    choices = ["commit", "open", "versions", "partition", "compare", "state", "saves", "feed"]
    choices += [
        "writes",
        "sweeps",
        "dcp",
        "group",
        "writers",
        "follow",
        "compact",
        "gpu",
        "pool",
        "media",
        "lent",
        "all",
    ]
    parser.add_argument("what", choices=choices, nargs="?", default="all")
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
    args = parser.parse_args()
    (ROOT / "out" / "bench").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.dir or ROOT / "out" / "bench") as block:
        settings = Settings(args.build, args.mapped, Path(block), args.quick)
        tables = {"commit": commit, "open": opening, "versions": versions, "partition": partition}
        tables["pool"] = pool
        tables["media"] = media
        tables["lent"] = lent
        for name, run in tables.items():
            if args.what not in (name, "all"):
                continue
            print(f"\n{name}: ours and its limit in alternation, medians\n", flush=True)
            rows = run(settings)
            show(rows)
            body = {"machine": machine(), "rows": [asdict(row) | {"met": row.met} for row in rows]}
            write_json(name, body)
        if args.what in ("compare", "all"):
            import compare

            print("\ncompare: one durable, atomic save each, same paths\n", flush=True)
            write_json("compare", compare.run(settings.mapped, settings.block, args.quick))
        if args.what in ("state", "all"):
            import state

            print("\nstate: of k-means, 303 kB in two arrays, saved cold\n", flush=True)
            write_json("state", state.run(settings.mapped, settings.block, args.quick))
        if args.what in ("saves", "all"):
            import saves

            print("\nsaves: of a torch model with its optimizer, saved cold\n", flush=True)
            write_json("saves", saves.run(settings.mapped, settings.block, args.quick))
        if args.what in ("feed", "all"):
            import feed

            print("\nfeed: beside what else saves and loads a run\n", flush=True)
            write_json("feed", feed.run(settings.mapped, settings.block, args.quick, args.only))
        if args.what in ("writes", "all"):
            import writes

            print("\nwrites: one tensor made durable, over the shape of its buffers\n", flush=True)
            write_json("writes", writes.run(settings.block, args.quick))
        if args.what in ("sweeps", "all"):
            import sweeps

            print("\nsweeps: over how often a training is saved", flush=True)
            write_json("sweeps", sweeps.run(settings.mapped, settings.block, args.quick))
        if args.what in ("dcp", "all"):
            import dcp_bench

            print(
                "\ndcp: torch.distributed.checkpoint over shelves and its own files\n", flush=True
            )
            nbytes = (args.size or (32 if args.quick else 256)) << 20
            kills = args.kills if args.kills is not None else 4 if args.quick else 20
            write_json("dcp", dcp_bench.run(settings.block, nbytes, kills, args.quick))
        if args.what in ("group", "all"):
            import group_bench

            print("\ngroup: ranks that save together\n", flush=True)
            write_json("group", group_bench.run(settings.mapped, settings.block, args.quick))
        if args.what in ("writers", "all"):
            import writers_bench

            print("\nwriters: a group's save over how many ranks write it\n", flush=True)
            write_json("writers", writers_bench.run(settings.block, args.quick))
        if args.what in ("follow", "all"):
            import follow_bench

            print("\nfollow: readers that go on with a writer that never rests\n", flush=True)
            seconds = args.seconds or (2.0 if args.quick else 20.0)
            write_json("follow", follow_bench.run(settings.mapped, settings.block, seconds))
        if args.what in ("compact", "all"):
            import compact_bench

            print("\ncompact: of a shelf that is half free, beside a trainer\n", flush=True)
            nbytes = (args.size or (256 if args.quick else 4096)) << 20
            found = compact_bench.run(settings.mapped, settings.block, nbytes, args.quick)
            write_json("compact", found)
        if args.what in ("gpu", "all"):
            import gpu_bench

            print("\ngpu: saves from a CUDA device, loads into it, and a training\n", flush=True)
            write_json("gpu", gpu_bench.run(settings.mapped, settings.block, args.quick))
    return 0


if __name__ == "__main__":
    sys.exit(main())
