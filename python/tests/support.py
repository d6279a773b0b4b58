"""What the tests of errors share."""

import contextlib
import os
import pathlib
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import tensorshelf as ts

Place = tuple[pathlib.Path, str]


def check(
    error: "pytest.ExceptionInfo[BaseException]", cls: type, code: str, *builtins: type
) -> ts.ShelfError:
    """The facts that hold of every error of the shelf."""
    value = error.value
    assert type(value) is cls
    assert isinstance(value, ts.ShelfError)
    assert isinstance(value, builtins)
    assert value.code == code
    assert value.what
    assert value.remedy
    assert value.what.rstrip(".") in str(value)
    assert value.remedy in str(value)
    copy = pickle.loads(pickle.dumps(value))
    assert (type(copy), str(copy), copy.code) == (cls, str(value), code)
    return value


STOPPER = """
import ctypes, os, sys
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
thread, (seize, interrupt, detach) = int(sys.argv[1]), (0x4206, 0x4207, 17)
if ptrace(seize, thread, None, None) == 0:
    ptrace(interrupt, thread, None, None)
    os.waitpid(thread, 0x40000000)
    print("stopped", flush=True)
    sys.stdin.read()
    ptrace(detach, thread, None, None)
"""


@contextlib.contextmanager
def stopped(thread: int) -> Iterator[None]:
    """Stops one thread of this process, as a debugger does."""
    command = [sys.executable, "-c", STOPPER, str(thread)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tracer:
        assert tracer.stdout is not None
        if not tracer.stdout.readline():
            pytest.skip("tracing is not allowed here")
        try:
            yield
        finally:
            tracer.communicate("")


def state_of(thread: int) -> str:
    """Of a thread of this process, as the kernel tells it: S where it sleeps."""
    stat = pathlib.Path(f"/proc/self/task/{thread}/stat").read_text("utf-8")
    return stat.rpartition(")")[2].split()[0]


def in_child(body: Callable[[], None]) -> int:
    """Runs in a forked child; its exit code, or the negative of the signal that ended it."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            body()
            code = 0
        except BaseException as error:
            sys.stderr.write(f"child: {error!r}\n")
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
