"""A state looked at again: the same bytes as if it were flattened anew, or Changed."""

import random
from collections import Counter, OrderedDict
from typing import Any, ClassVar

import numpy as np
import pytest

import tensorshelf as ts
from tensorshelf._state import record
from tensorshelf._state.again import Again
from tensorshelf._state.flatten import flatten
from tensorshelf._state.looks import Changed
from tensorshelf._state.paths import DEEPEST

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


def whole(state: Any) -> bytes:
    """The record of a state that is flattened now."""
    flat = flatten(state)
    room = record.encoded(record.Record(flat.tree, sorted(flat.tensors)))
    return room[8 : 8 + int.from_bytes(room[:8].tobytes(), "little")].tobytes()


def trained() -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    model.tied = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)
    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "rng": ts.RNG()}
    train(state)
    return state


def train(state: dict[str, Any]) -> None:
    state["model"](torch.randn(16, 4)).square().mean().backward()
    state["optimizer"].step()
    state["scheduler"].step()
    state["optimizer"].zero_grad()
    random.random()


class Averaged:
    """Gives tensors of its own memory, which moves."""

    def __init__(self) -> None:
        self.mean = torch.zeros(5)
        self.n = 0

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean.clone(), "n": self.n}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean, self.n = state["mean"], state["n"]


STATES: list[Any] = [
    {"n": 3, "lr": 0.5, "text": "x" * 300, "none": None, "b": b"\0", "big": 1 << 90},
    {1: [np.arange(4), (2, "a")], "o": OrderedDict(a=1, b=np.float32(2)), "c": Counter("aab")},
    {"set": {1, 2}, "f": frozenset("ab"), "z": complex(1, 2), "r": range(3), "s": torch.Size([2])},
    {"t": torch.arange(6.0).reshape(2, 3).T, "scalar": torch.tensor(2.0)},
    {"half": torch.ones(3).half()},
    {"bf": torch.ones(3, dtype=torch.bfloat16), "b0": torch.tensor(1.0, dtype=torch.bfloat16)},
    {"fortran": np.asfortranarray(np.ones((2, 3))), "e": np.empty(0)},
    {"text": np.array(["ab", "c"])},
    [np.random.default_rng(1), random.Random(2), torch.Generator(), Averaged()],
    {"empty": {}, "list": [], "deep": [[[{"a": [1]}]]]},
]  # fmt: skip


@pytest.mark.parametrize("state", STATES, ids=range(len(STATES)))
def test_the_same_bytes(state: Any) -> None:
    again = Again(state, flatten(state))
    for _ in range(2):
        assert again.encoded(again.look(state).leaves) == whole(state)


def test_leaves_as_they_are_now() -> None:
    state = trained()
    again = Again(state, flatten(state))
    for _ in range(3):
        train(state)
        assert again.encoded(again.look(state).leaves) == whole(state)
    assert len(again.moving) == len(again.look(state).moving) == 3  # of the generators


def test_steps_that_lie_elsewhere() -> None:
    state = trained()
    again = Again(state, flatten(state))
    for number, row in enumerate(state["optimizer"].state.values()):
        row["step"] = torch.tensor(float("nan") if number == 0 else number + 0.5)
    assert again.encoded(again.look(state).leaves) == whole(state)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int64", "bool", "complex64"])
def test_steps_of_other_types(kind: str) -> None:
    state = trained()
    for number, row in enumerate(state["optimizer"].state.values()):
        row["step"] = torch.tensor(number % 2, dtype=getattr(torch, kind))
    again = Again(state, flatten(state))
    for row in state["optimizer"].state.values():
        row["step"] = (row["step"] == 0).to(row["step"].dtype)
    assert again.encoded(again.look(state).leaves) == whole(state)


class Fresh(nn.Linear):
    """Makes a part of its state anew at each look."""

    count = 0

    def get_extra_state(self) -> Any:
        return torch.full((16,), self.count)

    def set_extra_state(self, state: Any) -> None:
        self.count = int(state[0])


def test_what_a_model_makes_anew_is_copied_each_time() -> None:
    state = {"model": Fresh(2, 2)}
    again = Again(state, flatten(state))
    assert again.moving == ["model._extra_state"]
    for count in range(1, 5):
        state["model"].count = count
        found = again.look(state)
        assert again.encoded(found.leaves) == whole(state)
        assert [int(value[0]) for value in found.moving] == [count]


def test_what_an_object_gives_behind_another_object_may_lie_elsewhere() -> None:
    class Outer:
        inner = Averaged()
        mean = torch.zeros(5)

        def state_dict(self) -> dict[str, Any]:
            return {"inner": self.inner, "mean": self.mean}

    state = {"outer": Outer()}
    again = Again(state, flatten(state))
    assert again.moving == ["outer.inner.mean", "outer.mean"]
    state["outer"].mean = torch.ones(5)
    assert [float(value[0]) for value in again.look(state).moving] == [0, 1]


def test_an_object_that_gives_more_each_time() -> None:
    class Growing:
        given: ClassVar[list[int]] = []

        def state_dict(self) -> dict[str, Any]:
            self.given.append(1)
            return {"t": {i: np.ones(2) for i in range(len(self.given))}}

    state = {"growing": Growing()}
    with pytest.raises(Changed):
        Again(state, flatten(state))


def test_ties_are_of_what_stays() -> None:
    shared = torch.ones(3)
    state = {"a": shared, "b": shared}
    Again(state, flatten(state)).look(state)
    scalar = torch.tensor(1.0)
    state = {"a": scalar, "b": scalar}
    with pytest.raises(Changed):
        Again(state, flatten(state))


def test_a_scalar_that_comes_to_need_a_gradient() -> None:
    state = {"loss": torch.tensor(1.0)}
    again = Again(state, flatten(state))
    state["loss"] = (torch.ones(2, requires_grad=True) * 3).sum()
    assert again.encoded(again.look(state).leaves) == whole(state)
    state = {"z": torch.tensor(1 + 2j)}
    again = Again(state, flatten(state))
    state["z"] = state["z"].conj()
    assert again.encoded(again.look(state).leaves) == whole(state)


def test_other_values_of_plain_leaves() -> None:
    state: dict[str, Any] = {"n": 1, "list": [1, None], "key": {"a": 0.5}}
    again = Again(state, flatten(state))
    state.update(n=["text", (1, None)], list=[2, 1 << 80, [], {}])
    state["key"] |= {"a": np.float32(3), 5: {"losses": [0.5] * 1000}}
    assert again.encoded(again.look(state).leaves) == whole(state)


def grow(state: Any) -> None:
    extra = nn.Parameter(torch.ones(2))
    state["model"].extra = extra
    state["optimizer"].add_param_group({"params": [extra]})


def first_row(state: Any) -> Any:
    return next(iter(state["optimizer"].state.values()))


def another_row(state: Any) -> None:
    optimizer = state["optimizer"]
    first = next(iter(optimizer.state))
    optimizer.state[first] = OrderedDict(optimizer.state[first])


def grouped(model: Any) -> Any:
    return torch.optim.SGD([{"params": list(model[at].parameters())} for at in (0, 1, 3)], 0.1)


def move_parameter(optimizer: Any) -> None:
    first, second, _ = (group["params"] for group in optimizer.param_groups)
    second.insert(0, first.pop())


CHANGES: dict[str, Any] = {
    "a key more": lambda s: s.update(new=1),
    "a key less": lambda s: s.pop("n"),
    "other keys": lambda s: s.update(m=s.pop("n")),
    "another order": lambda s: s.update(n=s.pop("n")),
    "a list within itself": lambda s: s["list"].append(s["list"]),
    "a list that is a tuple": lambda s: s.update(tensors=tuple(s["tensors"])),
    "a list with a tensor more": lambda s: s["tensors"].append(torch.ones(1)),
    "a list with a tensor less": lambda s: s["tensors"].pop(),
    "a dictionary of another kind": lambda s: s.update(keys=OrderedDict(s["keys"])),
    "a leaf that is a set": lambda s: s.update(n={1}),
    "a leaf that is a tensor": lambda s: s.update(n=np.ones(3)),
    "a list with a tensor": lambda s: s["list"].append(torch.ones(1)),
    "a list with an object": lambda s: s["list"].append(s["optimizer"]),
    "another tensor": lambda s: s.update(t=s["t"].clone()),
    "a view": lambda s: s.update(t=s["t"][:4]),
    "another shape": lambda s: s.update(t=s["t"].reshape(2, 4)),
    "another element type": lambda s: s.update(t=s["t"].view(torch.int32)),
    "another memory": lambda s: s["t"].set_(torch.ones(8)),
    "other strides": lambda s: s.update(t=torch.as_strided(s["t"], (8,), (0,))),
    "another array": lambda s: s.update(a=s["a"].copy()),
    "an array of another shape": lambda s: s.update(a=s["a"][:2]),
    "an array that is turned": lambda s: s.update(square=s["square"].T),
    "an array of another type": lambda s: s.update(a=s["a"].view(np.int64)),
    "a tensor that was a scalar": lambda s: s.update(scalar=torch.ones(2)),
    "a scalar of another type": lambda s: s.update(scalar=torch.tensor(1.5)),
    "a scalar of another library": lambda s: s.update(scalar=np.array(1)),
    "a row with other keys": lambda s: s["row"].update(u=s["row"].pop("t")),
    "a row that is ordered": lambda s: s.update(row=OrderedDict(s["row"])),
    "a row with another scalar": lambda s: s["row"].update(s=torch.ones(1)),
    "rows that are ordered": lambda s: s.update(rows=OrderedDict(s["rows"])),
    "rows of other names": lambda s: s["rows"].update(z=s["rows"].pop("y")),
    "a row less": lambda s: s["rows"].pop("y"),
    "another set": lambda s: s["set"].add(3),
    "a set that is frozen": lambda s: s.update(set=frozenset(s["set"])),
    "a set of other types": lambda s: s.update(set={True, 2}),
    "keys of other types": lambda s: s["keys"].update({True: s["keys"].pop(1)}),
    "a key with another sign": lambda s: s["keys"].update({-0.0: s["keys"].pop(0.0)}),
    "metadata changed in place": lambda s: s["ordered"]._metadata[""].update(version=2),
    "scalars that are one now": lambda s: s.update(scalar=s["other scalar"]),
    "a sparse scalar": lambda s: s.update(scalar=torch.tensor(1.0).to_sparse()),
    "another model": lambda s: s.update(model=nn.Linear(4, 4)),
    "a model with another layer": lambda s: s["model"].append(nn.Linear(1, 1)),
    "another optimizer": lambda s: s.update(optimizer=torch.optim.SGD(s["model"].parameters())),
    "a parameter more": grow,
    "parameters in another order": lambda s: s["optimizer"].param_groups[0]["params"].reverse(),
    "a lazy conjugate": lambda s: s.update(z=s["z"].conj()),
    "a lazy negative": lambda s: s.update(imag=s["z"].conj().imag),
    "a sparse tensor": lambda s: s.update(t=s["t"].to_sparse()),
    "a step of another type": lambda s: first_row(s).update(step=torch.tensor(1)),
    "a step with a dimension": lambda s: first_row(s).update(step=torch.ones(1)),
    "a step that is a number": lambda s: first_row(s).update(step=1.0),
    "a lazy step": lambda s: first_row(s).update(step=torch._neg_view(torch.tensor(1.0))),
    "a sparse step": lambda s: first_row(s).update(step=torch.tensor(1.0).to_sparse()),
    "a step without memory": lambda s: first_row(s).update(step=torch.empty((), device="meta")),
    "a column more": lambda s: first_row(s).update(more=torch.ones(2)),
    "a row of another kind": another_row,
    "a state of an optimizer less": lambda s: s["optimizer"].state.popitem(),
    "a column of another type": lambda s: s["rows"]["x"].update({True: s["rows"]["x"].pop(1)}),
    "a parameter in another group": lambda s: move_parameter(s["grouped"]),
    "an object gives another shape": lambda s: setattr(s["average"], "mean", torch.ones(2)),
    "an object gives another type": lambda s: setattr(s["average"], "mean", torch.arange(5)),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changed_is_told(change: Any) -> None:
    state = trained()
    state |= {"n": 1, "list": [1], "t": torch.arange(8.0), "a": np.ones(4), "set": {1, 2}}
    state |= {"scalar": torch.tensor(1), "average": Averaged()}
    z = torch.ones(4, dtype=torch.complex64)
    state |= {"z": z, "imag": z.imag, "other scalar": torch.tensor(2)}
    state["keys"] = {1: torch.ones(3), 0.0: torch.ones(2)}
    state["rows"] = {"x": {1: torch.ones(3)}, "y": {1: torch.ones(3)}}
    state["row"] = {"s": torch.tensor(1.0), "t": torch.ones(2)}
    state["grouped"] = grouped(state["model"])
    state |= {"tensors": [torch.ones(2), torch.ones(3)], "square": np.arange(4).reshape(2, 2)}
    state["ordered"] = OrderedDict(w=torch.ones(3))
    state["ordered"]._metadata = {"": {"version": 1}}
    again = Again(state, flatten(state))
    again.look(state)
    change(state)
    with pytest.raises(Changed):
        again.look(state)


@pytest.mark.parametrize("at", [0, 511, 512, 599])
def test_one_of_many_that_moved_is_told(at: int) -> None:
    state = [torch.ones(1) for _ in range(600)]
    again = Again(state, flatten(state))
    again.look(state)
    state[at] = state[at].clone()
    with pytest.raises(Changed):
        again.look(state)


def test_what_cannot_be_looked_at_again() -> None:
    for state in (
        {"x": torch.ones(2, dtype=torch.complex64).conj()},
        {"x": np.array(["a", "b", "c", "d"])[::2]},
        {"x": type("Own", (), {"state_dict": lambda self: {"t": np.array(["a"])}})()},
    ):
        with pytest.raises(Changed):
            Again(state, flatten(state))


class Meter(dict[str, float]):
    """A dictionary that says by itself what of it is state."""

    best = 0.5

    def state_dict(self) -> dict[str, float]:
        return {"best": self.best}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.best = state["best"]


def test_a_dictionary_with_a_state_is_saved_as_that(shelf: ts.Shelf) -> None:
    meter = Meter(cache=0)
    auto = shelf.autosave(meter=meter, x=np.zeros(3))
    for step in (1, 2, 3):
        meter.best, meter["cache"] = float(step), -step
        auto.step(step)
        auto.wait()
        assert shelf.load()["meter"] == {"best": step}
    other = Meter(cache=7)
    shelf.load_into({"meter": other, "x": np.ones(3)}, strict=False)
    assert (other.best, other) == (3.0, {"cache": 7})


def test_what_grows_too_deep_is_refused_as_by_a_first_save(shelf: ts.Shelf) -> None:
    history: list[Any] = []
    box: dict[str, Any] = {"x": np.zeros(3), "history": history}
    for _ in range(60):
        box = {"x": np.zeros(3), "box": box}
    auto = shelf.autosave(box=box)
    auto.step(1)
    auto.step(2)
    deep: Any = None
    for _ in range(180):
        deep = (1, deep)
    history.append(deep)
    with pytest.raises(ts.NotStorable, match="containers within each other"):
        auto.step(3)
    assert shelf.load()["box"]["x"].tolist() == [0, 0, 0]
    assert shelf.step == 2


@pytest.mark.parametrize("leaf", [1, (), []])
def test_a_later_save_is_as_deep_as_a_first_one(leaf: Any) -> None:
    def deep(levels: int) -> Any:
        made = leaf
        for _ in range(levels):
            made = [made]
        return made

    for levels in range(DEEPEST - 2, DEEPEST + 2):
        grows: list[Any] = []
        state = {"grows": grows}
        again = Again(state, flatten(state))
        grows.append(deep(levels))
        if levels < DEEPEST - 1:
            assert again.encoded(again.look(state).leaves) == whole(state)
            continue
        with pytest.raises(ts.NotStorable):
            flatten(state)
        with pytest.raises(Changed):
            again.look(state)
