"""Basic indexing as arithmetic: the same elements, shapes and errors as NumPy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorshelf._values import _index

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def bounds(n: int) -> "st.SearchStrategy[int | None]":
    return st.none() | st.integers(-n - 2, n + 2)


@st.composite
def shapes_and_indices(draw: st.DrawFn) -> "tuple[tuple[int, ...], tuple[object, ...]]":
    shape = draw(SHAPES)
    items: list[object] = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        step = draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
        slices = st.builds(slice, bounds(n), bounds(n), st.just(step))
        items.append(draw(slices | st.integers(-n, n - 1) if n else slices))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), None)
    if draw(st.booleans()):
        items.append(Ellipsis)
    return shape, tuple(items)


@settings(deadline=None)
@given(shapes_and_indices(), st.sampled_from([1, 7, 24, 1000]))
def test_regions_pick_what_numpy_picks(case: "tuple[tuple[int, ...], object]", limit: int) -> None:
    shape, index = case
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int64).reshape(shape)
    found = _index.resolve(index, shape, 8)
    assert found is not None
    region, scalar = found
    expected = array[index]
    assert region.shape == np.shape(expected)
    assert scalar == isinstance(expected, np.generic)

    flat = array.reshape(-1).view(np.uint8)
    picked = np.full(region.shape, -1, np.int64)
    for at, part in region.leaves(limit):
        low, high = part.span()
        assert 0 <= low < high <= array.nbytes
        assert part.dense or high - low <= limit or not part.shape
        scratch = flat[low:high].copy()
        values = np.ndarray(part.shape, np.int64, scratch, part.start - low, part.strides)
        if part.dense:
            assert high - low == values.nbytes
        picked[at] = values
    np.testing.assert_array_equal(picked, expected)


@pytest.mark.parametrize("index", [[0, 1], np.array([1]), np.array([True, False]), True, ([0], 1)])
def test_advanced_indices_are_left_to_numpy(index: object) -> None:
    assert _index.resolve(index, (2, 3), 4) is None


def test_integer_like_indices_are_integers() -> None:
    for one in (1, np.int8(1), np.array(1)):
        assert _index.resolve(one, (3, 2), 4) == _index.resolve(1, (3, 2), 4)


@pytest.mark.parametrize("index", [3, -4, (0, 2), (0, 0, 0), (..., ...), (0, ..., 5)])
def test_out_of_bounds_is_an_index_error(index: object) -> None:
    with pytest.raises(IndexError):
        np.zeros((3, 2))[index]  # type: ignore[index]
    with pytest.raises(IndexError):
        _index.resolve(index, (3, 2), 8)


def test_a_zero_step_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="zero"):
        _index.resolve(slice(None, None, 0), (3,), 8)
