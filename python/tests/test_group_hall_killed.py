"""A rank, a process, that is killed while it gives and takes pieces by memory that all share."""

import pathlib
import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch.distributed")

RANKS = pathlib.Path(__file__).with_name("hall_ranks.py")
MEMBERS = 3


@pytest.mark.parametrize(("victim", "where"), [(1, "_take"), (0, "_entered")])
def test_the_others_of_a_rank_that_is_killed_load_nothing(victim: int, where: str) -> None:
    """Rank 0 holds the store."""
    done = subprocess.run(
        [sys.executable, str(RANKS), str(MEMBERS), str(victim), where],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ended = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert ended.pop(str(victim)) == f"killed {int(signal.SIGKILL)}", done.stderr
    assert len(ended) == MEMBERS - 1
    assert set(ended.values()) <= {"GroupError", "UnresolvedError"}, done.stderr
