"""An assignment is in a version whole or not at all: what fails half-way is undone, or spoils."""

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support import check

import tensorshelf as ts
from tensorshelf._values import _dtypes, _index, _write

SIZE = 700_000  # float32: three chunks
OLD = np.arange(SIZE, dtype=np.float32)
Fail = Callable[[BaseException | type[BaseException]], None]


@pytest.fixture
def x(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> ts.Tensor:
    """A tensor of a shelf at version 1, into which values are converted in small blocks."""
    monkeypatch.setattr(_write, "blocks", functools.partial(_write.blocks, limit=500_000))
    shelf.x = OLD
    shelf.persist(1)
    return shelf.x


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Makes the third block's conversion raise."""
    convert = _dtypes.convert

    def arrange(error: BaseException | type[BaseException]) -> None:
        calls = iter(range(1000))

        def failing(*given: Any) -> Any:
            if next(calls) == 2:
                monkeypatch.setattr(_dtypes, "convert", convert)
                raise error
            return convert(*given)

        monkeypatch.setattr(_dtypes, "convert", failing)

    return arrange


def with_a_bad_element(at: int) -> np.ndarray:
    value = np.ones(SIZE)
    value[at] = 1e300
    return value


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, ValueError("no")])
def test_what_fails_half_way_never_was(
    shelf: ts.Shelf, x: ts.Tensor, fail: Fail, error: BaseException | type[BaseException]
) -> None:
    kind = error if isinstance(error, type) else type(error)
    fail(error)
    with pytest.raises(kind):
        shelf.x[...] = np.ones(SIZE)
    assert not x.dirty
    assert np.array_equal(x, OLD)
    with shelf.transaction(2):
        shelf.y = np.ones(3)
    assert np.array_equal(x.committed, OLD)


def test_a_bad_element_in_a_later_block(shelf: ts.Shelf, x: ts.Tensor) -> None:
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        x[...] = with_a_bad_element(-1)
    shelf.persist(2)
    assert np.array_equal(x.committed, OLD)


def spoil(x: ts.Tensor) -> None:
    x[...] = 5
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        x[...] = with_a_bad_element(-1)


def test_over_an_assignment_not_persisted_it_spoils(shelf: ts.Shelf, x: ts.Tensor) -> None:
    shelf.y = np.ones(3)
    spoil(x)
    calls: list[Callable[[], object]] = [
        lambda: shelf.persist(2),
        lambda: shelf.persist(2, wait=False),
        x.numpy,
        lambda: x[0],
        lambda: x.__setitem__(slice(None, None, 2), 1),
    ]
    for call in calls:
        with pytest.raises(ts.SpoiledError, match="'x' is spoiled") as caught:
            call()
        check(caught, ts.SpoiledError, "tensor_spoiled", RuntimeError)
        assert "discard()" in caught.value.remedy
    for tensor in shelf.values():
        assert "dirty" in repr(tensor)
    assert np.array_equal(x.committed, OLD)
    assert shelf.y.numpy().tolist() == [1, 1, 1]
    assert shelf.version == 1


@pytest.mark.parametrize("how", ["whole", "converted", "discard", "delete", "replace"])
def test_what_heals(shelf: ts.Shelf, x: ts.Tensor, how: str) -> None:
    spoil(x)
    if how == "whole":
        shelf.x = -OLD
    elif how == "converted":
        x[...] = -OLD.astype(np.float64)
    elif how == "discard":
        shelf.discard()
    elif how == "delete":
        del shelf.x
    else:
        shelf.replace("x", np.ones(2))
    assert shelf.persist(2).version == 2
    if how in ("whole", "converted"):
        assert np.array_equal(shelf.x.committed, -OLD)
    elif how == "discard":
        assert np.array_equal(shelf.x.committed, OLD)
    else:
        assert [tensor.shape for tensor in shelf.values()] == ([(2,)] if how == "replace" else [])


def test_a_strided_part_and_an_edit(
    shelf: ts.Shelf, x: ts.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_index, "SPAN_BYTES", 500_000)
    change = _write._change
    calls = iter(range(1000))

    def failing(*given: Any) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt
        change(*given)

    monkeypatch.setattr(_write, "_change", failing)
    with pytest.raises(KeyboardInterrupt):
        x[::2] = 7
    assert not x.dirty
    assert np.array_equal(x, OLD)

    def interrupted(into: Any, values: np.ndarray) -> None:
        into._write(values[: SIZE // 2].view(np.uint8), 0)
        raise KeyboardInterrupt

    monkeypatch.setattr(_write, "write_changed", interrupted)
    with pytest.raises(KeyboardInterrupt), x.edit() as values:
        values += 1
    assert not x.dirty
    assert np.array_equal(x, OLD)


def test_an_edit_that_was_dropped_ends_no_later_one(shelf: ts.Shelf) -> None:
    shelf.y = np.zeros(3)
    shelf.persist()
    first = shelf.y.edit()
    first.__enter__()[:] = 1
    dropping = threading.Thread(target=shelf.discard)
    dropping.start()
    dropping.join()
    with shelf.y.edit() as later:
        later[0] = 9
        with pytest.raises(ts.UnsupportedError):
            first.__exit__(None, None, None)
    assert shelf.y.numpy().tolist() == [9, 0, 0]


def test_a_new_tensor_without_its_value_is_none(shelf: ts.Shelf) -> None:
    class Source:
        name, shape, weak = "float32", (SIZE,), False

        def contiguous_bytes(self) -> Any:
            yield np.zeros(2_000_000, np.uint8)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shelf._add("new", Source())  # type: ignore[arg-type]
    assert "new" not in shelf
    shelf.persist(1)


def test_commits_come_between_assignments_alone(shelf: ts.Shelf, x: ts.Tensor) -> None:
    stop = threading.Event()

    def assign() -> None:
        for number in range(60):
            x[...] = np.full(SIZE, float(number))
        stop.set()

    with ThreadPoolExecutor(1) as pool:
        assigning = pool.submit(assign)
        while not stop.is_set():
            shelf.persist()
            found = x.committed.numpy()
            assert (found == found[0]).all() or np.array_equal(found, OLD)
        assigning.result()


def test_tensors_that_others_took_the_place_of_are_forgotten(shelf: ts.Shelf) -> None:
    """Of a loop that gives one a new layout again and again nothing is left but the newest."""
    shelf.x = np.zeros(1)
    for length in range(2, 7):
        shelf.replace("x", np.zeros(length))
        shelf.resize("x", 100 * length)
        shelf.x[:] = length
        shelf.persist()
        assert shelf._assignments.session.remembered == 1
    shelf.x[:] = 9
    shelf.replace("x", np.zeros(3))
    before = shelf._assignments.session.assignments
    shelf.discard()  # the old one is there again, and changed by that
    assert shelf._assignments.session.assigned_since(shelf.x._ref._id, before)
