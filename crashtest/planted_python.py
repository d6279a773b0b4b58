"""Bugs in the Python package (python_bugs), planted one at a time.

Each is put into a copy of the package, and the tests that are named with it must fail there; over
the package as it is they pass. `./run crashtest planted-python` runs all, `--only NAME` one. Those
of the C++ below are `tensorshelf-crashtest-planted`'s.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from python_bugs import Planted, planted

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "build/release/python/tensorshelf"
SECONDS = 300  # that the tests of a bug may take


def run_tests(package: pathlib.Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Of the package in that folder, each as a Planted names them."""
    files, chosen = zip(*(each.split(" ", 1) for each in tests), strict=True)
    paths = [str(ROOT / "python/tests" / name) for name in dict.fromkeys(files)]
    more = ("-k", " or ".join(dict.fromkeys(chosen)))
    env = os.environ | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-x", *more, *paths]
    try:
        return subprocess.run(
            words, env=env, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:  # that may be the machine's doing
        return subprocess.CompletedProcess(words, 124, str(error.stdout), "")


def copied(folder: pathlib.Path) -> pathlib.Path:
    shutil.copytree(PACKAGE, folder / "tensorshelf")
    return folder


def plant(bug: Planted, package: pathlib.Path) -> None:
    path = package / "tensorshelf" / bug.file
    text = path.read_text("utf-8")
    assert text.count(bug.right) == 1, (
        f"{bug.name}: {bug.file} has it {text.count(bug.right)} times"
    )
    path.write_text(text.replace(bug.right, bug.wrong), "utf-8")


def fate(bug: Planted) -> str:
    """Empty where it is caught."""
    with tempfile.TemporaryDirectory(prefix="tensorshelf-planted-") as name:
        package = copied(pathlib.Path(name))
        plant(bug, package)
        done = run_tests(package, [bug.tests])
    if done.returncode == 1:
        return ""
    return f"pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run crashtest planted-python")
    parser.add_argument("--only", metavar="NAME", help="this bug alone")
    only = parser.parse_args().only
    if not __debug__:  # tests that assert nothing catch nothing, and plant() would plant nothing
        parser.error("without asserts nothing is judged: run it without -O and PYTHONOPTIMIZE")
    bugs = [bug for bug in planted() if only in (None, bug.name)]
    if not bugs:
        parser.error(f"no bug {only}; there are {', '.join(bug.name for bug in planted())}")
    with tempfile.TemporaryDirectory(prefix="tensorshelf-planted-") as name:
        done = run_tests(copied(pathlib.Path(name)), [bug.tests for bug in bugs])
        if done.returncode:
            print(f"without a bug tests fail:\n{done.stdout}{done.stderr}")
            return 1
    missed = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for bug, found in zip(bugs, pool.map(fate, bugs), strict=True):
            missed += bool(found)
            print(f"{bug.name:32} {'MISSED: ' + found if found else 'caught'}", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} planted bugs are caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
