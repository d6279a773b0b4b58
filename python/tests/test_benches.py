"""Benches reach into the package for what they simulate: that of a start goes on to do so."""

import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "bench"


def test_a_start_of_ranks_that_are_simulated_ends() -> None:
    """In a process of its own: harnesses have modules of the same names."""
    pytest.importorskip("torch")
    if not BENCH.exists():
        pytest.skip("the tests run without the checkout")
    code = "import group_bench; print(group_bench.start_of(5))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCH, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0
