"""A process that saves its state over and over, and is killed: what is left is one state, whole."""

import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from support import Place

import tensorshelf as ts

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

SAVING = """
import sys, warnings
import numpy as np
import tensorshelf as ts

warnings.simplefilter("ignore")
path, tier, wait = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
with ts.open(path, tier=tier, in_flight=2) as shelf:
    step = shelf.step or 0
    print("ready", flush=True)
    while True:
        step += 1
        names = {f"t{i}": np.full(50_000, step, np.int64) for i in range(1 + step % 3)}
        shelf.save({"step": step, "list": [step] * (step % 50), **names}, step=step, wait=wait)
"""


@pytest.mark.parametrize("wait", [True, False])
def test_what_a_kill_leaves_is_one_state(place: Place, wait: bool) -> None:
    path, tier = place
    seed = time.time_ns()
    print("seed", seed)
    rng = random.Random(seed)
    reached = 0
    for _ in range(4):
        words = [sys.executable, "-c", SAVING, str(path), tier, str(wait)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.15))  # the moment of the kill, not a wait for anything
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        reached = check(path, reached)
    assert reached > 0


def check(path: pathlib.Path, reached: int) -> int:
    """The step that is there, which is never below the one that was there before."""
    with ts.open(path, mode="r") as shelf:
        step = shelf.step or 0
        assert step >= reached
        if step == 0:
            return 0
        state = shelf.load()
        assert list(shelf) == sorted(["__state__", *(f"t{i}" for i in range(1 + step % 3))])
    assert state.pop("step") == step
    assert state.pop("list") == [step] * (step % 50)
    assert all(np.array_equal(value, np.full(50_000, step)) for value in state.values())
    return step
