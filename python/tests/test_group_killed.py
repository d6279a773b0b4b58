"""Ranks that train and are killed, stopped and renumbered: crashtest/ranks.py in small."""

import pathlib
import sys
import time

import pytest

pytest.importorskip("torch.distributed")
pytest.importorskip("msgpack")

CRASHTEST = pathlib.Path(__file__).parents[2] / "crashtest"


@pytest.mark.parametrize(
    ("sharded", "replicate", "partition", "rounds"),
    [(False, 0, "", 3), (True, 0, "", 3), (False, 1, "any", 4)],
)
def test_ranks_go_on_from_one_step_to_the_last_bit(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    sharded: bool,
    replicate: int,
    partition: str,
    rounds: int,
) -> None:
    if not CRASHTEST.exists():
        pytest.skip("installed without the sources")
    monkeypatch.syspath_prepend(str(CRASHTEST))
    import ranks

    ranks.FORKS.set_forkserver_preload(["ranks_trainer"])
    seed = time.time_ns() % 2**32
    print("seed", seed)
    kinds = (*ranks.KINDS, ranks.LOSE) if replicate else ranks.KINDS
    job = ranks.Job(2, 150, sharded, replicate, partition)
    counts = ranks.campaign(ranks.fork, tmp_path, job, rounds=rounds, seed=seed, kinds=kinds)
    assert counts["kill one"] == 1
    assert counts["resumed behind 0"] + counts["came to the end"] > 0
    assert counts["shelves lost"] <= replicate
    assert "ranks_trainer" not in sys.modules  # the ranks alone have it
