"""Versions that stay: versions, at(), rollback(), discard(), over keep, in_flight and placement."""

import copy
import datetime
import itertools
import pathlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check, in_child

import tensorshelf as ts

SPLITS = [*itertools.product((1, 2, 3), (1, 2, 3)), (0, 2)]
CHUNK = 1 << 20


@pytest.fixture(params=["whole", "by_chunk"])
def placement(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SPLITS, ids=lambda split: f"keep{split[0]}-flight{split[1]}")
def options(request: pytest.FixtureRequest, placement: str) -> "dict[str, Any]":
    keep, in_flight = request.param
    return {"keep": keep, "in_flight": in_flight, "placement": placement}


def numbers(shelf: ts.Shelf) -> "list[int]":
    return [found.version for found in shelf.versions]


def value(version: int) -> np.ndarray:
    """Three chunks, of which each version changes the middle one."""
    array = np.zeros(3 * CHUNK // 8)
    array[CHUNK // 8 : CHUNK // 4] = version
    return array


def fill(shelf: ts.Shelf, count: int, *, wait: bool = True) -> None:
    """Versions 1 to count; the step is ten times the version."""
    shelf.x = value(0)
    for version in range(1, count + 1):
        shelf.x[CHUNK // 8 : CHUNK // 4] = version
        shelf[f"only{version}"] = [version]
        if version > 1:
            del shelf[f"only{version - 1}"]
        commit = shelf.persist(10 * version, wait=wait)
    commit.wait()


@pytest.mark.parametrize("wait", [True, False])
def test_the_last_versions_can_be_read(
    reopen: OpenShelf, options: "dict[str, Any]", wait: bool
) -> None:
    keep = options["keep"]
    shelf = reopen(**options)
    fill(shelf, 5, wait=wait)
    for writable in (True, True, False):
        assert numbers(shelf) == list(range(5 - keep, 6))
        assert [found.step for found in shelf.versions] == [10 * n for n in numbers(shelf)]
        for version in numbers(shelf):
            old = shelf.at(version)
            assert list(old) == [f"only{version}", "x"]
            assert (len(old), "x" in old, "y" in old) == (2, True, False)
            np.testing.assert_array_equal(old["x"].numpy(), value(version))
            assert dict(old)[f"only{version}"][0] == version
        for gone in (*range(5 - keep), 6, 1000):
            with pytest.raises(RuntimeError) as caught:
                shelf.at(gone)
            check(caught, ts.StaleError, "version_overwritten", RuntimeError)
        shelf = reopen(**options) if writable else reopen(mode="r")


def test_info_shows_the_split(reopen: OpenShelf, options: "dict[str, Any]") -> None:
    info = reopen(**options).info()
    assert {name: getattr(info, name) for name in options} == options
    assert f"keep={options['keep']}, in_flight={options['in_flight']}" in str(info)
    kept = reopen().info()  # what is stored
    assert (kept.keep, kept.in_flight) == (options["keep"], options["in_flight"])


def test_placement_by_the_medium(shelf: ts.Shelf) -> None:
    info = shelf.info()
    assert info.placement == ("whole" if info.promises.mapped else "by_chunk")
    assert (info.keep, info.in_flight) == (0, 1)


@pytest.mark.parametrize(
    "bad",
    [
        {"keep": -1},
        {"keep": 15},
        {"keep": 16},
        {"keep": 1.0},
        {"keep": "1"},
        {"keep": True},
        {"in_flight": 0},
        {"in_flight": 16},
        {"keep": 10, "in_flight": 6},
        {"placement": "chunk"},
        {"placement": 1},
    ],
)
def test_bad_options(reopen: OpenShelf, bad: "dict[str, Any]") -> None:
    with pytest.raises(ts.BadArgument) as caught:
        reopen(**bad)
    check(caught, ts.BadArgument, "bad_argument", ValueError, TypeError)


def test_another_split_of_the_same_sum(reopen: OpenShelf) -> None:
    fill(reopen(keep=2, in_flight=1), 4)
    shelf = reopen(keep=0, in_flight=3)
    assert numbers(shelf) == [2, 3, 4]  # until the next commit
    shelf.persist()
    assert numbers(shelf) == [5]
    shelf = reopen(keep=2)
    shelf.persist()
    shelf.persist()
    assert numbers(shelf) == [5, 6, 7]
    with pytest.raises(ts.BadArgument) as caught:
        reopen(keep=3, in_flight=1)
    check(caught, ts.BadArgument, "bad_argument", ValueError, TypeError)


@pytest.mark.parametrize(
    ("asked", "said", "way"),
    [
        ({"keep": 3}, "keep=3 was asked", "Use keep=0 to 2"),
        ({"in_flight": 4}, "in_flight=4 was asked", "Use in_flight=1 to 3"),
        ({"keep": 2, "in_flight": 2}, "keep=2 and in_flight=2 was asked", "keep + in_flight = 3"),
    ],
)
def test_a_split_is_refused_in_the_words_of_who_asked(
    reopen: OpenShelf, asked: "dict[str, Any]", said: str, way: str
) -> None:
    reopen(keep=2)
    with pytest.raises(ts.BadArgument) as caught:
        reopen(mode="r+", **asked)
    assert said in caught.value.what
    assert way in caught.value.remedy


def test_what_a_version_says_of_itself(reopen: OpenShelf) -> None:
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
    shelf = reopen(keep=3)
    assert shelf.versions == [ts.VersionInfo(0, None, None, 0)]
    shelf.x = np.zeros(100)
    shelf.persist()
    shelf.x[:10] = 1
    shelf.persist(7)
    zero, first, second = shelf.versions
    assert (zero.version, first.version, second.version) == (0, 1, 2)
    assert (zero.time, first.step, second.step) == (None, None, 7)
    assert (first.data_bytes, second.data_bytes) == (800, 80)
    assert first.time is not None
    assert second.time is not None
    assert before < first.time <= second.time < before + datetime.timedelta(minutes=5)
    assert shelf.at(2).info() == second
    assert (shelf.at(2).version, shelf.at(2).step, shelf.at(1).step) == (2, 7, None)
    assert list(shelf.at(0)) == []


def test_a_version_is_a_mapping(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.w = np.arange(6, dtype="float32").reshape(2, 3)
    shelf["a b"] = [1]
    shelf.persist(1)
    shelf.w = np.zeros((2, 3), "float32")
    shelf.persist(2)
    old = shelf.at(1)
    assert {name: tensor.shape for name, tensor in old.items()} == {"a b": (1,), "w": (2, 3)}
    assert [tensor.name for tensor in old.values()] == ["a b", "w"]
    assert old._ipython_key_completions_() == ["a b", "w"]
    assert "w" in dir(old)
    assert "a b" not in dir(old)
    assert repr(old) == f"<RetainedVersion 1 (step 1) of '{shelf.info().path}', 2 tensors>"
    assert repr(old["a b"]) == "<RetainedTensor 'a b' int64[1] [1], of version 1>"
    with pytest.raises(ts.UnknownName, match="did you mean 'w'"):
        old["W"]
    with pytest.raises(AttributeError):
        old.nothing  # noqa: B018
    assert not hasattr(old, "_nothing")
    assert old == old
    assert old != shelf.at(1)
    assert old in {old}
    for thing in (old, old.w):
        with pytest.raises(TypeError):
            pickle.dumps(thing)


def test_a_tensor_of_a_version_reads_as_any_other(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    first = np.arange(12, dtype="float32").reshape(4, 3)
    shelf.w = first
    shelf.persist()
    shelf.w = first + 100
    shelf.persist()
    w = shelf.at(1).w
    assert (w.shape, w.dtype, w.ndim, w.nbytes, len(w), w.version) == ((4, 3), "f4", 2, 48, 4, 1)
    for got, wanted in (
        (w[1:3, ::2], first[1:3, ::2]),
        (w[[0, 2]], first[[0, 2]]),
        (w + 1, first + 1),
        (np.asarray(w), first),
        (np.from_dlpack(w), first),
        (memoryview(w), first),
        (list(w), first),
    ):
        np.testing.assert_array_equal(got, wanted)
    assert w[1, 1] == 4
    assert not w.numpy().flags.writeable
    assert w.numpy(copy=True).flags.writeable
    shelf.w = w  # back, one tensor alone
    np.testing.assert_array_equal(shelf.w.numpy(), first)
    shelf.discard()
    shelf.update(shelf.at(1))
    np.testing.assert_array_equal(shelf.w.numpy(), first)


def test_torch_of_a_version(reopen: OpenShelf) -> None:
    torch = pytest.importorskip("torch")
    shelf = reopen(keep=1)
    shelf.w = torch.arange(6, dtype=torch.bfloat16)
    shelf.persist()
    shelf.w = torch.zeros(6, dtype=torch.bfloat16)
    shelf.persist()
    old = shelf.at(1)
    assert torch.equal(old.w.torch(), torch.arange(6, dtype=torch.bfloat16))
    target = torch.empty(6)
    target.copy_(old.w)
    assert target.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_version_cannot_be_changed(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.w = np.zeros(3)
    shelf.persist()
    old = shelf.at(1)

    def add() -> None:
        handle = old.w
        handle += 1

    def put() -> None:
        old.w[0] = 1

    def name() -> None:
        old["w"] = np.ones(3)  # type: ignore[index]

    def out() -> None:
        np.add(old.w, 1, out=old.w)

    for change in (add, put, name, out):
        with pytest.raises(ts.ReadOnlyError) as caught:
            change()
        check(caught, ts.ReadOnlyError, "read_only", PermissionError)
    with pytest.raises(AttributeError):
        old.w.data = 1
    assert shelf.w[0] == 0
    assert not shelf.w.dirty


def test_reading_a_version_that_went(reopen: OpenShelf, options: "dict[str, Any]") -> None:
    shelf = reopen(**options)
    fill(shelf, 1)
    old = shelf.at(1)
    kept, handle, only = old.x.numpy(), old["x"], old["only1"]
    for _ in range(options["keep"]):
        shelf.x[...] = 9
        shelf.persist()
        np.testing.assert_array_equal(handle.numpy(), value(1))
    shelf.persist()
    uses = (
        lambda: handle.numpy(),
        lambda: handle[0],
        lambda: handle.numpy(copy=False),
        lambda: memoryview(handle).nbytes,
        lambda: only.item(),
        lambda: old["x"],
        lambda: "x" in old,
        lambda: list(old),
        lambda: len(old),
        lambda: old.info(),
        lambda: shelf.at(1),
    )
    for use in uses:
        with pytest.raises(RuntimeError) as caught:
            use()
        check(caught, ts.StaleError, "version_overwritten", RuntimeError)
    assert "not retained" in repr(old)
    assert repr(handle)
    assert old._ipython_key_completions_() == []
    np.testing.assert_array_equal(kept, value(1))


def test_a_reader_of_a_version_that_went(place: Place, reopen: OpenShelf, placement: str) -> None:
    writer = reopen(keep=1, placement=placement)
    fill(writer, 2)
    with ts.open(place[0], "r", tier=place[1]) as reader:
        old = reader.at(1)
        np.testing.assert_array_equal(old.x.numpy(), value(1))
        writer.x = value(3)
        writer.persist()  # which retains versions 2 and 3, and the reader's own newest
        np.testing.assert_array_equal(old.x.numpy(), value(1))  # nobody wrote over it yet
        writer.x = value(4)  # into its slot
        writer.persist()
        with pytest.raises(RuntimeError) as caught:
            old.x.numpy()
        check(caught, ts.StaleError, "version_overwritten", RuntimeError)
        np.testing.assert_array_equal(reader.x.numpy(), value(2))


def test_a_lease_of_a_version_stays(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1, placement="whole")
    fill(shelf, 2)
    old = shelf.at(1)
    if not shelf.info().promises.mapped:
        with pytest.raises(ts.UnsupportedError):
            old.x.numpy(copy=False)
        return
    lent = old.x.numpy(copy=False)
    for version in (3, 4, 5):
        try:
            shelf.x = value(version)
            shelf.persist()
        except ts.LeasedError:
            break
    np.testing.assert_array_equal(lent, value(1))


def test_placed_by_chunk_there_is_nothing_to_lend(reopen: OpenShelf) -> None:
    shelf = reopen(placement="by_chunk")
    shelf.x = value(1)
    shelf.persist()
    with pytest.raises(ts.UnsupportedError, match="placed by chunk"):
        shelf.x.numpy(copy=False)


# ---- rollback


def test_rollback(reopen: OpenShelf, options: "dict[str, Any]") -> None:
    keep = options["keep"]
    shelf = reopen(**options)
    fill(shelf, 4)
    to = 4 - keep
    commit = shelf.rollback(to)
    assert (commit.version, commit.step, commit.nbytes) == (5, 10 * to, 0)
    for _ in range(2):
        assert (shelf.version, shelf.step) == (5, 10 * to)
        assert list(shelf) == [f"only{to}", "x"]
        np.testing.assert_array_equal(shelf.x.numpy(), value(to))
        np.testing.assert_array_equal(shelf.x.committed.numpy(), value(to))
        assert shelf.verify()
        if keep:
            np.testing.assert_array_equal(shelf.at(4).x.numpy(), value(4))
        shelf = reopen(**options)
    if keep:
        assert shelf.rollback(4).version == 6  # of the rollback
        np.testing.assert_array_equal(shelf.x.numpy(), value(4))


def test_handles_after_a_rollback(reopen: OpenShelf) -> None:
    shelf = reopen(keep=3)
    shelf.kept, shelf.old = [1], [2]
    shelf.persist()
    kept, old = shelf.kept, shelf.old
    del shelf.old
    shelf.kept = [10]
    shelf.new = [3]
    new = shelf.new
    shelf.persist()
    with pytest.raises(ts.UnknownName):
        old.item()
    shelf.rollback(1)
    assert (kept.item(), old.item(), kept.version, kept.dirty) == (1, 2, 1, False)
    for use in (new.item, lambda: new.__setitem__(0, 5)):
        with pytest.raises(ts.UnknownName):
            use()
    old[0] = 20
    shelf.persist()
    assert shelf.old.committed[0] == 20
    shelf.rollback(2)
    assert (kept.item(), new.item()) == (10, 3)
    assert shelf.new.is_same(new)


def test_rollback_is_refused(reopen: OpenShelf) -> None:
    shelf = reopen(keep=2)
    fill(shelf, 2)
    for change in (
        lambda: shelf.x.__setitem__(0, 5),
        lambda: shelf.create("y", 3),
        lambda: shelf.__delitem__("x"),
    ):
        change()
        with pytest.raises(RuntimeError) as caught:
            shelf.rollback(1)
        check(caught, ts.UncommittedError, "uncommitted_changes", RuntimeError)
        shelf.discard()
    for number in (77, 3):
        with pytest.raises(ts.StaleError):
            shelf.rollback(number)
    for bad in ("1", None, 1.5, -1, 1 << 70):
        for use in (shelf.rollback, shelf.at):
            with pytest.raises(ts.BadArgument):
                use(bad)  # type: ignore[arg-type]
    with shelf.x.edit(), pytest.raises(ts.UnsupportedError):
        shelf.rollback(1)
    assert shelf.version == 2
    assert shelf.rollback(1).version == 3
    shelf = reopen(mode="r")
    for refused in (lambda: shelf.rollback(1), shelf.discard, shelf.transaction().__enter__):
        with pytest.raises(ts.ReadOnlyError):
            refused()


# ---- discard


def test_discard(reopen: OpenShelf, options: "dict[str, Any]") -> None:
    shelf = reopen(**options)
    fill(shelf, 2)
    x, only = shelf.x, shelf.only2
    x[...] = 5
    del shelf.only2
    shelf.made = [1]
    made = shelf.made
    shelf.replace("x", np.zeros(3))
    shelf.discard()
    for _ in range(2):
        assert list(shelf) == ["only2", "x"]
        np.testing.assert_array_equal(shelf.x.numpy(), value(2))
        shelf.persist()
    np.testing.assert_array_equal(x.numpy(), value(2))
    assert (only.item(), x.dirty, shelf.version) == (2, False, 4)
    with pytest.raises(ts.UnknownName):
        made.item()
    shelf.made = [2]
    x[0] = 7
    shelf.persist()
    assert (shelf.made.committed[0], shelf.x.committed[0]) == (2, 7)


def test_discard_after_persist_without_waiting(reopen: OpenShelf) -> None:
    shelf = reopen(in_flight=2, keep=1)
    for version in range(1, 6):
        shelf.x = value(version)
        commit = shelf.persist(wait=False)
        shelf.x[0] = 99
        shelf.discard()
        np.testing.assert_array_equal(shelf.x.numpy(), value(version))
        assert commit.version == version


def test_a_handle_from_before_a_discard_is_no_value(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.x, shelf.y, shelf.z = [1], [1], [1]
    shelf.persist()
    shelf.x = [2]
    x, y = shelf.x, shelf.y
    shelf.discard()
    with pytest.raises(ts.UnsupportedError):
        shelf.z = x  # would give 1, not the 2 that it named
    shelf.z = y
    shelf.x = [3]
    x = shelf.x
    del shelf.x
    shelf.discard()
    with pytest.raises(ts.UnsupportedError):
        shelf.z = x
    shelf.z = shelf.x
    assert shelf.z[0] == 1
    shelf.persist()
    x = shelf.x
    shelf.rollback(1)
    with pytest.raises(ts.UnsupportedError):
        shelf.z = x
    shelf.z = shelf.x


def test_dropped_assignments_are_warned_of_at_close(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> int:
        found = sum("never persisted" in record.message for record in caplog.records)
        caplog.clear()
        return found

    shelf = reopen(keep=1)
    shelf.x = [1]
    shelf.persist(1)
    shelf.x = [2]
    shelf.discard()
    shelf = reopen()
    assert warnings() == 0
    shelf.x = [2]
    shelf.persist()
    shelf.rollback(1)
    shelf = reopen()
    assert warnings() == 0
    shelf.x = [3]
    with pytest.raises(ts.UncommittedError):
        shelf.rollback(2)
    with pytest.raises(ts.UncommittedError), shelf.transaction():
        pass
    reopen()
    assert warnings() == 1


def edit_elsewhere(shelf: ts.Shelf, drop: Callable[[], object]) -> ts.ShelfError:
    """What an edit of x in another thread raises, within which `drop` is called."""
    began, dropped = threading.Event(), threading.Event()
    caught: list[ts.ShelfError] = []

    def edit() -> None:
        try:
            with shelf.x.edit() as values:
                values[0] = 7
                began.set()
                dropped.wait()
        except ts.ShelfError as error:
            caught.append(error)

    thread = threading.Thread(target=edit)
    thread.start()
    began.wait()
    drop()
    dropped.set()
    thread.join()
    assert len(caught) == 1
    return caught[0]


def test_an_edit_elsewhere_ends_with_a_discard_or_rollback(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.x = [1, 1]
    shelf.persist()
    for drop in (shelf.discard, lambda: shelf.rollback(shelf.version)):
        assert isinstance(edit_elsewhere(shelf, drop), ts.UnsupportedError)
        assert shelf.x[0] == 1
    with shelf.x.edit(), pytest.raises(ts.UnsupportedError):
        shelf.discard()


def test_an_edit_elsewhere_ends_when_what_is_prepared_is_abandoned(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.x = [1, 1]
    shelf.persist()
    shelf.x = [5, 5]
    shelf.prepare(2)
    error = edit_elsewhere(shelf, lambda: shelf.resolve("abandon"))
    assert isinstance(error, ts.UnsupportedError), type(error)
    shelf.discard()
    assert list(shelf.x) == [1, 1]


def test_an_attribute_of_a_version_is_refused_as_an_item_is(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.x = [1]
    shelf.persist()
    version = shelf.at(1)
    for assign in (lambda: version.__setitem__("x", 2), lambda: setattr(version, "x", 2)):
        with pytest.raises(ts.ReadOnlyError, match=r"rollback\(1\)"):
            assign()


def test_an_assignment_is_dropped_whole_or_not_at_all(reopen: OpenShelf) -> None:
    """Converted block by block, in several native writes, beside discard() (I13)."""
    shelf = reopen(keep=1, in_flight=2)
    shape = (5 << 20,)
    shelf.x = np.zeros(shape, "float32")
    shelf.persist()
    stop = threading.Event()

    def assign() -> None:
        for number in itertools.count(1):
            if stop.is_set():
                return
            shelf.x[...] = np.full(shape, number, "float64")

    thread = threading.Thread(target=assign)
    thread.start()
    try:
        for round_ in range(12):
            if round_ % 3 == 2:
                shelf.persist(wait=round_ % 2 == 0).wait()
                seen = shelf.at(shelf.version).x.numpy()
                assert (seen == seen[0]).all()
            else:
                shelf.discard()
    finally:
        stop.set()
        thread.join()
    shelf.persist()
    seen = shelf.x.committed.numpy()
    assert (seen == seen[0]).all()


# ---- async


def test_writers_go_on_while_versions_are_on_their_way(
    reopen: OpenShelf, options: "dict[str, Any]"
) -> None:
    shelf = reopen(**options)
    shelf.x = value(0)
    commits = []
    for version in range(1, 8):
        shelf.x[CHUNK // 8 : CHUNK // 4] = version
        commits.append(shelf.persist(version, wait=False))
    assert [commit.version for commit in commits] == list(range(1, 8))
    np.testing.assert_array_equal(shelf.x.committed.numpy(), value(7))
    for version in numbers(shelf):
        np.testing.assert_array_equal(shelf.at(version).x.numpy(), value(version))


def test_a_reader_of_an_old_version_beside_its_writer(reopen: OpenShelf, placement: str) -> None:
    shelf = reopen(keep=2, in_flight=2, placement=placement)
    fill(shelf, 3)
    stop, errors = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            for version in numbers(shelf):
                try:
                    seen = shelf.at(version).x.numpy()
                except ts.StaleError:
                    continue
                if not np.array_equal(seen, value(version)):
                    errors.append(version)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for version in range(4, 30):
        shelf.x[CHUNK // 8 : CHUNK // 4] = version
        shelf.persist(wait=version % 3 == 0)
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_child_may_not_use_a_version(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    fill(shelf, 2)
    old = shelf.at(1)
    handle = old.x

    def body() -> None:
        for use in (
            handle.numpy,
            lambda: list(old),
            lambda: shelf.at(1),
            lambda: shelf.versions,
            lambda: shelf.rollback(1),
            shelf.discard,
            shelf.transaction().__enter__,
        ):
            with pytest.raises(RuntimeError) as caught:
                use()
            check(caught, ts.ForkedError, "used_after_fork", RuntimeError)

    assert in_child(body) == 0


def test_a_closed_shelf_has_no_versions(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    fill(shelf, 2)
    old = shelf.at(1)
    handle = old.x
    shelf.close()
    for use in (handle.numpy, lambda: list(old), lambda: shelf.versions, shelf.discard):
        with pytest.raises(ts.ClosedError):
            use()
    assert "closed" in repr(old)


def test_names_of_the_new_calls_are_the_shelfs_own(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    for name in ("versions", "at", "rollback", "discard", "transaction"):
        with pytest.raises(ts.BadName):
            setattr(shelf, name, [1])
        shelf[name] = [1]
    assert copy.copy(list(shelf)) == ["at", "discard", "rollback", "transaction", "versions"]


def test_what_two_versions_have_otherwise(reopen: OpenShelf, placement: str) -> None:
    shelf = reopen(keep=1, placement=placement)
    shelf.x, shelf.y = value(0), np.zeros(3)
    shelf.persist()
    shelf.x = value(1)
    shelf.x[CHUNK // 4 - 1] = 5
    del shelf.y
    shelf.z = [1]
    shelf.persist()
    diff = shelf.diff(1)
    assert diff
    assert diff == shelf.diff(1, 2) == ts.VersionDiff(["z"], ["y"], {"x": [0, 1, 2]})
    assert shelf.diff(2, 1) == ts.VersionDiff(["y"], ["z"], {"x": [0, 1, 2]})
    shelf.x[CHUNK // 8] = 7
    shelf.persist()
    assert shelf.diff(2) == ts.VersionDiff([], [], {"x": [1]})
    assert not shelf.diff(3)
    with pytest.raises(ts.StaleError):
        shelf.diff(1)
    for wrong in ("1", None, -1, 1.5):
        with pytest.raises(ts.BadArgument):
            shelf.diff(wrong)  # type: ignore[arg-type]
