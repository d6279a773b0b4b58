"""Calls of the system that fail: what is told then, also of a path that is bytes and no UTF-8."""

import pathlib
import subprocess
import sys

import pytest

# Calls of the C library that fail from a moment on, in a process that a test starts.
FAILING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

static int fails(const char* call) {
  const char* failing = getenv("FAILING_CALL");
  return failing && strcmp(failing, call) == 0;
}

int madvise(void* address, size_t size, int advice) {
  if (advice == MADV_WIPEONFORK && fails("madvise")) return errno = EINVAL, -1;
  return ((int (*)(void*, size_t, int))dlsym(RTLD_NEXT, "madvise"))(address, size, advice);
}

ssize_t getrandom(void* into, size_t size, unsigned flags) {
  if (fails("getrandom")) return errno = ENOSYS, -1;
  return ((ssize_t (*)(void*, size_t, unsigned))dlsym(RTLD_NEXT, "getrandom"))(into, size, flags);
}

int fdatasync(int fd) {
  if (fails("fdatasync")) return errno = EIO, -1;
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

ssize_t pread(int fd, void* into, size_t size, off_t at) {
  if (fails("pread") && at == 0) return errno = EIO, -1;
  return ((ssize_t (*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread"))(fd, into, size, at);
}
"""

BEGIN = r"""
import ctypes, gc, logging, os, sys, warnings
import numpy as np
import tensorshelf as ts

warnings.simplefilter("ignore")
logging.basicConfig(stream=sys.stdout, format="%(message)s")
setenv = ctypes.CDLL(None).setenv
path = os.fsdecode(os.fsencode(sys.argv[1]) + b"/\xff.shelf")
options = {"tier": "block", "block": ts.BlockOptions(io_uring=False)}


def saved():
    shelf = ts.open(path, **options)
    shelf.x = np.arange(4)
    shelf.persist()
    return shelf
"""

NOT_HEARD = r"""
shelf = saved()
setenv(b"FAILING_CALL", b"fdatasync", 1)
shelf.x[0] = 5
shelf.persist(wait=False)
del shelf
gc.collect()
"""

UNREADABLE = r"""
saved().close()
setenv(b"FAILING_CALL", b"pread", 1)
for mode in ("r", "r+"):
    with ts.open(path, mode=mode, **options) as shelf:
        print(shelf.info().recovery.notes)
"""

REFUSED = r"""
for call in ("getrandom", "madvise", "fdatasync"):
    setenv(b"FAILING_CALL", call.encode(), 1)
    try:
        saved()
    except ts.ShelfError as error:
        print(call, error.code, error)
setenv(b"FAILING_CALL", b"", 1)
saved().close()
"""


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("failing")
    (folder / "failing.c").write_text(FAILING, "ascii")
    library = folder / "failing.so"
    made = ["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "failing.c"), "-ldl"]
    subprocess.run(made, check=True)
    return library


def told(program: str, disk: pathlib.Path, failing: pathlib.Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, str(disk)],
        env={"LD_PRELOAD": str(failing), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"UnicodeDecodeError" not in done.stderr
    return done.stdout.decode("ascii", "backslashreplace")


def test_a_commit_that_failed_unheard(disk: pathlib.Path, failing: pathlib.Path) -> None:
    assert r"\xff.shelf: barrier (fdatasync) failed" in told(NOT_HEARD, disk, failing)


def test_a_copy_that_cannot_be_read(disk: pathlib.Path, failing: pathlib.Path) -> None:
    notes = told(UNREADABLE, disk, failing)
    assert notes.count(r"\xff.shelf: read of 4096 bytes at 0 failed") == 2, notes


def test_what_opening_is_refused(disk: pathlib.Path, failing: pathlib.Path) -> None:
    lines = told(REFUSED, disk, failing).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["getrandom", "io_error"],
        ["madvise", "unsupported"],
        ["fdatasync", "io_error"],
    ]
    assert "the system gives no random bytes" in lines[0]
    assert "MADV_WIPEONFORK" in lines[1]
    assert lines[2].count(r"\xff.shelf") == 1  # the medium has named it already
