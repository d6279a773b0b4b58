"""Progress bars, drawn in this process: what they show, and how they end."""

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorshelf as ts
from tensorshelf import _progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is, in seconds."""
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def no_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tqdm" else find(name)
    )


def test_a_bar_of_text(
    no_tqdm: None, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with _progress.reporter(True, "verifying") as report:
        assert report is not None
        for done in (1, 2, 3):  # the first, and those 0.2 s after what was shown last
            report(done << 20, 8 << 20)
            clock[0] += 0.125
        report(4 << 20, 8 << 20)
        report(8 << 20, 8 << 20)
    shown, rest = capsys.readouterr().err.split("\n")
    assert rest == ""
    assert shown.split("\r") == [
        "",
        *(f"verifying: {percent:3d}% of 8.0 MiB" for percent in (12, 37, 100)),
    ]


def test_a_bar_of_nothing_is_full(
    no_tqdm: None, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with _progress.reporter(True, "verifying") as report:
        assert report is not None
        report(0, 0)
    assert capsys.readouterr().err == "\rverifying: 100% of 0 B\n"
    with _progress.reporter(True, "verifying"):
        pass
    assert capsys.readouterr().err == ""


def test_the_line_of_a_bar_ends_where_the_work_does_not(
    no_tqdm: None, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt), _progress.reporter(True, "verifying") as report:  # noqa: PT012
        assert report is not None
        report(1, 2)
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "\rverifying:  50% of 2 B\n"


class Bar:
    """What is used of tqdm."""

    made: "list[Bar]"

    def __init__(self, **options: Any) -> None:
        self.options, self.total, self.n, self.steps, self.closed = options, 0, 0, [], False
        Bar.made.append(self)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def update(self, more: int) -> None:
        self.steps.append((more, self.total))
        self.n += more


def test_a_bar_of_tqdm(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    auto = pytest.importorskip("tqdm.auto")
    Bar.made = []
    monkeypatch.setattr(auto, "tqdm", Bar)
    shelf.x = np.zeros(1 << 20)
    shelf.persist()
    assert shelf.verify(progress=True)
    (bar,) = Bar.made
    assert (bar.n, bar.total, bar.closed) == (8 << 20, 8 << 20, True)
    assert all(more >= 0 and total == 8 << 20 for more, total in bar.steps)
    assert bar.options["desc"] == "verifying"
    assert (bar.options["unit"], bar.options["unit_divisor"]) == ("B", 1024)
    assert bar.options["unit_scale"] is True
    assert bar.options["leave"] is False
    with _progress.reporter(True, "label") as report:
        assert report is not None
        for done in (3, 5, 5, 9):
            report(done, 9)
    assert Bar.made[-1].steps == [(3, 9), (2, 9), (0, 9), (4, 9)]


@pytest.mark.parametrize("silent", [None, False])
def test_silence(shelf: ts.Shelf, silent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.x = np.zeros(1 << 20)
    shelf.persist()
    assert shelf.verify(progress=silent)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("wrong", [3, "yes", 1, 0, ()])
def test_what_cannot_be_called(shelf: ts.Shelf, wrong: Any) -> None:
    with pytest.raises(ts.BadArgument, match="cannot be called"):
        shelf.verify(progress=wrong)
    assert shelf.verify()


def test_a_callback_that_raises_leaves_the_path_free(
    place: tuple[Any, str], reopen: Callable[..., ts.Shelf]
) -> None:
    shelf = reopen()
    shelf.x = np.zeros(1 << 20)
    shelf.persist(1)
    shelf.close()

    def stop(done: int, total: int) -> None:
        raise ZeroDivisionError(sys.getrefcount(done))

    path, tier = place
    for call in (
        lambda: ts.open(path, "r+", tier=tier, verify="open", progress=stop),
        lambda: ts.open(path, "r", tier=tier, verify="open", progress=stop),
        lambda: ts.repair(path, tier=tier, progress=stop),
    ):
        try:
            call()
        except ZeroDivisionError:
            pass
        else:  # repair() of what opens need not look at every byte
            assert call.__code__.co_names[1] == "repair"
    with ts.open(path, "r+", tier=tier) as again:
        assert (again.step, again.persist(2).step) == (1, 2)
