"""NumPy's functions on handles: what they read, where they write, and what they return."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import check

import tensorshelf as ts

VALUES = np.array([[3.0, 1.0, 2.0], [9.0, -4.0, 6.5]])


@pytest.fixture
def x(shelf: ts.Shelf) -> ts.Tensor:
    shelf.x = VALUES
    return shelf.x


@pytest.mark.parametrize(
    "function",
    [np.mean, np.std, np.var, np.median, np.nanmean, np.nanstd, np.sum, np.prod, np.max, np.any],
    ids=lambda function: function.__name__,
)
def test_what_a_function_writes_to_an_output_is_its_result(
    shelf: ts.Shelf, x: ts.Tensor, function: Callable[..., Any]
) -> None:
    """Of np.mean the sum was left there, and of np.std the variance."""
    wanted = function(VALUES, axis=0)
    shelf.out = np.full(3, -7.0)
    shelf.persist()
    out = shelf.out
    if function is not np.any:
        assert function(x, axis=0, out=out) is out
        np.testing.assert_array_equal(out.numpy(), wanted)
        assert out.dirty
    np.testing.assert_array_equal(function(x, axis=0), wanted)
    np.testing.assert_array_equal(x.numpy(), VALUES)


def test_an_output_may_come_by_its_place(shelf: ts.Shelf, x: ts.Tensor) -> None:
    shelf.out = np.zeros(3)
    assert np.mean(x, 0, None, shelf.out).name == "out"
    np.testing.assert_array_equal(shelf.out.numpy(), VALUES.mean(axis=0))
    np.median(VALUES, 0, shelf.out)  # the output alone is a handle
    np.testing.assert_array_equal(shelf.out.numpy(), np.median(VALUES, axis=0))
    np.cumsum(shelf.out, out=shelf.out)
    np.testing.assert_array_equal(shelf.out.numpy(), np.cumsum(np.median(VALUES, axis=0)))
    np.concatenate([x[0, :1], x[1, :2]], out=shelf.out)
    np.testing.assert_array_equal(shelf.out.numpy(), [3, 9, -4])


def test_an_output_that_cannot_be_written(shelf: ts.Shelf, x: ts.Tensor) -> None:
    shelf.i = np.zeros(3, np.int8)
    shelf.persist()
    with pytest.raises(ts.LayoutError, match=r"^'i': .*same_kind") as caught:
        np.concatenate([np.ones(1), np.ones(2)], out=shelf.i)
    check(caught, ts.LayoutError, "layout_mismatch", TypeError)
    with pytest.raises(ts.ReadOnlyError):
        np.mean(x, axis=1, out=x.committed)
    with pytest.raises(ValueError, match=r"shape|dimension"):
        np.mean(x, axis=1, out=shelf.i)
    assert not shelf.i.dirty
    assert not shelf.i.numpy().any()


def test_functions_that_only_read(shelf: ts.Shelf, x: ts.Tensor) -> None:
    part = x[0]
    cases: list[tuple[Any, Any]] = [
        (np.concatenate([x, x.committed if shelf.version else x]), np.vstack([VALUES, VALUES])),
        (np.concatenate([part, x[1]]), VALUES.reshape(-1)),
        (np.stack([x[0], shelf.x[1]]), VALUES),
        (np.where(x > 2, x, 0), np.where(VALUES > 2, VALUES, 0)),
        (np.sort(x), np.sort(VALUES)),
        (np.dot(x, part), VALUES @ VALUES[0]),
        (np.einsum("ij->j", x), VALUES.sum(axis=0)),
        (np.linalg.norm(x), np.linalg.norm(VALUES)),
        (np.zeros_like(x), np.zeros((2, 3))),
        (np.argmax(x), 3),
        (np.shape(x), (2, 3)),
        (np.asarray([1.5], like=x), [1.5]),
    ]
    for got, wanted in cases:
        assert type(got) in (np.ndarray, np.int64, np.float64, tuple)
        np.testing.assert_array_equal(got, wanted)
    array = np.zeros((2, 3))
    np.copyto(array, x)
    np.testing.assert_array_equal(array, VALUES)
    with pytest.raises(TypeError):
        np.copyto(x, 1)
    assert np.array_equal(x, VALUES)
    assert not np.array_equal(x, VALUES + 1)


def test_another_library_is_asked_before(x: ts.Tensor) -> None:
    class Other:
        def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> str:
            return f"{func.__name__} of {len(types)}"

    assert np.concatenate([x, Other()]) == "concatenate of 2"  # type: ignore[list-item]


def test_an_output_that_is_left_to_numpy(shelf: ts.Shelf) -> None:
    shelf.q, shelf.r = np.zeros(3), np.zeros(3)
    quotient, rest = np.divmod([7.0, 8.0, 9.0], 4.0, out=(None, shelf.r))
    np.testing.assert_array_equal(quotient, [1, 2, 2])
    assert rest.name == "r"
    np.testing.assert_array_equal(shelf.r.numpy(), [3, 0, 1])
    quotient, rest = np.divmod(shelf.r, 2.0, out=(shelf.q, None))
    np.testing.assert_array_equal(shelf.q.numpy(), [1, 0, 0])
    np.testing.assert_array_equal(rest, [1, 0, 1])
    both = np.divmod(shelf.r, 2.0, out=(shelf.q, shelf.r))
    assert [each.name for each in both] == ["q", "r"]
    array = np.zeros(3)
    made = np.divmod([7.0, 8.0, 9.0], 4.0, out=(array, shelf.r))
    assert made[0] is array
    np.testing.assert_array_equal(array, [1, 2, 2])


def test_a_function_at_some_places(shelf: ts.Shelf) -> None:
    shelf.x, shelf.i, shelf.by = np.zeros(4), np.array([0, 0, 3]), np.array([1.0, 2.0, 5.0])
    np.add.at(shelf.x, shelf.i, shelf.by)
    np.testing.assert_array_equal(shelf.x.numpy(), [3, 0, 0, 5])
    array = np.zeros(4)
    np.add.at(array, shelf.i, shelf.by)
    np.testing.assert_array_equal(array, [3, 0, 0, 5])
    np.negative.at(shelf.x, [0])
    np.testing.assert_array_equal(shelf.x.numpy(), [-3, 0, 0, 5])


def test_an_output_of_which_a_mask_keeps_a_part(shelf: ts.Shelf) -> None:
    shelf.x, shelf.m = np.array([1.0, 2.0, 3.0]), np.array([True, False, True])
    np.add(shelf.x, 10, out=shelf.x, where=shelf.m)
    np.testing.assert_array_equal(shelf.x.numpy(), [11, 2, 13])
    np.multiply([5.0, 6.0, 7.0], 2, out=shelf.x, where=shelf.m)
    np.testing.assert_array_equal(shelf.x.numpy(), [10, 2, 14])
    assert np.add.reduce(shelf.x, where=shelf.m) == 24


# ---- indices


@pytest.mark.parametrize("value", [0.5, -0.5])
def test_a_mask_of_a_tensor_without_axes(shelf: ts.Shelf, value: float) -> None:
    shelf.x = value
    array = np.array(value)
    for index in (array > 0, True, False, np.bool_(True), (np.array(True), None)):
        got = shelf.x[index]
        assert got.shape == array[index].shape
        np.testing.assert_array_equal(got, array[index])
    shelf.x[shelf.x > 0] = 2
    array[array > 0] = 2
    assert shelf.x.item() == array
    for wrong in (slice(None), [0], 0, (..., 0)):
        with pytest.raises(IndexError):
            array[wrong]
        with pytest.raises(IndexError):
            shelf.x[wrong]
        with pytest.raises(IndexError):
            shelf.x[wrong] = np.array(9.0)
    assert shelf.x.item() == array


def test_integers_of_every_axis_with_an_ellipsis_give_an_array(x: ts.Tensor) -> None:
    for index in ((1, 2, ...), (..., 1, 2), (1, ..., -1)):
        got = x[index]
        assert isinstance(got, np.ndarray)
        assert (got.shape, got[()]) == ((), VALUES[index])
    assert isinstance(x[1, 2], np.float64)


@pytest.mark.parametrize(
    "index",
    [
        ([1, 0],),
        ([-1, -2], ...),
        (..., [0, -1]),
        np.array([1], np.uint8),
        [True, False],
        np.zeros(2, bool),
        [[1, 0], [0, 1]],
        np.empty(0, np.intp),
        (-2, -3),
        -2,
        [],
        ([],),
    ],
    ids=repr,
)
def test_lists_and_masks_as_numpy_reads_them(x: ts.Tensor, index: Any) -> None:
    got = x[index]
    assert np.shape(got) == np.shape(VALUES[index])
    np.testing.assert_array_equal(got, VALUES[index])
    wanted = VALUES.copy()
    wanted[index] = 5
    x[index] = 5
    np.testing.assert_array_equal(x.numpy(), wanted)


@pytest.mark.parametrize(
    "index",
    [
        [1.0],
        np.array([0.0]),
        ["0"],
        [None],
        [2],
        [-3],
        [True],
        np.ones(3, bool),
        np.ones((3, 2), bool),
        np.array([2**63], np.uint64),
        "x",
        1.0,
        2,
        -3,
        (0, 3),
        (0, -4),
        [[0, 1], [0]],
    ],
    ids=repr,
)
def test_what_is_no_index_of_numpy_is_none_here(x: ts.Tensor, index: Any) -> None:
    with pytest.raises((IndexError, ValueError)):
        VALUES[index]
    with pytest.raises((IndexError, ValueError)):
        x[index]
    with pytest.raises((IndexError, ValueError)):
        x[index] = 5
    np.testing.assert_array_equal(x.numpy(), VALUES)


# ---- one number


def test_numbers_of_every_kind(shelf: ts.Shelf) -> None:
    shelf.u = np.uint64(2**64 - 1)
    assert (int(shelf.u), shelf.u.item(), shelf.u.__index__()) == (2**64 - 1,) * 3
    shelf.flag, shelf.one, shelf.z = True, [3], np.complex64(1 - 2j)
    for handle in (shelf.flag, shelf.one, shelf.z):
        with pytest.raises(TypeError, match="only an integer tensor without axes"):
            [0, 1, 2, 3][handle]
    assert (complex(shelf.z), shelf.one.item(), int(shelf.flag)) == (1 - 2j, 3, 1)
    assert type(shelf.flag.item()) is bool
    shelf.create("half", (), "complex32").fill_(2 + 3j)
    assert shelf.half.item() == complex(shelf.half) == 2 + 3j
    shelf.empty = np.zeros(0)
    for handle in (shelf.empty, shelf.u[None][[0, 0]].view(np.ndarray)):
        with pytest.raises(ValueError, match=r"one|size 1"):
            handle.item()


def test_format(shelf: ts.Shelf) -> None:
    shelf.v, shelf.lr = np.zeros(2), 0.125
    assert f"{shelf.lr:.2f}|{shelf.lr:>8}" == "0.12|   0.125"
    assert f"{shelf.lr}" == str(shelf.lr)
    assert f"{shelf.v}" == str(shelf.v)
    assert f"{shelf.v:>90}" == str(shelf.v).rjust(90)


def test_a_part_that_was_copied_with_its_kind_can_be_written(x: ts.Tensor) -> None:
    mine = np.array(x[0], subok=True)
    assert type(mine) is type(x[0])
    mine[0] = 8
    same = mine.view()
    mine += 1
    np.testing.assert_array_equal(same, VALUES[0] + [6, 1, 1])
    np.testing.assert_array_equal(x.numpy(), VALUES)
    fortran = x[:].copy("F")
    assert (fortran.flags.f_contiguous, x[:].copy().flags.c_contiguous) == (True, True)
