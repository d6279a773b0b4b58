"""Reading: indexing, arrays, leases, protocols, arithmetic."""

import io
import itertools
import mmap
import pickle

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place

import tensorshelf as ts
from tensorshelf._values import _index

VALUES = np.arange(4 * 5 * 6, dtype=np.float32).reshape(4, 5, 6)
INDICES = [
    ...,
    (),
    0,
    -1,
    (1, 2, 3),
    (1, 2),
    slice(1, 3),
    slice(None, None, -2),
    (slice(None), 2),
    (slice(None), slice(None), 1),
    (slice(1, 4, 2), slice(None, None, -1), slice(5, 0, -2)),
    (None, 1, ..., None),
    slice(3, 1),
    [0, 2, 2],
    ([0, 1], [1, 2]),
    VALUES > 50,
    (slice(None), [1, 0]),
    np.array(2),
]


@pytest.fixture
def x(shelf: ts.Shelf) -> ts.Tensor:
    shelf.x = VALUES
    return shelf.x


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_is_numpys_and_copies(x: ts.Tensor, index: object) -> None:
    expected = VALUES[index]  # type: ignore[index]
    got = x[index]
    np.testing.assert_array_equal(got, expected)
    assert np.shape(got) == np.shape(expected)
    assert isinstance(got, np.generic) == isinstance(expected, np.generic)
    assert got.dtype == np.float32
    if isinstance(got, np.ndarray):
        assert not got.flags.writeable
        x[...] = -1
        np.testing.assert_array_equal(got, expected)


def test_a_handle_indexes_another(shelf: ts.Shelf, x: ts.Tensor) -> None:
    shelf.rows = np.array([3, 0])
    shelf.i = 2
    np.testing.assert_array_equal(x[shelf.rows], VALUES[[3, 0]])
    np.testing.assert_array_equal(x[shelf.i], VALUES[2])
    assert [10, 11, 12][shelf.i] == 12


def test_long_strided_reads_go_in_pieces(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_index, "SPAN_BYTES", 1000)
    values = np.arange(40 * 30 * 20).reshape(40, 30, 20)
    shelf.x = values
    for index in [(slice(None), 3), (slice(None), slice(None), 5), slice(None, None, 3)]:
        np.testing.assert_array_equal(shelf.x[index], values[index])
        shelf.x[index] = -values[index]
        values[index] *= -1
        np.testing.assert_array_equal(shelf.x, values)


def test_properties(x: ts.Tensor) -> None:
    assert (x.name, x.shape, x.ndim, x.size, x.nbytes, x.itemsize) == (
        "x",
        (4, 5, 6),
        3,
        120,
        480,
        4,
    )
    assert (x.dtype, x.dtype_name, len(x)) == (np.dtype("float32"), "float32", 4)
    np.testing.assert_array_equal(np.stack(list(x)), VALUES)


def test_numbers(shelf: ts.Shelf) -> None:
    shelf.i, shelf.f, shelf.b, shelf.v = 3, 2.5, False, np.zeros(2)
    assert (int(shelf.i), float(shelf.f), complex(shelf.f)) == (3, 2.5, 2.5 + 0j)
    assert bool(shelf.i)
    assert not shelf.b
    assert (shelf.i.item(), range(5)[shelf.i]) == (3, 3)
    with pytest.raises(TypeError):
        len(shelf.i)
    with pytest.raises(TypeError):
        [1][shelf.f]
    with pytest.raises(ValueError, match="exactly one"):
        shelf.v.item()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(shelf.v)


def test_numpy_leases_and_copies(shelf: ts.Shelf, x: ts.Tensor) -> None:
    kept = x.numpy()
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1
    mine = x.numpy(copy=True)
    mine[...] = 0
    np.testing.assert_array_equal(kept, VALUES)
    if shelf.info().promises.mapped:
        lent = x.numpy(copy=False)
        assert np.shares_memory(x.numpy(copy=False), lent)
        assert np.shares_memory(x.torch(copy=False).numpy(), lent)
        np.testing.assert_array_equal(lent, VALUES)
        with pytest.raises(ValueError, match=r"WRITEABLE|writ"):
            lent.flags.writeable = True
    else:
        with pytest.raises(ts.UnsupportedError, match=r"copy=True"):
            x.numpy(copy=False)


def test_array_protocol(x: ts.Tensor) -> None:
    assert not np.asarray(x).flags.writeable
    assert np.array(x).flags.writeable
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.concatenate([x, x])[4:], VALUES)
    assert np.mean(x) == VALUES.mean()
    assert x.__array__(np.int32).dtype == np.int32
    with pytest.raises(ValueError, match="copy"):
        x.__array__(np.int32, copy=False)
    assert x.__array__(copy=True).flags.writeable


def test_buffer_protocol(x: ts.Tensor) -> None:
    with memoryview(x) as view:
        assert (view.readonly, view.format, view.shape) == (True, "f", (4, 5, 6))
        assert view.tobytes() == VALUES.tobytes()
        assert view.c_contiguous
    with pytest.raises((BufferError, TypeError), match=r"read-only|read-write"):
        io.BytesIO(bytes(480)).readinto(x)  # asks for a writable buffer


def test_dlpack_gives_a_private_copy(x: ts.Tensor) -> None:
    taken = np.from_dlpack(x)
    np.testing.assert_array_equal(taken, VALUES)
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises((BufferError, ts.UnsupportedError)):  # the latter where nothing is mapped
        x.__dlpack__(copy=False)


def test_arithmetic(shelf: ts.Shelf, x: ts.Tensor) -> None:
    np.testing.assert_array_equal(x + 1, VALUES + 1)
    np.testing.assert_array_equal(2 * x, 2 * VALUES)
    np.testing.assert_array_equal(VALUES - x, np.zeros_like(VALUES))
    np.testing.assert_array_equal(-x, -VALUES)
    np.testing.assert_array_equal(x > 3, VALUES > 3)
    np.testing.assert_array_equal(x == x, np.ones_like(VALUES, bool))
    np.testing.assert_array_equal(np.sqrt(x), np.sqrt(VALUES))
    assert np.add.reduce(x, axis=None) == VALUES.sum()
    shelf.m = np.eye(6, dtype=np.float32)
    np.testing.assert_array_equal(x @ shelf.m, VALUES)
    array = np.zeros_like(VALUES)
    array += x
    np.testing.assert_array_equal(array, VALUES)


def test_committed_is_the_durable_value(shelf: ts.Shelf, x: ts.Tensor) -> None:
    with pytest.raises(ts.UnknownName):
        x.committed.numpy()
    shelf.persist()
    x[0] = -1
    durable = x.committed
    np.testing.assert_array_equal(durable, VALUES)
    np.testing.assert_array_equal(durable[0, 1], VALUES[0, 1])
    np.testing.assert_array_equal(durable[[1, 0]], VALUES[[1, 0]])
    np.testing.assert_array_equal(durable + 1, VALUES + 1)
    assert not durable.numpy().flags.writeable
    assert not hasattr(durable, "__setitem__")
    with pytest.raises(ts.ReadOnlyError):
        np.add(durable, 1, out=durable)
    shelf.persist()
    np.testing.assert_array_equal(durable[0], np.full((5, 6), -1))


def test_a_handle_cannot_be_pickled(shelf: ts.Shelf, x: ts.Tensor) -> None:
    for handle in (shelf, x):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(handle)


def test_large_copies_begin_where_pages_do(shelf: ts.Shelf) -> None:
    """So that a drive reads straight into them: else each byte goes through a buffer first."""
    value = np.arange(400_001, dtype=np.int64).reshape(7, -1)
    shelf.x = value
    for found in (shelf.x.numpy(copy=True), shelf.x[...], shelf.x[1:, :]):
        assert found.ctypes.data % mmap.PAGESIZE == 0
        np.testing.assert_array_equal(found, value[-len(found) :])
    torch = pytest.importorskip("torch")
    tensor = shelf.x.torch()
    assert tensor.data_ptr() % mmap.PAGESIZE == 0
    assert tensor.untyped_storage().nbytes() == value.nbytes
    assert torch.equal(tensor, torch.from_numpy(value))
    tensor += 1
    assert (shelf.x.numpy() == value).all()


def test_long_reads_over_chunks_of_either_slot(place: Place, reopen: OpenShelf) -> None:
    """Neighbouring chunks are read at once; what was assigned in part lies in two slots."""
    chunk = 1 << 20
    value = np.random.default_rng(3).integers(0, 256, 37 * chunk + 12_345, np.uint8)
    shelf = reopen()
    shelf.x = value
    shelf.persist()
    for first, count in [(0, 1), (3, 2), (20, 16), (37, 1)]:
        value[first * chunk : (first + count) * chunk] += 1
        shelf.x[first * chunk : (first + count) * chunk] = value[
            first * chunk : (first + count) * chunk
        ]
    ends = [
        0,
        1,
        chunk - 1,
        chunk,
        5 * chunk + 7,
        18 * chunk,
        36 * chunk,
        37 * chunk + 1,
        len(value),
    ]
    for begin, end in itertools.combinations(ends, 2):
        assert np.array_equal(shelf.x[begin:end], value[begin:end])  # which says less, far sooner
    shelf.persist()
    shelf = reopen(mode="r")
    assert np.array_equal(shelf.x.numpy(copy=True), value)


def test_damage_within_a_long_read_is_found_and_named(place: Place, reopen: OpenShelf) -> None:
    value = np.random.default_rng(4).integers(0, 256, 20 << 20, np.uint8)
    shelf = reopen()
    shelf.x = value
    shelf.persist()
    shelf.close()
    at = place[0].read_bytes().index(value[13 << 20 : (13 << 20) + 4096].tobytes())
    with place[0].open("r+b") as file:
        file.seek(at + 99)
        file.write(bytes([value[(13 << 20) + 99] ^ 1]))
    shelf = reopen(mode="r+")
    for read in (lambda: shelf.x.numpy(copy=True), lambda: shelf.x[5 << 20 :]):
        with pytest.raises(ts.CorruptError, match="chunk 13 fails"):
            read()
    np.testing.assert_array_equal(shelf.x[: 13 << 20], value[: 13 << 20])
    np.testing.assert_array_equal(shelf.x[14 << 20 :], value[14 << 20 :])
