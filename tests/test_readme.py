"""Every Python listing of README.md, run as it stands, each in an empty folder of its own; and once
more, over what it left there."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8") if (ROOT / "README.md").exists() else ""
LISTINGS = [
    pytest.param(match[1], id=f"line {README[: match.start()].count(chr(10)) + 1}")
    for match in re.finditer(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
]


def test_readme_has_listings() -> None:
    assert LISTINGS


@pytest.mark.parametrize("listing", LISTINGS)
def test_listing_runs_and_runs_again(listing: str, tmp_path: Path) -> None:
    for module in sorted(set(re.findall(r"^\s*(?:import|from) (torch|sklearn)\b", listing, re.M))):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", listing],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONWARNINGS": "error::DeprecationWarning:__main__"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{listing}\n{done.stdout}\n{done.stderr}"


def test_cpp_listing_is_the_consumer_that_the_build_tests() -> None:
    listings = re.findall(r"^```cpp\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert listings == [(ROOT / "tests" / "consumer" / "main.cpp").read_text("utf-8")]


def test_readme_names_only_verbs_that_there_are() -> None:
    usage = subprocess.run([ROOT / "run", "help"], capture_output=True, text=True, check=True)
    verbs = set(re.findall(r"^  (\w+) ", usage.stdout, re.MULTILINE))
    assert verbs >= {"setup", "demo", "test", "bench", "crashtest", "lint", "format", "help"}
    assert set(re.findall(r"\./run (\w+)", README)) <= verbs
