"""Details of saving a state and loading it, one fact each."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_save import same

import tensorshelf as ts
from tensorshelf._state.paths import DEEPEST
from tensorshelf._state.room import put

pytest.importorskip("msgpack")


def full(value: float) -> Any:
    return np.full(3, float(value))


# ---- names


def test_a_name_that_was_given_out_is_given_out_once(shelf: ts.Shelf) -> None:
    state = {"a": {"b.c": full(1)}, "a.b": {"c": full(2)}, "a.b.c": full(3)}
    shelf.save(state)
    assert same(shelf.load(), state)


def test_a_name_is_as_long_as_its_bytes(shelf: ts.Shelf) -> None:
    state = {"\xe9" * 600: full(1), "\xe9" * 450: full(2)}
    shelf.save(state)
    assert same(shelf.load(), state)
    assert "\xe9" * 450 in shelf


# ---- arrays that show one memory


def test_an_array_and_its_transpose_are_two(shelf: ts.Shelf) -> None:
    array = np.arange(4).reshape(2, 2)
    shelf.save({"array": array, "turned": array.T})
    assert shelf.load()["turned"].tolist() == [[0, 2], [1, 3]]


def test_an_array_and_its_bits_are_two(shelf: ts.Shelf) -> None:
    array = np.arange(3.0)
    shelf.save({"array": array, "bits": array.view(np.int64)})
    loaded = shelf.load()
    assert (loaded["array"].dtype, loaded["bits"].dtype) == (np.float64, np.int64)
    assert loaded["bits"].tolist() == array.view(np.int64).tolist()


def test_an_array_keeps_its_order(shelf: ts.Shelf) -> None:
    array = np.arange(6).reshape(2, 3)
    shelf.save({"c": array, "f": np.asfortranarray(array), "part": np.arange(12)[::2]})
    loaded = shelf.load()
    assert loaded["c"].flags.c_contiguous
    assert loaded["f"].flags.f_contiguous
    assert loaded["f"].tolist() == array.tolist()


# ---- what a save does to the shelf


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_save_that_is_interrupted_leaves_nothing_assigned(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    state = {"a": full(1), "b": full(1)}
    shelf.save(state)
    assign = type(shelf).__setitem__

    def until_b(self: ts.Shelf, name: str, value: Any) -> None:
        if name == "b":
            raise error
        assign(self, name, value)

    monkeypatch.setattr(type(shelf), "__setitem__", until_b)
    with pytest.raises(error):
        shelf.save({"a": full(2), "b": full(2)})
    monkeypatch.undo()
    shelf.persist()
    assert same(shelf.load(), state)


def test_a_part_that_somebody_deleted_may_leave_the_state(shelf: ts.Shelf) -> None:
    shelf.save({"a": full(1), "b": full(2)})
    del shelf["b"]
    shelf.persist()
    shelf.save({"a": full(3)})
    assert same(shelf.load(), {"a": full(3)})


def test_text_that_is_no_unicode_is_saved_again_and_again(shelf: ts.Shelf) -> None:
    progress = {"file": "caf\udce9", "n": 0}  # as os.fsdecode() gives it
    auto = shelf.autosave(progress=progress)
    for step in (1, 2, 3):
        progress["n"] = step
        auto.step(step)
        auto.wait()
        assert shelf.load()["progress"] == progress


# ---- what is loaded


def test_no_keys_at_all_load_nothing(shelf: ts.Shelf) -> None:
    shelf.save({"a": full(1)})
    assert shelf.load(keys=[]) == {}
    shelf.save({})
    assert shelf.load(keys=[]) == {}


@pytest.mark.parametrize(
    "keys", [["m", "m.a"], ["m.a", "m"], ["m", "*.b"], ["m", "m.c.d", "*.a"]], ids=" ".join
)
def test_a_key_within_another_loads_no_less(shelf: ts.Shelf, keys: list[str]) -> None:
    state = {"m": {"a": full(1), "b": 2, "c": {"d": 3}}, "n": 4}
    shelf.save(state)
    assert same(shelf.load(keys), {"m": state["m"]})
    with pytest.raises(ts.UnknownName, match=r"nothing of the key 'm\.x'"):
        shelf.load([*keys, "m.x"])


def test_a_state_without_keys_has_none_to_be_loaded(shelf: ts.Shelf) -> None:
    shelf.save([full(1)])
    with pytest.raises(ts.UnknownName, match="nothing of the key 'x'") as error:
        shelf.load("x")
    assert error.value.remedy == "Leave keys out."
    with pytest.raises(ts.UnknownName, match="has no keys"):
        shelf.load([])


@pytest.mark.parametrize("keys", [3, b"m", ["m", 1]], ids=str)
def test_keys_are_paths(shelf: ts.Shelf, keys: Any) -> None:
    shelf.save({"m": 1})
    with pytest.raises(ts.BadArgument, match=r"are no paths"):
        shelf.load(keys)


def test_brackets_of_a_key_stand_for_themselves(shelf: ts.Shelf) -> None:
    shelf.save({"w[0]": 1, "w0": 2, "v[1]": {"a": 3, "b": 4}})
    assert shelf.load("w[0]") == {"w[0]": 1}
    assert shelf.load("v[1].?") == {"v[1]": {"a": 3, "b": 4}}


def test_views_of_other_element_types_are_no_ties(shelf: ts.Shelf) -> None:
    types = pytest.importorskip("ml_dtypes")
    data = np.array([48, 56], np.uint8)
    state = {name: data.view(name) for name in (types.float8_e4m3fn, types.float8_e4m3fnuz)}
    shelf.save(list(state.values()))
    for (name, value), loaded in zip(state.items(), shelf.load(), strict=True):
        assert loaded.dtype == name
        assert loaded.astype(float).tolist() == value.astype(float).tolist()


@pytest.mark.parametrize("value", [np.str_(""), np.bytes_(b""), np.str_("ab"), np.float16(2)])
def test_numbers_and_texts_of_numpy(shelf: ts.Shelf, value: Any) -> None:
    shelf.save({"a": value})
    loaded = shelf.load()["a"]
    assert (type(loaded), loaded) == (type(value), value)


@pytest.mark.parametrize("kind", ["U", "S", "V"])
def test_elements_of_no_bytes_are_refused(shelf: ts.Shelf, kind: str) -> None:
    rows = np.zeros(3, [("none", f"{kind}0"), ("one", "i4")])
    with pytest.raises(ts.NotStorable, match=r"'x'.*elements of no bytes|x.*elements of no bytes"):
        shelf.save({"x": rows["none"]})
    assert "x" not in shelf


def test_a_generator_of_another_kind_is_refused_before_anything_is_loaded(shelf: ts.Shelf) -> None:
    shelf.save({"a": full(1), "rng": np.random.default_rng(1)})
    target = {"a": full(0), "rng": np.random.Generator(np.random.MT19937(1))}
    with pytest.raises(ts.LayoutError, match=r"'rng'.* the state of something else") as error:
        shelf.load_into(target)
    assert "Nothing was loaded" in error.value.remedy
    assert target["a"].tolist() == full(0).tolist()


STATES = {
    "none": None,
    "number": 3,
    "array": full(1),
    "generator": np.random.default_rng(1),
    "python": random.Random(1),
}


@pytest.mark.parametrize("saved", STATES)
@pytest.mark.parametrize("kind", ["Random", "RandomState", "RNG", "optimizer", "schedule"])
def test_a_state_of_something_else_is_refused_before_anything_is_loaded(
    shelf: ts.Shelf, kind: str, saved: str
) -> None:
    shelf.save({"a": full(1), "x": STATES[saved]})
    target = {"a": full(0), "x": made(kind)}
    if (kind, saved) == ("Random", "python"):
        shelf.load_into(target)
        assert target["x"].getstate() == random.Random(1).getstate()
        return
    if (kind, saved) == ("schedule", "generator"):
        return  # it takes any mapping
    with pytest.raises(ts.LayoutError, match=r"'x'.* the state of something else"):
        shelf.load_into(target)
    assert target["a"].tolist() == full(0).tolist()


def made(kind: str) -> Any:
    if kind in ("optimizer", "schedule"):
        torch = pytest.importorskip("torch")
        optimizer = torch.optim.SGD([torch.zeros(2)], 0.1)
        if kind == "optimizer":
            return optimizer
        return torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return {"Random": random.Random, "RandomState": np.random.RandomState, "RNG": ts.RNG}[kind]()


SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "StepLR": lambda s, o: s.StepLR(o, 3, gamma=0.5),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [2, 4]),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.999),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 20),
    "LambdaLR": lambda s, o: s.LambdaLR(o, lambda n: 0.5**n),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o), s.ExponentialLR(o, 0.9)], milestones=[2]
    ),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=10),
}


@pytest.mark.parametrize("saved", SCHEDULES)
def test_a_schedule_of_another_kind_is_refused_before_anything_is_loaded(
    shelf: ts.Shelf, saved: str
) -> None:
    torch = pytest.importorskip("torch")

    def made(kind: str) -> Any:
        optimizer = torch.optim.SGD([torch.zeros(2)], 0.1, momentum=0.9)
        return SCHEDULES[kind](torch.optim.lr_scheduler, optimizer)

    shelf.save({"a": full(1), "schedule": made(saved)})
    for kind in SCHEDULES:
        target = {"a": full(0), "schedule": made(kind)}
        if kind == saved:
            shelf.load_into(target)
            assert target["a"].tolist() == full(1).tolist()
            continue
        with pytest.raises(ts.LayoutError, match=r"'schedule'.*something else"):
            shelf.load_into(target)
        assert target["a"].tolist() == full(0).tolist()


@pytest.mark.parametrize(
    ("saved", "taken", "refused"),
    [("float32", ["float64", "float16", "bfloat16", "complex64"], ["int8", "int64", "bool"]),
     ("int64", ["int8", "float32", "uint8"], ["bool"]), ("complex64", ["complex128"], ["float64"])],
)  # fmt: skip
def test_torch_tensors_cut_nothing_short_either(
    shelf: ts.Shelf, saved: str, taken: list[str], refused: list[str]
) -> None:
    torch = pytest.importorskip("torch")
    shelf.save({"x": torch.full((2,), 3, dtype=getattr(torch, saved))})
    for name in taken:
        target = torch.zeros(2, dtype=getattr(torch, name))
        shelf.load_into({"x": target})
        assert (target == 3).all()
    for name in refused:
        target = torch.zeros(2, dtype=getattr(torch, name))
        with pytest.raises(ts.LayoutError, match="which it would cut short"):
            shelf.load_into({"x": target})
        assert not target.any()


def test_an_object_whose_state_is_nothing_is_given_that(shelf: ts.Shelf) -> None:
    class Silent:
        given: Any = ...

        def state_dict(self) -> None: ...

        def load_state_dict(self, state: Any) -> None:
            self.given = state

    shelf.save({"silent": Silent()})
    silent = Silent()
    shelf.load_into({"silent": silent})
    assert silent.given is None


def test_a_default_is_a_function(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.BadArgument, match="default=3 is no function"):
        shelf.save({"m": 1}, default=3)  # type: ignore[arg-type]


def test_no_key_is_renamed_to_nothing(shelf: ts.Shelf) -> None:
    shelf.save({"a": {"b": 1}})
    for rename in ({"a": ""}, {"a.b": "a."}):
        with pytest.raises(ts.BadArgument, match="rename= makes"):
            shelf.load(rename=rename)


def test_a_tuple_is_not_loaded_into_a_list(shelf: ts.Shelf) -> None:
    shelf.save({"x": (full(1), full(2))})
    target = {"x": [full(0), full(0)]}
    with pytest.raises(ts.LayoutError, match=r"state\['x'\] is a list, and none was saved there"):
        shelf.load_into(target)
    assert not target["x"][0].any()


def test_other_shapes_are_refused_though_other_keys_are_not(shelf: ts.Shelf) -> None:
    shelf.save({"a": full(1), "b": full(2), "c": 3})
    target = {"a": full(0), "b": np.zeros(4)}
    with pytest.raises(ts.LayoutError, match=r"state\['b'\] is float64\[4\]"):
        shelf.load_into(target, strict=False)
    assert not target["a"].any()


class Tells:
    """Has a state, and no way to take it back."""

    def state_dict(self) -> dict[str, int]:
        return {"n": 1}


def test_what_takes_no_state_is_refused_before_anything_is_loaded(shelf: ts.Shelf) -> None:
    shelf.save({"a": full(1), "tells": [Tells()]})
    assert shelf.load("tells") == {"tells": [{"n": 1}]}
    target = {"a": full(0), "tells": [Tells()]}
    with pytest.raises(ts.LayoutError, match=r"state\['tells'\]\[0\] is a Tells, which has state"):
        shelf.load_into(target)
    assert not target["a"].any()
    with pytest.raises(ts.BadArgument, match="tells= is a Tells, which has no state that could be"):
        shelf.autosave(tells=Tells())


# ---- the record


def test_a_record_fits_as_long_as_all_of_it_does() -> None:
    room = np.full(32, 255, np.uint8)
    assert put(room, b"x" * 24)
    assert room[8:].tobytes() == b"x" * 24
    assert not put(room, b"y" * 25)
    assert room[8:].tobytes() == b"x" * 24
    assert put(room, b"z")
    assert room.tobytes() == bytes([1, *[0] * 7, *b"z", *[0] * 23])


@pytest.mark.parametrize("more", [1, 8])
def test_a_record_that_would_end_behind_its_tensor_is_none(shelf: ts.Shelf, more: int) -> None:
    room = np.zeros(64, np.uint8)
    room[0] = 56 + more
    shelf["__state__"] = room
    with pytest.raises(ts.CorruptError, match=f"its length is said to be {56 + more}"):
        shelf.load()


def test_as_many_containers_as_may_be_come_back(shelf: ts.Shelf) -> None:
    state: Any = 1
    for _ in range(DEEPEST):
        state = [state]
    shelf.save(state)
    assert shelf.load() == state
