"""How models and optimizers give their states, and get them back, one fact each."""

from typing import Any

import pytest

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


class Holder(nn.Module):  # type: ignore[misc, name-defined]
    """A parameter, and a module within."""

    def __init__(self, inner: Any = None) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
        self.b = inner


# ---- optimizers


def test_two_parameters_of_one_name_keep_what_is_theirs(shelf: ts.Shelf) -> None:
    def made() -> tuple[dict[str, Any], list[Any]]:
        outer, other = Holder(Holder()), Holder()
        parameters = [*outer.parameters(), *other.parameters()]
        adam = torch.optim.Adam(parameters)
        return {"a": outer, "a.b": other, "optimizer": adam}, parameters

    state, parameters = made()
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full((3,), float(number + 1))
    state["optimizer"].step()
    shelf.save(state)
    again, others = made()
    shelf.load_into(again)
    for one, other in zip(parameters, others, strict=True):
        expected = state["optimizer"].state[one]["exp_avg"]
        assert torch.equal(again["optimizer"].state[other]["exp_avg"], expected)


def test_a_group_whose_first_parameter_is_new_has_the_options_of_its_place(
    shelf: ts.Shelf,
) -> None:
    def made(*names: str) -> dict[str, Any]:
        model = nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in names})
        first, *rest = model.values()
        groups = [
            {"params": [first.weight], "lr": 0.1},
            {"params": [layer.weight for layer in rest], "lr": 0.01},
        ]
        return {"model": model, "optimizer": torch.optim.SGD(groups)}

    shelf.save(made("a", "b"))
    state = made("a", "new", "b")
    shelf.load_into(state, strict=False)
    assert [group["lr"] for group in state["optimizer"].param_groups] == [0.1, 0.01]


# ---- models


class Versioned(nn.Module):  # type: ignore[misc, name-defined]
    """Loads by the version that it was saved in."""

    _version = 3

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
        self.loaded: list[Any] = []

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *rest: Any) -> None:
        self.loaded.append(metadata.get("version"))
        super()._load_from_state_dict(state, prefix, metadata, *rest)


@pytest.mark.parametrize("saved", ["plain", "wrapped"])
@pytest.mark.parametrize("loaded", ["plain", "wrapped"])
def test_a_model_hears_its_version_whatever_wraps_it(
    shelf: ts.Shelf, saved: str, loaded: str
) -> None:
    def wrapped(how: str, model: Any) -> Any:
        return nn.DataParallel(torch.compile(model)) if how == "wrapped" else model

    shelf.save({"model": wrapped(saved, nn.Sequential(Versioned()))})
    model = nn.Sequential(Versioned())
    shelf.load_into({"model": wrapped(loaded, model)})
    assert model[0].loaded == [3]


# ---- objects within tuples


def tupled(step: int) -> dict[str, Any]:
    torch.manual_seed(step)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.Adam(list(model.parameters())[:: 1 if step else -1])
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return {"all": [(model, optimizer, step, (torch.full((2,), step), "text"))], "plain": (step, 2)}


def test_objects_in_a_tuple_are_loaded_into(shelf: ts.Shelf) -> None:
    saved, target = tupled(1), tupled(0)
    shelf.save(saved)
    model, optimizer, _, (tensor, _) = before = target["all"][0]
    shelf.load_into(target)
    assert target["all"][0][:2] == before[:2]
    assert target["all"][0][2] == 1
    assert target["all"][0][3][0] is tensor
    assert tensor.tolist() == [1, 1]
    assert target["plain"] == (1, 2)
    theirs, adam, *_ = saved["all"][0]
    for ours, other in zip(model.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(ours, other)
        assert torch.equal(optimizer.state[ours]["exp_avg"], adam.state[other]["exp_avg"])


@pytest.mark.parametrize(
    ("saved", "missing", "unexpected"),
    [((1,), ("x.1",), ()), ((1, 2, 3), (), ("x.2",))],
)
def test_tuples_of_objects_that_differ_in_length_change_nothing(
    shelf: ts.Shelf, saved: Any, missing: Any, unexpected: Any
) -> None:
    of = [torch.full((2,), n) for n in range(3)]
    shelf.save({"x": tuple(of[n - 1] for n in saved)})
    target = {"x": (torch.full((2,), 7), torch.full((2,), 8))}
    with pytest.raises(ts.KeyMismatch) as error:
        shelf.load_into(target)
    assert (error.value.missing_keys, error.value.unexpected_keys) == (missing, unexpected)
    assert [tensor.tolist() for tensor in target["x"]] == [[7, 7], [8, 8]]
    shelf.save({"x": 3})
    with pytest.raises(ts.LayoutError, match=r"state\['x'\] is a tuple, and none was saved"):
        shelf.load_into(target)


def test_a_run_of_objects_in_a_tuple_resumes(shelf: ts.Shelf) -> None:
    with shelf.autosave(run=tupled(1)) as auto:
        auto.step(1)
        expected = shelf.load()["run"]["all"][0][0]["0.weight"]
    target = tupled(0)
    with shelf.autosave(run=target) as auto:
        assert auto.resume() == 1
    assert torch.equal(target["all"][0][0][0].weight, expected)
