"""The buffer protocol, request by request, beside what NumPy exports of the same values."""

import ctypes
import gc
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf import _core
from tensorshelf._values import _dtypes

SIMPLE, WRITABLE, FORMAT, ND, STRIDES = 0, 1, 4, 8, 24
C_ORDER, F_ORDER, ANY_ORDER, INDIRECT = 0x38, 0x58, 0x98, 0x118

FORMATS = {
    "bool": "?", "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I",
    "int32": "i", "uint64": "Q", "int64": "q", "float16": "e", "float32": "f", "float64": "d",
    "complex64": "Zf", "complex128": "Zd",
}  # fmt: skip
CARRIERS = {
    "bfloat16": "H", "complex32": "I", "float8_e4m3fn": "B", "float8_e5m2": "B",
    "float8_e4m3fnuz": "B", "float8_e5m2fnuz": "B", "float8_e8m0fnu": "B",
}  # fmt: skip
SHAPES = [(), (1,), (5,), (1, 5), (5, 1), (4, 3), (3, 1, 2), (0,), (2, 0, 3), (0, 7)]


class View(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


def numbers(pointer: Any, count: int) -> Any:
    return tuple(pointer[:count]) if pointer else None


def asked(exporter: object, flags: int) -> "dict[str, Any]":
    """What the exporter gives to this request."""
    view = View()
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.POINTER(View), ctypes.c_int]
    get(exporter, view, flags)
    try:
        assert view.obj is exporter
        assert not view.suboffsets
        return {
            "bytes": ctypes.string_at(view.buf, view.len),
            "itemsize": view.itemsize,
            "readonly": view.readonly,
            "ndim": view.ndim,
            "format": view.format and view.format.decode(),
            "shape": numbers(view.shape, view.ndim),
            "strides": numbers(view.strides, view.ndim),
        }
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))


def handles(reopen: OpenShelf, value: "np.ndarray[Any, Any]") -> Iterator[Any]:
    shelf = reopen(mode="w", keep=1)
    shelf.x = value
    yield shelf.x
    shelf.persist()
    yield shelf.at(1).x


def in_c_order(shape: "tuple[int, ...]", size: int) -> "tuple[int, ...]":
    """The strides in bytes; an axis of no length counts as one of length 1."""
    lengths = [max(length, 1) for length in shape]
    return tuple(int(np.prod(lengths[i + 1 :])) * size for i in range(len(shape)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_memoryview_is_that_of_numpy(reopen: OpenShelf, shape: "tuple[int, ...]") -> None:
    shelf = reopen(keep=1)
    values: dict[str, np.ndarray[Any, Any]] = {}
    for name in FORMATS:
        values[name] = np.arange(np.prod(shape)).reshape(shape).astype(name)
    shelf.update(values)
    shelf.persist()
    for name, value in values.items():
        size = value.itemsize
        expected = (shape, len(shape), size, value.nbytes, in_c_order(shape, size))
        for handle in (shelf[name], shelf.at(1)[name]):
            given = memoryview(handle)
            told = (given.shape, given.ndim, given.itemsize, given.nbytes, given.strides)
            assert told == expected, name
            assert (given.format, given.readonly) == (FORMATS[name], True)
            assert given.c_contiguous
            assert given.tobytes() == value.tobytes()
            array = np.asarray(given)
            assert (array.dtype, array.shape) == (value.dtype, shape)
            assert not array.flags.writeable


@pytest.mark.parametrize("retained", [False, True])
def test_every_request_gets_what_it_asked_for(reopen: OpenShelf, retained: bool) -> None:
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    x = list(handles(reopen, value))[retained]
    whole = {
        "bytes": value.tobytes(), "itemsize": 4, "readonly": 1, "ndim": 2,
        "format": "f", "shape": (4, 3), "strides": (12, 4),
    }  # fmt: skip
    for flags in (STRIDES, C_ORDER, ANY_ORDER, INDIRECT):
        assert asked(x, flags | FORMAT) == whole
    assert asked(x, ND | FORMAT) == {**whole, "strides": None}
    assert asked(x, FORMAT) == {**whole, "ndim": 1, "shape": None, "strides": None}
    for flags in (SIMPLE, ND, STRIDES, C_ORDER):  # the type would be lost
        with pytest.warns(RuntimeWarning, match="memoryview"), pytest.raises(BufferError):
            asked(x, flags)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for flags in (WRITABLE, WRITABLE | FORMAT, WRITABLE | STRIDES | FORMAT):
            with pytest.raises(BufferError, match="read-only; write through the tensor"):
                asked(x, flags)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fortrans_order_is_given_where_it_is_both(
    reopen: OpenShelf, shape: "tuple[int, ...]"
) -> None:
    value = np.zeros(shape)
    for handle in handles(reopen, value):
        if value.flags.f_contiguous:
            assert asked(handle, F_ORDER | FORMAT)["strides"] == (in_c_order(shape, 8) or None)
        else:
            with pytest.raises(BufferError, match="C order"):
                asked(handle, F_ORDER | FORMAT)


@pytest.mark.parametrize("name", [*FORMATS, *CARRIERS])
def test_what_is_lent_has_the_letter_of_its_carrier(reopen: OpenShelf, name: str) -> None:
    shelf = reopen(keep=1, placement="whole")
    x = shelf.create("x", (2, 3), name)
    shelf.persist()
    letter = FORMATS.get(name) or CARRIERS[name]
    if not shelf.info().promises.mapped:
        with pytest.raises(ts.UnsupportedError):
            x.numpy(copy=False)
    size = x.itemsize
    for lease in (x._ref._lease(), x._ref._lease_committed(), shelf.at(1).x._ref._lease()):
        assert lease.in_place is shelf.info().promises.mapped
        whole = {
            "bytes": bytes(6 * size), "itemsize": size, "readonly": 1, "ndim": 2,
            "format": letter, "shape": (2, 3), "strides": (3 * size, size),
        }  # fmt: skip
        assert asked(lease, STRIDES | FORMAT) == whole
        assert asked(lease, C_ORDER) == {**whole, "format": None}
        bare = {**whole, "format": None, "ndim": 1, "shape": None, "strides": None}
        assert asked(lease, SIMPLE) == bare
        with pytest.raises(BufferError, match="read-only"):
            asked(lease, WRITABLE)
        with pytest.raises(BufferError, match="C order"):
            asked(lease, F_ORDER)
    assert np.dtype(_dtypes.carrier(name)).itemsize == size


def test_a_buffer_that_was_given_back_holds_nothing(reopen: OpenShelf) -> None:
    shelf = reopen(placement="whole")
    shelf.x = np.zeros(10)
    shelf.persist()
    pinned = []
    for flags in (SIMPLE, STRIDES | FORMAT):
        asked(shelf.x._ref._lease(), flags)
    view = memoryview(shelf.x._ref._lease())
    gc.collect()
    for step in range(2):
        try:
            shelf.x[...] = np.full(10, step + 1.0)
            shelf.persist()
        except ts.LeasedError:
            pinned.append(step)
    assert pinned == ([1] if shelf.info().promises.mapped else [])
    assert not np.asarray(view).any()
    view.release()
    shelf.x[...] = np.full(10, 3.0)
    shelf.persist()
    assert shelf.x.committed[0] == 3


# ---- in: arrays that are handed over


def test_what_does_not_lie_in_c_order_is_not_taken_for_its_bytes(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros((3, 2))
    turned = np.arange(6.0).reshape(2, 3).T
    with pytest.raises(ValueError, match="contiguous"), shelf.x._writing() as into:
        into._write(turned)
    assert not shelf.x.numpy().any()
    frozen = np.ones((3, 2))
    frozen.flags.writeable = False
    shelf.x = frozen
    for target in (frozen, np.ones((2, 3)).T):
        before = target.copy()
        for read in (shelf.x._ref._read_into, shelf.x._ref._read_committed_into):
            with pytest.raises(ValueError, match=r"contiguous|read-only"):
                read(target)
        with pytest.raises(ValueError, match=r"contiguous|read-only"), shelf.x._writing() as into:
            into._read_into(target)
        np.testing.assert_array_equal(target, before)


@pytest.mark.parametrize("offset", [2**32, 2**32 + 8, 2**63, 2**64 - 8])
def test_an_offset_beyond_a_tensor_is_not_cut_to_32_bits(reopen: OpenShelf, offset: int) -> None:
    shelf = reopen(keep=1)
    shelf.x = np.arange(4.0)
    shelf.persist()
    shelf.x, shelf.y = np.arange(4.0), [5.0]
    target = np.full(1, 7.0)
    with shelf.x._writing() as into:
        reads = [into._read_into, shelf.x._ref._read_into, shelf.x._ref._read_committed_into]
        for read in (*reads, shelf.at(1).x._ref._read_into):
            with pytest.raises(ts.LayoutError):
                read(target, offset)
            read(target, 8)
            assert target[0] == 1
            read(target)
            assert target[0] == 0
    with pytest.raises(ts.LayoutError), shelf.y._writing() as into:
        into._write(target, offset)
    assert shelf.y.numpy().tolist() == [5]


@pytest.mark.parametrize(
    ("stored", "given", "named", "short"),
    [
        ("bfloat16", np.ones(4, np.uint16), "bfloat16", True),
        ("bfloat16", np.ones(4, np.uint16), "float16", False),
        ("bfloat16", np.ones(4, np.uint16), "", False),
        ("bfloat16", np.ones((2, 2), np.uint16), "bfloat16", False),
        ("bfloat16", np.ones(5, np.uint16), "bfloat16", False),
        ("bfloat16", np.ones(8, np.uint16)[::2], "bfloat16", False),
        ("float8_e5m2", np.ones(4, np.uint8), "float8_e5m2", True),
        ("float8_e5m2", np.ones(4, np.uint8), "float8_e4m3fn", False),
        ("complex64", np.ones(4, np.complex64), "", True),
        ("complex128", np.ones(4, np.complex64), "", False),
        ("complex64", np.ones(4, np.complex128), "", False),
        ("float64", np.ones(4, "l"), "", False),
        ("int64", np.ones(4, "l"), "", True),
        ("int64", np.ones(4, "q"), "", True),
        ("uint64", np.ones(4, "L"), "", True),
        ("uint64", np.ones(4, "l"), "", False),
        ("int64", np.ones(4, ">i8"), "", False),
        ("int8", np.ones(4, np.bool_), "", False),
        ("float64", np.ones((4, 1)), "", False),
        ("float64", 1.0, "", False),
    ],
)
def test_the_short_way_and_what_it_leaves_alone(
    shelf: ts.Shelf, stored: str, given: Any, named: str, short: bool
) -> None:
    x = shelf.create("x", 4, stored)
    session, before = shelf._assignments.session, shelf._assignments.session.assignments
    assert bool(x._ref._assign_array(given, session, named)) is short
    assert session.assignments == before + short
    value = np.zeros(4 * x.itemsize, np.uint8)
    x._ref._read_into(value)
    assert value.tobytes() == (np.asarray(given).tobytes() if short else bytes(value.nbytes))


def test_a_writable_buffer_is_refused_before_anything_is_read(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(4)
    shelf.persist()
    before = shelf.stats()["bytes_read"]
    with pytest.raises((TypeError, BufferError)):
        io.BytesIO(bytes(32)).readinto(shelf.x)
    assert shelf.stats()["bytes_read"] == before


def test_module_constants() -> None:
    assert _core.CHUNK_BYTES == 1 << 20
    assert _core.__version__ == ts.__version__
