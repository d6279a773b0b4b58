"""The error table at open, provoked for real: class, stable code, builtin, remedy."""

import errno
import os
import pathlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support import Place, check, in_child

import tensorshelf as ts


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_missing(place: Place, mode: str) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        ts.open(place[0], mode=mode)
    error = check(caught, ts.ShelfNotFound, "shelf_not_found", FileNotFoundError)
    assert str(place[0]) in str(error)
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOENT


@pytest.mark.parametrize("media", [{}, {"mirror": "m"}, {"also": ["p"]}], ids=str)
def test_a_working_directory_that_is_gone(tmp_path: pathlib.Path, media: dict[str, Any]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    def body() -> None:
        os.chdir(gone)
        gone.rmdir()
        for mode in ("a", "w", "x"):
            with pytest.raises(FileNotFoundError, match="the working directory is gone") as caught:
                ts.open("run.shelf", mode, **media)
            check(caught, ts.ShelfNotFound, "shelf_not_found", FileNotFoundError)
            assert "Give an absolute path" in caught.value.remedy

    assert in_child(body) == 0


def test_exists(made: pathlib.Path) -> None:
    with pytest.raises(FileExistsError) as caught:
        ts.open(made, mode="x")
    check(caught, ts.ShelfExists, "shelf_exists", FileExistsError)


def test_an_empty_file_exists_too(place: Place) -> None:
    place[0].write_bytes(b"")
    with pytest.raises(ts.ShelfExists):
        ts.open(place[0], mode="x", tier=place[1])
    assert place[0].read_bytes() == b""


@pytest.mark.parametrize(
    "content",
    [b"hello", b"\0" * (1 << 20), b"PK\x03\x04" * 300_000],
    ids=["short", "zeroed", "other"],
)
@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_not_a_shelf(place: Place, mode: str, content: bytes) -> None:
    place[0].write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        ts.open(place[0], mode=mode)
    error = check(caught, ts.NotAShelf, "not_a_shelf", ValueError)
    assert "Where a shelf was" in error.remedy  # before what would erase the rest of it
    assert place[0].read_bytes() == content


def test_a_directory_is_not_a_shelf(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ts.NotAShelf):
        ts.open(tmp_path)


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_truncated(made: pathlib.Path, keep: float) -> None:
    os.truncate(made, int(made.stat().st_size * keep))
    with pytest.raises(ts.CorruptError) as caught:
        ts.open(made)
    check(caught, ts.TruncatedError, "shelf_truncated", ts.CorruptError)


def test_newer_format(made: pathlib.Path) -> None:
    """The first 12 bytes, magic and format version, keep their meaning in every format."""
    with made.open("r+b") as file:
        for copy in (0, 0x20000):
            file.seek(copy + 8)
            file.write((99).to_bytes(4, "little"))
    with pytest.raises(ValueError, match="99") as caught:
        ts.open(made)
    check(caught, ts.FormatTooNew, "newer_format", ValueError)


def test_locked_by_another_process(made: pathlib.Path, place: Place) -> None:
    code = (
        f"import tensorshelf as ts; shelf = ts.open({str(made)!r}, tier={place[1]!r})\n"
        "print('ready', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        with pytest.raises(BlockingIOError, match=str(holder.pid)) as caught:
            ts.open(made, tier=place[1])
        check(caught, ts.ShelfBusy, "shelf_busy", BlockingIOError)
        with ts.open(made, mode="r", tier=place[1]) as reader:
            assert reader.step == 2
        holder.communicate("\n")


def test_locked_by_this_process(made: pathlib.Path, place: Place) -> None:
    with ts.open(made, tier=place[1]), pytest.raises(BlockingIOError) as caught:
        ts.open(made, tier=place[1])
    error = check(caught, ts.ShelfBusy, "shelf_busy", BlockingIOError)
    assert isinstance(error, OSError)
    assert error.errno == errno.EDEADLK
    assert "by another Shelf object" in error.what
    assert "close it" in error.remedy


def test_locked_by_a_view_of_a_closed_shelf(tmpfs: pathlib.Path) -> None:
    path = tmpfs / "run.shelf"
    with ts.open(path) as shelf:
        shelf.x = [1.0, 2.0]
        shelf.persist()
        view = shelf.x.numpy(copy=False)
    del shelf
    with ts.open(tmpfs / "other.shelf"), pytest.raises(ts.ShelfBusy) as caught:
        ts.open(path)
    error = check(caught, ts.ShelfBusy, "shelf_busy", BlockingIOError)
    assert f"{path} was closed here, but a view" in error.what
    assert "another Shelf" not in str(error)
    assert "Delete the view" in error.remedy
    assert view.tolist() == [1, 2]
    del view
    ts.open(path).close()


def test_not_dax(tmp_path: pathlib.Path) -> None:
    if os.stat(tmp_path).st_dev == os.stat("/dev/shm").st_dev:
        pytest.skip("the temporary directory is on tmpfs")
    with pytest.raises(OSError, match=r"DAX|persistent|pmem") as caught:
        ts.open(tmp_path / "run.shelf", tier="pmem")
    check(caught, ts.NotDaxError, "not_dax", OSError)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options",
    [
        {"size": "1G"},
        {"size": "lots"},
        {"size": 0},
        {"mode": "rw"},
        {"mode": None},
        {"tier": "tape"},
        {"verify": True},
        {"progress": 3},
        {"block": ts.BlockOptions(buffer="3 furlongs")},
        {"block": ts.BlockOptions(queue_depth=0)},
        {"block": ts.BlockOptions(buffer=1000), "tier": "block"},
    ],
    ids=str,
)
def test_bad_arguments(tmp_path: pathlib.Path, options: "dict[str, object]") -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        ts.open(tmp_path / "run.shelf", **options)  # type: ignore[arg-type]
    check(caught, ts.BadArgument, "bad_argument", ValueError)
    assert not list(tmp_path.iterdir())


def test_read_only_file(made: pathlib.Path) -> None:
    made.chmod(0o444)
    made.parent.chmod(0o755)

    def body() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)  # root may write anything
        if not os.access(made, os.R_OK):
            os._exit(77)
        with pytest.raises(PermissionError) as caught:
            ts.open(made, mode="r+")
        check(caught, ts.ReadOnlyError, "read_only", PermissionError)

    if in_child(body) == 77:
        pytest.skip("the temporary directory is not open to others")


def test_shutil_copies_are_shelves_of_their_own(made: pathlib.Path, place: Place) -> None:
    copy = made.with_name("copy.shelf")
    shutil.copy(made, copy)
    with ts.open(made, tier=place[1]), ts.open(copy, tier=place[1]) as other:
        assert other.step == 2


def test_nul_in_a_path(disk: pathlib.Path) -> None:
    victim = disk / "victim"
    victim.write_bytes(b"kept")
    with pytest.raises(ts.BadArgument, match="NUL"):
        ts.open(f"{victim}\0.bak", mode="w")
    assert victim.read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (3, {}),
        ("x.shelf", {"block": {"direct": True}}),
        ("x.shelf", {"block": ts.BlockOptions(queue_depth="two")}),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_another_type(disk: pathlib.Path, path: Any, options: Any) -> None:
    with pytest.raises(ts.BadArgument) as caught:
        ts.open(disk / path if isinstance(path, str) else path, **options)
    check(caught, ts.BadArgument, "bad_argument", ValueError, TypeError)


@pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")
def test_an_empty_file_becomes_a_shelf_in_mode_a_alone(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    path, tier = place
    path.touch(mode=0o600)
    for mode in ("r", "r+"):
        with pytest.raises(ts.NotAShelf):
            ts.open(path, mode=mode, tier=tier)
    with pytest.raises(ts.ShelfExists):
        ts.open(path, mode="x", tier=tier)
    assert path.stat().st_size == 0
    with ts.open(path, tier=tier) as shelf:
        shelf.x = 1.0
        shelf.persist(7)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "0 bytes; it is a new shelf" in caplog.text
    caplog.clear()
    with ts.open(path, tier=tier) as shelf:
        assert (shelf.step, list(shelf)) == (7, ["x"])
    assert not caplog.text


def test_home_directories(disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(disk))
    with ts.open("~/run.shelf", tier="block") as shelf:
        assert shelf.info().path == str(disk / "run.shelf")
    monkeypatch.chdir(disk)
    with ts.open(pathlib.Path("~/run.shelf"), "r") as shelf:
        assert shelf.info().path == str(disk / "run.shelf")


def test_paths_that_are_not_utf8(disk: pathlib.Path) -> None:
    path = os.fsdecode(os.fsencode(disk) + b"/\xff.shelf")
    with pytest.raises(ts.ShelfNotFound, match=r"\\xff"):
        ts.open(path, mode="r")
    with ts.open(path, tier="block") as shelf:
        assert shelf.info().path == path


def test_remedies_are_sentences() -> None:
    for given, shown in {
        "wait a little": "Wait a little.",
        "persist() first": "persist() first.",
        'mode="r" will do': 'mode="r" will do.',
        "Stop it.": "Stop it.",
        "": "",
    }.items():
        assert ts.ShelfError("it failed.", given).remedy == shown
    assert str(ts.ShelfError("it failed.", "wait")) == "it failed. Wait."


def test_an_empty_file_without_a_name_is_refused(disk: pathlib.Path) -> None:
    unnamed = os.open(disk, os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        with pytest.raises(ts.NotAShelf, match="without a name"):
            ts.open(f"/proc/self/fd/{unnamed}", tier="block")
    finally:
        os.close(unnamed)
    assert list(disk.iterdir()) == []


def test_two_openers_of_an_empty_file_find_it_busy_at_worst(place: Place) -> None:
    path, tier = place

    def take(name: str) -> str:
        try:
            with ts.open(path, tier=tier) as shelf:
                shelf[name] = 1.0
                shelf.persist()
        except ts.ShelfBusy:  # both may be: each looks while the other holds the lock
            return ""
        return name

    with ThreadPoolExecutor(2) as pool:
        for _ in range(60):
            path.unlink(missing_ok=True)
            path.touch()
            kept = [name for name in pool.map(take, "ab") if name]
            with ts.open(path, tier=tier) as shelf:
                assert list(shelf) == kept


@pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")
def test_a_new_shelf_is_logged_and_told(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A typo in the path of mode "a" starts a fresh run: nobody should have to guess."""
    path, tier = place
    caplog.set_level("INFO", "tensorshelf")
    for mode, created in {"a": True, "r+": False, "r": False, "w": True}.items():
        caplog.clear()
        with ts.open(path, mode, tier=tier) as shelf:
            assert shelf.info().created is created
            assert ("made anew" in str(shelf.info())) is created
        assert (f"created {path}" in caplog.text) is created
