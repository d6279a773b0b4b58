"""The two kinds of remotes: a directory, and what fsspec knows."""

import errno
import os
import pathlib
import shutil
import stat
import threading
from typing import Any

import pytest
from support import check

import tensorshelf as ts
from tensorshelf._appearing import appearing
from tensorshelf._drain import directory
from tensorshelf._drain.directory import Directory
from tensorshelf._drain.remote import Remote, open_remote


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is asked of the system, by the names of files."""
    made: list[tuple[str, str]] = []
    fsync, rename, unlink = os.fsync, os.rename, os.unlink

    def note(what: str, path: Any) -> None:
        made.append((what, os.path.basename(path)))

    def syncs(handle: int) -> None:
        note("fsync", os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def renames(source: Any, target: Any) -> None:
        note("rename", target)
        rename(source, target)

    def unlinks(path: Any) -> None:
        note("unlink", path)
        unlink(path)

    for name, call in (("fsync", syncs), ("rename", renames), ("unlink", unlinks)):
        monkeypatch.setattr(os, name, call)
    return made


def test_a_file_is_durable_before_it_has_its_name(
    tmp_path: pathlib.Path, calls: list[tuple[str, str]]
) -> None:
    remote = Directory(str(tmp_path / "remote"))
    remote.put("chunks/ab/abc", b"bytes")
    (first, temporary), *rest = calls
    assert (first, temporary[:5], temporary[-4:]) == ("fsync", ".abc.", ".tmp")
    assert rest == [("rename", "abc")]
    calls.clear()
    remote.settle()
    assert sorted(calls) == [
        ("fsync", "ab"),
        ("fsync", "chunks"),
        ("fsync", "remote"),
        ("fsync", tmp_path.name),
    ]
    calls.clear()
    remote.settle()
    assert calls == []
    remote.delete(["chunks/ab/abc", "chunks/ab/lacks"])
    remote.settle()
    assert calls == [("unlink", "abc"), ("unlink", "lacks"), ("fsync", "ab")]


def test_what_a_process_before_did_not_settle_is_settled(
    tmp_path: pathlib.Path, calls: list[tuple[str, str]]
) -> None:
    Directory(str(tmp_path / "remote")).put("chunks/ab/abc", b"bytes")
    remote = Directory(str(tmp_path / "remote"))
    assert remote.sizes("chunks") == {"ab/abc": 5}
    calls.clear()
    remote.settle()
    assert ("fsync", "ab") in calls


@pytest.mark.parametrize("folder", ["ab", "cd"])
def test_what_comes_while_a_folder_is_being_settled_is_settled_next(
    tmp_path: pathlib.Path,
    calls: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
) -> None:
    """Into that one, too: the fsync that is under way need not know of it."""
    remote = Directory(str(tmp_path))
    for name in ("chunks/ab/abc", "chunks/cd/cde"):
        remote.put(name, b"1")
    remote.settle()
    sync = directory.sync

    def meanwhile(settled: str) -> None:
        sync(settled)
        if settled.endswith("ab"):
            remote.put(f"chunks/{folder}/new", b"2")

    monkeypatch.setattr(directory, "sync", meanwhile)
    remote.put("chunks/ab/abd", b"2")
    remote.settle()
    monkeypatch.setattr(directory, "sync", sync)
    calls.clear()
    remote.settle()
    assert calls == [("fsync", folder)]


def test_a_put_that_fails_leaves_what_was_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Directory(str(tmp_path))
    remote.put("a", b"old")

    def fails(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(ts.errors.IoError, match="No space left") as error:
        remote.put("a", b"new")
    assert check(error, ts.errors.IoError, "io_error", OSError).errno == 28  # type: ignore[attr-defined]
    assert os.listdir(tmp_path) == ["a"]
    assert remote.read("a") == b"old"


@pytest.mark.parametrize("folder", ["", "chunks", "chunks/ab"])
def test_a_folder_that_was_removed_is_made_again_by_the_next_put(
    tmp_path: pathlib.Path, folder: str
) -> None:
    remote = Directory(str(tmp_path / "remote"))
    remote.put("chunks/ab/abc", b"1")
    shutil.rmtree(tmp_path / "remote" / folder)
    with pytest.raises(ts.errors.IoError, match="ab was removed"):
        remote.put("chunks/ab/abd", b"12")
    remote.put("chunks/ab/abd", b"12")
    remote.settle()
    assert remote.sizes("chunks") == {"ab/abd": 2}


def places(tmp_path: pathlib.Path, kind: str) -> Remote:
    if kind == "memory":
        pytest.importorskip("fsspec")
        return open_remote(f"memory:/{tmp_path}/run")
    kinds = {"path": str(tmp_path / "run"), "url": f"file://{tmp_path}/run"}
    return open_remote((kinds | {"local": f"local://{tmp_path}/run"})[kind])


@pytest.mark.parametrize("kind", ["url", "local"])
def test_a_url_of_files_is_a_directory(tmp_path: pathlib.Path, kind: str) -> None:
    """What is put there is made durable, which fsspec does not do."""
    assert type(places(tmp_path, kind)) is Directory


def test_who_settles_beside_another_waits_for_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it put may be in the folders that the other is at."""
    remote = Directory(str(tmp_path))
    remote.put("chunks/abc", b"1")
    reached, goes_on = threading.Event(), threading.Event()

    def stuck(folder: str) -> None:
        reached.set()
        assert goes_on.wait(60)

    monkeypatch.setattr(directory, "sync", stuck)
    settling = [threading.Thread(target=remote.settle) for _ in range(2)]
    settling[0].start()
    assert reached.wait(60)
    settling[1].start()
    settling[1].join(0.2)
    waits = settling[1].is_alive()
    goes_on.set()
    for each in settling:
        each.join(60)
    assert waits


def test_a_folder_with_nothing_to_sync_is_settled(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EINVAL, as some of FUSE's file systems answer; of a file it is an error."""
    real = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    remote = Directory(str(tmp_path / "remote"))
    remote.put("chunks/ab/abc", b"1")
    remote.settle()
    with appearing(tmp_path / "made") as path:
        pathlib.Path(path).write_text("made")
    assert (tmp_path / "made").read_text() == "made"


def test_a_name_that_may_not_stay_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with (
        pytest.raises(ts.errors.IoError, match="made is there, and its name may not outlive"),
        appearing(tmp_path / "made") as path,
    ):
        pathlib.Path(path).write_text("made")
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("kind", ["path", "url", "memory"])
def test_both_are_alike(tmp_path: pathlib.Path, kind: str) -> None:
    remote = places(tmp_path, kind)
    assert (remote.sizes("chunks"), remote.folders()) == ({}, [])
    with pytest.raises(FileNotFoundError):
        remote.read("chunks/ab/abc")
    remote.put("chunks/ab/abc", b"12345")
    remote.put("chunks/cd/cde", b"")
    remote.put("rank-1/manifests/x", b"1")
    remote.put("chunks/ab/abc", b"123")
    remote.settle()
    assert remote.sizes("chunks") == {"ab/abc": 3, "cd/cde": 0}
    assert remote.sizes("rank-1") == {"manifests/x": 1}
    assert remote.folders() == ["chunks", "rank-1"]
    assert remote.read("chunks/ab/abc") == b"123"
    remote.delete([])
    remote.delete(["chunks/ab/abc", "chunks/lacks", "chunks/cd/cde"])
    remote.tidy("chunks")
    assert remote.sizes("chunks") == {}


def test_what_a_cut_put_left_is_no_object(tmp_path: pathlib.Path) -> None:
    remote = Directory(str(tmp_path))
    remote.put("chunks/ab/abc", b"1")
    (tmp_path / "chunks" / "ab" / ".abd.12345678.tmp").write_bytes(b"x")
    assert remote.sizes("chunks") == {"ab/abc": 1}
    remote.tidy("chunks")
    assert os.listdir(tmp_path / "chunks" / "ab") == ["abc"]


def test_whatever_a_package_raises_is_an_error_of_ours(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    remote = open_remote(f"memory:/{tmp_path}/run")
    system = type(fsspec.filesystem("memory"))

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no credentials")

    for name in ("pipe_file", "cat_file", "find", "ls", "rm"):
        monkeypatch.setattr(system, name, fails)
    for call in (
        lambda: remote.put("a", b""),
        lambda: remote.read("a"),
        lambda: remote.sizes("a"),
        remote.folders,
        lambda: remote.delete(["a"]),
    ):
        with pytest.raises(ts.errors.IoError, match="no credentials") as error:
            call()  # type: ignore[no-untyped-call]
        check(error, ts.errors.IoError, "io_error", OSError)


def test_what_others_put_meanwhile_is_seen(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the package remembers what it has listed, as those of object stores do."""
    fsspec = pytest.importorskip("fsspec")
    system = type(fsspec.filesystem("memory"))
    listed: dict[tuple[str, str], Any] = {}
    for name in ("find", "ls"):
        call = getattr(system, name)

        def remembered(
            self: Any, path: str, _call: Any = call, _name: str = name, **options: Any
        ) -> Any:
            if (_name, path) not in listed:
                listed[_name, path] = _call(self, path, **options)
            return listed[_name, path]

        monkeypatch.setattr(system, name, remembered)
    monkeypatch.setattr(system, "invalidate_cache", lambda self, path=None: listed.clear())
    one, other = (open_remote(f"memory:/{tmp_path}/run") for _ in range(2))
    one.put("chunks/ab/abc", b"1")
    assert one.sizes("chunks") == {"ab/abc": 1}
    other.put("chunks/ab/abd", b"12")
    assert one.sizes("chunks") == {"ab/abc": 1, "ab/abd": 2}
    assert one.folders() == ["chunks"]
    other.put("rank-1/x", b"1")
    assert one.folders() == ["chunks", "rank-1"]


def test_folders_are_made_where_a_system_has_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    remote = open_remote(f"memory:/{tmp_path}/run")
    system = type(fsspec.filesystem("memory"))
    pipe, makedirs = system.pipe_file, system.makedirs
    made: list[str] = []

    def put(self: Any, path: str, data: bytes, **options: Any) -> None:
        if path.rpartition("/")[0] not in made:
            raise FileNotFoundError(path)
        pipe(self, path, data, **options)

    def make(self: Any, path: str, exist_ok: bool = False) -> None:
        made.append(path)
        makedirs(self, path, exist_ok=exist_ok)

    monkeypatch.setattr(system, "pipe_file", put)
    monkeypatch.setattr(system, "makedirs", make)
    remote.put("chunks/ab/abc", b"1")
    remote.put("chunks/ab/abd", b"1")
    assert len(made) == 1
    assert remote.read("chunks/ab/abc") == b"1"


@pytest.mark.parametrize(
    ("below", "path", "folders"),
    [
        ("", "group/1", ["", "group"]),
        ("rank-1", "manifests/1", ["", "rank-1", "rank-1/manifests"]),
    ],
)
def test_folders_that_another_process_made_are_made_durable_with_what_is_found_in_them(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    below: str,
    path: str,
    folders: list[str],
) -> None:
    top = tmp_path / "remote"
    Directory(str(top), below).put(path, b"bytes")  # and is killed, or has not settled it yet
    synced: set[pathlib.Path] = set()
    monkeypatch.setattr(directory, "sync", lambda folder: synced.add(pathlib.Path(folder)))
    found = Directory(str(top), below)
    assert found.sizes(path.partition("/")[0]) == {"1": 5}
    found.settle()
    assert synced == {tmp_path, *(top / folder for folder in folders)}
    synced.clear()
    found.sizes(path.partition("/")[0])
    found.settle()
    assert synced == {top / folders[-1]}  # those above are by now


def test_a_name_whose_folder_could_not_be_settled_is_put_anew(
    tmp_path: pathlib.Path, calls: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next fsync of the folder may succeed without what the one that failed has lost."""
    remote = Directory(str(tmp_path))
    remote.put("chunks/ab/durable", b"0")
    remote.settle()
    for name in ("chunks/ab/abc", "chunks/ab/gone", "chunks/cd/cde"):
        remote.put(name, name.encode())
    sync = directory.sync

    def fails(folder: str) -> None:
        if folder.endswith("ab"):
            raise OSError(5, "Input/output error")
        sync(folder)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(directory, "sync", fails)
            with pytest.raises(ts.errors.IoError):
                remote.settle()
    remote.delete(["chunks/ab/gone"])
    calls.clear()
    remote.settle()
    put_anew = [name for what, name in calls if what == "rename"]
    assert put_anew == ["abc"]  # that of "cd" was not asked for yet
    assert calls.index(("rename", "abc")) < calls.index(("fsync", "ab"))
    assert ("fsync", "cd") in calls
    assert remote.read("chunks/ab/abc") == b"chunks/ab/abc"
    assert remote.sizes("chunks") == {"ab/durable": 1, "ab/abc": 13, "cd/cde": 13}
    calls.clear()
    remote.settle()
    assert "rename" not in [what for what, _ in calls]


def test_a_folder_of_folders_that_was_removed_is_made_again(tmp_path: pathlib.Path) -> None:
    """Where another prefix comes next, whose folder lies in the one that is gone."""
    remote = Directory(str(tmp_path / "remote"))
    remote.put("chunks/aa/one", b"1")
    shutil.rmtree(tmp_path / "remote" / "chunks")
    with pytest.raises(ts.IoError, match="was removed"):
        remote.put("chunks/bb/two", b"2")
    remote.put("chunks/bb/two", b"2")
    assert remote.read("chunks/bb/two") == b"2"
