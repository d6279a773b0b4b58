"""The bugs of crashtest/python_bugs can be planted, name tests that there are, and are found."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "crashtest"))

from planted_python import fate  # noqa: E402
from python_bugs import Planted, planted  # noqa: E402

BUGS = planted()


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_it_can_be_planted(bug: Planted) -> None:
    text = (ROOT / "python/tensorshelf" / bug.file).read_text("utf-8")
    assert text.count(bug.right) == 1
    compile(text.replace(bug.right, bug.wrong), bug.file, "exec")
    file, chosen = bug.tests.split(" ", 1)
    tests = re.findall(r"^def (test_\w+)", (ROOT / "python/tests" / file).read_text(), re.MULTILINE)
    assert any(chosen in name for name in tests)


def test_no_two_have_one_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)


def some_of_this_commit() -> list[str]:
    """Two, and others at each commit: all workers have to collect the same."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    return sorted(bug.name for bug in random.Random(commit).sample(BUGS, 2))


@pytest.mark.parametrize("name", some_of_this_commit())
def test_it_is_found(name: str) -> None:
    """All of them: `./run crashtest planted-python`, and `./run test --full`."""
    (bug,) = [bug for bug in BUGS if bug.name == name]
    assert fate(bug) == ""
