"""What Drain() and autosave(drain=) refuse, before anything is done."""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from drain_run import Run
from support import check

import tensorshelf as ts

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def shelf(tmpfs: pathlib.Path) -> Iterator[ts.Shelf]:
    with ts.open(tmpfs / "run.shelf", in_flight=2) as shelf:
        yield shelf


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"remote": ""}, "no place to drain to"),
        ({"remote": 5}, "no place to drain to"),
        ({"every": 0}, "every=0 is out of range"),
        ({"keep": 0}, "keep=0 is out of range"),
        ({"keep_every": 0}, "keep_every=0 is out of range"),
        ({"best": "lowest"}, "best='lowest' is unknown"),
        ({"compress": "gzip"}, "compress='gzip' is unknown"),
        ({"bytes_per_second": "fast"}, "bytes_per_second='fast' is no size"),
        ({"threads": 0}, "threads=0 is out of range"),
        ({"timeout": -1.0}, "timeout=-1.0 is no time"),
        ({"timeout": "1s"}, "timeout='1s' is no time"),
        ({"timeout": True}, "timeout=True is no time"),
        ({"timeout": None}, "timeout=None is no time"),
        ({"keep": None}, "keep=None is not a number"),
        ({"every": "2"}, "every='2' is not a number"),
        ({"bytes_per_second": 0}, "bytes_per_second=0 is out of range"),
        ({"compress": ["zlib"]}, "compress=['zlib'] is unknown"),
        ({"spool": 3}, "spool=3 is no directory"),
        ({"spool": ""}, "spool='' is no directory"),
        ({"spool": b"/dev/shm"}, "is no directory"),
        ({"spool": "a\0b"}, "is no directory"),
        ({"spool": "\ud800"}, "is no directory"),
        ({"remote": "\ud800"}, "no place to drain to"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ts.BadArgument) as error:
        ts.Drain(**{"remote": "x", **options})
    assert words in str(check(error, ts.BadArgument, "bad_argument", ValueError))


def test_numbers_may_be_numpys(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    two = np.int64(2)
    run = Run(shelf, ts.Drain(tmp_path / "remote", every=two, keep=two, keep_every=two))
    run.step(2)
    assert [found.milestone for found in ts.drained(tmp_path / "remote")] == [True]


def test_what_is_no_drain_is_refused(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.BadArgument, match="drain='/mnt' is no Drain"):
        shelf.autosave(values=[1], drain="/mnt")  # type: ignore[arg-type]
    auto = shelf.autosave(values=[1])
    assert auto.drain is None
    with pytest.raises(ts.BadArgument, match="nothing is drained"):
        auto.step(1, metric=1.0)


def test_a_metric_needs_to_be_told_which_is_better(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "remote"))
    with pytest.raises(ts.BadArgument, match="which is better"):
        run.auto.step(1, metric=1.0)


@pytest.mark.parametrize(
    ("missing", "drain", "words"),
    [
        ("fsspec", {"remote": "memory://x"}, "fsspec"),
        ("zstandard", {"remote": "x", "compress": "zstd"}, "zstandard"),
        ("", {"remote": "s3://bucket/x"}, "s3fs"),
    ],
)
def test_packages_that_lack_are_named(
    shelf: ts.Shelf,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    drain: dict[str, Any],
    words: str,
) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    else:
        pytest.importorskip("fsspec")
        monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ts.UnsupportedError, match=words):
        shelf.autosave(values=[1], drain=ts.Drain(**drain))


def test_a_url_of_nothing_is_refused(shelf: ts.Shelf) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(ts.BadArgument, match="nothing://x"):
        shelf.autosave(values=[1], drain=ts.Drain("nothing://x"))


def test_importing_needs_no_fsspec() -> None:
    import subprocess

    code = "import sys; import tensorshelf; print('fsspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
