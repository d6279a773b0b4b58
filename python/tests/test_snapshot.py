"""snapshot(): one version as a shelf of its own, while training goes on."""

import pathlib
import signal
import threading

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts


@pytest.fixture
def shelf(reopen: OpenShelf) -> ts.Shelf:
    """At version 3, of which 2 and 3 can be read."""
    shelf = reopen(keep=1)
    for step in (1, 2, 3):
        shelf["weights"] = np.full((700, 900), step, np.float32)
        shelf["opt/step"] = np.int64(step * 10)
        shelf.persist(step=step)
    return shelf


def check(path: pathlib.Path, step: int) -> None:
    with ts.open(path, "r") as copy:
        assert (copy.version, copy.step) == (1, step)
        assert sorted(copy) == ["opt/step", "weights"]
        assert np.array_equal(copy["weights"].numpy(), np.full((700, 900), step, np.float32))
        assert copy["opt/step"].dtype == np.int64
        assert copy["opt/step"].numpy() == step * 10
        assert copy.verify().ok


def test_a_snapshot_is_a_shelf_of_its_own(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    shelf["weights"][0] = 9.0
    shelf["later"] = np.zeros(3)
    made = shelf.snapshot(tmp_path / "newest.shelf")
    assert (made.version, made.step) == (1, 3)
    assert made.nbytes == 700 * 900 * 4 + 8
    check(tmp_path / "newest.shelf", 3)
    shelf.snapshot(str(tmp_path / "older.shelf"), 2)
    check(tmp_path / "older.shelf", 2)
    shelf.snapshot(tmp_path / "again.shelf", version=np.int64(2))
    check(tmp_path / "again.shelf", 2)
    assert shelf["later"].dirty  # what was not persisted is still there
    shelf.persist(step=4)
    with ts.open(tmp_path / "older.shelf") as copy:  # and it goes on by itself
        copy["weights"][:] = 5
        assert copy.persist().version == 2
    assert shelf["weights"].numpy()[1, 0] == 3


def test_what_it_is_made_with(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    shelf.snapshot(tmp_path / "a", keep=2, in_flight=3, tier="block")
    with ts.open(tmp_path / "a", "r") as copy:
        info = copy.info()
        assert (info.keep, info.in_flight) == (2, 3)
        assert not info.promises.mapped
    shelf.snapshot(tmp_path / "b")
    with ts.open(tmp_path / "b", "r") as copy:
        assert (copy.info().keep, copy.info().in_flight) == (0, 1)


def test_home_directories_and_nothing_left_behind(
    shelf: ts.Shelf, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shelf.snapshot("~/copy.shelf")
    assert [path.name for path in tmp_path.iterdir()] == ["copy.shelf"]


def test_mistakes_are_told_and_make_no_file(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    with pytest.raises(ts.ShelfExists, match="there"):
        shelf.snapshot(there)
    assert there.read_text() == "mine"
    with pytest.raises(ts.ShelfExists):
        shelf.snapshot(shelf.info().path)
    copy = tmp_path / "copy"
    for wrong in (0, 1, 4, 2**70):
        with pytest.raises((ts.StaleError, ts.BadArgument)):
            shelf.snapshot(copy, wrong)
    for options in (
        {"keep": -1},
        {"in_flight": 0},
        {"keep": 15},
        {"keep": 14, "in_flight": 14},
        {"tier": "disk"},
        {"progress": 3},
    ):
        with pytest.raises(ts.BadArgument):
            shelf.snapshot(copy, **options)
    with pytest.raises(ts.BadArgument, match="version"):
        shelf.snapshot(copy, True)
    with pytest.raises(ts.BadArgument, match="path"):
        shelf.snapshot(3)  # type: ignore[arg-type]
    with pytest.raises(ts.ShelfNotFound):
        shelf.snapshot(tmp_path / "no" / "folder")
    shelf.close()
    with pytest.raises(ts.ClosedError):
        shelf.snapshot(copy)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_progress_counts_bytes_and_may_look(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    seen = []

    def report(done: int, total: int) -> None:
        seen.append((done, total))
        assert shelf["opt/step"].numpy() == 30
        with pytest.raises(ts.UnsupportedError, match="snapshot"):
            shelf.persist()
        with pytest.raises(ts.UnsupportedError, match="snapshot"):
            shelf["opt/step"] = 3
        with pytest.raises(ts.UnsupportedError, match="snapshot"):
            shelf.close()

    shelf.create("zeros", (3 << 20,), "uint8")
    shelf.persist()
    shelf.snapshot(tmp_path / "copy", progress=report)
    total = 700 * 900 * 4 + 8 + (3 << 20)
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    shelf["opt/step"] = np.int64(3)
    shelf.persist()


def test_what_progress_raises_ends_it(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    def report(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        shelf.snapshot(tmp_path / "copy", progress=report)
    assert not list(tmp_path.iterdir())
    for step in range(4, 8):  # nothing is held
        shelf["weights"] = np.full((700, 900), step, np.float32)
        shelf.persist(step=step)


def test_ctrl_c_ends_it(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    for name in "abcdefgh":
        shelf[name] = np.zeros(2000)
    shelf.persist()
    before = signal.getsignal(signal.SIGINT)
    calls = []

    def heard(*_: object) -> None:
        calls.append(1)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, heard)
    try:
        with pytest.raises(KeyboardInterrupt):
            shelf.snapshot(
                tmp_path / "copy", progress=lambda *_: signal.raise_signal(signal.SIGINT)
            )
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [1]
    assert not list(tmp_path.iterdir())
    shelf.persist()


def test_a_trainer_goes_on_beside_it(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    """Every copy is of one version, whatever is persisted meanwhile."""
    done = threading.Event()
    failed: list[BaseException] = []

    def train() -> None:
        try:
            step = 4
            while not done.is_set():
                shelf["weights"] = np.full((700, 900), step, np.float32)
                shelf["opt/step"] = np.int64(step * 10)
                shelf.persist(step=step)
                step += 1
        except BaseException as error:
            failed.append(error)

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        for number in range(5):
            made = shelf.snapshot(tmp_path / f"copy{number}")
            assert made.step is not None
            check(tmp_path / f"copy{number}", made.step)
    finally:
        done.set()
        trainer.join()
    assert not failed


def test_within_another_it_ends_no_waiting_for_oneself(
    shelf: ts.Shelf, tmp_path: pathlib.Path
) -> None:
    """progress= of a snapshot within that of another: a commit of the first waits for itself."""
    with ts.open(tmp_path / "other.shelf") as other:
        other.x = np.ones(10)
        other.persist()

        def commit(*_: int) -> None:
            with pytest.raises(ts.UnsupportedError):
                shelf.persist()
            calls.append(shelf.version)

        def inner(*_: int) -> None:
            if not calls:
                other.snapshot(tmp_path / "inner.shelf", progress=commit)

        calls: list[int] = []
        shelf.snapshot(tmp_path / "outer.shelf", progress=inner)
        assert set(calls) == {3}
