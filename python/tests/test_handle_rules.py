"""What a handle is: live, closed to foreign attributes, and never the cause of a forgotten pin.

Each case is a program that somebody wrote, in which a change or a value was lost in silence.
"""

import contextlib
import gc
import io
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts

NEW = np.full((4, 3), 7.0, np.float32)


@pytest.fixture
def w(shelf: ts.Shelf) -> ts.Tensor:
    shelf.w = np.zeros((4, 3), np.float32)
    shelf.v = np.ones(3, np.float32)
    shelf.persist()
    return shelf.w


def assert_unpinned(shelf: ts.Shelf) -> None:
    """Either slot of every tensor can be written: nothing alive pins one."""
    for _ in range(2):
        for name in shelf:
            shelf[name].fill_(3)
        shelf.persist()


# ---- attributes are closed


@pytest.mark.parametrize("name", ["data", "bias", "requires_grad", "grad", "shape", "_mine"])
def test_attributes_are_closed(w: ts.Tensor, name: str) -> None:
    for handle in (w, w.committed):
        with pytest.raises(AttributeError, match=r"shelf\['w'\]\[\.\.\.\] = value") as caught:
            setattr(handle, name, NEW)
        assert name in str(caught.value)
        assert not hasattr(handle, "__dict__")
    np.testing.assert_array_equal(w, np.zeros((4, 3)))


def test_attributes_cannot_be_deleted(w: ts.Tensor) -> None:
    with pytest.raises(AttributeError):
        del w._ref
    assert w.item is not None
    assert w.shape == (4, 3)


# ---- live handles


def test_a_handle_is_live_and_a_copy_is_not(shelf: ts.Shelf, w: ts.Tensor) -> None:
    live, kept = shelf.w, shelf.w.numpy()
    shelf.w[:] = NEW
    assert not (live - NEW).any()
    assert (kept - NEW).any()


def test_a_swap_by_name_is_refused_and_loses_nothing(shelf: ts.Shelf) -> None:
    shelf.a, shelf.b = [1.0, 1.0], [2.0, 2.0]
    with pytest.raises(ts.UnsupportedError, match="'a' was assigned after") as caught:
        shelf.a, shelf.b = shelf.b, shelf.a
    assert "numpy()" in caught.value.remedy
    shelf.a = [1.0, 1.0]
    shelf.a, shelf.b = shelf.b.numpy(), shelf.a.numpy()
    assert (shelf.a[0], shelf.b[0]) == (2, 1)


def test_an_old_value_that_was_not_kept_is_refused(shelf: ts.Shelf, w: ts.Tensor) -> None:
    assignments: list[Callable[[ts.Tensor], object]] = [
        lambda old: setattr(shelf, "w", old),  # to itself: would do nothing
        lambda old: setattr(shelf, "best", old),  # a new name
        lambda old: shelf.replace("v", old),
        lambda old: shelf.update({"w": old}),
    ]
    ways: list[Callable[[], object]] = [
        lambda: shelf.w.__setitem__(..., NEW),
        lambda: shelf.w.__setitem__((0, 0), 7),
        lambda: setattr(shelf, "w", NEW),
        lambda: shelf.w.fill_(7),
        lambda: shelf.w.__iadd__(1),
    ]
    for assign in assignments:
        for change in ways:
            old = shelf.w
            change()
            with pytest.raises(ts.UnsupportedError, match="'w' was assigned after"):
                assign(old)
    assert "best" not in shelf


def test_what_no_assignment_overtook_is_copied(shelf: ts.Shelf, w: ts.Tensor) -> None:
    shelf.best = shelf.w
    mine = shelf.w

    def add_in_place() -> None:
        with mine.edit() as values:
            values += 1

    ways: list[tuple[float, Callable[[], object]]] = [  # through this handle: that value is meant
        (7, lambda: mine.__setitem__(..., NEW)),
        (8, lambda: mine.__iadd__(1)),
        (9, lambda: mine.__setitem__(0, 9)),
        (10, add_in_place),
        (11, lambda: mine.fill_(11)),
        (3, lambda: mine.copy_(np.full((4, 3), 3))),
    ]
    for expected, change in ways:
        change()
        shelf.v[...] = 2  # another tensor
        shelf.persist()
        shelf.best = mine
        assert shelf.best[0, 0] == expected
    shelf.w += 1
    assert shelf.w[0, 0] == 4


def test_a_name_that_is_used_again_is_another_tensor(shelf: ts.Shelf, w: ts.Tensor) -> None:
    shelf.w += 1
    del shelf.w
    with pytest.raises(ts.UnknownName):
        shelf.best = w
    shelf.w = NEW
    shelf.best = shelf.w
    assert shelf.best[0, 0] == 7


def test_assignments_of_other_threads_are_no_reason(shelf: ts.Shelf, w: ts.Tensor) -> None:
    import threading

    mine = shelf.w
    other = threading.Thread(target=lambda: shelf.w.fill_(5))
    other.start()
    other.join()
    shelf.best = mine
    assert shelf.best[0, 0] == 5


# ---- what is read is read-only where a write to it would be lost


@pytest.mark.parametrize(
    "index", [0, (), ..., slice(1, 3), [0, 1], (slice(None), 1), None], ids=str
)
def test_a_write_to_what_an_index_gave_raises(w: ts.Tensor, index: Any) -> None:
    for handle in (w, w.committed):
        with pytest.raises(ValueError, match="read-only"):
            handle[index][...] = 9
        mine = handle[index].copy()
        mine[...] = 9
    assert not w.numpy().any()


def test_writes_that_would_vanish_raise(shelf: ts.Shelf, w: ts.Tensor) -> None:
    with pytest.raises(ValueError, match="read-only"):
        w[0][1] = 9
    with pytest.raises(ValueError, match="read-only"):  # noqa: PT012
        for row in w:
            row += 1
    with pytest.raises(ValueError, match="read-only"):
        w.numpy()[0] = 9
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(w)[0] = 9
    with pytest.raises(ValueError, match="read-only"):
        np.transpose(w)[0] = 9
    with pytest.raises(TypeError, match="read-only"):
        memoryview(w)[0, 0] = 9
    w[0, 1] = 9
    assert w[0, 1] == 9


def test_in_place_operators_on_parts_write_back(shelf: ts.Shelf, w: ts.Tensor) -> None:
    w[0] += 1
    w[..., 1] -= [1, 2, 3, 4]
    w[[2, 3]] += w[:2]
    w[w == 0] = 5
    expected = np.zeros((4, 3), np.float32)
    expected[0] += 1
    expected[..., 1] -= [1, 2, 3, 4]
    expected[[2, 3]] += expected[:2]
    expected[expected == 0] = 5
    np.testing.assert_array_equal(w, expected)
    shelf.i = np.arange(6).reshape(2, 3)
    with pytest.raises(TypeError, match="same_kind"):
        shelf.i[0] += 0.5
    shelf.i[0] <<= 1
    shelf.i[...] %= 4
    shelf.i[:, :2] @= np.array([[0, 1], [1, 0]])
    assert shelf.i.numpy().tolist() == [[2, 0, 0], [0, 3, 1]]


def test_what_is_computed_from_a_part_is_a_common_array(w: ts.Tensor) -> None:
    part = w[:2]
    computed = [part + 1, 1 - part, part @ part.T, np.sqrt(part), part.copy(), w + part[0]]
    computed += [pickle.loads(pickle.dumps(part)), part == part, part.sum(axis=0)]
    for value in computed:
        assert type(value) is np.ndarray
        value[...] = 1
    assert type(part.sum()) is np.float32
    joined = np.concatenate([part, part])
    same = joined
    joined += 1
    joined[0] = 2
    assert same is joined
    assert same.sum() == 15
    assert not part.any()
    with pytest.raises(ValueError, match="read-only"):
        np.add(part, 1, out=part)
    with pytest.raises(ValueError, match="read-only"):
        part.sort()
    row = w[0]
    before = row
    row += 1  # as with a number: another value, and the tensor has the old one
    assert (row[0], before[0], w[0, 0]) == (1, 0, 0)


def test_a_part_of_complex32_is_read_only(shelf: ts.Shelf) -> None:
    shelf.create("c", (2,), "complex32")
    with pytest.raises(ValueError, match="read-only"):
        shelf.c[0]["real"] = 1


def test_an_edit_outside_with_says_how(shelf: ts.Shelf, w: ts.Tensor) -> None:
    usage = "use it as `with shelf['w'].edit() as array:`"
    assert repr(w.edit()) == f"<edit() of 'w': {usage}>"
    with pytest.raises(TypeError, match="outside 'with'"):
        w.edit()[0] = 1
    with pytest.raises(AttributeError, match="outside 'with'"):
        w.edit().sum()
    with w.edit() as array:
        array[0, 0] = 7
    assert w[0, 0] == 7


# ---- no pin but by an explicit view


def views_that_are_none(shelf: ts.Shelf) -> list[Any]:
    """What a prompt, a variable or a traceback may hold on to."""
    w = shelf.w
    return [
        w.numpy(),
        w.committed.numpy(),
        np.asarray(w),
        np.transpose(w),
        np.squeeze(w),
        memoryview(w),
        w[...],
        w[[0, 1]],
        list(w),
        w + 1,
        np.add(w, w, where=w == 0),
    ]


def test_only_an_explicit_view_pins(shelf: ts.Shelf, w: ts.Tensor) -> None:
    w[0] = 1
    held = views_that_are_none(shelf)
    assert_unpinned(shelf)
    held += views_that_are_none(shelf)
    assert_unpinned(shelf)
    assert len(held) == 22


def failing_calls(shelf: ts.Shelf) -> list[Callable[[], object]]:
    class Refuses:
        def __array_ufunc__(self, *operands: Any, **named: Any) -> Any:
            raise ZeroDivisionError(str(len(operands)))

    def fails(*_: object) -> object:
        raise ZeroDivisionError("called")

    w, v = shelf.w, shelf.v
    return [
        lambda: w[9],
        lambda: w[[9]],
        lambda: w["x"],
        lambda: w + np.ones(7),
        lambda: w + Refuses(),
        lambda: np.frompyfunc(fails, 2, 1)(w, 1),
        lambda: np.add(w, "x"),
        lambda: np.add(w, 1, out=w, casting="no", dtype="complex64"),
        lambda: np.clip(w, 0, np.ones(7), out=w),
        lambda: np.concatenate([w, v]),
        lambda: np.apply_along_axis(fails, 0, w),
        lambda: w.__setitem__(..., w[:, :2]),
        lambda: v.__setitem__(..., w),
        lambda: v.__setitem__([9], w),
        lambda: setattr(shelf, "v", w),
        lambda: np.add.at(w, [9], v),
        lambda: w.__dlpack__(copy=False, max_version=None),
        lambda: w.committed.__dlpack__(copy=False, max_version=(0, 9)),
        lambda: np.asarray(w).__array__(1),
        lambda: bool(w),
        lambda: w.__array__("float16", copy=False),
        lambda: shelf.create("new", w, "float32"),
        lambda: shelf.replace("nowhere", w),
    ]


def test_a_caught_exception_pins_nothing(shelf: ts.Shelf, w: ts.Tensor) -> None:
    caught = []
    for number, call in enumerate(failing_calls(shelf)):
        try:
            call()
        except Exception as error:
            caught.append(error)
            try:
                assert_unpinned(shelf)
            except ts.LeasedError:
                pytest.fail(f"call {number} left a pin: {traceback.format_exception(error)}")
        else:
            pytest.fail(f"call {number} did not fail")
    assert all(error.__traceback__ for error in caught)


def test_a_prompt_pins_nothing(shelf: ts.Shelf, w: ts.Tensor) -> None:
    """``_`` of an interactive session is ``builtins._``, kept by ``sys.displayhook``."""
    import builtins

    lines = ["s.w", "s.w.numpy()", "s.w[...]", "s.w[0]", "np.asarray(s.w)", "memoryview(s.w)"]
    try:
        for line in lines:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(line, "<stdin>", "single"), {"s": shelf, "np": np})
            assert builtins._ is not None  # type: ignore[attr-defined]
            assert_unpinned(shelf)
    finally:
        if hasattr(builtins, "_"):
            del builtins._


def test_clip_into_its_own_input(shelf: ts.Shelf) -> None:
    shelf.w = np.array([-1.0, 0.5, 2.0])
    for _ in range(3):
        np.clip(shelf.w, 0, 1, out=shelf.w)
        shelf.persist()
    assert shelf.w.numpy().tolist() == [0, 0.5, 1]


def test_what_an_explicit_view_holds_up(shelf: ts.Shelf, w: ts.Tensor) -> None:
    """The lease rule of docs/guide.md, sentence by sentence."""
    if not shelf.info().promises.mapped:
        for refused in (w.numpy, w.torch):
            with pytest.raises(ts.UnsupportedError, match="cannot be lent"):
                refused(copy=False)
        return
    clean = w.numpy(copy=False)
    w[...] = 1  # of a clean tensor: the first change goes to the other slot
    dirty = w.numpy(copy=False)
    with pytest.raises(ts.LeasedError) as caught:  # of an assigned one: the next change is refused
        w[...] = 2
    for word in ("copy=False", "traceback"):
        assert word in caught.value.remedy
    assert (clean[0, 0], dirty[0, 0]) == (0, 1)
    del dirty
    w[...] = 2
    shelf.persist()
    with pytest.raises(ts.LeasedError):  # and after the next persist()
        w[...] = 3
    assert clean[0, 0] == 0
    del clean
    w[...] = 3


def test_copies_of_a_large_tensor_are_read_in_parts(reopen: OpenShelf) -> None:
    shelf = reopen()
    values = np.arange(3_000_000).reshape(-1, 10)
    shelf.a = values
    shelf.b = shelf.a
    np.testing.assert_array_equal(shelf.b, values)
    shelf.replace("b", shelf.a.committed if shelf.version else shelf.a)
    np.testing.assert_array_equal(shelf.b, values)
    shelf.b[...] = shelf.a[::-1]
    shelf.a[...] = shelf.b
    np.testing.assert_array_equal(shelf.a, values[::-1])
    gc.collect()
    assert_unpinned(shelf)


ROWS = [[5, 3, 5], [-1], [], np.array([2, 3, 4, 9]), [True, False] * 10, np.arange(20) > 15]


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_rows_of_a_large_tensor_are_read_alone(shelf: ts.Shelf, rows: Any) -> None:
    values = np.arange(2_000_000).reshape(20, -1)
    shelf.w = values
    shelf.persist()
    before = shelf.stats()["bytes_read"]
    got = shelf.w[rows]
    read = shelf.stats()["bytes_read"] - before
    np.testing.assert_array_equal(got, values[rows])
    assert got.shape == values[rows].shape
    assert read <= values.nbytes * 0.8
