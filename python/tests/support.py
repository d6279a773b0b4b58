"""What the tests of errors share."""

import os
import pathlib
import pickle
import signal
import sys
from collections.abc import Callable

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
