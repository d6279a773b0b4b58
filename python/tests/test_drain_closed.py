"""A drain that is closed while its shelf saves on: what is not there is never told to be."""

import pathlib
from collections.abc import Iterator

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


def test_what_is_saved_behind_close_is_not_there(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "remote"))
    run.step(1)
    run.drain.close()
    assert run.drain.wait()  # all that there is lies there
    assert run.drain.info().lag_versions == 0
    run.step(2, waits=False)
    info = run.drain.info()
    assert (info.version, info.lag_versions) == (1, 1)
    assert info.lag_seconds is not None
    assert info.lag_seconds > 0
    with pytest.raises(ts.ClosedError, match="version 2 of the shelf is not there") as error:
        run.drain.wait()
    check(error, ts.ClosedError, "shelf_closed", ValueError)


def test_what_was_saved_before_the_shelf_closed_is_known(
    shelf: ts.Shelf, tmp_path: pathlib.Path
) -> None:
    """Though the drain was closed before, and nobody can ask the shelf any more."""
    run = Run(shelf, ts.Drain(tmp_path / "remote"))
    run.step(1)
    run.drain.close()
    run.step(2, waits=False)
    shelf.close()
    with pytest.raises(ts.ClosedError, match="version 2"):
        run.drain.wait()


def test_behind_the_shelf_it_is_not_known_how_far_the_drain_is_behind(
    shelf: ts.Shelf, tmp_path: pathlib.Path
) -> None:
    """Another autosave has saved on."""
    first = Run(shelf, ts.Drain(tmp_path / "remote"))
    first.step(1)
    second = Run(shelf, ts.Drain(tmp_path / "remote"))
    second.step(2)
    assert first.drain.info().lag_versions == 1
    shelf.close()
    for run in (first, second):
        info = run.drain.info()
        assert (info.lag_versions, info.lag_seconds) == (None, None)
    assert second.drain.wait()


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), "1s", True])
def test_a_timeout_is_checked(shelf: ts.Shelf, tmp_path: pathlib.Path, timeout: float) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "remote"))
    for call in (run.drain.wait, run.drain.close):
        with pytest.raises(ts.BadArgument, match="is no time"):
            call(timeout)
    run.step(1)  # it goes on


def test_who_waits_without_end_waits_till_it_is_there(
    tmpfs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with ts.open(tmpfs / "run.shelf") as shelf:
        run = Run(shelf, ts.Drain(tmp_path / "remote", timeout=float("inf")))
        run.step(1, waits=False)
    assert [found.step for found in ts.drained(tmp_path / "remote")] == [1]
