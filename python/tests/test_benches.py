"""Benches reach into the package for what they simulate: that of a start goes on to do so."""

import pathlib
import sys

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "bench"


def test_a_start_of_ranks_that_are_simulated_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    if not BENCH.exists():
        pytest.skip("the tests run without the checkout")
    monkeypatch.syspath_prepend(BENCH)
    for name in ("fio", "ranks"):  # theirs, whoever else has modules of these names
        monkeypatch.delitem(sys.modules, name, raising=False)
    group_bench = pytest.importorskip("group_bench", exc_type=ImportError)
    assert group_bench.start_of(5) > 0
