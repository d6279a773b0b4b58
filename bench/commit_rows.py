"""Assign and persist: large tensors, many, and parts of one, beside the limits of the medium."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fio import fio_seconds
from rows import Row, Settings, program, ratio, run_cases, speed


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
