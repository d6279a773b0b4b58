"""Writing: every index, casting, broadcasting, edit(), and what is moved for it."""

import itertools
import pathlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from test_read import INDICES, VALUES

import tensorshelf as ts
from tensorshelf import _mapping


@pytest.fixture
def x(shelf: ts.Shelf) -> ts.Tensor:
    shelf.x = VALUES
    shelf.persist()
    return shelf.x


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_assignment_is_numpys(x: ts.Tensor, index: object) -> None:
    expected = VALUES.copy()
    value = -1.5 - np.arange(expected[index].size, dtype=np.float32)  # type: ignore[index]
    value = value.reshape(np.shape(expected[index]))  # type: ignore[index]
    expected[index] = value  # type: ignore[index]
    x[index] = value
    np.testing.assert_array_equal(x, expected)
    expected[index] = 7  # type: ignore[index]
    x[index] = 7
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(x.committed, VALUES)


def test_a_large_tensor_is_the_same_whoever_copies_it(
    place: tuple[pathlib.Path, str],
) -> None:
    path, tier = place
    values = np.random.default_rng(7).integers(0, 256, (17 << 20) + 5, dtype=np.uint8)
    for threads in (None, 1, 2, 5):
        with ts.open(path, "w", tier=tier, threads=threads) as shelf:
            shelf.x = values
            np.testing.assert_array_equal(shelf.x, values)
            shelf.x[1:] = values[:-1]
            shelf.persist()
            assert not shelf.verify().damage
        with ts.open(path, "r", tier=tier, threads=threads, verify="open") as reader:
            found = reader.x.numpy()
        np.testing.assert_array_equal(found[1:], values[:-1])
        assert found[0] == values[0]


class Foreign:
    def __repr__(self) -> str:
        return "Foreign()"

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return np.array([1.5, 2.5])


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
@pytest.mark.parametrize(
    "value",
    [
        1.5,
        2.5 + 1j,
        [1.5, 2.5],
        np.float32(1.5),
        np.array([1.5, 2.5]),
        Foreign(),
        "handle",
        "torch",
    ],
    ids=repr,
)
def test_the_conversion_that_an_error_names_works(shelf: ts.Shelf, dtype: str, value: Any) -> None:
    shelf.x = np.zeros(2, dtype)
    names: dict[str, Any] = {"np": np}
    if isinstance(value, str) and value == "torch":
        names["torch"] = torch = pytest.importorskip("torch")
        value = torch.tensor([1.5, 2.5])
    elif isinstance(value, str):
        shelf.y = np.array([1.5, 2.5])
        value = shelf.y
    names["value"] = value
    with pytest.raises(ts.LayoutError) as caught:
        shelf.x[:] = value
    advice = caught.value.remedy.removeprefix("Convert it first: ").removesuffix(".")
    shelf.x[:] = eval(advice, names)
    assert shelf.x.numpy().any()


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.float32),
        np.arange(5).reshape(5, 1),
        np.zeros((1, 1, 4, 5, 6), np.float32),
        VALUES[::-1],
        VALUES.T.copy().T,
        VALUES.astype(">f4"),
        VALUES.astype(np.float64),
        VALUES.astype(np.float16),
        np.float32(3),
        True,
        [[1], [2], [3], [4], [5]],
    ],
    ids=str,
)
def test_values_are_cast_and_broadcast(x: ts.Tensor, value: object) -> None:
    expected = VALUES.copy()
    expected[...] = value
    x[...] = value
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 1j),
        ("int32", 1.5),
        ("int32", np.float32(1)),
        ("uint8", np.int64(1)),
        ("uint8", 256),
        ("uint8", -1),
        ("int8", [1, 200]),
        ("bool", 1),
        ("float32", "text"),
        ("float32", None),
        ("float32", [1, "a"]),
        ("float32", [[1], [1, 2]]),
        ("float32", {}),
        ("float32", np.zeros(3)),
        ("float32", np.array(["a", "b"])),
        ("float32", np.array([None, 1])),
        ("float64", np.zeros(2, np.longdouble)),
        ("int64", np.zeros(2, "M8[s]")),
        ("int64", 1 << 70),
        ("float32", print),
    ],
    ids=str,
)
def test_what_does_not_fit_is_a_layout_error(shelf: ts.Shelf, dtype: str, value: object) -> None:
    tensor = shelf.create("x", (2,), dtype)
    tensor[...] = np.ones(2, bool)
    for index in (..., 0, [0, 1]) if not isinstance(value, list) else (..., [0, 1]):
        with pytest.raises(ts.LayoutError) as caught:
            tensor[index] = value
        assert caught.value.remedy
    with pytest.raises((TypeError, ValueError)):
        tensor[...] = value
    np.testing.assert_array_equal(tensor, np.ones(2))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int64", 1 << 63),
        ("int64", [1 << 63, (1 << 64) - 1]),
        ("int32", 1 << 63),
        ("uint8", 1 << 63),
        ("uint8", 256),
        ("uint8", [-1, 0]),
    ],
)
def test_an_int_is_never_wrapped(shelf: ts.Shelf, dtype: str, value: object) -> None:
    tensor = shelf.create("x", (2,), dtype)
    for index in (..., [0, 1]):
        with pytest.raises(ts.LayoutError, match=f"a value lies outside {dtype}"):
            tensor[index] = value
    assert tensor.numpy().tolist() == [0, 0]


def test_unsigned_takes_ints_that_fit(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(3, np.uint8)
    shelf.x[...] = [0, 255, 7]
    shelf.x[1] = 9
    np.testing.assert_array_equal(shelf.x, [0, 9, 7])


def test_in_place_operators_write(shelf: ts.Shelf, x: ts.Tensor) -> None:
    expected = VALUES.copy()
    x += 1
    expected += 1
    x *= VALUES
    expected *= VALUES
    x -= x
    expected -= expected
    x **= 2
    np.testing.assert_array_equal(x, expected)
    assert isinstance(x, ts.Tensor)
    np.add(VALUES, 1, out=x)
    np.testing.assert_array_equal(x, VALUES + 1)
    np.add(x, 1, out=x, where=VALUES > 50)
    shelf.kept = VALUES
    np.add(VALUES, VALUES, out=shelf.kept, where=VALUES > 50)  # the others stay as they are
    np.testing.assert_array_equal(shelf.kept, np.where(VALUES > 50, 2 * VALUES, VALUES))
    np.testing.assert_array_equal(x, VALUES + 1 + (VALUES > 50))
    np.add.at(x, (0, 0, [0, 0]), 5)
    assert x[0, 0, 0] == 11
    shelf.i = np.arange(3)
    with pytest.raises(ts.LayoutError):
        shelf.i += 0.5
    shelf.i += 1
    np.testing.assert_array_equal(shelf.i, [1, 2, 3])
    shelf.x[0] += 1
    np.testing.assert_array_equal(shelf.x.committed, VALUES)


def test_copy_and_fill(shelf: ts.Shelf, x: ts.Tensor) -> None:
    assert x.copy_(VALUES + 1) is x
    np.testing.assert_array_equal(x, VALUES + 1)
    assert x.copy_(x) is x
    assert x.fill_(4) is x
    assert (x.numpy() == 4).all()
    with pytest.raises(ts.LayoutError):
        x.fill_([1, 2])
    shelf.y = VALUES
    x.copy_(shelf.y, non_blocking=True)
    np.testing.assert_array_equal(x, VALUES)


def test_a_tensor_may_be_assigned_to_itself(x: ts.Tensor) -> None:
    x[...] = x
    x[1:3] = x[0:2]
    np.testing.assert_array_equal(x[1:3], VALUES[0:2])
    x[0] = x[...][3]
    np.testing.assert_array_equal(x[0], VALUES[3])


def test_large_values_go_in_blocks(shelf: ts.Shelf) -> None:
    """Strided, big-endian and cast sources of many blocks; 8 MiB is one."""
    values = np.random.default_rng(5).standard_normal((3000, 1100))  # 25 MiB
    shelf.a = np.asfortranarray(values)
    np.testing.assert_array_equal(shelf.a, values)
    shelf.a = values.astype(">f8")[::-1]
    np.testing.assert_array_equal(shelf.a, values[::-1])
    shelf.a[...] = values.astype(np.float32)
    np.testing.assert_array_equal(shelf.a, values.astype(np.float32))
    shelf.b = values.reshape(2, -1)[:, ::-1]  # rows longer than a block
    np.testing.assert_array_equal(shelf.b, values.reshape(2, -1)[:, ::-1])


def test_a_small_part_moves_few_bytes(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.x = np.zeros((64, 1 << 17))  # 64 rows of one chunk
    shelf.persist()
    shelf.x[...] = 1
    shelf.persist()
    shelf.x[0] = 2
    shelf.persist()  # both slots are known now
    staged = shelf.stats()["bytes_staged"]
    shelf.x[3, 10:20] = 5
    assert shelf.stats()["bytes_staged"] - staged <= 1 << 20
    commit = shelf.persist()
    assert commit.nbytes <= 4 << 20
    assert shelf.x[3, 9:21].sum() == 52
    assert (shelf.x[1] == 1).all()


def test_edit_writes_what_changed(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros((8, 1 << 17))  # 8 chunks
    shelf.persist()
    staged = shelf.stats()["bytes_staged"]
    with shelf.x.edit() as values:
        values[2, 5] = 1
        values[3, 5] = 2
        values[7, -1] = 3
    assert shelf.stats()["bytes_staged"] - staged == 3 << 20
    assert (shelf.x[2, 5], shelf.x[3, 5], shelf.x[7, -1], shelf.x.numpy().sum()) == (1, 2, 3, 6)
    with pytest.raises(ValueError, match="read-only"):
        values[0, 0] = 9
    shelf.persist()
    with shelf.x.edit():
        pass
    assert not shelf.x.dirty


def test_edit_writes_nothing_when_it_raises(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(10)
    shelf.persist()
    with pytest.raises(RuntimeError, match="boom"), shelf.x.edit() as values:  # noqa: PT012
        values[:] = 1
        raise RuntimeError("boom")
    assert not shelf.x.dirty
    assert shelf.x.numpy().sum() == 0
    assert not values.flags.writeable  # though it is held still
    shelf.persist()
    with shelf.x.edit() as again:
        again[0] = 2
    assert shelf.x[0] == 2


def test_edit_of_odd_shapes(shelf: ts.Shelf) -> None:
    for name, value in {"s": np.array(1.0), "e": np.zeros((3, 0)), "n": np.arange(200_000)}.items():
        shelf[name] = value
        with shelf[name].edit() as values:
            values += 1
        np.testing.assert_array_equal(shelf[name], value + 1)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 1)])
def test_small_shapes(reopen: OpenShelf, shape: "tuple[int, ...]") -> None:
    shelf = reopen()
    value = np.ones(shape, np.int32)
    shelf.x = value
    shelf.x[...] = value * 2
    shelf.x += 1
    shelf.persist()
    np.testing.assert_array_equal(shelf.x.committed, value * 3)
    shelf = reopen()
    for tensor in (shelf.x, shelf.x.committed):
        np.testing.assert_array_equal(tensor, value * 3)
        assert tensor.numpy().shape == tensor.numpy(copy=True).shape == tensor[...].shape == shape


def test_a_lease_pins_its_slot(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(10)
    shelf.persist()
    lent = shelf.x.numpy(copy=False if shelf.info().promises.mapped else None)
    shelf.x[...] = 1  # goes to the other slot
    np.testing.assert_array_equal(lent, np.zeros(10))
    shelf.persist()
    if not shelf.info().promises.mapped:
        shelf.x[...] = 2
        np.testing.assert_array_equal(lent, np.zeros(10))
        return
    writes: list[Callable[[], object]] = [
        lambda: shelf.x.fill_(2),
        lambda: shelf.x.__setitem__(0, 2),
        lambda: shelf.x.__iadd__(1),
    ]
    for write in writes:
        with pytest.raises(ts.LeasedError, match="'x'") as caught:
            write()
        assert "numpy()" in caught.value.remedy
    view = lent[2:]
    del lent
    with pytest.raises(BufferError):
        shelf.x[...] = 2
    del view
    shelf.x[...] = 2
    assert shelf.x.numpy(copy=True).sum() == 20


def test_persist_of_a_tensor_is_the_shelfs(shelf: ts.Shelf) -> None:
    shelf.a, shelf.b = 1.0, 2.0
    commit = shelf.a.persist(step=3)
    assert (commit.version, shelf.step, shelf.b.dirty) == (1, 3, False)


def test_second_edit_is_refused(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(4)
    with shelf.x.edit() as outer:
        outer[0] = 1
        with pytest.raises(ts.UnsupportedError, match="edited already"), shelf.x.edit():
            pass
    assert shelf.x.numpy().tolist() == [1, 0, 0, 0]
    with shelf.x.edit() as later:
        later[1] = 2
    assert shelf.x.numpy().tolist() == [1, 2, 0, 0]


@pytest.mark.parametrize("how", ["part", "whole"])
def test_assignment_during_an_edit_is_not_lost(shelf: ts.Shelf, how: str) -> None:
    shelf.x = np.zeros(4)
    with pytest.raises(ts.UnsupportedError, match="assigned during"), shelf.x.edit() as values:  # noqa: PT012
        values[0] = 1
        if how == "part":
            shelf.x[1] = 5
        else:
            shelf.x = [0.0, 5.0, 0.0, 0.0]
    assert shelf.x.numpy().tolist() == [0, 5, 0, 0]


def test_edit_of_a_reader_fails_at_once(made: pathlib.Path, reopen: OpenShelf) -> None:
    shelf = reopen(mode="r")
    entered = False
    with pytest.raises(ts.ReadOnlyError, match="open for reading"), shelf.w.edit():
        entered = True
    assert not entered


def test_elements_cannot_be_deleted(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(4)
    with pytest.raises(ts.LayoutError, match="shape is fixed"):
        del shelf.x[0]


@pytest.mark.parametrize(
    ("stored", "value", "short"),
    [
        ("float32", np.ones((2, 3), np.float32), True),
        ("int64", np.ones((2, 3), np.int64), True),
        ("uint64", np.ones((2, 3), np.ulonglong), True),
        ("bool", np.ones((2, 3), bool), True),
        ("complex64", np.ones((2, 3), np.complex64), True),
        ("float16", np.ones((2, 3), np.float16), True),
        ("float32", np.ones((3, 2), np.float32), False),  # another shape
        ("float32", np.ones(6, np.float32), False),
        ("int32", np.ones((2, 3), np.float32), False),  # another type of the same width
        ("uint32", np.ones((2, 3), np.int32), False),
        ("float32", np.ones((2, 3), ">f4"), False),
        ("float32", np.ones((3, 2), np.float32).T, False),
        ("float32", np.ones((2, 6), np.float32)[:, ::2], False),
        ("bfloat16", np.ones((2, 3), np.uint16), False),
    ],
)
def test_only_arrays_of_the_very_layout_go_the_short_way(
    shelf: ts.Shelf, stored: str, value: np.ndarray, short: bool
) -> None:
    x = shelf.create("x", (2, 3), stored)
    assert bool(x._ref._assign_array(value, shelf._assignments.session)) is short
    assert bool(x.numpy(copy=True).view(np.uint8).any()) is short


def test_the_short_way_stands_back_while_an_edit_is_under_way(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(3)
    edit = shelf.x.edit()
    edit.__enter__()[0] = 1
    assert not shelf.x._ref._assign_array(np.ones(3), shelf._assignments.session)
    shelf.x[...] = np.full(3, 7.0)
    with pytest.raises(ts.UnsupportedError, match="assigned during its edit"):
        edit.__exit__(None, None, None)
    assert shelf.x.numpy().tolist() == [7, 7, 7]


def test_persist_within_an_edit_is_refused(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(3)
    with shelf.x.edit() as x:
        x[0] = 1
        with pytest.raises(ts.UnsupportedError, match=r"edit\(\) of 'x'"):
            shelf.persist(1)
        with ThreadPoolExecutor(1) as other:  # whose edit it is not
            assert other.submit(shelf.persist, 2).result().step == 2
    assert shelf.persist(3).step == 3
    assert shelf.x.committed.numpy().tolist() == [1, 0, 0]


def test_update_looks_at_every_value_first(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.LayoutError, match="'b': a NoneType"):
        shelf.update({"a": np.ones(1), "b": None})
    assert list(shelf) == []
    shelf.update([("a", 1.0)], b=np.zeros(2))
    assert list(shelf) == ["a", "b"]


def test_masked_arrays_are_refused(shelf: ts.Shelf) -> None:
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    with pytest.raises(ts.LayoutError, match=r"'x': a masked array.*filled"):
        shelf.x = masked
    shelf.x = masked.filled(0)


def test_a_replacement_that_fails_leaves_the_old_tensor(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.x = np.ones(3)
    shelf.persist()
    handle = shelf.x

    class Interrupted:
        def contiguous_bytes(self) -> Iterator[np.ndarray]:
            yield np.zeros(8, np.uint8)
            raise KeyboardInterrupt

        shape, name, weak = (2,), "float64", False

    monkeypatch.setattr(_mapping, "named_source", lambda *_: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        shelf.replace("x", None)
    with pytest.raises(KeyboardInterrupt):
        shelf["y"] = None
    shelf.persist()
    assert handle.numpy().tolist() == [1, 1, 1]
    assert list(shelf) == ["x"]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (4, 3)], ids=str)
def test_empty_parts(shelf: ts.Shelf, shape: tuple[int, ...]) -> None:
    """Every part that NumPy would give, its own value assigned back, of the very layout."""
    shelf.x = np.zeros(shape)
    array = np.zeros(shape)
    items = [slice(None), slice(0, 0), slice(1, 2), slice(2, None), slice(None, None, -1), -1, 1]
    for index in itertools.product(items, repeat=len(shape)):
        try:
            part = array[index]
        except IndexError:
            with pytest.raises(IndexError):
                shelf.x[index] = 1.0
            continue
        shelf.x[index] = np.array(part)
        shelf.x[index] = 0
        assert shelf.x[index].shape == part.shape
    shelf.persist()


def test_what_has_its_bytes_already_is_not_written(reopen: OpenShelf) -> None:
    chunk = 1 << 20
    value = np.random.default_rng(5).integers(0, 256, 3 * chunk, np.uint8)
    shelf = reopen(keep_unchanged=True, placement="by_chunk")
    shelf.w = value
    assert shelf.persist().nbytes == 3 * chunk
    shelf.w = value
    shelf.w[...] = value
    assert shelf.persist().nbytes == 0
    assert shelf.stats()["bytes_unchanged"] == 6 * chunk
    value[chunk] += 1
    shelf.w = value
    assert shelf.persist().nbytes == chunk
    assert np.array_equal(shelf.w.numpy(), value)
    shelf = reopen(placement="by_chunk")
    for _ in range(2):
        shelf.w = value
        assert shelf.persist().nbytes == 3 * chunk
