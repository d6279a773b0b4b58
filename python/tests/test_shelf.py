"""The shelf as a mapping, its versions, and what closing does."""

import contextlib
import gc
import logging
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, in_child

import tensorshelf as ts


def test_attribute_and_item_are_the_same_tensor(shelf: ts.Shelf) -> None:
    shelf.x = np.arange(3.0)
    shelf["layers.0.weight"] = np.ones((2, 2), np.float32)
    shelf["größe 🚀"] = 5
    assert list(shelf) == sorted(["x", "layers.0.weight", "größe 🚀"])
    assert len(shelf) == 3
    assert "x" in shelf
    assert "y" not in shelf
    assert 3 not in shelf
    assert shelf.x.name == shelf["x"].name == "x"
    assert shelf["größe 🚀"].item() == 5
    assert {name: t.shape for name, t in shelf.items()} == {
        "x": (3,),
        "layers.0.weight": (2, 2),
        "größe 🚀": (),
    }


def test_assignment_creates_then_writes_in_place(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(4)
    handle = shelf.x
    shelf.x = np.arange(4.0)
    np.testing.assert_array_equal(handle, [0, 1, 2, 3])
    shelf.x += 1
    np.testing.assert_array_equal(handle, [1, 2, 3, 4])
    shelf.x = shelf.x
    np.testing.assert_array_equal(handle, [1, 2, 3, 4])


def test_python_numbers_and_lists_take_the_tensors_type(shelf: ts.Shelf) -> None:
    shelf.lr = 0.1
    assert (shelf.lr.dtype, shelf.lr.shape) == (np.float64, ())
    shelf.lr = 1
    assert shelf.lr.item() == 1.0
    shelf.x = np.zeros(3, np.float32)
    shelf.x = [1, 2, 3]
    np.testing.assert_array_equal(shelf.x, np.array([1, 2, 3], np.float32))
    assert shelf.x.dtype == np.float32
    shelf.flag = True
    assert shelf.flag.dtype == np.bool_


def test_persist_and_reopen(reopen: OpenShelf) -> None:
    shelf = reopen()
    assert (shelf.version, shelf.step) == (0, None)
    shelf.x = np.arange(5)
    first = shelf.persist(step=7)
    assert (first.version, first.step, first.done(), first.wait()) == (1, 7, True, first)
    assert first.nbytes == 40
    assert first.metadata_nbytes > 0
    assert first.seconds >= 0
    shelf.x[0] = 100
    second = shelf.persist()
    assert (second.version, second.step) == (2, 7)
    shelf.x[0] = 200  # never persisted
    shelf = reopen()
    assert (shelf.version, shelf.step) == (2, 7)
    np.testing.assert_array_equal(shelf.x, [100, 1, 2, 3, 4])
    assert shelf.x.version == 2


def test_persist_without_waiting(shelf: ts.Shelf) -> None:
    shelf.x = np.arange(1000)
    commit = shelf.persist(3, wait=False)
    shelf.x[:] = 0  # waits, or goes to the other slot; never into version 1
    assert commit.wait() is commit
    assert commit.done()
    assert (commit.version, commit.step, commit.nbytes) == (1, 3, 8000)
    np.testing.assert_array_equal(shelf.x.committed, np.arange(1000))
    assert "version=1" in repr(commit)


def test_delete_takes_effect_at_the_flip(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.a, shelf.b, shelf.c = np.ones(3), np.zeros(2), np.zeros(1)
    shelf.persist()
    del shelf.a
    del shelf["b"]
    assert list(shelf) == ["c"]
    shelf = reopen()  # not persisted: still there
    assert list(shelf) == ["a", "b", "c"]
    np.testing.assert_array_equal(shelf.a, np.ones(3))
    del shelf.a
    shelf.persist()
    assert list(reopen()) == ["b", "c"]


def test_mapping_methods(shelf: ts.Shelf) -> None:
    shelf.update({"a": np.ones(2), "b": np.zeros(2)})
    assert shelf.get("nothing") is None
    np.testing.assert_array_equal(shelf.setdefault("c", np.arange(3)), [0, 1, 2])
    np.testing.assert_array_equal(shelf.setdefault("a", np.arange(3)), [1, 1])
    np.testing.assert_array_equal(shelf.pop("a"), [1, 1])
    assert shelf.pop("a", None) is None
    with pytest.raises(KeyError):
        shelf.pop("a")
    name, value = shelf.popitem()
    assert (name, list(value)) == ("b", [0, 0])
    shelf.clear()
    assert len(shelf) == 0
    with pytest.raises(KeyError):
        shelf.popitem()
    assert shelf == shelf
    assert shelf != {}
    assert hash(shelf) == hash(shelf)


def test_replace_gives_a_new_layout_at_the_flip(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.w = np.ones((4, 3), np.float32)
    shelf.persist()
    new = shelf.replace("w", np.arange(2.0))
    assert (new.shape, new.dtype) == ((2,), np.float64)
    np.testing.assert_array_equal(shelf.w, [0, 1])
    shelf = reopen()
    assert shelf.w.shape == (4, 3)
    shelf.replace("w", np.concatenate([shelf.w.numpy(), np.zeros((1, 3))]))
    shelf.persist()
    shelf = reopen()
    assert shelf.w.shape == (5, 3)
    assert shelf.w[4].sum() == 0


def test_create_reads_as_zeros(shelf: ts.Shelf) -> None:
    made = shelf.create("z", (3, 2), "int16")
    np.testing.assert_array_equal(made, np.zeros((3, 2), np.int16))
    assert shelf.create("n", 4).shape == (4,)
    assert shelf.n.dtype == np.float32
    assert shelf.create("t", (), np.dtype("<c16")).dtype_name == "complex128"
    shelf.persist()
    np.testing.assert_array_equal(shelf.z.committed, np.zeros((3, 2)))


def test_versions_of_tensors_and_dirt(shelf: ts.Shelf) -> None:
    shelf.a, shelf.b = 1.0, 2.0
    assert (shelf.a.version, shelf.a.dirty) == (0, True)
    shelf.persist()
    shelf.b = 3.0
    assert (shelf.a.dirty, shelf.b.dirty) == (False, True)
    shelf.persist()
    assert (shelf.a.version, shelf.b.version, shelf.version) == (1, 2, 2)


def test_leaving_by_an_exception_persists_nothing(place: "tuple[pathlib.Path, str]") -> None:
    path, tier = place
    with pytest.raises(RuntimeError, match="boom"), ts.open(path, tier=tier) as shelf:  # noqa: PT012
        shelf.x = 1.0
        shelf.persist(1)
        shelf.x = 2.0
        raise RuntimeError("boom")
    assert shelf.closed
    with ts.open(path, tier=tier, mode="r") as shelf:
        assert (shelf.x.item(), shelf.step) == (1.0, 1)


def test_closing_with_unpersisted_values_says_so(
    place: "tuple[pathlib.Path, str]", caplog: pytest.LogCaptureFixture
) -> None:
    path, tier = place
    with caplog.at_level(logging.WARNING, "tensorshelf"), ts.open(path, tier=tier) as shelf:
        shelf.x = 1.0
        shelf.persist()
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "tensorshelf"), ts.open(path, tier=tier) as shelf:
        shelf.x = 2.0
    assert "never persisted" in caplog.text


@pytest.mark.parametrize("error", [None, ValueError, SystemExit, KeyboardInterrupt])
def test_leaving_a_block_tells_what_it_drops(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture, error: type[BaseException] | None
) -> None:
    leaves = contextlib.nullcontext() if error is None else pytest.raises(error)
    with leaves, reopen() as shelf:
        shelf.x = 1.0
        if error is not None:
            raise error
    (record,) = caplog.records
    assert "closed with assignments that were never persisted" in record.getMessage()


def test_a_log_that_raises_keeps_no_shelf_open(
    shelf: ts.Shelf, reopen: OpenShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where warnings are made errors, say."""

    def strict(record: logging.LogRecord) -> bool:
        raise RuntimeError(record.getMessage())

    shelf.x = 1.0
    monkeypatch.setattr(logging.getLogger("tensorshelf"), "filters", [strict])
    with pytest.raises(RuntimeError, match="never persisted"):
        shelf.close()
    monkeypatch.undo()
    assert shelf.closed
    assert list(reopen()) == []  # nobody holds the file


def test_a_shelf_that_nobody_refers_to_tells_what_it_drops(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    path, tier = place
    for persisted, closed, told in ((0, 0, 1), (1, 0, 0), (0, 1, 0)):
        shelf = ts.open(path, tier=tier)
        shelf.x = 1.0
        if persisted:
            shelf.persist()
        if closed:
            shelf.close()
        caplog.clear()

        def quiet(shelf: ts.Shelf = shelf) -> None:
            shelf.__del__()
            assert not caplog.records

        assert in_child(quiet) == 0  # a child drops nothing of its parent's
        del shelf, quiet
        gc.collect()
        assert len(caplog.records) == told
        assert "let go, not closed" in caplog.text or not told


def test_a_failed_commit_that_nobody_heard_of_is_told(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    class Flight:
        """One that fails when it is waited for."""

        def wait(self) -> None:
            Failed.failure = "the flush failed"
            raise ts.IoError("the flush failed")

    class Failed:
        closed = False
        failure = ""

        def unheard_failure(self) -> str:
            return self.failure

        def has_uncommitted(self) -> bool:
            return False

    core, shelf._core = shelf._core, Failed()  # type: ignore[assignment]
    caplog.clear()
    shelf.__del__()
    assert not caplog.records
    shelf._flight = Flight()  # type: ignore[assignment]
    shelf.__del__()
    shelf._flight = None
    Failed.closed = True
    shelf.__del__()
    shelf._core = core
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "the flush failed" in record.getMessage()


def test_a_shelf_that_failed_to_open_is_let_go_quietly() -> None:
    class Failing:
        closed = False

        def info(self) -> None:
            raise ts.IoError("the drive is gone")

    shelf = ts.Shelf.__new__(ts.Shelf)
    shelf.__del__()
    with pytest.raises(ts.IoError):
        shelf.__init__(Failing(), None)  # type: ignore[misc, arg-type]
    shelf.__del__()


def test_a_mistake_in_letting_go_is_not_hushed_up(shelf: ts.Shelf) -> None:
    shelf._flight = object()  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="wait"):
        shelf.__del__()
    shelf._flight = None


def test_a_leased_array_outlives_the_shelf(shelf: ts.Shelf) -> None:
    shelf.x = np.arange(100_000)
    shelf.persist()
    lent = shelf.x.numpy()
    shelf.close()
    del shelf
    np.testing.assert_array_equal(lent, np.arange(100_000))


def test_after_a_kill_the_last_version_is_there(place: "tuple[pathlib.Path, str]") -> None:
    path, tier = place
    code = f"""
import os, signal, numpy as np, tensorshelf as ts
shelf = ts.open({str(path)!r}, tier={tier!r})
shelf.x = np.zeros(300_000)
shelf.persist(40)
shelf.x[:] = 1
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    with ts.open(path, tier=tier) as shelf:
        assert (shelf.version, shelf.step) == (1, 40)
        assert shelf.x.numpy().sum() == 0


def test_an_interrupted_save_is_logged(reopen: OpenShelf, caplog: pytest.LogCaptureFixture) -> None:
    """The root of an attempt that never flipped: its body is there under the old version word."""
    shelf = reopen()
    shelf.x = np.zeros(10)
    for step in (39, 40, 41):
        shelf.x[0] = step
        shelf.persist(step)
    path = pathlib.Path(shelf.info().path)
    shelf.close()
    with path.open("r+b") as file:  # version 3 in home 1: back to the word of version 1
        words = []
        for copy in (0, 0x20000):
            file.seek(copy + 0x11000)
            word = int.from_bytes(file.read(8), "little")
            words.append(word & (1 << 40) - 1)
            file.seek(copy + 0x11000)
            file.write((word - 2).to_bytes(8, "little"))
    assert words == [3, 3]
    with caplog.at_level(logging.INFO, "tensorshelf"):
        shelf = reopen()
    assert (shelf.version, shelf.step, shelf.x[0]) == (2, 40, 40)
    assert shelf.info().recovery.interrupted
    assert "recovered version 2 (step 40); version 3 was incomplete" in caplog.text


def test_a_commit_in_flight_is_not_lost_at_exit(place: "tuple[pathlib.Path, str]") -> None:
    path, tier = place
    code = f"""
import numpy as np, tensorshelf as ts
shelf = ts.open({str(path)!r}, tier={tier!r})
shelf.x = np.ones(1_000_000)
shelf.persist(1, wait=False)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    with ts.open(path, tier=tier, mode="r") as shelf:
        assert (shelf.step, shelf.x.numpy().sum()) == (1, 1_000_000)


def test_readers_read_beside_a_writer(reopen: OpenShelf, place: "tuple[pathlib.Path, str]") -> None:
    shelf = reopen()
    shelf.x = np.arange(10)
    shelf.persist(1)
    with ts.open(place[0], mode="r", tier=place[1]) as reader:
        np.testing.assert_array_equal(reader.x, np.arange(10))
        assert (reader.version, reader.step, reader.info().writable) == (1, 1, False)


def test_verify_reports_a_whole_shelf(shelf: ts.Shelf) -> None:
    shelf.x = np.arange(300_000)
    shelf.y = np.zeros(0)
    shelf.persist()
    report = shelf.verify()
    assert report
    assert report.ok
    assert (report.version, report.tensors, report.damage) == (1, 2, ())
    assert report.nbytes == 2_400_000
    assert report.chunks == 3


def test_numbers_about_the_shelf(shelf: ts.Shelf, place: "tuple[pathlib.Path, str]") -> None:
    shelf.x = np.arange(1000)
    shelf.persist(2)
    info = shelf.info()
    assert info.path == str(place[0])
    assert (info.version, info.step, info.tensors, info.tensor_bytes) == (1, 2, 1, 8000)
    assert len(info.shelf_id) == 32
    assert info.capacity_bytes >= 16_000
    assert shelf.free == info.free_bytes
    assert info.promises.survives in ("process crash", "power loss")
    assert "survives" in str(info)
    stats = shelf.stats()
    assert stats["commits"] == 1
    assert stats["bytes_staged"] >= 8000
    assert stats["barriers"] >= 1


def test_each_promise_is_told_as_it_is(shelf: ts.Shelf) -> None:
    promises = shelf.info().promises
    mapped = promises.medium == "pmem"
    in_memory = "tmpfs" in promises.detail
    caches = any("volatile write cache" in said for said in promises.remarks)
    assert promises.medium in ("pmem", "block")
    assert promises.mapped == mapped
    assert not promises.needs_flush  # neither of a tmpfs nor of a drive
    assert promises.volatile_cache == caches
    local = any(f"file on {name}," in promises.detail for name in ("ext4", "xfs", "btrfs", "tmpfs"))
    if local or mapped:
        assert promises.one_machine == (not mapped)
    assert promises.atomic_bytes in ([8] if mapped else [512, 4096])
    if in_memory:
        assert (promises.survives, caches) == ("process crash", False)


def test_reserved_room_is_there_for_what_is_created_later(reopen: OpenShelf, place: Place) -> None:
    shelf = reopen(mode="w", size="64MiB")
    shelf.reserve("8MiB")
    size = os.path.getsize(place[0])
    assert size >= 2 * 8 * 2**20
    for name in "abc":
        shelf[name] = np.zeros(2**18)
    shelf.persist()
    assert os.path.getsize(place[0]) == size
    with pytest.raises(ts.ShelfFull, match=r"2 x .* are to be reserved"):
        shelf.reserve(2**26)
    with pytest.raises(ts.BadArgument, match="size=0"):
        shelf.reserve(0)
    assert (os.path.getsize(place[0]), sorted(shelf)) == (size, ["a", "b", "c"])


def test_size_caps_growth_only(reopen: OpenShelf) -> None:
    shelf = reopen(size="64MiB")
    shelf.x = np.zeros(1 << 20)
    shelf.persist()
    with pytest.raises(ts.ShelfFull):
        shelf.create("y", (1 << 24,), "float64")
    shelf.persist()
    shelf = reopen()
    shelf.create("y", (1 << 22,), "float64")
    shelf.persist()


def test_single_facts_need_not_look_at_every_tensor(
    reopen: OpenShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = reopen()
    shelf.x = np.zeros(1000)
    assert (shelf.version, shelf.step) == (0, None)
    shelf.persist(7)
    info = shelf.info()
    monkeypatch.setattr(ts.Shelf, "info", None)  # which counts and adds up
    assert (shelf.version, shelf.step, shelf.free) == (1, 7, info.free_bytes)
    monkeypatch.undo()
    reader = ts.open(info.path, mode="r", tier="auto")
    assert (reader.version, reader.step, reader.free) == (1, 7, 0)
    shelf.close()
    for name in ("version", "step", "free"):
        with pytest.raises(ts.ClosedError):
            getattr(shelf, name)


@pytest.mark.parametrize("shape", [np.int64(3), np.uint8(3), [np.int64(3)], (3,), range(3, 4)])
def test_whole_numbers_of_any_kind_are_a_shape(shelf: ts.Shelf, shape: object) -> None:
    assert shelf.create("x", shape).shape == (3,)  # type: ignore[arg-type]
