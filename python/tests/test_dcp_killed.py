"""Ranks that save over and over, and are killed at any moment: what is left is one save, whole."""

import pathlib
import random
import signal
import threading
import time

import pytest
from dcp_ranks import die, start_ranks

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
dcp = pytest.importorskip("torch.distributed.checkpoint")

from test_dcp_group import check_whole, hear_nothing, load_here, state_of  # noqa: E402

from tensorshelf.dcp import ShelfReader, ShelfWriter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

ROUNDS = 6


def save_on(rank: int, folder: pathlib.Path, seed: str) -> None:
    """From the step that is there; each step that is acknowledged is a line more."""
    rng = random.Random(f"{seed} {rank}")
    if rng.random() < 0.5:
        hear_nothing()
    step = step_found(folder)
    threading.Timer(rng.uniform(0.02, 0.4), die).start()  # the moment of the kill
    with ShelfWriter(folder / "run.shelf") as writer, open(folder / "told", "a") as told:
        while True:
            step += 1
            dcp.save(state_of(float(step), 2), storage_writer=writer)
            print(step, file=told, flush=True)


def step_found(folder: pathlib.Path) -> int:
    """0 where no save was committed yet."""
    has_save = ShelfReader(folder / "run.shelf").has_save
    return int(load_here(folder)[2]) if has_save else 0


def test_what_kills_leave_is_one_save_of_all_ranks(tmp_path: pathlib.Path) -> None:
    seed = time.time_ns()
    print("seed", seed)
    told = tmp_path / "told"
    told.touch()
    for number in range(ROUNDS):
        codes = start_ranks(save_on, 2, tmp_path, f"{seed} {number}")
        assert set(codes) <= {-signal.SIGKILL, 1}  # 1: the other was killed, and it was told
        assert -signal.SIGKILL in codes
        reached = max(map(int, told.read_text().split()), default=0)
        step = step_found(tmp_path)
        assert step >= reached
        if step:
            check_whole(tmp_path, float(step))
    assert step
