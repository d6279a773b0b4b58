"""Ranks that train and are killed, stopped and renumbered: crashtest/ranks.py in small."""

import pathlib
import subprocess
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


_WRONG = {
    "a loss of another run": ("resumed 0\n1 aa\n2 cc\n", 0, "a loss of cc, and undisturbed bb"),
    "a loss of no step": ("resumed 0\n3 aa\n", 0, "a loss of aa, and undisturbed None"),
    "a durable step lost": ("resumed 1\n2 bb\n", 2, "step 2 was durable, and 1 is resumed"),
    "nothing wrong": ("resumed 1\n2 bb\n", 1, ""),
}


@pytest.mark.parametrize("what", _WRONG)
def test_what_is_wrong_is_told_without_asserts_too(tmp_path: pathlib.Path, what: str) -> None:
    """By ``python -O``."""
    if not CRASHTEST.exists():
        pytest.skip("installed without the sources")
    said, acknowledged, told = _WRONG[what]
    (tmp_path / "losses.0").write_text(said)
    reference = {0: {"1": "aa", "2": "bb"}}
    program = (
        "import pathlib, ranks\n"
        f"ranks.check(pathlib.Path({str(tmp_path)!r}), {reference}, {acknowledged})\n"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", program], cwd=CRASHTEST, capture_output=True, text=True
    )
    assert (done.returncode != 0) == bool(told)
    assert told in done.stderr


@pytest.mark.parametrize(("said", "ended"), [("resumed 0\n1 aa\n", False), ("end aa\n", True)])
def test_who_ended_too_early_is_told_without_asserts_too(
    tmp_path: pathlib.Path, said: str, ended: bool
) -> None:
    if not CRASHTEST.exists():
        pytest.skip("installed without the sources")
    (tmp_path / "losses.0").write_text(said)
    program = f"import pathlib, ranks\nranks.check_at_the_end(pathlib.Path({str(tmp_path)!r}), 1)"
    done = subprocess.run(
        [sys.executable, "-O", "-c", program], cwd=CRASHTEST, capture_output=True, text=True
    )
    assert (done.returncode == 0) == ended
    assert ended or "member 0 ended too early" in done.stderr
