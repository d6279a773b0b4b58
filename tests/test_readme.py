"""Every Python listing of README.md and docs, run as it stands, each in an empty folder of its own;
and once more, over what it left there."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.name: page.read_text("utf-8") for page in PAGES if page.exists()}
README = TEXTS.get("README.md", "")
LISTINGS = [
    pytest.param(match[1], id=f"{name} line {text[: match.start()].count(chr(10)) + 1}")
    for name, text in TEXTS.items()
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
]

# Before a listing: its autosave ends the process when it has saved so often.
KILLER = """
import os
from tensorshelf._auto.autosave import Autosave
step, calls = Autosave.step, 0
def last_step(self, *of):
    global calls
    calls += 1
    step(self, *of)
    if calls == {}:
        self.wait()
        os._exit(9)
Autosave.step = last_step
"""


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


def ended(folder: Path, stops: list[int]) -> tuple[Any, ...]:
    """What the loop of docs/training.md leaves, where it dies at those calls of step()."""
    import tensorshelf as ts

    (listing,) = re.findall(
        r"^```python\n(.*?)^```", TEXTS["training.md"], re.MULTILINE | re.DOTALL
    )
    for stop in [*stops, 0]:
        command = [sys.executable, "-c", KILLER.format(stop) + listing]
        done = subprocess.run(command, cwd=folder, check=False, timeout=300)
        assert done.returncode == (9 if stop else 0)
    with ts.open(folder / "training.shelf", mode="r") as shelf:
        loaded = shelf.load()
        return shelf.step, loaded["progress"], loaded["model"], loaded["average"]


def test_the_loop_of_training_md_resumes(tmp_path: Path) -> None:
    """Also where it dies at the last step of an epoch (10), or behind its validation (11)."""
    pytest.importorskip("msgpack")
    torch = pytest.importorskip("torch")
    ends = []
    for number, stops in enumerate([[], [10], [7, 4], [3, 12]]):
        folder = tmp_path / str(number)
        folder.mkdir()
        ends.append(ended(folder, stops))
    whole = ends.pop(0)
    for killed in ends:
        assert killed[:2] == whole[:2]
        for one, other in zip(whole[2:], killed[2:], strict=True):
            assert list(one) == list(other)
            assert all(torch.equal(one[name], other[name]) for name in one)


def test_cpp_listing_is_the_consumer_that_the_build_tests() -> None:
    listings = re.findall(r"^```cpp\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert listings == [(ROOT / "tests" / "consumer" / "main.cpp").read_text("utf-8")]


def test_readme_names_only_verbs_that_there_are() -> None:
    usage = subprocess.run([ROOT / "run", "help"], capture_output=True, text=True, check=True)
    verbs = set(re.findall(r"^  (\w+) ", usage.stdout, re.MULTILINE))
    assert verbs >= set("setup demo test bench crashtest check lint format help".split())
    assert set(re.findall(r"\./run (\w+)", README)) <= verbs
