"""All tests, stage by stage: what `./run test` runs once everything is set up.

Each stage runs ctest or pytest, whose JUnit files are counted here, so that the last line sums
every suite. A stage that ends badly without naming a failed test (a build that breaks) counts as
one failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "reports"
JOBS = str(os.cpu_count() or 2)
WORKERS = str(2 * int(JOBS))  # of pytest: ranks, disks and killed processes are waited for

# ThreadSanitizer needs a fixed address layout on kernels that randomise more bits than it knows.
FIXED_LAYOUT = ["setarch", os.uname().machine, "-R"]


# torch's threads spin while they wait, and there are more processes than cores already.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass
class Outcome:
    """What one stage did, as counted in its reports."""

    passed: int = 0
    failed: int = 0
    skips: list[str] = field(default_factory=list)  # a name and its reason each
    seconds: float = 0.0

    def count(self, report: Path) -> None:
        for case in xml.parse(report).iter("testcase"):
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed += 1
            elif skipped is None and case.get("status") != "disabled":
                self.passed += 1
            elif skipped is not None and "Unable to find" in skipped.get("message", ""):
                self.failed += 1  # what ctest says of a program that was not built
            else:
                self.skips.append(f"{case.get('name')}: {skip_reason(case)}")


def skip_reason(case: xml.Element) -> str:
    """The last line that a skipped program printed, or pytest's own message."""
    printed = (case.findtext("system-out") or "").strip().splitlines()
    skipped = case.find("skipped")
    return printed[-1] if printed else "" if skipped is None else skipped.get("message", "")


def last_lines(report: Path) -> list[tuple[str, str]]:
    """The name of each program of a report, and what it printed last."""
    if not report.exists():
        return []
    lines = []
    for case in xml.parse(report).iter("testcase"):
        printed = (case.findtext("system-out") or "").strip().splitlines()
        lines += [(case.get("name", ""), line) for line in printed[-1:]]
    return lines


class Stage:
    """Runs commands for one stage and collects their reports."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome = Outcome()

    def command(self, *words: str, env: dict[str, str] | None = None) -> bool:
        print("$", " ".join(words), flush=True)
        everything = {**os.environ, **(env or {})}
        done = subprocess.run(
            words, cwd=ROOT, stdin=subprocess.DEVNULL, env=everything, check=False
        )
        return done.returncode == 0

    def quiet(self, *words: str) -> bool:
        """The same, with a long line of files cut short."""
        print("$", " ".join(words[:5]), "..." if len(words) > 5 else "", flush=True)
        done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
        return done.returncode == 0

    def tool(self, name: str, *words: str) -> None:
        """Runs one that may not be installed; of .venv, where it is there."""
        beside = Path(sys.executable).parent / name
        found = str(beside) if beside.exists() else shutil.which(name)
        if found is None:
            self.outcome.skips.append(f"{name}: not installed")
            return
        good = self.quiet(found, *words)
        self.outcome.passed += good
        self.outcome.failed += not good

    def build(self, preset: str, *, targets: str = "") -> bool:
        """Configures one preset and builds it, or what its build preset `targets` names; False,
        and counted, where that fails."""
        good = self.command("cmake", "--preset", preset, "--log-level=NOTICE") and self.command(
            "cmake", "--build", "--preset", targets or preset, "--parallel", JOBS
        )
        if not good:
            self.outcome.failed += 1
        return good

    def report(self, runner: Callable[[Path], bool]) -> None:
        """Runs one suite, which writes the JUnit file that it is given."""
        path = REPORTS / f"{self.name}.xml"
        path.unlink(missing_ok=True)
        good = runner(path)
        failed = self.outcome.failed
        if path.exists():
            self.outcome.count(path)
        if not good and self.outcome.failed == failed:
            self.outcome.failed += 1

    def ctest(
        self,
        build: str,
        *selection: str,
        env: dict[str, str] | None = None,
        under: Sequence[str] = (),
    ) -> None:
        self.report(
            lambda path: self.command(
                *under,
                *("ctest", "--test-dir", f"build/{build}", "--output-on-failure"),
                *("--parallel", JOBS, "--no-tests=error", "--timeout", "900"),
                *("--output-junit", str(path)),
                *selection,
                env=env,
            )
        )

    def pytest(self, *words: str) -> None:
        self.report(
            lambda path: self.command(
                *(sys.executable, "-m", "pytest", "-q", f"--junitxml={path}", *words),
                env=ONE_THREAD,
            )
        )


def release(stage: Stage, full: bool) -> None:
    if stage.build("release"):
        stage.ctest("release", "-LE", "^crash" if full else "^crash|^long$")


def python(stage: Stage, full: bool) -> None:
    chosen = () if full else ("-m", "not long")
    # Who has nothing left takes of what others have: some tests take half a minute.
    workers = ("-n", WORKERS, "--dist", "worksteal")
    stage.pytest(*workers, *chosen, "python/tests", "tests", "--ignore=tests/test_wheel.py")


def formats(stage: Stage) -> None:
    folders = [ROOT / name for name in "src include python tests crashtest bench".split()]
    files = [path for folder in folders for path in sorted(folder.rglob("*.[ch]pp"))]
    cpp = [str(path.relative_to(ROOT)) for path in files]
    stage.tool("ruff", "check", ".")
    stage.tool("ruff", "format", "--check", ".")
    stage.tool("clang-format", "--dry-run", "-Werror", *cpp)


def lint(stage: Stage, full: bool) -> None:
    """What takes seconds of `./run lint`; all of it, clang and ARM64 too, where `full`."""
    if full:
        good = stage.command("./run", "lint")
        stage.outcome.passed += good
        stage.outcome.failed += not good
        return
    formats(stage)
    stage.tool("mypy", "--strict", "python/tensorshelf")


def asan(stage: Stage, full: bool) -> None:
    options = {
        "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1"
        ":quarantine_size_mb=32:malloc_context_size=8",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    if stage.build("asan", targets="asan-full" if full else "asan"):
        chosen = () if full else ("-L", "^memory$")
        stage.ctest("asan", *chosen, "-LE", "guest|package|kill|gpu|fork", env=options)


def tsan(stage: Stage, full: bool) -> None:
    works = shutil.which("setarch") and subprocess.run([*FIXED_LAYOUT, "true"]).returncode == 0
    if stage.build("tsan"):
        stage.ctest(
            "tsan",
            *("-L", "threads" if full else "^threads$"),
            env={
                "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:"
                f"suppressions={ROOT / 'tests' / 'tsan.supp'}"
            },
            under=FIXED_LAYOUT if works else (),
        )


def crashtest(stage: Stage, full: bool) -> None:
    if not stage.build("release"):
        return
    # What passed is cut to a kilobyte else, and the end of it says what was explored.
    stage.ctest("release", "-L", "^crash", "--test-output-size-passed", "1000000")
    for name, line in last_lines(REPORTS / f"{stage.name}.xml"):
        print(f"{name}: {line}", flush=True)
    seed = str(int.from_bytes(os.urandom(4), "little"))  # new each time; the program prints it
    random = ("--quick", "--workload", "random", "--randoms", "1", "--seed", seed)
    good = stage.command("build/release/crashtest/tensorshelf-crashtest", *random)
    stage.outcome.passed += good
    stage.outcome.failed += not good
    if full:
        for words in (
            ("build/release/tests/test_group_explored", "[.deep]"),
            ("build/release/crashtest/tensorshelf-crashtest", "--full"),
            (sys.executable, "crashtest/planted_python.py"),
        ):
            good = stage.command(*words)
            stage.outcome.passed += good
            stage.outcome.failed += not good


def wheel(stage: Stage, full: bool) -> None:
    stage.pytest("tests/test_wheel.py")


def upstream(stage: Stage, full: bool) -> None:
    """PyTorch's own tests of DCP, of a checkout that is there: none is fetched."""
    checkout = os.environ.get("PYTORCH_CHECKOUT", "")
    harness = (sys.executable, "tests/upstream_dcp.py", checkout)
    reason = subprocess.run(
        [*harness, "--lacking"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    if reason:
        hint = "" if checkout else " (by PYTORCH_CHECKOUT)"
        stage.outcome.skips.append(f"PyTorch's own tests of DCP: {reason}{hint}")
        return
    stage.report(lambda path: stage.command(*harness, f"--junitxml={path}"))


def check(stage: Stage, full: bool) -> None:
    formats(stage)
    stage.pytest("tests/rules", "tests/test_commits.py")


Body = Callable[[Stage, bool], None]
STAGES: dict[str, tuple[str, Body]] = {
    "release": ("C++ tests as released, a guest and an installed package among them", release),
    "python": ("Python tests, README listings, architecture rules", python),
    "lint": ("formats and types; ./run lint does more", lint),
    "asan": ("C++ tests of raw memory under AddressSanitizer + UBSan", asan),
    "tsan": ("threaded C++ tests under ThreadSanitizer", tsan),
    "crashtest": ("crash explorer on the released build", crashtest),
    "wheel": ("wheel, in an environment with nothing but NumPy", wheel),
    "upstream": ("PyTorch's own tests of DCP, over shelves", upstream),
}
# Of other stages what takes seconds: run where it is named, as by ./run check.
SHORT: dict[str, tuple[str, Body]] = {
    "check": ("formats, architecture rules, commit messages", check),
}


def run_stage(name: str, full: bool) -> Outcome:
    title, body = {**STAGES, **SHORT}[name]
    place = f"{list(STAGES).index(name) + 1}/{len(STAGES)} " if name in STAGES else ""
    print(f"\n=== {place}{name}: {title}", flush=True)
    stage = Stage(name)
    start = time.monotonic()
    body(stage, full)
    stage.outcome.seconds = time.monotonic() - start
    verdict = "FAILED" if stage.outcome.failed else "passed"
    print(f"=== {name}: {verdict} in {stage.outcome.seconds:.0f} s", flush=True)
    return stage.outcome


def print_summary(outcomes: dict[str, Outcome]) -> None:
    print("\nSkipped:" if any(o.skips for o in outcomes.values()) else "\nNothing was skipped.")
    for name, outcome in outcomes.items():
        for skip in outcome.skips:
            print(f"  {name}: {skip}")
    row = "{:<10} {:<7} {:>8} {:>8} {:>8} {:>8}".format
    print("\n" + row("stage", "result", "seconds", "passed", "failed", "skipped"))
    for name, o in outcomes.items():
        result = "FAILED" if o.failed else "passed"
        print(row(name, result, round(o.seconds), o.passed, o.failed, len(o.skips)))
    passed = sum(o.passed for o in outcomes.values())
    failed = sum(o.failed for o in outcomes.values())
    skipped = sum(len(o.skips) for o in outcomes.values())
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run test", description="Runs all tests.")
    parser.add_argument(
        "--full", action="store_true", help="the long crash test and every sanitized test too"
    )
    parser.add_argument(
        "stages", nargs="*", metavar="stage", help=f"of {', '.join((*STAGES, *SHORT))}"
    )
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.stages) - set(STAGES) - set(SHORT))
    if unknown:
        parser.error(f"no stage {', '.join(unknown)}; there are {', '.join(STAGES)}")
    REPORTS.mkdir(parents=True, exist_ok=True)
    outcomes = {
        name: run_stage(name, arguments.full)
        for name in (*STAGES, *SHORT)
        if name in (arguments.stages or STAGES)
    }
    print_summary(outcomes)
    return 1 if any(o.failed for o in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
