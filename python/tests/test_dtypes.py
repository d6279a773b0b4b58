"""Every element type, from NumPy and from torch, through assignment, reopening and reading."""

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf._values import _dtypes

ml_dtypes = pytest.importorskip("ml_dtypes")

NATIVE = list(_dtypes._NATIVE)
CARRIED = list(_dtypes._CARRIED)
RNG = np.random.default_rng(3)


def sample(name: str) -> np.ndarray:
    """Any bytes are a value of any type but bool; comparisons below are of bytes."""
    dtype = _dtypes.needed(name)
    raw = RNG.integers(0, 2 if name == "bool" else 256, 5 * 3 * dtype.itemsize, dtype=np.uint8)
    return raw.view(dtype).reshape(5, 3)


@pytest.mark.parametrize("name", NATIVE + CARRIED)
def test_numpy_round_trip(reopen: OpenShelf, name: str) -> None:
    values = sample(name)
    shelf = reopen()
    shelf.x = values
    shelf.strided = values[::2, ::-1]
    shelf.zero = values[:0]
    shelf.one = values[0, 0]
    shelf.persist()
    shelf = reopen()
    assert (shelf.x.dtype_name, shelf.x.dtype, shelf.x.itemsize) == (
        name,
        values.dtype,
        values.dtype.itemsize,
    )
    for tensor, expected in [
        (shelf.x, values),
        (shelf.strided, values[::2, ::-1]),
        (shelf.zero, values[:0]),
        (shelf.one, values[0, 0]),
    ]:
        assert tensor.numpy().tobytes() == expected.tobytes()
        assert tensor.numpy(copy=True).tobytes() == expected.tobytes()
        assert np.asarray(tensor).tobytes() == expected.tobytes()
        assert np.asarray(tensor).dtype == values.dtype
    assert shelf.x[1, 2].tobytes() == values[1, 2].tobytes()
    assert shelf.x[:, 1].tobytes() == values[:, 1].tobytes()
    assert shelf.x[[3, 1]].tobytes() == values[[3, 1]].tobytes()
    shelf.x[:, 1] = values[::-1, 0]
    values[:, 1] = values[::-1, 0]
    shelf.x[[0, 2]] = values[[4, 4]]
    values[[0, 2]] = values[[4, 4]]
    assert shelf.x.numpy().tobytes() == values.tobytes()


@pytest.mark.parametrize("name", [n for n in NATIVE if np.dtype(n).itemsize > 1])
def test_big_endian_sources(shelf: ts.Shelf, name: str) -> None:
    values = sample(name)
    shelf.x = values.astype(values.dtype.newbyteorder(">"))
    assert shelf.x.dtype == np.dtype(name)
    assert shelf.x.numpy().tobytes() == values.tobytes()
    shelf.x[1:, 1] = values[1:, 0].astype(values.dtype.newbyteorder(">"))
    assert shelf.x[1:, 1].tobytes() == values[1:, 0].tobytes()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_casting_to_narrow_floats(shelf: ts.Shelf, name: str) -> None:
    values = np.array([0.5, 1, -2, 4], np.float32)
    tensor = shelf.create("x", (4,), name)
    tensor[...] = values
    np.testing.assert_array_equal(tensor.numpy().astype(np.float32), values)
    tensor[1:3] = 6
    tensor += np.ones(4, tensor.dtype)
    np.testing.assert_array_equal(tensor.numpy().astype(np.float32), [1.5, 7, 7, 5])
    with pytest.raises(ts.LayoutError):
        tensor[...] = 1j
    shelf.wide = np.zeros(4)
    shelf.wide[...] = tensor
    np.testing.assert_array_equal(shelf.wide, [1.5, 7, 7, 5])


def test_complex32_is_a_pair_of_halves(shelf: ts.Shelf) -> None:
    tensor = shelf.create("x", (3,), "complex32")
    tensor[...] = np.array([1 + 2j, 3, -4j])
    tensor[1] = 5
    assert tensor.numpy()["real"].tolist() == [1, 5, 0]
    assert tensor.numpy()["imag"].tolist() == [2, 0, -4]
    shelf.wide = np.zeros(3, np.complex64)
    shelf.wide[...] = tensor
    np.testing.assert_array_equal(shelf.wide, [1 + 2j, 5, -4j])


@pytest.mark.parametrize("name", CARRIED)
def test_memoryview_refuses_what_it_cannot_name(shelf: ts.Shelf, name: str) -> None:
    shelf.create("x", (3,), name)
    with pytest.raises(BufferError, match=name):
        memoryview(shelf.x)


@pytest.mark.parametrize(
    "dtype",
    [
        object,
        "U5",
        "S3",
        "M8[s]",
        "m8[ns]",
        np.longdouble,
        "V4",
        "f4,i4",
        "(2,)f4",
        "nonsense",
        None,
        7,
    ],
)
def test_other_dtypes_are_refused_with_a_remedy(shelf: ts.Shelf, dtype: object) -> None:
    with pytest.raises(TypeError) as caught:
        shelf.create("x", (2,), dtype)
    assert isinstance(caught.value, ts.LayoutError)
    assert caught.value.remedy
    assert "x" not in shelf


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
        (complex, "complex128"),
        (np.float32, "float32"),
        (">i4", "int32"),
        ("e", "float16"),
        (np.longlong, "int64"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (_dtypes.StandInDType("float8_e5m2", 1), "float8_e5m2"),
    ],
    ids=str,
)
def test_ways_to_name_a_dtype(shelf: ts.Shelf, dtype: object, name: str) -> None:
    assert shelf.create("x", (2,), dtype).dtype_name == name


def test_stored_types_of_ml_dtypes_only(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.LayoutError, match="int4"):
        shelf.x = np.zeros(3, ml_dtypes.int4)
