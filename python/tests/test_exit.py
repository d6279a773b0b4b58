"""The end of the interpreter while other threads are in calls: no abort, no hang."""

import pathlib
import subprocess
import sys

import pytest
from support import Place

_CALLS = {
    "assign": "shelf.x = value",
    "convert": "shelf.x[...] = value.astype('f4')",
    "persist": "shelf.persist()",
    "read": "shelf.x.numpy(copy=True)",
    "verify": "shelf.verify(progress=lambda done, total: sum(range(100)))",
    "info": "shelf.info()",
    "find": "'x' in shelf",
    "open": "ts.open(shelf._path, mode='r', tier='auto').x.numpy(copy=True)",
}


def run(code: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("call", _CALLS)
def test_a_daemon_thread_inside_a_call(place: Place, call: str) -> None:
    """Its thread asks for the GIL of an interpreter that ends, and must not unwind our frames."""
    code = f"""
import contextlib, threading
import numpy as np
import tensorshelf as ts

shelf = ts.open({str(place[0])!r}, tier={place[1]!r})
value = np.ones(300_000)
shelf.x = value
shelf.persist()
started = threading.Barrier(4)

def work():
    started.wait()
    while True:
        with contextlib.suppress(ts.ShelfError):
            {_CALLS[call]}

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
started.wait()
"""
    for _ in range(3):
        result = run(code)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("call", ["'x' in closed", "memoryview(tensor)"])
@pytest.mark.parametrize("inside", ["sleep(0)", "_core.cuda_support()"])
def test_a_daemon_thread_inside_an_error(tmpfs: pathlib.Path, call: str, inside: str) -> None:
    """Errors become Python's inside a C++ catch block, where nothing else may be caught."""
    code = f"""
import contextlib, threading
from time import sleep
import tensorshelf as ts
from tensorshelf import _core, errors

class Last:
    def __del__(self, sleep=sleep):
        sleep(0.5)  # lets the other thread ask for the GIL, of an interpreter that ends

def from_core(*facts):
    translating.set()
    while True:
        {inside}

last = Last()
closed = ts.open({str(tmpfs / "run.shelf")!r})
closed.x = [1.0]
tensor = closed["x"]
closed.persist()
closed.close()
translating = threading.Event()
errors.from_core = from_core

def work():
    with contextlib.suppress(ts.ShelfError, BufferError):
        {call}

threading.Thread(target=work, daemon=True).start()
translating.wait()
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_what_a_dead_thread_holds_stops_nobody(place: Place) -> None:
    """A daemon thread ends inside an assignment; who would wait for it afterwards is told so."""
    code = f"""
import os, sys, threading
import tensorshelf as ts
from tensorshelf import _exit

class Last:
    shelf = ts.open({str(place[0])!r}, tier={place[1]!r})
    say, leave = os.write, os._exit

    def __del__(self):
        try:
            self.shelf.persist()
        except Exception:  # the error's own class can be gone already
            type(self).say(1, b"refused")
        type(self).leave(0)  # who closes the shelf does wait

def hold():
    with Last.shelf.x._writing():
        held.set()
        threading.Event().wait()

Last.shelf.x = [1.0]
_exit._open.clear()  # or it would be closed, and waited for, while the thread is there
sys.modules["last"] = Last()  # goes with the modules, when no other thread runs any more
held = threading.Event()
threading.Thread(target=hold, daemon=True).start()
held.wait()
"""
    result = run(code)
    assert (result.returncode, result.stdout) == (0, "refused"), result.stderr


def test_one_shelf_that_cannot_be_closed_keeps_no_other_open(tmpfs: pathlib.Path) -> None:
    code = f"""
import tensorshelf as ts

shelves = [ts.open({str(tmpfs)!r} + f"/{{i}}.shelf", "w") for i in range(4)]
real = ts.Shelf.close

def close(self):
    real(self)
    print("closed", flush=True)
    raise RuntimeError("no")

ts.Shelf.close = close
"""
    result = run(code)
    assert result.stdout.split() == ["closed"] * 4, result.stderr


def test_a_shelf_that_is_let_go_last_tells_what_it_drops(tmpfs: pathlib.Path) -> None:
    """Behind modules that are emptied: it stays as long as NumPy does, which is emptied late."""
    code = f"""
import logging  # is emptied later still
import numpy as np
import tensorshelf as ts
from tensorshelf import _exit

np.last = ts.open({str(tmpfs / "run.shelf")!r})
np.last.x = [1.0]
_exit._open.clear()  # or it would be closed
"""
    result = run(code)
    assert result.returncode == 0
    assert "let go, not closed" in result.stderr
    assert "Exception ignored" not in result.stderr
