"""A job that saves and drains to a directory is killed, again and again."""

import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from drain_remotes import unnamed

import tensorshelf as ts

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

SAVING = """
import sys, warnings
import numpy as np
import tensorshelf as ts

warnings.simplefilter("ignore")
path, remote, compress = sys.argv[1:]
values, frozen = np.zeros(200_000, np.int64), np.arange(300_000)
with ts.open(path, in_flight=2) as shelf:
    drain = ts.Drain(remote, keep=2, keep_every=50, compress=compress or None)
    auto = shelf.autosave(values=values, frozen=frozen, drain=drain, overlap=False)
    step = auto.resume()
    print("ready", flush=True)
    while True:
        step += 1
        values[:] = step
        auto.step(step)
        print(auto.drain.info().step, flush=True)
"""


@pytest.mark.parametrize("compress", ["", "zlib"])
def test_a_kill_leaves_whole_versions(tmpfs: pathlib.Path, compress: str) -> None:
    seed = time.time_ns()
    print("seed", seed)
    rng = random.Random(seed)
    remote = tmpfs / "remote"
    told = 0
    for _ in range(6):
        words = [sys.executable, "-c", SAVING, str(tmpfs / "run.shelf"), str(remote), compress]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.5))  # the moment of the kill, not a wait for anything
        child.send_signal(signal.SIGKILL)
        child.wait()
        lines = child.stdout.read().split("\n")[:-1]
        child.stdout.close()
        told = max([told, *(int(line) for line in lines if line not in ("None", ""))])
        check(remote, tmpfs / "back.shelf", told)
    assert told > 0
    goes_on(tmpfs, compress)


def check(remote: pathlib.Path, path: pathlib.Path, told: int) -> None:
    found = ts.drained(remote)
    assert max((each.step or 0 for each in found), default=0) >= told
    for each in found:
        ts.fetch(remote, path, step=each.step)
        with ts.open(path, "r") as shelf:
            assert (shelf["values"].numpy() == each.step).all()
            assert (shelf["frozen"].numpy() == np.arange(300_000)).all()
            assert shelf.verify()
        path.unlink()


def goes_on(folder: pathlib.Path, compress: str) -> None:
    """And leaves nothing of those that were killed."""
    values, frozen = np.zeros(200_000, np.int64), np.arange(300_000)
    with ts.open(folder / "run.shelf", in_flight=2) as shelf:
        drain = ts.Drain(folder / "remote", keep=2, keep_every=50)
        auto = shelf.autosave(values=values, frozen=frozen, drain=drain)
        step = auto.resume() + 1
        values[:] = step
        auto.step(step)
    check(folder / "remote", folder / "back.shelf", step)
    files = {
        str(path.relative_to(folder / "remote")): path.read_bytes()
        for path in (folder / "remote").rglob("*")
        if path.is_file()
    }
    assert unnamed(files) == set()
    assert not [name for name in files if name.endswith(".tmp")]
    assert sorted(path.name for path in folder.iterdir()) == ["remote", "run.shelf"]
