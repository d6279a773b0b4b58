"""How models and optimizers give their states, and get them back, one fact each."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn
lr = torch.optim.lr_scheduler


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


def test_an_optimizer_of_another_kind_is_refused_by_number_too(shelf: ts.Shelf) -> None:
    model = nn.Linear(2, 2)
    shelf.save({"optimizer": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)})
    adam = torch.optim.Adam(model.parameters(), 0.1)
    with pytest.raises(ts.LayoutError, match=r"state\['optimizer'\] is Adam, with amsgrad"):
        shelf.load_into({"optimizer": adam})


def test_groups_of_an_optimizers_own_form_are_its_own_to_know(shelf: ts.Shelf) -> None:
    class Named(torch.optim.SGD):  # type: ignore[misc, name-defined]
        def state_dict(self) -> dict[str, Any]:
            return {"param_groups": {"first": {"lr": self.param_groups[0]["lr"]}}, "state": {}}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.param_groups[0]["lr"] = state["param_groups"]["first"]["lr"]

    shelf.save({"optimizer": Named([torch.zeros(2)], 0.1)})
    again = Named([torch.zeros(2)], 0.7)
    shelf.load_into({"optimizer": again})
    assert again.param_groups[0]["lr"] == 0.1


def test_an_optimizer_is_loaded_without_its_model(shelf: ts.Shelf) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    shelf.save({"model": model, "optimizer": optimizer})
    again = torch.optim.SGD(model.parameters(), 0.7)
    report = shelf.load_into({"optimizer": again}, strict=False)
    assert again.param_groups[0]["lr"] == 0.1
    assert report.unexpected_keys == ("model",)


def test_a_parameter_that_an_optimizer_did_not_have_is_told(shelf: ts.Shelf) -> None:
    model = nn.Linear(2, 2)
    shelf.save({"model": model, "optimizer": torch.optim.SGD([model.weight], 0.1)})
    with pytest.raises(ts.KeyMismatch) as error:
        shelf.load_into({"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)})
    assert error.value.missing_keys == ("optimizer.model.bias",)


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
    with torch.no_grad():
        model[0].w.zero_()
    shelf.load_into({"model": wrapped(loaded, model)})
    assert model[0].loaded == [3]
    assert model[0].w.tolist() == [1, 1, 1]


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


def test_a_tensor_in_a_tuple_in_a_tuple_is_filled(shelf: ts.Shelf) -> None:
    shelf.save({"x": ((torch.ones(2),),)})
    tensor = torch.zeros(2)
    target = {"x": ((tensor,),)}
    shelf.load_into(target)
    assert tensor.tolist() == [1, 1]
    assert target["x"][0][0] is tensor


def test_a_run_of_objects_in_a_tuple_resumes(shelf: ts.Shelf) -> None:
    with shelf.autosave(run=tupled(1)) as auto:
        auto.step(1)
        expected = shelf.load()["run"]["all"][0][0]["0.weight"]
    target = tupled(0)
    with shelf.autosave(run=target) as auto:
        assert auto.resume() == 1
    assert torch.equal(target["all"][0][0][0].weight, expected)


def test_an_optimizer_in_a_tuple_waits_for_what_is_copied(shelf: ts.Shelf) -> None:
    state = tupled(1)
    model, optimizer, *_ = state["all"][0]
    auto = shelf.autosave(run=state, grads=False, pipeline={"bytes_per_second": 1})
    for step in (1, 2, 3):
        auto.step(step)
        before = model[0].weight.clone()
        optimizer.step()
        auto.wait()
        assert torch.equal(shelf.load()["run"]["all"][0][0]["0.weight"], before)
    auto.close()


# ---- groups


def sgd(*groups: tuple[float, list[Any]]) -> Any:
    return torch.optim.SGD([{"lr": lr, "params": parameters} for lr, parameters in groups])


def test_a_group_without_parameters_keeps_the_options_of_its_place(shelf: ts.Shelf) -> None:
    model = nn.Linear(2, 2)
    shelf.save({"model": model, "optimizer": sgd((0.1, []), (0.2, list(model.parameters())))})
    optimizer = sgd((1.0, []), (1.0, list(model.parameters())))
    shelf.load_into({"model": model, "optimizer": optimizer})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]


@pytest.mark.parametrize(("saved", "own"), [([[0], [1]], [[0, 1]]), ([[0, 1]], [[0], [1]])])
@pytest.mark.parametrize("strict", [True, False])
def test_other_groups_are_refused_before_anything_is_loaded(
    shelf: ts.Shelf, saved: list[list[int]], own: list[list[int]], strict: bool
) -> None:
    def made(groups: list[list[int]]) -> dict[str, Any]:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        parts = [[p for i in group for p in model[i].parameters()] for group in groups]
        options = [(0.1 + number, part) for number, part in enumerate(parts)]
        return {"a": torch.ones(1), "model": model, "optimizer": sgd(*options)}

    shelf.save(made(saved))
    target = made(own)
    target["a"].zero_()
    with pytest.raises(ts.LayoutError, match=r"'optimizer'.*parameters in other groups"):
        shelf.load_into(target, strict=strict)
    del target["model"]
    with pytest.raises(ts.LayoutError, match=r"'optimizer'.*parameters in its groups"):
        shelf.load_into(target, strict=False)
    assert target["a"].item() == 0


@pytest.mark.parametrize("size", [(), (64,), (1 << 18,)])
def test_options_that_are_tensors(shelf: ts.Shelf, size: tuple[int, ...]) -> None:
    def made(groups: list[list[int]], *x: Any) -> dict[str, Any]:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        parts = [[p for i in group for p in model[i].parameters()] for group in groups]
        groups_of = [{"params": p, "x": v} for p, v in zip(parts, x, strict=True)]
        return {"model": model, "optimizer": torch.optim.SGD(groups_of, lr=1.0)}

    nan, tenth = torch.full(size, math.nan), torch.full(size, 0.1)
    shelf.save(made([[0], [1]], nan, [tenth]))
    own = made([[0], [1]], torch.zeros(size), [torch.zeros(size)])  # the very same groups
    shelf.load_into(own)
    assert own["optimizer"].param_groups[0]["x"].isnan().all()
    assert (own["optimizer"].param_groups[1]["x"][0] == tenth).all()
    shelf.save(made([[0], [1]], tenth, torch.full(size, 0.2)))
    with pytest.raises(ts.LayoutError, match="other groups"):
        shelf.load_into(made([[0, 1]], torch.zeros(size)))
    shelf.save(made([[0], [1]], tenth, tenth))  # one tensor, whose bytes nobody has to compare
    shelf.load_into(made([[0, 1]], torch.zeros(size)))
    shelf.save(made([[0, 1]], tenth))
    with pytest.raises(ts.LayoutError, match="other groups"):
        shelf.load_into(made([[0], [1]], torch.zeros(2), torch.zeros(3)))


@pytest.mark.parametrize(("saved", "own"), [([[0], [1]], [[0, 1]]), ([[0, 1]], [[0], [1]])])
@pytest.mark.parametrize("named", [False, True])
def test_other_groups_of_the_same_options_are_taken(
    shelf: ts.Shelf, saved: list[list[int]], own: list[list[int]], named: bool
) -> None:
    """Names of parameters, which differ from group to group, are none of these options."""

    def made(groups: list[list[int]], lr: float) -> dict[str, Any]:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        of_layer = [
            [(f"{i}.{name}", p) if named else p for name, p in layer.named_parameters()]
            for i, layer in enumerate(model)
        ]
        parts = [[p for i in group for p in of_layer[i]] for group in groups]
        return {"model": model, "optimizer": sgd(*((lr, part) for part in parts))}

    shelf.save(made(saved, 0.25))
    target = made(own, 0.5)
    shelf.load_into(target)
    assert {group["lr"] for group in target["optimizer"].param_groups} == {0.25}


def test_a_module_that_converts_what_it_loads_is_left_to_it(shelf: ts.Shelf) -> None:
    class Quantised(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.zeros(3, dtype=torch.int8))

        def _load_from_state_dict(self, state: Any, prefix: str, *more: Any) -> None:
            self.w.copy_((state[prefix + "w"] * 127).to(torch.int8))

    class Plain(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, dtype: Any) -> None:
            super().__init__()
            self.register_buffer("w", torch.tensor([1, 0, 1], dtype=dtype))

    shelf.save({"m": Plain(torch.float32)})
    quantised = Quantised()
    shelf.load_into({"m": quantised})
    assert quantised.w.tolist() == [127, 0, 127]
    shelf.save({"m": Plain(torch.uint8)})  # as masks once were
    masked = Plain(torch.bool)
    masked.w.fill_(False)
    shelf.load_into({"m": masked})
    assert masked.w.tolist() == [True, False, True]


def test_a_group_more_keeps_its_own_options(shelf: ts.Shelf) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    shelf.save({"model": model[:1], "optimizer": sgd((0.1, list(model[0].parameters())))})
    optimizer = sgd(*((1.0, list(part.parameters())) for part in model))
    shelf.load_into({"model": model, "optimizer": optimizer}, strict=False)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 1.0]


def test_a_group_has_the_options_of_the_first_parameter_that_was_saved(shelf: ts.Shelf) -> None:
    def made(*groups: tuple[float, list[str]]) -> dict[str, Any]:
        model = nn.ParameterDict({name: torch.zeros(2) for name in ("weight", "bias", "n", "m")})
        return {
            "model": model,
            "optimizer": sgd(*((lr, [model[name] for name in names]) for lr, names in groups)),
        }

    saved = made((0.1, ["weight"]), (0.2, ["bias"]))
    del saved["model"]["n"], saved["model"]["m"]
    shelf.save(saved)
    target = made((1.0, ["n", "bias"]), (1.0, ["m", "weight"]))
    shelf.load_into(target, strict=False)
    assert [group["lr"] for group in target["optimizer"].param_groups] == [0.2, 0.1]


def test_names_of_parameters_stay_beside_them(shelf: ts.Shelf) -> None:
    def made(*, backwards: bool) -> dict[str, Any]:
        model = nn.Linear(2, 2)
        named = list(model.named_parameters())
        return {"model": model, "optimizer": torch.optim.SGD(named[:: -1 if backwards else 1], 1.0)}

    shelf.save(made(backwards=False))
    target = made(backwards=True)
    shelf.load_into(target)
    assert target["optimizer"].param_groups[0].get("param_names") == ["bias", "weight"]


STEPPED_BY_GROUP: dict[str, Callable[[Any, int], Any]] = {
    "LambdaLR": lambda o, n: lr.LambdaLR(o, lambda n: 0.5**n),
    "CosineAnnealingLR": lambda o, n: lr.CosineAnnealingLR(o, 3),
    "least of each": lambda o, n: lr.ReduceLROnPlateau(o, patience=0, min_lr=[0.0] * n),
    "in turn": lambda o, n: lr.SequentialLR(o, [lr.ConstantLR(o), lr.LinearLR(o)], [3]),
    "chained": lambda o, n: lr.ChainedScheduler([lr.LambdaLR(o, lambda n: 0.5**n)], o),
    "in turn, within a chain": lambda o, n: lr.ChainedScheduler(
        [lr.SequentialLR(o, [lr.ConstantLR(o), lr.LinearLR(o)], [3]), lr.StepLR(o, 3)], o
    ),
}
STEPPED_BY_WHAT_IT_IS: dict[str, Callable[[Any, int], Any]] = {
    "StepLR": lambda o, n: lr.StepLR(o, 3),
    "least of all": lambda o, n: lr.ReduceLROnPlateau(o, patience=0),
    "chained steps": lambda o, n: lr.ChainedScheduler([lr.StepLR(o, 3), lr.ConstantLR(o)], o),
}


@pytest.mark.parametrize("kind", [*STEPPED_BY_GROUP, *STEPPED_BY_WHAT_IT_IS])
def test_a_schedule_of_other_groups_is_refused_where_it_could_not_step(
    shelf: ts.Shelf, kind: str
) -> None:
    def made(count: int) -> dict[str, Any]:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        both = [list(part.parameters()) for part in model]
        groups = both if count == 2 else [both[0] + both[1]]
        optimizer = sgd(*((0.1, group) for group in groups))
        schedule = {**STEPPED_BY_GROUP, **STEPPED_BY_WHAT_IT_IS}[kind](optimizer, count)
        return {"a": torch.ones(1), "model": model, "optimizer": optimizer, "schedule": schedule}

    def steps(state: dict[str, Any]) -> None:
        for _ in range(5):
            state["optimizer"].step()
            by_metric = isinstance(state["schedule"], lr.ReduceLROnPlateau)
            state["schedule"].step(*([1.0] if by_metric else []))

    shelf.save(made(1))
    same = made(1)
    shelf.load_into(same)
    steps(same)
    target = made(2)
    target["a"].zero_()
    if kind in STEPPED_BY_WHAT_IT_IS:
        shelf.load_into(target)
        steps(target)
        return
    with pytest.raises(ts.LayoutError, match="'schedule'"):
        shelf.load_into(target)
    assert target["a"].item() == 0


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", ["in turn", "chained"])
def test_schedules_of_a_schedule_are_compared_too(shelf: ts.Shelf, kind: str, count: int) -> None:
    def made(*kinds: str) -> dict[str, Any]:
        optimizer = sgd((0.1, [torch.zeros(2)]))
        options = {"ExponentialLR": 0.9, "StepLR": 3, "ConstantLR": 0.5}
        parts = [getattr(lr, each)(optimizer, options[each]) for each in kinds]
        schedule = (
            lr.ChainedScheduler(parts, optimizer)
            if kind == "chained"
            else lr.SequentialLR(optimizer, parts, list(range(2, 2 * len(parts), 2)))
        )
        return {"a": torch.ones(1), "schedule": schedule}

    all_three = ["ExponentialLR", "StepLR", "ConstantLR"]
    shelf.save(made(*all_three[:2]))
    for other in (all_three[:count], ["ExponentialLR", "ConstantLR"]):
        target = made(*other)
        target["a"].zero_()
        with pytest.raises(ts.LayoutError, match="'schedule'"):
            shelf.load_into(target)
        assert target["a"].item() == 0
    shelf.load_into(made(*all_three[:2]))


# ---- wrappers


@pytest.mark.parametrize(
    ("kind", "attribute"),
    [
        ("FullyShardedDataParallel", "_fsdp_wrapped_module"),
        ("CheckpointWrapper", "_checkpoint_wrapped_module"),
        ("OptimizedModule", "_orig_mod"),
        ("DataParallel", "module"),
        ("DistributedDataParallel", "module"),
        ("DeepSpeedEngine", "module"),
    ],
)
def test_no_wrapper_leaves_a_trace(shelf: ts.Shelf, kind: str, attribute: str) -> None:
    wrapper = type(kind, (nn.Module,), {})()
    wrapper.add_module(attribute, nn.Linear(2, 2))
    model = nn.Sequential(wrapper)
    shelf.save({"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)})
    assert list(shelf) == ["__state__", "model.0.bias", "model.0.weight"]
    plain = nn.Sequential(nn.Linear(2, 2))
    shelf.load_into({"model": plain, "optimizer": torch.optim.SGD(plain.parameters(), 0.1)})
    assert torch.equal(plain[0].weight, getattr(wrapper, attribute).weight)


@pytest.mark.parametrize(
    "wrap", [torch.compile, nn.DataParallel, lambda m: nn.DataParallel(torch.compile(m))]
)
def test_the_keys_that_a_wrapper_made_find_the_plain_model(shelf: ts.Shelf, wrap: Any) -> None:
    model = nn.Linear(2, 2)
    shelf.save({"model": wrap(model).state_dict()})
    other = nn.Linear(2, 2)
    shelf.load_into({"model": other})
    assert torch.equal(other.weight, model.weight)


def test_names_that_a_wrapper_alone_tells_apart_are_refused(shelf: ts.Shelf) -> None:
    model = Holder()
    model.add_module("_orig_mod", Holder())
    with pytest.raises(ts.LayoutError, match="are one without what wraps it"):
        shelf.save({"model": model})
    shelf.save({"model": model.state_dict()})


# ---- models that have a say in how they are loaded


class Hears(nn.Linear):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.heard: list[str] = []


class Loads(Hears):
    def _load_from_state_dict(self, *of: Any) -> None:
        self.heard.append("loads")
        super()._load_from_state_dict(*of)


class LoadsAll(Hears):
    def load_state_dict(self, *of: Any, **options: Any) -> Any:
        self.heard.append("loads")
        return super().load_state_dict(*of, **options)


def with_hook(register: str) -> Any:
    model = Hears()
    getattr(model, register)(lambda *_: model.heard.append("loads"))
    return model


@pytest.mark.parametrize(
    "make",
    [
        Loads,
        LoadsAll,
        lambda: with_hook("register_load_state_dict_pre_hook"),
        lambda: with_hook("register_load_state_dict_post_hook"),
    ],
    ids=["part", "whole", "before", "behind"],
)
def test_a_model_that_has_a_say_in_how_it_is_loaded_hears_of_it(shelf: ts.Shelf, make: Any) -> None:
    model, other = make(), make()
    shelf.save({"model": model})
    shelf.load_into({"model": other})
    assert other.heard == ["loads"]
    assert torch.equal(other.weight, model.weight)


# ---- tensors


def test_a_tensor_and_its_conjugate_are_two(shelf: ts.Shelf) -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    shelf.save({"z": z, "conj": z.conj()})
    loaded = shelf.load()
    assert loaded["conj"].tolist() == [1 - 2j, 3 + 4j]
    assert loaded["z"].tolist() == z.tolist()


class Fleeting:
    """Gives a tensor that nobody keeps."""

    def __init__(self, value: float) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"t": torch.full((4096,), complex(self.value, 1.0)).conj()}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def test_tensors_that_nobody_keeps_are_not_taken_for_each_other(shelf: ts.Shelf) -> None:
    shelf.save([Fleeting(value) for value in range(8)])
    assert [each["t"][0] for each in shelf.load()] == [complex(value, -1) for value in range(8)]


def test_parts_of_one_memory_are_filled_where_they_are(shelf: ts.Shelf) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    shelf.save({"base": base, "row": base[1]})
    target = {"base": torch.zeros(2, 3), "row": torch.zeros(3)}
    shelf.load_into(target)
    assert target["base"].tolist() == base.tolist()
    assert target["row"].tolist() == [3, 4, 5]
