"""The bugs of crashtest/python_bugs can be planted, name tests that there are, and are found."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize("name", ["deeper_than_can_be_loaded", "pieces_not_durable"])
def test_it_is_found(name: str) -> None:
    """All of them: `./run crashtest planted-python`, and `./run test --full`."""
    (bug,) = [bug for bug in BUGS if bug.name == name]
    assert fate(bug) == ""
