"""NumPy's operators and functions over handles: its values, its types, its errors, and no other."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift"]
BINARY += ["and_", "or_", "xor", "lt", "le", "eq", "ne", "gt", "ge", "matmul"]
UNARY = ["neg", "pos", "abs", "invert"]
TYPES = ["bool", "uint8", "int8", "int64", "float16", "float32", "float64", "complex64"]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    """The bytes, type and shape that a call gives, or that it raises."""
    try:
        made = call(*args)
    except (TypeError, ValueError):
        return "raises"
    made = made if isinstance(made, tuple) else (made,)
    return [(type(one), one.dtype.str, one.shape, one.tobytes()) for one in made]


def values_of(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    first = np.array([[1, 2, 3], [5, 0, 7]]).astype(dtype)
    return first, np.array([[2, 1, 1], [3, 2, 4]]).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_operators(reopen: OpenShelf, dtype: str) -> None:
    shelf = reopen(keep=1)
    first, second = values_of(dtype)
    shelf.a, shelf.b, shelf.t = first, second, second.T.copy()
    shelf.persist()
    a = shelf.a
    for name in BINARY:
        apply = getattr(operator, name)
        right, plain = (shelf.t, second.T.copy()) if name == "matmul" else (shelf.b, second)
        wanted = outcome(apply, first, plain)
        for left in (a, a.committed, shelf.at(1)["a"]):
            assert outcome(apply, left, right) == wanted, name
            assert outcome(apply, left, plain) == wanted, name
        assert outcome(apply, first, right) == wanted, name
        oracle = np.power if name == "pow" else apply  # NumPy's ** has shorter ways for some
        for number in (2, 1.5, True, np.float32(2), np.int8(3)):
            if name != "matmul":
                assert outcome(apply, a, number) == outcome(oracle, first, number), name
                assert outcome(apply, number, a) == outcome(oracle, number, first), name
    for name in UNARY:
        apply = getattr(operator, name)
        assert outcome(apply, a) == outcome(apply, first), name
    for left, right in ((shelf.a, shelf.b), (7, shelf.b), (shelf.b, 2)):
        plains = [x.numpy() if isinstance(x, ts.Tensor) else x for x in (left, right)]
        assert outcome(divmod, left, right) == outcome(divmod, *plains)
    assert not a.dirty
    assert a.numpy().tobytes() == first.tobytes()


IN_PLACE = [f"i{name.rstrip('_')}" for name in BINARY[:12]]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", IN_PLACE)
def test_operators_in_place(shelf: ts.Shelf, dtype: str, name: str) -> None:
    """They change the tensor as NumPy's do an array, or raise and leave it."""
    change = getattr(operator, name)
    first, second = values_of(dtype)
    shelf.x, shelf.y = first, second
    shelf.persist()
    operands: list[tuple[Any, Any]] = [
        (shelf.y, second),
        (second, second),
        (second[0], second[0]),
        (2, 2),
        (1.5, 1.5),
        (np.float64(2), np.float64(2)),
        (shelf.x, None),  # itself
    ]
    for given, plain in operands:
        shelf.discard()
        x, wanted = shelf.x, first.copy()
        given = x if plain is None else shelf.y if isinstance(given, ts.Tensor) else given
        try:
            operand = wanted if plain is None else plain
            if name == "ipow":
                np.power(wanted, operand, out=wanted)
            else:
                change(wanted, operand)
        except (TypeError, ValueError):
            with pytest.raises((TypeError, ValueError)):
                change(x, given)
            assert x.numpy().tobytes() == first.tobytes()
            assert not x.dirty
            continue
        assert change(x, given) is x
        assert x.numpy().tobytes() == wanted.tobytes(), (given, plain)
        assert x.dirty
        assert shelf.y.numpy().tobytes() == second.tobytes()
        assert x.committed.numpy().tobytes() == first.tobytes()


# ---- the methods of a function of elements


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    [
        ("reduce", (), {}),
        ("reduce", (), {"axis": 1}),
        ("reduce", (), {"axis": None}),
        ("reduce", (), {"axis": 0, "keepdims": True}),
        ("reduce", (), {"axis": 1, "initial": 10.0}),
        ("reduce", (), {"axis": 0, "dtype": "f4"}),
        ("reduce", (), {"axis": 0, "where": "mask"}),
        ("accumulate", (), {}),
        ("accumulate", (), {"axis": 1}),
        ("reduceat", ([0, 1],), {"axis": 1}),
        ("outer", ("y",), {}),
        ("__call__", ("y",), {}),
        ("__call__", (2,), {"where": "mask"}),
        ("__call__", ("y",), {"dtype": "f4", "casting": "same_kind"}),
    ],
    ids=str,
)
def test_methods(shelf: ts.Shelf, method: str, args: tuple[Any, ...], kwargs: Any) -> None:
    values = np.array([[3.0, 1.0, 2.0], [9.0, -4.0, 6.5]])
    plain: dict[str, Any] = {"x": values, "y": values[::-1] * 2, "mask": values > 1}
    shelf.update(plain)

    def run(names: Any, **more: Any) -> Any:
        given = [names[a] if isinstance(a, str) else a for a in args]
        named = {k: names[v] if k == "where" else v for k, v in kwargs.items()}
        return getattr(np.add, method)(names["x"], *given, **named, **more)

    wanted = run(plain)
    old = np.full(np.shape(wanted), -7.0)
    if "where" not in kwargs or method != "__call__":  # what is left out is not initialised
        found = run(shelf)
        assert (type(found), np.shape(found)) == (type(wanted), np.shape(wanted))
        np.testing.assert_array_equal(found, wanted)
    target = old.copy()
    run(plain, out=target)
    shelf.out = old
    shelf.persist()
    out = shelf.out
    assert run(shelf, out=out) is out
    np.testing.assert_array_equal(out.numpy(), target)
    shelf.out = old
    assert run(plain, out=(out,)) is out  # the output alone is a handle
    np.testing.assert_array_equal(out.numpy(), target)
    array = old.copy()
    assert run(shelf, out=array) is array  # all but the output are
    np.testing.assert_array_equal(array, target)
    if np.shape(wanted) == values.shape:  # into its own input
        target = values.copy()
        run({**plain, "x": target}, out=target)
        x = shelf.x
        assert run({**plain, "x": x}, out=x) is x
        np.testing.assert_array_equal(x.numpy(), target)
        np.testing.assert_array_equal(shelf.y.numpy(), plain["y"])


def test_an_output_that_is_an_operand_too(shelf: ts.Shelf) -> None:
    """Whichever it is: what it had is read before anything is written."""
    first, second = np.array([7.0, -8.0, 9.5]), np.array([2.0, 3.0, -4.0])
    calls: list[Callable[[Any, Any], Any]] = [
        lambda x, y: np.subtract(5, x, out=x),
        lambda x, y: np.subtract(y, x, out=x),
        lambda x, y: np.subtract(x, y, out=y),
        lambda x, y: np.subtract(x, x, out=x),
        lambda x, y: np.divmod(x, y, out=(x, y)),
        lambda x, y: np.divmod(x, y, out=(y, x)),
        lambda x, y: np.divmod(x, y, out=(None, y)),
        lambda x, y: np.maximum(y, x, out=x, where=[True, False, True]),
        lambda x, y: np.clip(y, 0, 2.5, out=x, where=[True, False, True]),
        lambda x, y: np.clip(x, 0, y, out=y),
        lambda x, y: np.cumsum(x, out=x),
        lambda x, y: np.add.accumulate(x, out=x),
    ]
    for number, call in enumerate(calls):
        x, y = first.copy(), second.copy()
        shelf["x"], shelf["y"] = x, y
        call(x, y)
        call(shelf["x"], shelf["y"])
        assert shelf["x"].numpy().tobytes() == x.tobytes(), number
        assert shelf["y"].numpy().tobytes() == y.tobytes(), number


def test_at(shelf: ts.Shelf) -> None:
    for function, more in ((np.add, ([1.0, 2.0, 4.0],)), (np.negative, ()), (np.maximum, (5.0,))):
        values = np.arange(4.0)
        shelf["x"], shelf["i"] = values, np.array([0, 0, 3])
        function.at(values, [0, 0, 3], *more)
        assert function.at(shelf.x, shelf.i, *more) is None
        np.testing.assert_array_equal(shelf.x.numpy(), values)
    with pytest.raises(IndexError):
        np.add.at(shelf.x, [4], 1.0)
    np.testing.assert_array_equal(shelf.x.numpy(), values)


def test_an_output_of_another_type(shelf: ts.Shelf) -> None:
    """What NumPy may not cast is refused, by name, and nothing is changed."""
    shelf.i, shelf.f = np.array([1, 2]), np.zeros(2, np.float32)
    shelf.persist()
    assert np.add(shelf.i, 0.5, out=shelf.f).name == "f"  # float64 to float32 may be
    assert shelf.f.numpy().tolist() == [1.5, 2.5]
    calls: list[Callable[[], object]] = [
        lambda: np.add(shelf.i, 0.5, out=shelf.i),
        lambda: np.add([1, 2], 0.5, out=shelf.i),
        lambda: np.add(shelf.i, 0.5, out=shelf.i, where=[True, False]),
        lambda: np.concatenate([[1.5], [2.5]], out=shelf.i),
        lambda: np.divmod([1.5, 2.5], 2.0, out=(None, shelf.i)),
    ]
    for call in calls:
        with pytest.raises(ts.LayoutError, match=r"^'i': ") as caught:
            call()
        assert caught.value.remedy == (
            "Compute the value first and convert it: shelf['i'][...] = value.astype(...)."
        )
    assert not shelf.i.dirty
    assert shelf.i.numpy().tolist() == [1, 2]


def test_outputs_that_are_not_assigned(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.x = np.ones(2)
    shelf.persist()
    for handle in (shelf.x.committed, shelf.at(1)["x"]):
        calls: list[Callable[[], object]] = [
            lambda handle=handle: np.add(1, [1, 2], out=handle),  # type: ignore[misc]
            lambda handle=handle: np.add.reduce([[1, 2]], out=handle),  # type: ignore[misc]
            lambda handle=handle: np.cumsum([1, 2], out=handle),  # type: ignore[misc]
            lambda handle=handle: np.divmod([3, 4], 2, out=(shelf.x, handle)),  # type: ignore[misc]
            lambda handle=handle: operator.iadd(handle, 1),  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(ts.ReadOnlyError) as caught:
                call()
            assert caught.value.code == "read_only"
    assert not shelf.x.dirty
    assert shelf.x.numpy().tolist() == [1, 1]


# ---- with torch


def test_torch_as_an_operand(shelf: ts.Shelf) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    shelf.x = np.arange(4.0)
    shelf.persist()
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int8, torch.bool):
        other = torch.tensor([1, 0, 1, 1]).to(dtype)
        for value in (other, other.flip(0).flip(0), torch.stack([other, other], 1)[:, 0]):
            shelf.discard()
            x = shelf.x
            x += value
            assert x.numpy().tolist() == [1, 1, 3, 4]
            assert np.subtract(shelf.x, value, out=x) is x
            assert x.numpy().tolist() == [0, 1, 2, 3]
            np.add.at(x, [0, 1, 2, 3], value)
            assert x.numpy().tolist() == [1, 1, 3, 4]
            for call in (
                lambda value=value: shelf.x + value,
                lambda value=value: value * shelf.x,
                lambda value=value: np.add(value, shelf.x),
            ):
                with pytest.raises(TypeError, match=r"shelf\['x'\]\.torch\(\)"):
                    call()
    with pytest.raises((TypeError, ts.LayoutError)):
        shelf.x += torch.ones(4, dtype=torch.complex64)
