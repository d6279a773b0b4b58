"""Waiting: who lets other threads go on meanwhile, and who hears Ctrl-C."""

import contextlib
import ctypes
import functools
import operator
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place

import tensorshelf as ts
from tensorshelf import _core
from tensorshelf._options import new_options

Calls = dict[str, Callable[[], Any]]
PATIENCE = 20  # in seconds; most take none


@pytest.fixture
def others_wait() -> Iterator[None]:
    """Threads change over where one lets go by itself, and nowhere else."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


def lets_others_go_on(call: Callable[[], Any]) -> bool:
    """True where another thread came to take a step while this one was within the call."""
    gate = threading.Lock()
    gate.acquire()
    stepped: list[bool] = []

    def step() -> None:
        with gate:
            stepped.append(True)

    other = threading.Thread(target=step)
    other.start()
    gate.release()
    until = time.monotonic() + PATIENCE  # it has to be awake in time: not at the first call
    while not stepped and time.monotonic() < until:
        with contextlib.suppress(ts.ShelfError, RuntimeError, BufferError):  # as good as a value
            call()
    found = bool(stepped)
    other.join()
    return found


def native_calls(place: Place) -> "tuple[ts.Shelf, Calls]":
    shelf = ts.open(place[0], tier=place[1], keep=2)
    shelf.x = np.zeros(3)
    nameless = shelf.create("nameless", 3, "bfloat16")
    shelf.persist()
    shelf.persist()
    reader = ts.open(place[0], "r", tier=place[1])
    core, known = shelf._core, shelf._assignments
    session = known.session
    pending = core.persist_async(session, None)
    pending.wait()
    ref, old, value = shelf.x._ref, core.at(1), np.ones(3)
    kept = old.find("x")
    assert kept is not None
    lost = reader._core  # which refuses, and makes nothing
    refused = reader.x._ref
    ended = _core.Assignment(ref, session)
    block = _core.TransactionBlock(shelf=lost, session=session, before_commit=lambda: None)
    path = str(place[0]).encode()
    options = new_options(None, place[1], None, None, None, None)
    return shelf, {
        "open": lambda: _core.Shelf.open(
            path=path + b"?", mode=_core.Mode.read, options=options, progress=None
        ),
        "repair": lambda: _core.repair(path=path + b"?", options=options, progress=None),
        "create": lambda: core.create("x", "int8", [1]),
        "replace": lambda: core.replace("y", "float64", [3], value, session),
        "erase": lambda: core.erase("y"),
        "find": lambda: core.find("x"),
        "names": core.names,
        "persist": lambda: lost.persist(session, None),
        "persist_async": lambda: lost.persist_async(session, None),
        "prepare": lambda: lost.prepare(session, None, b""),
        "prepared": core.prepared,
        "resolve": lambda: lost.resolve(session, True),
        "verify": lambda: core.verify(None),
        "heal": lambda: lost.heal(None),
        "info": core.info,
        "stats": core.stats,
        "version": lambda: core.version,
        "step": lambda: core.step,
        "free_bytes": lambda: core.free_bytes,
        "has_uncommitted": core.has_uncommitted,
        "unheard_failure": core.unheard_failure,
        "versions": core.versions,
        "at": lambda: core.at(1),
        "diff": lambda: core.diff(1, 2),
        "snapshot": lambda: core.snapshot(path, options, None, None),
        "rollback": lambda: lost.rollback(session, 1),
        "discard": lambda: lost.discard(session),
        "enter a transaction": block.__enter__,
        "info of a version": old.info,
        "find in a version": lambda: old.find("x"),
        "names of a version": old.names,
        "info of a tensor": ref._info,
        "info of what no buffer can name": lambda: memoryview(nameless),
        "read": lambda: ref._read_into(value),
        "read what is committed": lambda: ref._read_committed_into(value),
        "lease": ref._lease,
        "lease what is committed": ref._lease_committed,
        "info of an old tensor": kept._info,
        "read an old tensor": lambda: kept._read_into(value),
        "lease an old tensor": kept._lease,
        "enter an assignment": _core.Assignment(refused, None).__enter__,
        "leave an assignment": lambda: ended.__exit__(None, None, None),
        "write": lambda: ended._write(value),
        "read within": lambda: ended._read_into(value),
        "wait for a commit": pending.wait,
        "close": core.close,
    }


NAMES = [
    "open", "repair", "create", "replace", "erase", "find", "names", "persist", "persist_async",
    "prepare", "prepared", "resolve", "verify", "heal", "info", "stats", "version", "step",
    "free_bytes", "has_uncommitted", "unheard_failure", "versions", "at", "diff",
    "snapshot", "rollback", "discard",
    "enter a transaction", "info of a version", "find in a version", "names of a version",
    "info of a tensor", "info of what no buffer can name", "read", "read what is committed",
    "lease", "lease what is committed",
    "info of an old tensor", "read an old tensor", "lease an old tensor", "enter an assignment",
    "leave an assignment", "write", "read within", "wait for a commit", "close",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")
@pytest.mark.parametrize("name", NAMES)
def test_others_go_on_while_a_call_may_wait(
    tmpfs: pathlib.Path, others_wait: None, name: str
) -> None:
    shelf, calls = native_calls((tmpfs / "run.shelf", "auto"))
    assert sorted(calls) == sorted(NAMES)
    assert lets_others_go_on(calls[name])
    shelf.close()


def test_a_call_that_keeps_others_waiting_is_told_from_one_that_does_not(
    others_wait: None,
) -> None:
    assert lets_others_go_on(lambda: time.sleep(0))
    session = _core.Session()
    until = time.monotonic() + 0.05

    def count() -> None:
        if time.monotonic() > until:
            time.sleep(0)
        else:
            assert not session.assignments

    assert lets_others_go_on(count)


WAITERS = """
import os, sys, threading
import numpy as np
import tensorshelf as ts
sys.path.insert(0, {tests!r})
from support import state_of

shelf = ts.open({path!r}, tier={tier!r}, keep=1)
shelf.update(x=np.zeros(3), y=np.zeros(3))
shelf.persist()
main = threading.get_native_id()

def hold(inside):
    with shelf.x._writing():
        inside.set()
        asleep = 0
        while asleep < 5:  # until the other one waits for this assignment
            asleep = asleep + 1 if state_of(main) == "S" else 0
            os.sched_yield()

def waits(call):
    inside = threading.Event()
    other = threading.Thread(target=hold, args=(inside,))
    other.start()
    inside.wait()
    call()
    other.join()

waits(lambda: setattr(shelf, "x", np.ones(3)))
waits(lambda: shelf.x.fill_(2))
waits(lambda: shelf.x.edit().__enter__())
waits(lambda: shelf.create("z", 3))
waits(lambda: setattr(shelf, "new", 1))
waits(lambda: shelf.replace("y", np.ones(5)))
waits(lambda: shelf.__delitem__("z"))
waits(shelf._core.has_uncommitted)
waits(shelf.persist)
waits(lambda: shelf.persist(wait=False).wait())
waits(shelf.prepare)
waits(lambda: shelf.resolve("commit"))
waits(shelf.discard)
waits(lambda: shelf.rollback(shelf.version - 1))
block = shelf.transaction()
waits(block.__enter__)
waits(lambda: block.__exit__(None, None, None))
block.__enter__()
waits(lambda: block.__exit__(KeyError, None, None))
waits(shelf.close)
print("done")
"""


def test_who_waits_for_an_assignment_lets_it_end(place: Place) -> None:
    code = WAITERS.format(
        tests=str(pathlib.Path(__file__).parent), path=str(place[0]), tier=place[1]
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr


# ---- Ctrl-C, within calls of which Python code is no part

interrupt = ctypes.PyDLL(None).PyErr_SetInterrupt


def after_ctrl_c(call: Callable[[], Any]) -> list[Any]:
    """Makes the call with Ctrl-C pending, before any step of Python code can hear it."""
    one_by_one: Any = operator.call
    return list(map(one_by_one, [interrupt, call]))


@pytest.fixture
def large(reopen: OpenShelf) -> ts.Shelf:
    shelf = reopen()
    for name in "abc":
        shelf[name] = np.zeros(300_000)
    shelf.persist()
    return shelf


def test_ctrl_c_ends_a_verify_whose_progress_is_no_python_code(large: ts.Shelf) -> None:
    before = large.stats()["chunks_verified"]
    with pytest.raises(KeyboardInterrupt):
        after_ctrl_c(functools.partial(large._core.verify, max))
    assert large.stats()["chunks_verified"] < before + 9
    assert large.verify()


def test_ctrl_c_ends_a_silent_snapshot(large: ts.Shelf, tmp_path: pathlib.Path) -> None:
    options = new_options(None, "auto", None, None, None, None)
    target = tmp_path / "copy"
    with pytest.raises(KeyboardInterrupt):
        after_ctrl_c(
            functools.partial(large._core.snapshot, str(target).encode(), options, None, None)
        )
    assert not list(tmp_path.iterdir())
    assert large.snapshot(target).version == 1


# ---- progress


def test_progress_is_of_bytes_done_and_in_all(large: ts.Shelf, place: Place) -> None:
    path, tier = place
    total = 3 * 8 * 300_000
    seen: list[tuple[int, int]] = []

    def check() -> None:
        assert seen == sorted(seen)
        assert {of for _, of in seen} == {total}
        assert seen[-1] == (total, total)
        assert len(seen) >= 3
        seen.clear()

    def report(done: int, total: int) -> None:
        seen.append((done, total))

    assert large.verify(progress=report)
    check()
    large.close()
    ts.repair(path, tier=tier, progress=report)
    check()
    ts.open(path, "r", tier=tier, verify="open", progress=report).close()
    check()


@pytest.mark.parametrize("call", ["verify", "open", "repair"])
def test_what_progress_raises_is_raised_as_it_is(large: ts.Shelf, place: Place, call: str) -> None:
    path, tier = place
    given = KeyError("mine")
    calls: list[int] = []

    def report(done: int, total: int) -> None:
        calls.append(done)
        raise given

    ways: Calls = {
        "verify": lambda: large.verify(progress=report),
        "open": lambda: ts.open(path, "r", tier=tier, verify="open", progress=report),
        "repair": lambda: ts.repair(path, tier=tier, progress=report),
    }
    if call == "repair":
        large.close()
    with pytest.raises(KeyError) as caught:
        ways[call]()
    assert caught.value is given
    assert len(calls) == 1
    large.close()
    with ts.open(path, "r+", tier=tier) as again:  # and the lock is free
        assert again.verify()


WAITER = """
import os, sys
import tensorshelf as ts
sys.path.insert(0, {tests!r})
from support import stopped
from test_bound_waits import after_ctrl_c

shelf = ts.open({path!r}, tier={tier!r})
shelf.x = [1.0]
before = set(os.listdir("/proc/self/task"))
shelf.persist(wait=False).wait()
(committer,) = set(os.listdir("/proc/self/task")) - before
with stopped(int(committer)):
    commit = shelf.persist(5, wait=False)
    try:
        after_ctrl_c(commit._pending.wait)
    except KeyboardInterrupt:
        print("heard", commit.done())
print(commit.wait().step, commit.done())
"""


def test_ctrl_c_while_a_commit_is_waited_for(place: Place) -> None:
    """It is heard before the commit has ended, and the commit can be asked for again."""
    code = WAITER.format(
        tests=str(pathlib.Path(__file__).parent), path=str(place[0]), tier=place[1]
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if "tracing is not allowed" in done.stderr:
        pytest.skip("tracing is not allowed here")
    assert done.stdout.split("\n") == ["heard False", "5 True", ""], done.stderr
