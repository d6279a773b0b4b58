"""What is assigned arrives: each kind of value by each way in, under NumPy's rule of casting."""

import array
import itertools
import mmap
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf._values import _dtypes

pytestmark = pytest.mark.filterwarnings("ignore:Casting complex", "ignore:the matrix subclass")
NATIVE = list(_dtypes._NATIVE)
ROWS = np.arange(1, 13, dtype=np.int16).reshape(3, 4)


def read_only(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


class Arrays:
    """Of another library, which knows NumPy's protocol."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return ROWS[::-1]


class Lent:
    """Of another library, which knows DLPack alone."""

    def __dlpack__(self, **_: object) -> object:
        return ROWS.copy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Both(Lent):
    """What knows both is asked for an array."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return -ROWS


def mapped() -> mmap.mmap:
    memory = mmap.mmap(-1, 6)
    memory[:] = b"\1\2\3\4\5\xff"
    return memory


with warnings.catch_warnings():
    warnings.simplefilter("ignore", PendingDeprecationWarning)
    MATRIX = np.asmatrix(ROWS)

SOURCES: dict[str, tuple[Any, np.ndarray]] = {
    "C": (ROWS, ROWS),
    "F": (np.asfortranarray(ROWS), ROWS),
    "backwards": (ROWS[::-1, ::-1], ROWS[::-1, ::-1]),
    "steps": (ROWS[::2, 1::2], ROWS[::2, 1::2]),
    "transposed": (ROWS.T, ROWS.T),
    "read-only": (read_only(ROWS), ROWS),
    "other order of bytes": (ROWS.astype(">i2"), ROWS),
    "other order, backwards": (ROWS.astype(">i2")[:, ::-1], ROWS[:, ::-1]),
    "stretched": (np.broadcast_to(ROWS[0], (2, 4)), np.stack([ROWS[0], ROWS[0]])),
    "one element": (ROWS[1:2, 1:2], ROWS[1:2, 1:2]),
    "no axes": (np.array(7, np.int16), np.array(7, np.int16)),
    "empty": (ROWS[:0], ROWS[:0]),
    "empty within": (np.zeros((2, 0, 3), ">f4"), np.zeros((2, 0, 3), np.float32)),
    "heir": (ROWS.view(type("Heir", (np.ndarray,), {})), ROWS),
    "matrix": (MATRIX, ROWS),
    "recarray": (ROWS.view(np.recarray), ROWS),
    "scalar": (np.float32(1.5), np.array(1.5, np.float32)),
    "wide scalar": (np.float64(1.5), np.array(1.5)),
    "scalar of bool": (np.True_, np.array(True)),
    "bool": (True, np.array(True)),
    "int": (3, np.array(3)),
    "large int": (2**64 - 1, np.array(2**64 - 1, np.uint64)),
    "float": (1.5, np.array(1.5)),
    "complex": (1 - 2j, np.array(1 - 2j)),
    "list": ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
    "tuple": ((1.0, 2), np.array([1.0, 2.0])),
    "list of arrays": ([ROWS[0], ROWS[1]], ROWS[:2]),
    "no list": ([], np.array([])),
    "bytearray": (bytearray(b"\1\2\xff"), np.array([1, 2, 255], np.uint8)),
    "memoryview": (memoryview(ROWS), ROWS),
    "memoryview of part": (memoryview(ROWS)[::2], ROWS[::2]),
    "array.array": (array.array("h", [5, -6]), np.array([5, -6], np.int16)),
    "range": (range(3), np.array([0, 1, 2])),
    "mmap": (mapped(), np.array([1, 2, 3, 4, 5, 255], np.uint8)),
    "__array__": (Arrays(), ROWS[::-1]),
    "__dlpack__": (Lent(), ROWS),
    "both": (Both(), -ROWS),
}


def same(found: ts.Tensor, wanted: np.ndarray) -> None:
    assert (found.dtype_name, found.shape) == (wanted.dtype.name, wanted.shape)
    assert found.numpy().tobytes() == np.ascontiguousarray(wanted).tobytes()


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_value_by_every_way(shelf: ts.Shelf, kind: str) -> None:
    value, wanted = SOURCES[kind]

    def made(name: str) -> ts.Tensor:
        return shelf.create(name, wanted.shape, wanted.dtype)

    shelf["item"] = value
    shelf.attribute = value
    shelf.update({"update": value}, keyword=value)
    shelf.setdefault("default", value)
    made("again")
    shelf["again"] = value
    made("updated")
    shelf.update([("updated", value)])
    made("copied").copy_(value)
    made("all")[...] = value
    shelf.create("other", (9,), "complex64")
    shelf.replace("other", value)
    made("scattered")
    if wanted.ndim:
        shelf["scattered"][list(range(wanted.shape[0]))] = value
        made("sliced")[:] = value
    else:
        shelf["scattered"][()] = value
    if wanted.size == 1:
        made("filled").fill_(wanted.reshape(())[()])
    for name in shelf:
        same(shelf[name], wanted)
    shelf.persist()
    for name in shelf:
        assert shelf[name].committed.numpy().tobytes() == shelf[name].numpy().tobytes()


def test_handles_are_values(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.x = ROWS
    shelf.persist()
    shelf.x = ROWS + 1
    shelf.persist()
    shelf.x = ROWS + 2
    for handle, wanted in ((shelf.at(1).x, ROWS), (shelf.x.committed, ROWS + 1)):
        shelf.y = handle
        same(shelf.y, wanted)
        shelf.y[1:, ::2] = handle[:2, 1::2]
        np.testing.assert_array_equal(shelf.y[1:, ::2], wanted[:2, 1::2])
        same(shelf.replace("y", handle), wanted)
        wide = shelf.create("wide", (2, 3, 4), "float64")
        wide[1] = handle
        np.testing.assert_array_equal(wide.numpy(), [np.zeros((3, 4)), wanted])
        del shelf.wide
    same(shelf.x, ROWS + 2)
    shelf.i = np.array([2, 0])
    shelf.x[shelf.i] = shelf.x[:2]
    np.testing.assert_array_equal(shelf.x.numpy(), ROWS[[1, 1, 0]] + 2)
    shelf.x[(shelf.i, shelf.i)] = -1
    wanted = ROWS[[1, 1, 0]] + 2
    wanted[[2, 0], [2, 0]] = -1
    np.testing.assert_array_equal(shelf.x.numpy(), wanted)
    shelf.persist()  # shelf.at(2) is what was committed above
    index = shelf.at(3)["i"]
    np.testing.assert_array_equal(shelf.x[index], wanted[[2, 0]])
    np.testing.assert_array_equal(shelf.x[index, 1:], wanted[[2, 0], 1:])
    np.testing.assert_array_equal(shelf.x[:, shelf.i], wanted[:, [2, 0]])


# ---- casting


@pytest.mark.parametrize("target", NATIVE)
def test_arrays_are_cast_where_numpy_does(shelf: ts.Shelf, target: str) -> None:
    x = shelf.create("x", (2,), target)
    shelf.persist()
    for source in NATIVE:
        value = np.array([1, 0], source)
        wanted = value.astype(target)
        for given in (value, value[::-1][::-1], value.astype(value.dtype.newbyteorder(">"))):
            for index in (..., slice(None, None, -1), [0, 1]):
                x.fill_(False)
                if np.can_cast(source, target, "same_kind"):
                    x[index] = given
                    found = x.numpy()[index if isinstance(index, slice) else ...]
                    assert found.tobytes() == wanted.tobytes(), (source, index)
                else:
                    with pytest.raises(ts.LayoutError, match=f"cannot cast {source} to {target}"):
                        x[index] = given
                    assert not x.numpy().any()
        scalar = value[0]  # of NumPy: it has chosen its type, as an array has
        if np.can_cast(source, target, "same_kind"):
            x[1:] = scalar
            assert x.numpy().tolist()[1] == scalar.astype(target).item()
        else:
            with pytest.raises(ts.LayoutError, match="cannot cast"):
                x[1:] = scalar


@pytest.mark.parametrize("target", NATIVE)
def test_only_numbers_of_python_take_a_tensors_type(shelf: ts.Shelf, target: str) -> None:
    """As shelf.x = value, which asks for the same layout."""
    kinds = "buifc"
    shelf.x = np.zeros((), target)
    for value in (True, 1, 1.0, 1 + 0j):
        kind = kinds.index(np.asarray(value).dtype.kind)
        fits = kind <= kinds.index(np.dtype(target).kind) or (kind, target[0]) == (2, "u")
        for given in (value, [value], (value,)):
            name = "x" if given is value else "row"
            shelf["row"] = shelf.pop("row", np.zeros(1, target))
            if fits:
                shelf[name] = given
                assert shelf[name].numpy().tobytes() == np.full(1, value, target).tobytes()
            else:
                with pytest.raises(ts.LayoutError):
                    shelf[name] = given
            assert shelf[name].dtype_name == target
    for source in NATIVE:
        if source != target:
            with pytest.raises(ts.LayoutError, match=rf"'x' is {target}\[\], got {source}\[\]"):
                shelf.x = np.dtype(source).type(1)
            with pytest.raises(ts.LayoutError):
                shelf["x"] = np.array(1, source)


@pytest.mark.parametrize("target", [n for n in NATIVE if np.dtype(n).kind in "iu"])
def test_the_ends_of_what_an_integer_holds(shelf: ts.Shelf, target: str) -> None:
    limits = np.iinfo(target)
    shelf.x = np.ones(2, target)
    for good in (limits.min, limits.max):
        shelf.x[0] = good
        shelf.x = [good, good]
        shelf.x[[1, 0]] = (good, good)
        assert shelf.x.numpy().tolist() == [good, good]
        shelf.x.fill_(1)
    for bad in (limits.min - 1, limits.max + 1):
        ways: list[Callable[[], object]] = [
            lambda bad=bad: shelf.x.__setitem__(0, bad),  # type: ignore[misc]
            lambda bad=bad: shelf.x.__setitem__([0], bad),  # type: ignore[misc]
            lambda bad=bad: shelf.x.fill_(bad),  # type: ignore[misc]
            lambda bad=bad: setattr(shelf, "x", [1, bad]),  # type: ignore[misc]
        ]
        for way in ways:
            with pytest.raises(ts.LayoutError):
                way()
    assert shelf.x.numpy().tolist() == [1, 1]
    with pytest.raises(ts.LayoutError):  # a list of nothing is of float64
        shelf.x[:0] = []


@pytest.mark.parametrize("target", _dtypes._CARRIED)
def test_what_is_cast_to_types_that_numpy_lacks(shelf: ts.Shelf, target: str) -> None:
    pytest.importorskip("ml_dtypes")
    x = shelf.create("x", (3,), target)
    powers = [1.0, 2.0, 4.0]
    for source in (*NATIVE, *_dtypes._CARRIED):
        value = np.array(powers)
        if source == "complex32":
            value = np.array([(one, 0) for one in powers], _dtypes.COMPLEX32)
        elif source != "bool":
            value = value.astype(_dtypes.needed(source))
        else:
            value = np.ones(3, bool)
        fits = _dtypes.kind(source) != "c" or target == "complex32"
        if "float8_e8m0fnu" in (source, target) and source.startswith("float8"):
            continue  # ml_dtypes casts neither to the other
        for given, index in itertools.product((value, value[::-1][::-1]), (..., [0, 1, 2])):
            if not fits:
                with pytest.raises(ts.LayoutError, match=f"cannot cast {source} to {target}"):
                    x[index] = given
                continue
            x[index] = given
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [x[i] for i in range(3)]
            numbers = [each["real"] if target == "complex32" else each for each in found]
            assert [float(each) for each in numbers] == ([1.0] * 3 if source == "bool" else powers)


def test_complex32_keeps_both_parts(shelf: ts.Shelf) -> None:
    x = shelf.create("x", (2, 2), "complex32")
    value = np.array([[1 + 2j, 3 - 4j], [-5j, 6]])
    for given in (value, value.astype(np.complex64), value.T.copy().T, value.astype(">c16")):
        x[...] = given
        wide = shelf.create("wide", (2, 2), "complex128")
        wide[...] = x
        np.testing.assert_array_equal(wide.numpy(), value)
        wide[::-1, 0] = x[:, 0]
        np.testing.assert_array_equal(wide.numpy()[::-1, 0], value[:, 0])
        del shelf.wide
    shelf.one = x[0, 1]
    assert (shelf.one.dtype_name, shelf.one.item()) == ("complex32", 3 - 4j)
    with pytest.raises(ts.LayoutError, match="cannot cast complex32 to float32"):
        shelf.create("f", (2, 2), "float32")[...] = x


# ---- what would lose something


def test_masks_are_refused_wherever_they_would_be_lost(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(3)
    shelf.persist()
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
    ways: list[Callable[[Any], object]] = [
        lambda value: setattr(shelf, "x", value),
        lambda value: shelf.__setitem__("x", value),
        lambda value: shelf.x.__setitem__(..., value),
        lambda value: shelf.x.__setitem__(slice(None), value),
        lambda value: shelf.x.__setitem__([0, 1, 2], value),
        lambda value: shelf.x.copy_(value),
        lambda value: shelf.x.fill_(value),
        lambda value: shelf.replace("x", value),
        lambda value: shelf.update(x=value),
        lambda value: shelf.setdefault("new", value),
    ]
    for value in (masked, masked[:1], [masked], (masked, masked), [[1.0], [[masked]]], [(masked,)]):
        for way in ways:
            with pytest.raises(ts.LayoutError, match="mask"):
                way(value)
    assert list(shelf) == ["x"]
    assert not shelf.x.dirty
    assert shelf.x.numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", ["transposed", "big-endian", "torch"])
def test_replaced_by_what_is_converted_in_parts(reopen: OpenShelf, kind: str) -> None:
    values = np.arange(1500.0 * 1500).reshape(1500, 1500)  # of more than 8 MiB
    shelf = reopen()
    shelf.x = [1.0]
    if kind == "torch":
        shelf.replace("x", pytest.importorskip("torch").from_numpy(values).T)
    else:
        shelf.replace("x", values.T if kind == "transposed" else values.T.astype(">f8"))
    assert np.array_equal(shelf.x.numpy(), values.T)
