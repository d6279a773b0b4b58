"""ts.fetch(): a shelf of what lies at a remote, whole and checked, or none."""

import os
import pathlib
import re
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from drain_remotes import PIECE, Remote, assign, check_whole, copied, entries, new_site, use
from support import check

import tensorshelf as ts
from tensorshelf._drain import codec, layout, manifest
from tensorshelf._drain.layout import Part, Tensor, covers, pieces_of
from tensorshelf._drain.manifest import CHUNKS, FOLDER, Name

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def remote(tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    """With versions of steps 1, 2 and 3."""
    made = Remote()
    use(monkeypatch, made)
    with ts.open(tmpfs / "run.shelf") as shelf:
        site = new_site(shelf, keep=3, compress="zlib")
        for step in (1, 2, 3):
            assign(shelf, step)
            copied(site, shelf, tmpfs)
    made.settle()
    return made


def manifests(remote: Remote) -> list[str]:
    return sorted(path for path in remote.durable if path.startswith(FOLDER))


def left_in(folder: pathlib.Path) -> list[str]:
    return sorted(set(os.listdir(folder)) - {"run.shelf"})


def test_the_newest_or_that_of_a_step(remote: Remote, tmpfs: pathlib.Path) -> None:
    for step in (None, 2, 1):
        path = tmpfs / f"{step}.shelf"
        reports: list[tuple[int, int]] = []
        ts.fetch("x", path, step=step, progress=lambda *told, to=reports: to.append(told))
        with ts.open(path, "r") as shelf:
            assert check_whole(shelf) == (step or 3)
            nbytes = sum(shelf[name].nbytes for name in shelf)
        assert reports[-1] == (nbytes, nbytes)
        assert [done for done, _ in reports] == sorted(done for done, _ in reports)


def test_every_kind_of_tensor(tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "a b": np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3),
        "scalar": np.float32(3),
        "empty": np.zeros((3, 0), np.complex64),
        "flags": np.array([True, False]),
        "ünicode/η": np.arange(PIECE, dtype=np.uint8),
        "over": np.arange(PIECE + 1, dtype=np.uint8),
    }
    made = Remote()
    use(monkeypatch, made)
    with ts.open(tmpfs / "run.shelf") as shelf:
        shelf.update(values)
        shelf.persist()
        copied(new_site(shelf), shelf, tmpfs)
    assert ts.fetch("x", tmpfs / "back.shelf").step is None
    with ts.open(tmpfs / "back.shelf", "r") as back:
        assert list(back) == sorted(values)
        for name, value in values.items():
            assert back[name].dtype == value.dtype
            assert np.array_equal(back[name].numpy(), value)


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "first byte": lambda data: flip(data, 0),
    "last byte": lambda data: flip(data, len(data) - 1),
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "nothing": lambda data: b"",
    "another": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_piece_is_told(remote: Remote, tmpfs: pathlib.Path, how: str) -> None:
    """Each of them, of those that the newest alone has."""
    named = [{each.path for each in made.stored} for made in entries(remote.durable)]
    own = named[2] - named[1] - named[0]
    assert own
    for path in own:
        whole = remote.durable[path]
        remote.durable[path] = DAMAGE[how](whole)
        with pytest.raises(ts.CorruptError) as error:
            ts.fetch("x", tmpfs / "back.shelf")
        assert path in str(check(error, ts.CorruptError, "corrupt", Exception))
        assert left_in(tmpfs) == []
        ts.fetch("x", tmpfs / "back.shelf", step=2)
        (tmpfs / "back.shelf").unlink()
        remote.durable[path] = whole


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_manifest_counts_for_nothing(
    remote: Remote, tmpfs: pathlib.Path, how: str
) -> None:
    newest = manifests(remote)[-1]
    remote.durable[newest] = DAMAGE[how](remote.durable[newest])
    assert [found.step for found in ts.drained("x")] == [1, 2]
    assert ts.fetch("x", tmpfs / "back.shelf").step == 2


def test_a_piece_that_lacks_is_told(remote: Remote, tmpfs: pathlib.Path) -> None:
    path = entries(remote.durable)[-1].stored[0].path
    del remote.durable[path]
    with pytest.raises(ts.CorruptError, match="names a piece that is not there"):
        ts.fetch("x", tmpfs / "back.shelf")
    assert left_in(tmpfs) == []


def test_where_a_version_goes_meanwhile_the_next_is_taken(
    remote: Remote, tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As who drains deletes it: its manifest first."""
    newest = manifests(remote)[-1]
    read = remote.read

    def reads(path: str) -> bytes:
        if path.startswith(CHUNKS):
            remote.durable.pop(newest, None)
            if path in gone:
                raise FileNotFoundError(path)
        return read(path)

    named = [{each.path for each in made.stored} for made in entries(remote.durable)]
    gone = named[2] - named[1]
    monkeypatch.setattr(remote, "read", reads)
    assert ts.fetch("x", tmpfs / "back.shelf").step == 2
    with ts.open(tmpfs / "back.shelf", "r") as shelf:
        assert check_whole(shelf) == 2


def test_what_is_not_there_is_told(remote: Remote, tmpfs: pathlib.Path) -> None:
    with pytest.raises(ts.UnknownName, match="Those are of steps 1, 2, 3") as error:
        ts.fetch("x", tmpfs / "back.shelf", step=9)
    check(error, ts.UnknownName, "unknown_name", KeyError)
    with pytest.raises(ts.BadArgument, match="nothing of rank 0"):
        ts.fetch("x", tmpfs / "back.shelf", rank=0)
    for path in manifests(remote):
        del remote.durable[path]
    assert ts.drained("x") == []
    with pytest.raises(ts.ShelfNotFound) as missing:
        ts.fetch("x", tmpfs / "back.shelf")
    check(missing, ts.ShelfNotFound, "shelf_not_found", FileNotFoundError)
    assert left_in(tmpfs) == []


def test_a_folder_that_lacks_is_told_by_its_name(
    remote: Remote, tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the remote is asked for anything."""
    monkeypatch.setattr(remote, "sizes", None)
    (tmpfs / "file").write_text("mine")
    for folder in ("lacks", "file"):
        path = tmpfs / folder / "back.shelf"
        with pytest.raises(ts.ShelfNotFound) as error:
            ts.fetch("x", path)
        told = str(check(error, ts.ShelfNotFound, "shelf_not_found", FileNotFoundError))
        assert told.startswith(f"{path} cannot be made: there is no folder {path.parent}.")
    assert left_in(tmpfs) == ["file"]


def test_what_is_there_stays(
    remote: Remote, tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmpfs / "back.shelf"
    path.write_text("mine")
    with pytest.raises(ts.ShelfExists) as error:
        ts.fetch("x", path)
    check(error, ts.ShelfExists, "shelf_exists", FileExistsError)
    path.unlink()
    read = remote.read

    def reads(name: str) -> bytes:
        path.write_text("mine")  # it comes while the shelf is made
        return read(name)

    monkeypatch.setattr(remote, "read", reads)
    with pytest.raises(ts.ShelfExists):
        ts.fetch("x", path)
    assert path.read_text() == "mine"
    assert left_in(tmpfs) == ["back.shelf"]


@pytest.mark.parametrize("comes", [False, True])
def test_a_file_system_may_have_no_links(
    remote: Remote, tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    path = tmpfs / "back.shelf"

    def refused(*_: object) -> None:
        if comes:
            path.write_text("mine")  # at the last moment
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    if comes:
        with pytest.raises(ts.ShelfExists):
            ts.fetch("x", path)
        assert path.read_text() == "mine"
    else:
        assert ts.fetch("x", path).step == 3
    assert left_in(tmpfs) == ["back.shelf"]


def test_what_was_fetched_is_durable_by_its_name(
    remote: Remote, tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, str]] = []
    fsync, link = os.fsync, os.link

    def syncs(handle: int) -> None:
        made.append(("fsync", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def links(source: Any, target: Any) -> None:
        made.append(("link", os.fspath(target)))
        link(source, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(os, "link", links)
    ts.fetch("nowhere", tmpfs / "back.shelf")
    assert made == [("link", str(tmpfs / "back.shelf")), ("fsync", str(tmpfs))]


def test_what_a_callback_raises_leaves_no_file(remote: Remote, tmpfs: pathlib.Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ts.fetch("x", tmpfs / "back.shelf", progress=stop)
    assert left_in(tmpfs) == []


@pytest.mark.parametrize("fails", [False, True])
def test_no_thread_is_left(
    remote: Remote, tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    read, before = remote.read, set(threading.enumerate())
    begun: set[threading.Thread] = set()

    def noted(name: str) -> bytes:
        begun.update(each for each in threading.enumerate() if each.name == "tensorshelf-drain")
        data = read(name)
        return data[:-1] if fails and name.startswith(CHUNKS) else data

    monkeypatch.setattr(remote, "read", noted)
    if fails:
        with pytest.raises(ts.CorruptError):
            ts.fetch("x", tmpfs / "back.shelf")
    else:
        ts.fetch("x", tmpfs / "back.shelf")
    begun -= before
    assert begun
    for thread in begun:
        thread.join(20)
        assert not thread.is_alive()


def test_what_a_crash_left_is_removed_by_the_next(remote: Remote, tmpfs: pathlib.Path) -> None:
    (tmpfs / ".back.shelf.1234567.0123456789abcdef.tmp").write_bytes(b"x")
    ts.fetch("x", tmpfs / "back.shelf")
    ts.open(tmpfs / "back.shelf", "w").close()
    assert left_in(tmpfs) == ["back.shelf"]


# ---- what lies there


def test_names_sort_as_versions_do() -> None:
    names = [Name(9, 2, "b" * 16), Name(10, 1, "a" * 16), Name(10, 2, "0" * 16)]
    paths = [name.path for name in names]
    assert sorted(paths) == paths
    assert [manifest.name_of(path.partition("/")[2]) for path in paths] == names
    assert manifest.name_of("latest") is None


def test_no_piece_is_larger_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 100)
    sizes = [0, 1, 99, 100, 101, 250, 60, 50, 40]
    tensors = [Tensor(str(size), "uint8", (size,), size, 1) for size in sizes]
    pieces = list(pieces_of(tensors))
    assert covers(tensors, pieces)
    assert max(map(layout.size_of, pieces)) == 100
    assert [layout.size_of(piece) for piece in pieces[-3:]] == [100, 60, 90]


def test_pieces_have_every_byte_once_and_in_order() -> None:
    tensors = [Tensor("a", "uint8", (100,), 100, 1)]
    first, second = (Part(0, 0, 50),), (Part(0, 50, 50),)
    assert covers(tensors, [first, second])
    two, other = [*tensors, Tensor("b", "uint8", (9,), 9, 1)], (Part(1, 0, 9),)
    assert covers(two, [first, second, other])
    assert not covers(two, [first, other, second])  # it would be written into the other
    for pieces in ([second, first], [first, first], [second, second], [first], [first, second] * 2):
        assert not covers(tensors, pieces)


@pytest.mark.parametrize("suffix", codec.SUFFIXES)
def test_pieces_come_back(suffix: str) -> None:
    if suffix == codec.ZSTD:
        pytest.importorskip("zstandard")
    for data in (bytes(1000), os.urandom(1000)):
        stored, ending = codec.encode(data, suffix)
        assert codec.decode(stored, ending, len(data)) == data
        assert len(stored) <= len(data)


def test_hostile_pieces_make_no_more_than_was_said() -> None:
    stored, ending = codec.encode(bytes(1 << 20), codec.ZLIB)
    assert len(codec.decode(stored, ending, 100)) == 101
    with pytest.raises(ts.CorruptError):
        codec.decode(b"no zlib", codec.ZLIB, 10)


def test_the_format_is_told() -> None:
    text = pathlib.Path(manifest.__file__).read_text()
    assert re.search(r"manifests/SEQUENCE-GENERATION-TOKEN", text)
