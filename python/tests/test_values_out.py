"""What is read is what was assigned: each protocol, of each type and shape, of each handle."""

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf._values import _dtypes

pytest.importorskip("ml_dtypes")
TYPES = [*_dtypes._NATIVE, *_dtypes._CARRIED]
SHAPES: list[tuple[int, ...]] = [(), (1,), (5, 3), (0,), (2, 0, 3)]


def sample(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Any bytes but those of NaN, so that values equal themselves."""
    if name == "bool":
        values = np.random.default_rng(seed).integers(0, 2, shape).astype(bool)
    elif name == "complex32":
        values = np.zeros(shape, _dtypes.COMPLEX32)
        values["real"] = np.random.default_rng(seed).integers(-8, 8, shape)
        values["imag"] = np.random.default_rng(seed + 9).integers(-8, 8, shape)
    elif np.dtype(_dtypes.needed(name)).kind == "c":
        values = np.random.default_rng(seed).integers(-8, 8, (*shape, 2)).astype(float)
        values = values.view(complex)[..., 0].astype(name)
    else:
        values = np.random.default_rng(seed).integers(1, 5, shape).astype(_dtypes.needed(name))
    return np.ascontiguousarray(values).reshape(shape)


def handles(
    reopen: OpenShelf, name: str, shapes: list[tuple[int, ...]] = SHAPES
) -> Iterator[tuple[Any, np.ndarray]]:
    """Of a tensor of each shape: what it was, what is durable, what was assigned since."""
    shelf = reopen(keep=1)
    values = [[sample(name, shape, seed) for shape in shapes] for seed in range(3)]
    for version in values:
        shelf.update({f"x{i}": value for i, value in enumerate(version)})
        if version is not values[2]:
            shelf.persist()
    for i in range(len(shapes)):
        x = shelf[f"x{i}"]
        yield from zip((shelf.at(1)[f"x{i}"], x.committed, x), (v[i] for v in values), strict=True)


def alike(found: Any, wanted: np.ndarray, *, writable: bool) -> None:
    assert (type(found), found.dtype, found.shape) == (np.ndarray, wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()
    assert found.flags.writeable is writable


@pytest.mark.parametrize("name", TYPES)
def test_arrays(reopen: OpenShelf, name: str) -> None:
    for x, value in handles(reopen, name):
        shape = value.shape
        width = value.dtype.itemsize
        assert (x.dtype_name, x.dtype, x.shape) == (name, value.dtype, shape)
        assert (x.ndim, x.size, x.nbytes) == (value.ndim, value.size, value.nbytes)
        assert x.itemsize == width
        alike(x.numpy(), value, writable=False)
        alike(x.numpy(copy=None), value, writable=False)
        alike(x.numpy(copy=True), value, writable=True)
        alike(np.asarray(x), value, writable=False)
        alike(np.array(x), value, writable=True)
        for dtype in (None, value.dtype):
            alike(x.__array__(dtype), value, writable=False)
            alike(x.__array__(dtype, copy=None), value, writable=False)
            alike(x.__array__(dtype, copy=True), value, writable=True)
        if name not in ("complex32", "complex128"):
            wide = value.astype(np.complex128)
            alike(x.__array__(np.complex128), wide, writable=False)
            alike(x.__array__(np.complex128, copy=True), wide, writable=True)
            assert np.asarray(x, np.complex128).tobytes() == wide.tobytes()
            with pytest.raises(ValueError, match="copy"):
                x.__array__(np.complex128, copy=False)
        for part in (x[...], x[()] if shape else x[...]):
            alike(part.view(np.ndarray), value, writable=False)
        if shape:
            assert len(x) == shape[0]
            assert [np.asarray(row).tobytes() for row in x] == [row.tobytes() for row in value]
            assert all(type(row) is type(one) for row, one in zip(x, value, strict=True))
            np.testing.assert_array_equal(x[::-1], value[::-1])
        else:
            with pytest.raises(TypeError):
                len(x)
            with pytest.raises(TypeError):
                list(x)
            assert type(x[()]) is type(value[()])
            assert x[()] == value[()]
        mine = x.numpy(copy=True)
        mine.view(np.uint8 if shape else mine.dtype)[...] = 0  # the caller's own
        assert x.numpy().tobytes() == value.tobytes()


@pytest.mark.parametrize("name", _dtypes._NATIVE)
def test_buffers_and_dlpack(reopen: OpenShelf, name: str) -> None:
    for x, value in handles(reopen, name):
        shape = value.shape
        taken = np.from_dlpack(x)
        assert (taken.dtype, taken.shape, taken.tobytes()) == (value.dtype, shape, value.tobytes())
        assert x.__dlpack_device__() == (1, 0)
        for given in (None, (1, 0)):
            for copy in (None, True):
                x.__dlpack__(dl_device=given, copy=copy, max_version=(1, 0))
        for wrong in ({"dl_device": (2, 0)}, {"dl_device": (1, 1)}, {"stream": 0}, {"stream": 1}):
            with pytest.raises(BufferError, match="in host memory"):
                x.__dlpack__(**wrong)
        for version in (None, (0, 8)):
            with pytest.raises(BufferError, match="allow a copy"):
                x.__dlpack__(copy=False, max_version=version)
        if type(x) is ts.Committed:
            continue
        with memoryview(x) as view:
            assert (np.asarray(view).dtype, view.shape) == (value.dtype, shape)
            assert (view.readonly, view.nbytes, view.tobytes()) == (
                True,
                value.nbytes,
                value.tobytes(),
            )


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("name", TYPES)
def test_torch(reopen: OpenShelf, name: str) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, name):
        pytest.skip("this torch lacks it")
    for x, value in handles(reopen, name):
        shape = value.shape
        made = [x.torch(), x.torch(copy=True), x.torch(copy=None)]
        if name not in ("complex32", "float8_e8m0fnu") and not name.startswith("float8"):
            made.append(torch.from_dlpack(x))
        for tensor in made:
            assert (tensor.dtype, tuple(tensor.shape)) == (getattr(torch, name), shape)
            assert tensor.is_contiguous()
            flat = tensor.reshape(-1).view(torch.uint8) if value.size else torch.empty(0)
            assert bytes(flat.tolist()) == value.tobytes()
            if value.size:
                flat[:] = 0  # the caller's own
        assert x.numpy().tobytes() == value.tobytes()
        other = torch.zeros(shape, dtype=getattr(torch, name))
        other[...] = x
        if value.size:
            assert bytes(other.reshape(-1).view(torch.uint8).tolist()) == value.tobytes()


# ---- one number


@pytest.mark.parametrize("name", _dtypes._NATIVE)
def test_one_number(reopen: OpenShelf, name: str) -> None:
    for x, value in handles(reopen, name, [(), (1,), (1, 1, 1)]):
        shape = value.shape
        number = value.item()
        assert (type(x.item()), x.item()) == (type(number), number)
        assert (bool(x), complex(x)) == (bool(number), complex(number))
        for convert in (int, float):
            if isinstance(number, complex):
                with pytest.raises(TypeError):
                    convert(x)
            else:
                assert (type(convert(x)), convert(x)) == (convert, convert(number))
        if value.dtype.kind in "iu" and not shape:
            assert operator.index(x) == operator.index(value)
            assert list(range(9))[x] == list(range(9))[number]
        else:
            with pytest.raises(TypeError, match="only an integer tensor without axes"):
                operator.index(x)
        assert number in x
        assert 77 not in x
        assert format(x, ">30" if shape else "") == format(str(x), ">30" if shape else "")
    shelf = reopen()
    for shape in ((), (1,), (1, 1)):
        assert not bool(shelf.create(f"zero{shape}", shape, name))


@pytest.mark.parametrize("shape", [(0,), (2,), (2, 0), (2, 3)], ids=str)
def test_what_is_not_one_number(shelf: ts.Shelf, shape: tuple[int, ...]) -> None:
    shelf.x = np.ones(shape)
    for convert in (float, int, complex, operator.methodcaller("item")):
        with pytest.raises(ValueError, match=r"'x' has \d elements; item\(\) takes exactly one"):
            convert(shelf.x)
    if np.prod(shape) > 1:
        with pytest.raises(ValueError, match="ambiguous"):
            bool(shelf.x)


@pytest.mark.parametrize("name", _dtypes._CARRIED)
def test_one_number_of_types_that_numpy_lacks(shelf: ts.Shelf, name: str) -> None:
    x = shelf.create("x", (), name)
    for number in (1, 2.0, 0.5):
        x.fill_(number)
        assert x.item() == number
        assert complex(x) == number
        if name != "complex32":
            assert (float(x), int(x)) == (number, int(number))
    with pytest.raises(TypeError, match="only an integer tensor"):
        operator.index(x)


# ---- parts


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_copies_of_parts(shelf: ts.Shelf, order: Any) -> None:
    values = np.arange(24.0).reshape(2, 3, 4)
    shelf.x = values
    for index in (..., (slice(None), 1), np.s_[::-1, :, ::2], [1, 0], (0, 1, slice(None))):
        part, wanted = shelf.x[index], values[index].copy().copy(order)
        found = part.copy(order)
        assert (type(found), found.flags.writeable, found.base) == (np.ndarray, True, None)
        np.testing.assert_array_equal(found, wanted)
        assert found.flags.f_contiguous == wanted.flags.f_contiguous
        assert found.flags.c_contiguous == wanted.flags.c_contiguous
        assert part.copy().flags.c_contiguous


IN_PLACE = ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"]
OF_BITS = ["ilshift", "irshift", "iand", "ixor", "ior", "iadd", "imul", "ifloordiv", "imod", "ipow"]


@pytest.mark.parametrize(("dtype", "names"), [("f8", IN_PLACE), ("u1", OF_BITS), ("i4", OF_BITS)])
def test_operators_in_place_on_parts(shelf: ts.Shelf, dtype: str, names: list[str]) -> None:
    values = np.arange(1, 13).reshape(3, 4).astype(dtype)
    for name, index in ((name, i) for name in names for i in (..., 1, np.s_[:, ::-2], [2, 0])):
        change = getattr(operator, name)
        shelf["x"] = values
        wanted = values.copy()
        wanted[index] = change(wanted[index], np.array(3, dtype))
        part = shelf["x"][index]
        before = part.copy()
        made = change(part, np.array(3, dtype))
        assert (type(made), made.flags.writeable, made is part) == (np.ndarray, True, False)
        np.testing.assert_array_equal(part, before)  # which is a value
        shelf["x"][index] = made
        np.testing.assert_array_equal(shelf["x"].numpy(), wanted, err_msg=name)
        mine = np.array(part, subok=True)  # one's own is changed where it lies
        same = mine.view()
        change(mine, np.array(3, dtype))
        np.testing.assert_array_equal(same, made)
