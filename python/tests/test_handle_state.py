"""What a call leaves behind: clean tensors clean, and what it refused or skipped as it was."""

import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf import _core
from tensorshelf._values import _cuda, _dtypes

NUMPY_1 = int(np.__version__.split(".")[0]) < 2


def elsewhere(call: Callable[[], object]) -> None:
    """In another thread, whose assignments overtake no handle here."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_tensor_that_is_assigned_to_itself_stays_clean(shelf: ts.Shelf) -> None:
    shelf.x = np.arange(4.0)
    shelf.persist()
    staged = shelf.stats()["bytes_staged"]
    shelf.x = shelf.x
    shelf["x"] = shelf["x"]
    shelf.update(shelf)
    shelf.update(x=shelf.x)
    x = shelf.x
    assert x.copy_(x) is x
    assert x.copy_(shelf.x) is x
    assert not x.dirty
    assert shelf.stats()["bytes_staged"] == staged
    assert shelf.persist().nbytes == 0


@pytest.mark.parametrize(
    "other", [np.zeros((3, 2)), np.zeros((2, 3), np.float32), np.zeros(6)], ids=str
)
def test_a_handle_of_what_was_replaced_is_no_handle_of_the_new(
    shelf: ts.Shelf, other: np.ndarray
) -> None:
    shelf.x = np.ones((2, 3))
    old = shelf.x
    elsewhere(lambda: shelf.replace("x", other))
    for assign in (
        lambda: setattr(shelf, "x", old),
        lambda: shelf.x.copy_(old),
        lambda: shelf.update(x=old),
        lambda: shelf.setdefault("new", old),
    ):
        with pytest.raises((ts.UnknownName, ts.LayoutError)):
            assign()
    assert shelf.x.numpy().tobytes() == other.tobytes()
    assert "new" not in shelf


def test_a_commit_by_a_tensor_waits_where_it_is_asked_to(shelf: ts.Shelf) -> None:
    shelf.x = np.ones(3)
    for step, wait in ((0, True), (7, False), (8, True)):
        commit = shelf.x.persist(step, wait=wait)
        assert isinstance(commit._pending, _core.PendingCommit) is not wait
        assert (commit.wait().step, commit._pending) == (step, None)
    assert shelf.x.persist().step == 8


def test_a_line_of_what_is_on_its_way(shelf: ts.Shelf) -> None:
    shelf.x = np.ones(9)
    x = shelf.x
    for pending, text in ((0, "version 1"), (2, "version 2, on its way")):
        facts = types.SimpleNamespace(
            version=1, pending=pending, dirty=False, spoiled=False, media=[0]
        )
        stand_in = types.SimpleNamespace(_info=lambda facts=facts: facts, _name_now="x")
        object.__setattr__(x, "_ref", stand_in)
        assert repr(x) == f"<Tensor 'x' float64[9], {text}>"


@pytest.mark.parametrize("persisted", [True, False])
def test_an_edit_that_was_overtaken_changes_nothing(shelf: ts.Shelf, persisted: bool) -> None:
    shelf.x = np.zeros(4)
    ways: list[Callable[[], object]] = [
        lambda: setattr(shelf, "x", np.full(4, 5.0)),
        lambda: shelf.x.fill_(5),
        lambda: shelf.x.__setitem__([0, 1, 2, 3], 5),
        lambda: shelf.x.copy_(np.full(4, 5)),
    ]
    for change in ways:
        shelf.x = np.zeros(4)
        if persisted:
            shelf.persist()
        with (  # noqa: PT012
            pytest.raises(ts.UnsupportedError, match="assigned during its edit"),
            shelf.x.edit() as values,
        ):
            values[:] = 9
            change()
        assert shelf.x.numpy().tolist() == [5, 5, 5, 5]  # nor is it spoiled
        assert not values.flags.writeable
        with shelf.x.edit() as values:
            values[0] = 6
        assert shelf.x.numpy().tolist() == [6, 5, 5, 5]


def test_the_first_is_taken_first(shelf: ts.Shelf) -> None:
    shelf.update(c=3, a=1, b=2)
    assert [shelf.popitem()[0] for _ in range(3)] == ["a", "b", "c"]


def test_a_transaction_tells_its_step_and_commit(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.persist(3)
    for first, then, wanted in ((5, 6, 6), (7, None, 6), (None, 0, 0), (None, None, 0)):
        with shelf.transaction(first) as transaction:
            shelf["x"] = np.ones(2)
            assert (transaction.step, transaction.commit) == (first, None)
            transaction.step = then
            assert transaction.step == then
        commit = transaction.commit
        assert commit is not None
        assert (commit.step, shelf.step, commit.version) == (wanted, wanted, shelf.version)
        assert commit.nbytes == 16
    with pytest.raises(ZeroDivisionError), shelf.transaction(9) as transaction:
        raise ZeroDivisionError
    assert (transaction.commit, transaction.step, shelf.step) == (None, 9, 0)
    for wrong in (-1, True, 1.5, "1", 2**63):
        with pytest.raises(ts.BadArgument), shelf.transaction(9) as transaction:
            transaction.step = wrong  # type: ignore[assignment]
        with pytest.raises(ts.BadArgument):
            shelf.transaction(wrong)  # type: ignore[arg-type]
    assert (shelf.step, shelf.persist().step) == (0, 0)


def test_which_version_wrote_a_tensor(reopen: OpenShelf) -> None:
    shelf = reopen(keep=2)
    shelf.x, shelf.y = [1], [1]
    shelf.persist()
    shelf.y = [2]
    shelf.persist()
    shelf.persist()
    found = {v: (shelf.at(v)["x"].version, shelf.at(v)["y"].version) for v in (1, 2, 3)}
    assert found == {1: (1, 1), 2: (1, 2), 3: (1, 2)}
    assert (shelf.x.version, shelf.y.version) == (1, 2)
    assert repr(shelf.at(3)["y"]) == "<RetainedTensor 'y' int64[1] [2], of version 3>"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (b"", b""),
        ("", b""),
        ("größe", "größe".encode()),
        (bytearray(b"a\0b"), b"a\0b"),
        (memoryview(b"abcd")[::2], b"ac"),
        (b"\xff" * 256, b"\xff" * 256),
    ],
    ids=["none", "no text", "text", "bytearray", "memoryview", "longest"],
)
def test_ids_of_what_is_prepared(reopen: OpenShelf, given: Any, stored: bytes) -> None:
    shelf = reopen()
    shelf.x = [1]
    made = shelf.prepare(id=given)
    assert (made.id, made.step, made.data_bytes, made.version) == (stored, None, 8, 1)
    assert shelf.prepared == made
    shelf = reopen()
    assert shelf.prepared == shelf.info().recovery.prepared
    assert shelf.prepared is not None
    assert shelf.prepared.id == stored
    assert shelf.resolve("abandon") is None
    assert (shelf.prepared, shelf.info().recovery.prepared is None) == (None, False)


# ---- what is lent


def test_more_axes_than_numpy_has_are_not_lent(shelf: ts.Shelf) -> None:
    deep = shelf.create("deep", (1,) * 64)
    shelf.persist()
    if _dtypes.MAX_DIMS == 64:
        pytest.skip("this NumPy has them")
    for handle in (deep, deep.committed):
        for copy in (None, True, False):
            with pytest.raises(ts.UnsupportedError, match="'deep' has 64 dimensions; NumPy"):
                handle.numpy(copy=copy)


def test_what_cannot_be_lent_names_what_can_be_had(reopen: OpenShelf) -> None:
    pytest.importorskip("torch")
    shelf = reopen(placement="by_chunk", keep=1)
    shelf.x = np.ones(3)
    shelf.persist()
    if shelf.info().promises.mapped:  # placed so, one chunk is in two places
        shelf = reopen(mode="r")
    for handle in (shelf.x, shelf.x.committed, shelf.at(1)["x"]):
        for method in ("numpy", "torch"):
            with pytest.raises(ts.UnsupportedError, match="cannot be lent") as caught:
                getattr(handle, method)(copy=False)
            assert caught.value.remedy == f"Use {method}() or {method}(copy=True)."
            assert np.asarray(getattr(handle, method)(copy=True)).tolist() == [1, 1, 1]


def test_dlpack_lends_to_those_who_know_read_only(shelf: ts.Shelf) -> None:
    shelf.x = np.ones(3)
    shelf.persist()
    if not shelf.info().promises.mapped:
        return  # nothing is lent there
    for version in (None, (0, 0), (0, 99)):
        with pytest.raises(BufferError, match="the consumer does not understand"):
            shelf.x.__dlpack__(copy=False, max_version=version)
    for version in ((1, 0), (1, 1), (2, 0)):
        if NUMPY_1:
            with pytest.raises(BufferError, match="this NumPy cannot export read-only memory"):
                shelf.x.__dlpack__(copy=False, max_version=version)
        else:
            assert shelf.x.__dlpack__(copy=False, max_version=version) is not None
    for _ in range(2):  # and nothing is pinned by what was refused
        shelf.x = np.zeros(3)
        shelf.persist()


def test_a_handle_of_what_was_erased_is_no_source(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(3)
    old = shelf.x
    del shelf["x"]
    shelf.x = np.ones(3)
    for assign in (shelf.x.copy_, lambda value: shelf.x.__setitem__(..., value)):
        with pytest.raises(ts.UnknownName, match="'x' was erased"):
            assign(old)
    with pytest.raises(ts.UnknownName, match="'x' was erased"):
        shelf.x = old
    with pytest.raises(ts.UnknownName):
        old.copy_(shelf.x)
    assert shelf.x.numpy().tolist() == [1, 1, 1]
    old = shelf.x
    shelf.replace("x", np.full(3, 2.0))
    with pytest.raises(ts.UnknownName, match="'x' was erased or replaced"):
        shelf.y = old


# ---- devices


@pytest.mark.parametrize(("stream", "waited"), [(..., 1), (None, 1), (1, 1), (2, 2), (77, 77)])
def test_the_stream_that_a_copy_waits_for(stream: Any, waited: int) -> None:
    described = {"shape": (2, 3), "typestr": "<f4", "data": (4096, True), "version": 3}
    if stream is not ...:
        described["stream"] = stream
    source = _cuda.from_interface(object(), described)
    assert (source.shape, source.name, source.weak) == ((2, 3), "float32", False)
    assert source._memory == _cuda.DeviceMemory(4096, 24, stream=waited, device=-1)


@pytest.mark.parametrize("found", [None, 3, [("shape", (2,))], "text"])
def test_what_is_no_interface_is_none(shelf: ts.Shelf, found: Any) -> None:
    value = type("Odd", (), {"__cuda_array_interface__": found, "__array__": lambda *_: np.ones(2)})
    assert _cuda.interface_of(value()) is None
    shelf.x = value()
    assert shelf.x.numpy().tolist() == [1, 1]
