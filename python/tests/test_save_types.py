"""States whose tensors have element types that NumPy, or torch, lacks."""

from typing import Any

import numpy as np
import pytest

import tensorshelf as ts
from tensorshelf._state import record
from tensorshelf._values import _dtypes

pytest.importorskip("msgpack")
ml_dtypes = pytest.importorskip("ml_dtypes")

LACKING = [name for name in _dtypes.carried_names() if hasattr(ml_dtypes, name)]


def of(name: str, *values: float) -> Any:
    return np.array(values).astype(getattr(ml_dtypes, name))


# ---- arrays of what NumPy lacks


@pytest.mark.parametrize("name", LACKING)
def test_arrays_of_what_numpy_lacks_come_back_as_they_were(shelf: ts.Shelf, name: str) -> None:
    state = {"a": of(name, 1, 2), "one": of(name, 4).reshape(()), "turned": of(name, 1, 2, 4)[::-1]}
    shelf.save(state)
    assert shelf["a"].dtype_name == name
    loaded = shelf.load()
    for key, array in state.items():
        assert loaded[key].dtype == array.dtype
        assert loaded[key].tolist() == array.tolist()
    shelf.save([state["a"].dtype, state["a"][1]])
    dtype, number = shelf.load()
    assert (dtype, number.dtype, number) == (state["a"].dtype, dtype, 2)
    shelf.save(state)
    target = {key: np.zeros_like(array) for key, array in state.items()}
    shelf.load_into(target)
    assert target["turned"].tolist() == [4, 2, 1]


def test_they_are_saved_again_and_again(shelf: ts.Shelf) -> None:
    state = {"a": of("bfloat16", 0, 0), "turned": of("bfloat16", 0, 1)[::-1]}
    auto = shelf.autosave(state=state)
    for step in (1, 2, 3):
        state["a"][:] = state["turned"][0] = step
        auto.step(step)
        auto.wait()
        loaded = shelf.load()["state"]
        assert loaded["a"].tolist() == [step, step]
        assert loaded["turned"].tolist() == [step, 0]
        assert loaded["a"].dtype == ml_dtypes.bfloat16
    auto.close()


def test_pairs_that_are_complex_come_back_as_pairs(shelf: ts.Shelf) -> None:
    pairs = np.array([(1, 2), (3, 4)], _dtypes.COMPLEX32)
    shelf.save({"z": pairs})
    assert shelf["z"].dtype_name == "complex32"
    assert np.array_equal(shelf.load()["z"], pairs)


@pytest.mark.parametrize(
    "make",
    [lambda t: np.zeros(2, t), lambda t: np.zeros((), t), lambda t: t, lambda t: np.zeros(2, t)[0]],
    ids=["array", "one", "type", "number"],
)
def test_types_that_nobody_could_read_again_are_refused(shelf: ts.Shelf, make: Any) -> None:
    with pytest.raises(ts.NotStorable, match=r"state\['x'\].* int4 "):
        shelf.save({"x": make(np.dtype(ml_dtypes.int4))})


def test_numbers_that_were_saved_as_bytes_come_back_as_bytes(shelf: ts.Shelf) -> None:
    """As such arrays were saved at first."""
    array = of("bfloat16", 1, 2)
    shelf.a = array.view(np.uint8).reshape(2, 2)
    tree = ["dict", "a", ["tensor", "numpy", "<V2", [2], "a", None]]
    shelf["__state__"] = record.encoded(record.Record(tree, ["a"]))
    assert shelf.load()["a"].view(array.dtype).tolist() == [1, 2]


def test_bytes_without_a_type_come_back(shelf: ts.Shelf) -> None:
    raw = np.array([b"ab", b"cd"], "V2")
    shelf.save({"raw": raw, "one": raw[0], "type": raw.dtype})
    loaded = shelf.load()
    assert loaded["raw"].tobytes() == b"abcd"
    assert (loaded["raw"].dtype, loaded["type"]) == (raw.dtype, raw.dtype)
    assert loaded["one"].tobytes() == b"ab"


# ---- from one library to the other


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", [*LACKING, "float16", "int16"])
def test_tensors_are_loaded_into_arrays(shelf: ts.Shelf, name: str, shared: bool) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0, 2, 4, 8]).to(getattr(torch, name))
    state = {"x": x.reshape(2, 2).t(), "one": torch.tensor(4.0).to(x.dtype)}
    if shared:
        state["all"] = x
    shelf.save(state)
    target = {key: np.zeros(value.shape, np.float32) for key, value in state.items()}
    shelf.load_into(target)
    assert target["x"].tolist() == [[1, 4], [2, 8]]
    assert target["one"] == 4


@pytest.mark.parametrize("name", [*LACKING, "float16", "uint16"])
def test_arrays_are_loaded_into_tensors(shelf: ts.Shelf, name: str) -> None:
    torch = pytest.importorskip("torch")
    array = np.array([1.0, 2, 4, 8]).astype(_dtypes.needed(name))
    shelf.save({"x": np.asfortranarray(array.reshape(2, 2)), "one": array[:1].reshape(())})
    target = {"x": torch.zeros(2, 2), "one": torch.zeros(())}
    shelf.load_into(target)
    assert target["x"].tolist() == [[1, 2], [4, 8]]
    assert target["one"] == 1


def test_pairs_are_loaded_into_a_complex_tensor(shelf: ts.Shelf) -> None:
    torch = pytest.importorskip("torch")
    shelf.save({"z": np.array([(1, 2), (3, 4)], _dtypes.COMPLEX32)})
    target = {"z": torch.zeros(2, dtype=torch.complex64)}
    shelf.load_into(target)
    assert target["z"].tolist() == [1 + 2j, 3 + 4j]


@pytest.mark.parametrize("array", [np.array(["a", "b"]), np.array([1, 2], "M8[D]")])
def test_what_torch_lacks_is_refused_before_anything_is_loaded(shelf: ts.Shelf, array: Any) -> None:
    torch = pytest.importorskip("torch")
    shelf.save({"a": torch.ones(2), "x": array})
    target = {"a": torch.zeros(2), "x": torch.zeros(2)}
    with pytest.raises(ts.LayoutError, match=r"state\['x'\] is a torch tensor, and .* torch has"):
        shelf.load_into(target)
    assert not target["a"].any()
