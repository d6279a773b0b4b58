"""The bugs of crashtest/planted_ranks.py can be planted, and name tests that there are."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "crashtest"))

from planted_ranks import Planted, planted  # noqa: E402

BUGS = planted()


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_it_can_be_planted(bug: Planted) -> None:
    text = (ROOT / "python/tensorshelf" / bug.file).read_text("utf-8")
    assert text.count(bug.right) == 1
    compile(text.replace(bug.right, bug.wrong), bug.file, "exec")
    file, chosen = bug.tests.split(" ", 1)
    tests = re.findall(r"^def (test_\w+)", (ROOT / "python/tests" / file).read_text(), re.MULTILINE)
    assert any(chosen in name for name in tests)


def test_there_are_some_of_each_kind() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 15
