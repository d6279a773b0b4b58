"""Ranks that train and are killed, stopped and renumbered: crashtest/ranks.py in small."""

import pathlib
import sys
import time

import pytest

pytest.importorskip("torch.distributed")
pytest.importorskip("msgpack")

CRASHTEST = pathlib.Path(__file__).parents[2] / "crashtest"


@pytest.mark.parametrize(("sharded", "rounds"), [(False, 6), (True, 4)])
def test_ranks_go_on_from_one_step_to_the_last_bit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, sharded: bool, rounds: int
) -> None:
    if not CRASHTEST.exists():
        pytest.skip("installed without the sources")
    monkeypatch.syspath_prepend(str(CRASHTEST))
    import ranks

    ranks.FORKS.set_forkserver_preload(["ranks_trainer"])
    seed = time.time_ns() % 2**32
    print("seed", seed)
    counts = ranks.campaign(
        ranks.fork, tmp_path, world=2, rounds=rounds, seed=seed, steps=150, sharded=sharded
    )
    assert counts["kill one"] == 2
    assert counts["resumed behind 0"] > 0
    assert "ranks_trainer" not in sys.modules  # the ranks alone have it
