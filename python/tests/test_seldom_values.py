"""Values and calls that are seldom met: what they assign, refuse and leave alone."""

import logging
import pathlib
import pickle
import types
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import check

import tensorshelf as ts
from tensorshelf._values import _cuda, _dtypes

# ---- decisions and names


@pytest.mark.parametrize("wrong", ["Commit", "abort", "", None, True, b"commit", 1])
def test_what_is_no_decision_decides_nothing(reopen: OpenShelf, wrong: Any) -> None:
    shelf = reopen()
    shelf.x = [1.0]
    shelf.prepare(1, id=b"a")
    with pytest.raises(ts.BadArgument, match="is no decision") as caught:
        shelf.resolve(wrong)
    check(caught, ts.BadArgument, "bad_argument", ValueError, TypeError)
    assert shelf.prepared is not None
    commit = shelf.resolve("commit")
    assert commit is not None
    assert (commit.version, shelf.x.committed[0]) == (1, 1)


@pytest.mark.parametrize("name", ["\ud800", "a\0", "", b"x", None, 3, ("x",)], ids=repr)
def test_what_is_no_name_is_in_no_shelf(reopen: OpenShelf, name: Any) -> None:
    shelf = reopen(keep=1)
    shelf.x = [1]
    shelf.persist()
    for mapping in (shelf, shelf.at(1)):
        assert name not in mapping
        with pytest.raises((ts.BadName, ts.UnknownName)):
            mapping[name]
        if isinstance(name, str):
            with pytest.raises(AttributeError):
                getattr(mapping, name)
    assert shelf.pop(name, "nothing") == "nothing"
    with pytest.raises((ts.BadName, ts.UnknownName)):
        del shelf[name]
    assert list(shelf) == ["x"]


def test_names_that_are_arguments_elsewhere(shelf: ts.Shelf) -> None:
    shelf.update(other=[1], self=[2])
    shelf.update({"other": [3]}, value=[4])
    assert {name: x[0] for name, x in shelf.items()} == {"other": 3, "self": 2, "value": 4}
    shelf.update()
    with pytest.raises(ts.BadName):
        shelf.update({3: [1]})


def test_what_was_taken_out_is_ones_own(shelf: ts.Shelf) -> None:
    shelf.a, shelf.b = np.arange(3), np.arange(4)
    taken = shelf.pop("a", None)
    taken += 1
    name, other = shelf.popitem()
    other += 1
    assert (taken.tolist(), name, other.tolist()) == ([1, 2, 3], "b", [1, 2, 3, 4])
    assert len(shelf) == 0


def test_a_shelf_is_emptied_while_it_is_gone_through(shelf: ts.Shelf) -> None:
    shelf.update(dict.fromkeys("abcd", 1.0))
    for name in shelf:
        if name in "bc":
            del shelf[name]
    assert list(shelf) == ["a", "d"]
    for name, tensor in shelf.items():
        tensor += 1
        shelf[f"{name}2"] = tensor
    assert {name: x.item() for name, x in shelf.items()} == {"a": 2, "a2": 2, "d": 2, "d2": 2}


def test_elements_of_a_version_cannot_be_deleted(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.x = [1, 2]
    shelf.persist()
    with pytest.raises(ts.ReadOnlyError, match="of version 1 cannot be assigned"):
        del shelf.at(1).x[0]
    for handle in (shelf.at(1).x, shelf.x.committed):  # neither can be changed: no advice to
        with pytest.raises(AttributeError) as caught:
            handle.add_(1)
        assert "+=" not in str(caught.value)


# ---- values


def test_fill_takes_one_number(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros((3, 2))
    for value in ([1.0, 2.0], np.ones(1), np.ones((1, 1)), [[1.0], [2.0], [3.0]]):
        with pytest.raises(ts.LayoutError, match="fill_ takes a number"):
            shelf.x.fill_(value)
    assert not shelf.x.numpy().any()
    shelf.x.fill_(np.array(3))
    assert (shelf.x.numpy() == 3).all()


def test_a_slice_of_a_tensor_without_axes(shelf: ts.Shelf) -> None:
    shelf.x = 1.0
    for value in (np.array(2.0), 2.0):
        with pytest.raises(IndexError):
            shelf.x[:] = value
    assert shelf.x.item() == 1
    shelf.x[()] = np.array(2.0)
    assert shelf.x[()] == 2


@pytest.mark.parametrize("at", [0, 1, (1 << 20) - 1, 1 << 20, (2 << 20) - 1, 2 << 20, -1])
def test_an_edit_of_one_byte(shelf: ts.Shelf, at: int) -> None:
    shelf.x = np.zeros((2 << 20) + 5, np.uint8)
    shelf.persist()
    with shelf.x.edit() as values:
        values[at] = 7
    assert shelf.x.dirty
    found = shelf.x.numpy()
    assert (found[at], found.sum()) == (7, 7)
    with shelf.x.edit() as values:
        values[at] = 0
    assert not shelf.x.numpy().any()


def test_arrays_are_cast_as_numpy_does_and_numbers_are_not_wrapped(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(2, np.int8)
    wide = np.array([300, -1], np.int64)
    shelf.x[...] = wide  # "same_kind": the user has chosen the types
    assert shelf.x.numpy().tolist() == wide.astype(np.int8).tolist()
    with pytest.raises(ts.LayoutError, match="lies outside int8"):
        shelf.x[...] = [300, -1]
    shelf.x[...] = [127, -128]
    assert shelf.x.numpy().tolist() == [127, -128]


@pytest.mark.parametrize("name", [*_dtypes._NATIVE, "bfloat16", "float8_e5m2"])
def test_arrays_in_every_order_replace_a_value(shelf: ts.Shelf, name: str) -> None:
    pytest.importorskip("ml_dtypes")
    values = (np.arange(24) % 2 if name == "bool" else np.arange(24)).astype(_dtypes.needed(name))
    values = values.reshape(2, 3, 4)
    shelf.x = np.zeros((2, 3, 4), values.dtype)
    frozen = values.copy()
    frozen.flags.writeable = False
    twice = np.concatenate([values, values], axis=2)
    twice[..., 1::2] = values[..., ::-1]
    for value in (
        values,
        np.asfortranarray(values),
        values[::-1, ::-1, ::-1],
        values.transpose(0, 2, 1).copy().transpose(0, 2, 1),
        twice[..., 1::2],
        frozen,
        np.broadcast_to(values[0, 0, 1], (2, 3, 4)),
        values.view(type("Kind", (np.ndarray,), {})),
        values[..., ::-1].T.copy().T,
    ):
        shelf.x[...] = values[::-1]
        shelf.x = value
        assert shelf.x.numpy().tobytes() == np.ascontiguousarray(value).tobytes()
        shelf.replace("x", value)
        assert (shelf.x.dtype_name, shelf.x.shape) == (name, (2, 3, 4))
        assert shelf.x.numpy().tobytes() == np.ascontiguousarray(value).tobytes()


def test_what_torch_only_notes_is_done_when_it_is_assigned(shelf: ts.Shelf) -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor([1 + 2j, 3 - 4j])
    base = torch.arange(3.0)
    for _ in range(2):  # when it is created, and when it is assigned again
        shelf.conj, shelf.neg = values.conj(), values.conj().imag
        shelf.grown = base[:1].expand(3)
        shelf.grad = (base.requires_grad_() * 2)[1:]
        shelf.shared = base.detach()[1:]
        np.testing.assert_array_equal(shelf.conj.numpy(), np.array([1 - 2j, 3 + 4j], "c8"))
        np.testing.assert_array_equal(shelf.neg.numpy(), [-2, 4])
        np.testing.assert_array_equal(shelf.grown.numpy(), [0, 0, 0])
        np.testing.assert_array_equal(shelf.grad.numpy(), [2, 4])
        np.testing.assert_array_equal(shelf.shared.numpy(), [1, 2])
        shelf.conj.fill_(0), shelf.neg.fill_(0), shelf.grad.fill_(0)
    for empty in (torch.zeros(0, 3).t(), torch.zeros(2, 0, 3)[:, :, ::2]):
        shelf["empty"] = empty
        assert shelf.pop("empty").shape == tuple(empty.shape)


def test_a_torch_tensor_takes_a_handle_by_any_argument(shelf: ts.Shelf) -> None:
    torch = pytest.importorskip("torch")
    shelf.a, shelf.b = np.ones(2, np.float32), np.array([5, 6], np.float32)
    target = torch.zeros(2)
    assert target.copy_(other=shelf.b).tolist() == [5, 6]
    target[...] = shelf.a
    assert target.tolist() == [1, 1]
    for call, name in (
        (lambda: torch.stack([target, shelf.b, shelf.a]), "b"),
        (lambda: torch.add(input=target, other=shelf.a), "a"),
        (lambda: torch.add(target, shelf.b, out=shelf.a), "b"),
    ):
        with pytest.raises(TypeError, match=rf"shelf\['{name}'\]\.torch\(\)"):
            call()


def test_a_lease_of_nothing_and_of_its_own_type(shelf: ts.Shelf) -> None:
    torch = pytest.importorskip("torch")
    shelf.empty, shelf.x = np.zeros((0, 3), np.float32), np.ones(3, np.float32)
    assert shelf.empty.numpy(copy=False).shape == (0, 3)
    assert shelf.empty.torch(copy=False).shape == torch.Size([0, 3])
    if not shelf.info().promises.mapped:
        for dtype in (None, np.float32, np.float64):
            with pytest.raises(ValueError, match=r"lent|copy") as caught:
                shelf.x.__array__(dtype, copy=False)
            assert not isinstance(caught.value, ts.ShelfError)
        return
    lent = shelf.x.numpy(copy=False)
    for dtype in (None, np.float32, np.dtype("<f4")):
        assert np.shares_memory(shelf.x.__array__(dtype, copy=False), lent)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch would remark that it cannot be read-only
        assert np.shares_memory(shelf.x.torch(copy=False).numpy(), lent)
    for version in (None, (0, 9)):
        with pytest.raises(BufferError):
            shelf.x.__dlpack__(copy=False, max_version=version)
    if int(np.__version__.split(".")[0]) < 2:
        with pytest.raises(BufferError):
            shelf.x.__dlpack__(copy=False, max_version=(1, 0))


def test_an_array_of_another_type_is_ones_own_or_read_only(shelf: ts.Shelf) -> None:
    shelf.x = np.arange(3, dtype=np.float32)
    for dtype in (None, np.float32, np.float64, np.int8):
        for copy in (None, True):
            array = shelf.x.__array__(dtype, copy=copy)
            assert array.dtype == (np.float32 if dtype is None else dtype)
            assert array.flags.writeable is bool(copy)
            assert array.tolist() == [0, 1, 2]


def test_as_many_axes_as_numpy_has(shelf: ts.Shelf) -> None:
    shape = (1,) * _dtypes.MAX_DIMS
    x = shelf.create("x", shape)
    x[...] = 3
    assert x.numpy().shape == x[...].shape == shape
    with pytest.raises(ts.UnsupportedError, match="dimensions"):
        x[None]


def test_what_raises_when_it_is_asked_for_an_array(shelf: ts.Shelf) -> None:
    class Raises:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise RuntimeError("no memory left there")

    class Lends:
        def __dlpack__(self, **_: object) -> object:
            raise BufferError("on another device")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    for value, text in ((Raises(), "no memory left there"), (Lends(), "on another device")):
        with pytest.raises(ts.LayoutError, match=f"'x': .* gave no array: {text}") as caught:
            shelf.x = value
        check(caught, ts.LayoutError, "layout_mismatch", ValueError, TypeError)
    assert "x" not in shelf


@pytest.mark.parametrize(
    ("shape", "strides", "lies_so"),
    [
        ((2, 3), None, True),
        ((2, 3), (24, 8), True),
        ((2, 3), (8, 16), False),
        ((2, 3), (48, 8), False),
        ((1, 3), (999, 8), True),
        ((3, 1), (8, 999), True),
        ((3, 1), (16, 8), False),
        ((2, 0), (1, 1), True),
        ((), (), True),
        ((2,), (-8,), False),
        ((2,), (0,), False),
    ],
)
def test_what_lies_in_c_order_on_a_device(
    shape: tuple[int, ...], strides: Any, lies_so: bool
) -> None:
    steps = np.empty(shape).strides if strides is None else strides
    assert 0 in shape or (_cuda.axes_of(shape, steps, 8) == ()) is lies_so
    described = {"shape": shape, "strides": strides, "typestr": "<f8", "data": (4096, False)}
    if lies_so:
        source = _cuda.from_interface(types.SimpleNamespace(), described)
        assert (source.shape, source.name) == (shape, "float64")
        assert source._memory == _cuda.DeviceMemory(4096, 8 * int(np.prod(shape)))


# ---- opening


def test_a_path_that_no_file_system_has() -> None:
    for path in ("\ud800.shelf", "a\0b", 3.5, None):
        for call in (ts.open, ts.repair):
            with pytest.raises(ts.BadArgument) as caught:
                call(path)  # type: ignore[arg-type]
            check(caught, ts.BadArgument, "bad_argument", ValueError, TypeError)


@pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")
def test_a_pickled_shelf_is_opened_as_it_was(tmpfs: pathlib.Path) -> None:
    path = tmpfs / "run.shelf"
    with ts.open(path, tier="block") as shelf:
        shelf.x = [1.0]
        shelf.persist()
    block = ts.BlockOptions(io_uring=False)
    with (
        ts.open(path, "r", tier="block", block=block, verify="open") as reader,
        pickle.loads(pickle.dumps(reader)) as other,
    ):
        assert (other.info().promises.medium, other.info().writable) == ("block", False)
        assert (other._opening.tier, other._opening.block) == ("block", block)
        assert (other._opening.verify, other._opening.salvage) == ("load", False)
        assert other.x[0] == 1


def test_what_needs_no_repair_is_logged_as_nothing(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = reopen()
    path, tier = shelf.info().path, shelf.info().promises.medium
    shelf.x = [1.0]
    shelf.persist(4)
    shelf.close()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tensorshelf"):
        found = ts.repair(path, tier="block" if tier == "block" else "auto")
    assert (found.repaired, found.version, found.step, found.lost) == (False, 1, 4, ())
    assert not caplog.records


def test_a_value_is_in_a_tensor_of_any_shape(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.x = np.arange(6.0).reshape(2, 3)
    shelf.n = np.int64(7)
    shelf.empty = np.zeros((0, 2))
    assert 5.0 in shelf.x
    assert 6.0 not in shelf.x
    assert 7 in shelf.n
    assert 8 not in shelf.n
    assert 0.0 not in shelf.empty
    shelf.persist()
    assert 5.0 in shelf.x.committed
    assert 6.0 not in shelf.at(1)["x"]
