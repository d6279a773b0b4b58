"""Pools, media beside each other, lent pieces, opening, versions, and planning a partition."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from rows import GIB, Row, Settings, program, ratio, run_cases, speed
from throttled import CannotThrottle, throttled


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
