"""shelf.save(), load() and load_into() with torch: models, optimizers, tied and shared tensors."""

import collections
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf._state import objects, record

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
nn = torch.nn


def small() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def train(model: Any, optimizer: Any, *others: Any, steps: int = 3, seed: int = 1) -> None:
    torch.manual_seed(seed)
    for _ in range(steps):

        def closure() -> Any:
            optimizer.zero_grad()
            loss = model(torch.randn(16, 4)).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        for other in others:
            other.step()


def values(model: Any) -> list[Any]:
    return [tensor.clone() for tensor in model.state_dict().values()]


def alike(some: list[Any], others: list[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), 0.1),
    "momentum": lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True),
    "adam": lambda m: torch.optim.Adam(m.parameters(), amsgrad=True),
    "fused": lambda m: torch.optim.AdamW(m.parameters(), fused=True),
    "foreach": lambda m: torch.optim.AdamW(m.parameters(), foreach=True),
    "groups": lambda m: torch.optim.AdamW(
        [{"params": m[3].parameters(), "lr": 0.1}, {"params": m[:2].parameters(), "lr": 0.01}]
    ),
    "adafactor": lambda m: torch.optim.Adafactor(m.parameters()),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), centered=True, momentum=0.5),
    "lbfgs": lambda m: torch.optim.LBFGS(m.parameters(), 0.1, max_iter=3),
}

SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
    "milestones": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4]),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=50),
    "warm restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "chain": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.LinearLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)],
        [2],
    ),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_run_goes_on_bit_for_bit(shelf: ts.Shelf, reopen: OpenShelf, kind: str) -> None:
    model = small()
    optimizer = OPTIMIZERS[kind](model)
    train(model, optimizer)
    shelf.save({"model": model, "optimizer": optimizer}, step=3)
    train(model, optimizer, seed=2)
    expected = values(model)

    model = small()
    optimizer = OPTIMIZERS[kind](model)
    report = reopen(mode="r").load_into({"model": model, "optimizer": optimizer})
    assert report == ts.LoadReport(3, (), ())
    train(model, optimizer, seed=2)
    assert alike(values(model), expected)


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_schedulers_go_on(shelf: ts.Shelf, kind: str) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = SCHEDULERS[kind](optimizer)
    train(model, optimizer, scheduler)
    state = {"optimizer": optimizer, "scheduler": scheduler}  # and no model: by number
    shelf.save(state)
    train(model, optimizer, scheduler)
    expected = scheduler.get_last_lr()
    shelf.load_into(state)
    train(model, optimizer, scheduler)
    assert scheduler.get_last_lr() == expected


def test_a_scaler_and_an_average(shelf: ts.Shelf) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    average = torch.optim.swa_utils.AveragedModel(small())
    average.update_parameters(small())
    state = {"scaler": scaler, "ema": average}
    scaler.scale(torch.ones(1))
    shelf.save(state)
    assert "ema.module.0.weight" in shelf  # whose own name that is
    fresh = {"scaler": torch.amp.GradScaler("cpu"), "ema": copy.deepcopy(average)}
    with torch.no_grad():
        fresh["ema"].module[0].weight.zero_()
    shelf.load_into(fresh)
    assert fresh["scaler"].get_scale() == 4.0
    assert alike(values(fresh["ema"]), values(average))
    assert fresh["ema"].n_averaged == 1


def test_what_load_gives_is_what_torch_takes(shelf: ts.Shelf) -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    shelf.save({"model": model.state_dict(), "optimizer": optimizer, "m": {"net": model}})
    loaded = shelf.load()
    assert type(loaded["model"]) is collections.OrderedDict
    assert loaded["model"]._metadata == model.state_dict()._metadata
    own = optimizer.state_dict()
    assert loaded["optimizer"]["param_groups"] == own["param_groups"]
    assert list(loaded["optimizer"]["state"]) == list(own["state"])
    other = small()
    other.load_state_dict(loaded["m"]["net"])
    assert alike(values(other), values(model))
    torch.optim.Adam(other.parameters()).load_state_dict(loaded["optimizer"])


class Wrapped(nn.Module):  # type: ignore[misc, name-defined]
    """As DistributedDataParallel holds its model, without a process group."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.module = model


Wrapped.__name__ = "DistributedDataParallel"


def test_wrappers_leave_no_trace(shelf: ts.Shelf) -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    wrapped = Wrapped(torch.compile(model))
    assert "module._orig_mod.0.weight" in wrapped.state_dict()
    shelf.save({"model": wrapped, "optimizer": optimizer})
    names = list(shelf)
    assert "model.0.weight" in names
    assert "optimizer.state.model.0.weight.exp_avg" in names
    expected = values(model)
    for resumed in (lambda m: m, torch.compile, Wrapped, nn.DataParallel):
        other = small()
        adam = torch.optim.Adam(list(other.parameters())[::-1])  # in another order
        report = shelf.load_into({"model": resumed(other), "optimizer": adam})
        assert report.missing_keys == report.unexpected_keys == ()
        assert alike(values(other), expected)
        for parameter, its in zip(other.parameters(), model.parameters(), strict=True):
            ours, theirs = adam.state[parameter], optimizer.state[its]
            assert torch.equal(ours["exp_avg"], theirs["exp_avg"])
            assert ours["step"] == theirs["step"]


def test_a_state_dict_of_a_wrapped_model_finds_the_plain_one(shelf: ts.Shelf) -> None:
    model = small()
    shelf.save({"model": Wrapped(model).state_dict()})
    assert "model.module.0.weight" in shelf
    other = small()
    with torch.no_grad():
        other[0].weight.zero_()
    shelf.load_into({"model": other})
    assert alike(values(other), values(model))


def test_parameters_that_are_no_models_go_by_number(shelf: ts.Shelf) -> None:
    model = small()
    extra = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([*model.parameters(), extra], 0.1, momentum=0.9)
    train(model, optimizer)
    state = {"model": model, "optimizer": optimizer}
    shelf.save(state)
    assert "optimizer.state.0.momentum_buffer" in shelf
    shelf.load_into(state)


def test_groups_keep_their_options(shelf: ts.Shelf) -> None:
    model = small()

    def of(*groups: Any) -> Any:
        some = [{"params": part.parameters(), "lr": lr} for part, lr in groups]
        return torch.optim.SGD(some, momentum=0.9)

    optimizer = of((model[0], 0.1), (model[1], 0.2), (model[3], 0.3))
    train(model, optimizer)
    shelf.save({"model": model, "optimizer": optimizer})
    turned = of((model[3], 1.0), (model[1], 1.0), (model[0], 1.0))
    shelf.load_into({"model": model, "optimizer": turned})
    assert [group["lr"] for group in turned.param_groups] == [0.3, 0.2, 0.1]
    buffer = turned.state[model[0].weight]["momentum_buffer"]
    assert torch.equal(buffer, optimizer.state[model[0].weight]["momentum_buffer"])
    less = of((model[0], 1.0))
    with pytest.raises(ts.KeyMismatch) as error:
        shelf.load_into({"model": model, "optimizer": less})
    assert "optimizer.model.3.bias" in error.value.unexpected_keys
    report = shelf.load_into({"model": model, "optimizer": less}, strict=False)
    assert len(report.unexpected_keys) == 4
    assert less.param_groups[0]["lr"] == 0.1


def test_tied_weights_are_stored_once_and_tied_again(shelf: ts.Shelf) -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    optimizer = torch.optim.Adam(model.parameters())
    shelf.save({"model": model, "optimizer": optimizer})
    assert list(shelf) == ["__state__", "model.0.weight"]
    loaded = shelf.load("model")["model"]
    assert loaded["0.weight"] is loaded["1.weight"]
    with torch.no_grad():
        expected = model[0].weight.clone()
        model[0].weight.zero_()
    shelf.load_into({"model": model, "optimizer": optimizer})
    assert torch.equal(model[1].weight, expected)
    assert model[1].weight is model[0].weight


def test_what_shares_memory_shares_it_again(shelf: ts.Shelf) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    bits = torch.tensor([1.5, 2.5], dtype=torch.bfloat16)
    state = {
        "base": base,
        "turned": base.t(),
        "row": base[2, 1:],
        "one": base[3, 3],
        "words": base.view(torch.int32),
        "apart": torch.ones(2),
        "wide": torch.ones(1, 3).expand(4, 3),
        "bits": [bits, bits[1:]],
        "halves": torch.arange(8.0).split(4),
    }
    shelf.save(state)
    assert "halves.1" in shelf  # side by side, and nothing shared
    loaded = shelf.load()
    for name in ("base", "turned", "row", "one", "words", "apart", "wide"):
        assert torch.equal(loaded[name], state[name]), name
        assert loaded[name].stride() == state[name].stride(), name
        assert loaded[name].dtype == state[name].dtype
    assert torch.equal(loaded["bits"][1], bits[1:])
    loaded["base"].zero_()
    assert not loaded["turned"].any()
    assert not loaded["row"].any()
    assert loaded["one"] == 0
    assert not loaded["words"].any()
    assert loaded["apart"].all()
    assert loaded["wide"].untyped_storage().nbytes() < 4 * 3 * 4
    loaded["bits"][0].zero_()
    assert loaded["bits"][1] == 0


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        torch.arange(24.0)[::2],
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor(2.5, dtype=torch.float16),
        torch.tensor(True),
        torch.empty(0, 4),
        torch.ones(3, dtype=torch.complex64).conj() * 1j,
        torch.tensor([1 + 2j, 3j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.ones(3, requires_grad=True),
        torch.ones(2, 3).to(torch.float8_e4m3fn),
        torch.ones(2, dtype=torch.complex32),
        torch.arange(5)[2:2],
        torch.ones(1, 1)[:, :1].t(),
    ],
)
def test_tensors_come_back_exactly(shelf: ts.Shelf, tensor: Any) -> None:
    shelf.save({"x": tensor, "p": nn.Parameter(tensor, requires_grad=False)})
    loaded = shelf.load()
    lazy = tensor.is_conj() or tensor.is_neg()
    assert loaded["p"] is loaded["x"] or lazy or not tensor.numel()
    plain = tensor.detach().resolve_conj().resolve_neg()
    found = loaded["x"]
    assert (found.dtype, found.shape) == (plain.dtype, plain.shape)
    assert found.numel() < 2 or found.stride() == plain.stride()
    if plain.dtype in (torch.float8_e4m3fn, torch.complex32):  # which torch cannot compare
        view = {1: torch.uint8, 4: torch.int32}[plain.element_size()]
        found, plain = found.view(view), plain.view(view)
    assert torch.equal(found, plain)


def test_small_things_of_torch(shelf: ts.Shelf) -> None:
    state = [torch.Size([2, 3]), torch.bfloat16, torch.device("cuda:1"), torch.Size([])]
    shelf.save(state)
    loaded = shelf.load()
    assert loaded == state
    assert [type(x) for x in loaded] == [type(x) for x in state]


def test_generators(shelf: ts.Shelf) -> None:
    generator = torch.Generator().manual_seed(7)
    torch.rand(3, generator=generator)
    shelf.save({"g": generator, "global": torch.get_rng_state()})
    expected = torch.rand(4, generator=generator)
    shelf.load_into({"g": generator, "global": torch.get_rng_state()})
    assert torch.equal(torch.rand(4, generator=generator), expected)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.ones(2).to_sparse(), r"state\['x'\]: a torch.sparse_coo"),
        (lambda: torch.ones(2, device="meta"), r"state\['x'\]: a tensor on the meta device"),
        (lambda: torch.ones(2).as_subclass(Tagged), r"state\['x'\]: a Tagged is more than"),
    ],
)
def test_tensors_that_cannot_be_stored(shelf: ts.Shelf, make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ts.NotStorable, match=text):
        shelf.save({"x": make()})
    shelf.save({"x": make()}, default=lambda value: "instead")
    assert shelf.load() == {"x": "instead"}


class Tagged(torch.Tensor):  # type: ignore[misc]
    """More than a tensor."""


# ---- load_into


def test_tensors_are_filled_where_they_are(shelf: ts.Shelf) -> None:
    saved = {
        "t": torch.arange(6.0).reshape(2, 3),
        "a": np.arange(4),
        "n": {"b": torch.ones(2, dtype=torch.bfloat16), "list": [np.ones(2), 5]},
        "s": torch.tensor(3.0),
    }
    shelf.save(saved)
    target = {
        "t": torch.zeros(3, 2).t(),
        "a": np.zeros(8, np.int64)[::2],
        "n": {"b": torch.zeros(2), "list": [np.zeros(2), 0]},
        "s": torch.tensor(0.0),
    }
    before = dict(target), dict(target["n"])
    shelf.load_into(target)
    assert torch.equal(target["t"], saved["t"])
    assert np.array_equal(target["a"], saved["a"])
    assert torch.equal(target["n"]["b"], torch.ones(2))  # as torch's copy_() converts
    assert np.array_equal(target["n"]["list"][0], np.ones(2))
    assert target["n"]["list"][1] == 5
    assert target["s"] == 3.0
    assert all(target[key] is before[0][key] for key in target)
    assert target["n"]["b"] is before[1]["b"]
    whole = torch.zeros(2, 3)
    shelf.save(saved["t"])
    shelf.load_into(whole)
    assert torch.equal(whole, saved["t"])


def test_keys_that_differ_change_nothing(shelf: ts.Shelf) -> None:
    model = small()
    shelf.save({"model": model, "old": 1, "list": [[1], 2]}, step=4)
    other = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1, bias=False)
    )
    target = {"model": other, "new": [], **{f"k{i}": i for i in range(7)}, "list": [[0]]}
    before = values(other)
    with pytest.raises(ts.KeyMismatch) as error:
        shelf.load_into(target)
    text = str(error.value)
    assert "8 given and not saved ('new', 'k0', 'k1', 'k2', 'k3', ...)" in text
    assert "3 saved and not given ('model.3.bias', 'old', 'list.1')" in text
    assert set(error.value.missing_keys) == {"new", *(f"k{i}" for i in range(7))}
    assert error.value.code == "key_mismatch"
    assert isinstance(error.value, KeyError)
    assert alike(values(other), before)
    assert target["list"] == [[0]]
    report = shelf.load_into(target, strict=False)
    assert set(report.unexpected_keys) == {"model.3.bias", "old", "list.1"}
    assert report.step == 4
    assert torch.equal(other[0].weight, model[0].weight)
    assert target["list"] == [[1]]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ({"t": torch.zeros(3), "d": {}}, r"state\['t'\] is float32\[3\], and float32\[2\] was"),
        ({"t": np.zeros((2, 1)), "d": {}}, r"state\['t'\] is float64\[2, 1\], and float32\[2\]"),
        ({"t": torch.zeros(1).expand(2), "d": {}}, r"state\['t'\] shows one element several"),
        ({"t": np.broadcast_to(np.zeros(1), 2), "d": {}}, r"state\['t'\] is read-only"),
        ({"t": torch.zeros(2), "d": torch.zeros(1)}, r"state\['d'\] is a tensor, and no tensor"),
        ({"t": {}, "d": {}}, r"state\['t'\] has keys, and none"),
        ({"t": [], "d": {}}, r"state\['t'\] is a list, and none"),
        ({"t": nn.Linear(1, 1), "d": {}}, r"state\['t'\] has keys, and none"),
        ((1, 2), r"load_into\(\) fills what can be changed, not a tuple"),
        (3, r"load_into\(\) fills what can be changed, not a int"),
    ],
)
def test_what_does_not_fit(shelf: ts.Shelf, target: Any, text: str) -> None:
    shelf.save({"t": torch.ones(2), "d": {}})
    with pytest.raises((ts.LayoutError, ts.BadArgument), match=text) as error:
        shelf.load_into(target)
    assert error.value.remedy


def test_renamed_into_a_model(shelf: ts.Shelf) -> None:
    model = small()
    shelf.save({"net": model, "old": {"head": torch.ones(2)}})
    other = small()
    with torch.no_grad():
        other[0].weight.zero_()
    target = {"model": other, "new": {"tail": torch.zeros(2)}}
    shelf.load_into(target, rename={"net": "model", "old": "new", "old.head": "new.tail"})
    assert alike(values(other), values(model))
    assert target["new"]["tail"].all()


def test_damage_is_told_and_not_loaded(shelf: ts.Shelf, reopen: OpenShelf, place: Any) -> None:
    marked = torch.full((1000,), 1234.5)
    shelf.save({"a": marked})
    shelf.close()
    data = place[0].read_bytes()
    at = data.find(marked.numpy().tobytes())
    assert at > 0
    with open(place[0], "r+b") as file:
        for start in (at, data.find(marked.numpy().tobytes(), at + 1)):
            if start > 0:
                file.seek(start + 5)
                file.write(b"\x01")
    shelf = reopen(mode="r")
    for load in (shelf.load, lambda: shelf.load_into({"a": torch.zeros(1000)})):
        with pytest.raises(ts.CorruptError, match="'a'"):
            load()


def test_large_ones_are_read_by_several_threads(shelf: ts.Shelf) -> None:
    state = {i: torch.full((1 << 20,), float(i)) for i in range(6)}
    shelf.save(state)
    target = {i: torch.zeros(1 << 20) for i in range(6)}
    shelf.load_into(target)
    assert all(torch.equal(target[i], state[i]) for i in state)


def test_metadata_leads_an_old_model_on(shelf: ts.Shelf) -> None:
    model = small()
    old = model.state_dict()
    del old["1.num_batches_tracked"]
    old._metadata["1"]["version"] = 1  # as before it was there
    shelf.save({"model": old})
    fresh = small()
    shelf.load_into({"model": fresh}, strict=False)
    assert fresh[1].num_batches_tracked == 0


def test_keys_of_a_wrapper_are_its_own() -> None:
    both = nn.ModuleDict({"module": nn.Linear(1, 1), "other": nn.Linear(1, 1)})
    assert objects.canonical(both, "module.weight") == "module.weight"
    assert objects.canonical(Wrapped(both), "module.module.weight") == "module.weight"
    assert objects.canonical(nn.DataParallel(both), "module.other.bias") == "other.bias"


class Doubling(nn.Linear):  # type: ignore[misc, name-defined]
    """A module with its own way to load, and a state beside its tensors."""

    factor = 1

    def get_extra_state(self) -> Any:
        return {"factor": self.factor}

    def set_extra_state(self, state: Any) -> None:
        self.factor = 2 * state["factor"]


def test_a_model_with_its_own_way_to_load(shelf: ts.Shelf) -> None:
    model = nn.Sequential(Doubling(2, 2), nn.Linear(2, 2))
    model[0].factor = 5
    shelf.save({"model": model})
    expected = values(model[1])
    with torch.no_grad():
        model[1].weight.zero_()
    shelf.load_into({"model": model})
    assert model[0].factor == 10
    assert alike(values(model[1]), expected)
    assert objects.load_by_themselves(model) == ["0"]
    assert objects.load_by_themselves(small()) == []
    hooked = small()
    hooked.register_load_state_dict_post_hook(lambda module, keys: None)
    assert objects.load_by_themselves(hooked) == [""]


@pytest.mark.parametrize(
    ("hooked", "taken"), [(None, False), ("1", False), ("0.1", False), ("0", True), ("0.0", True),
                          ("", True)],
)  # fmt: skip
def test_a_hook_lets_pass_what_it_may_convert(
    shelf: ts.Shelf, hooked: str | None, taken: bool
) -> None:
    """And nothing beside it, which load_state_dict() copies, cut short."""

    def made(dtype: Any) -> Any:
        inner = nn.ModuleList([nn.Module(), nn.Module()])
        inner[0].register_buffer("w", torch.full((2,), 1.5).to(dtype))
        return nn.ModuleList([inner, nn.Module()])

    shelf.save({"model": made(torch.float32)})
    target = made(torch.int64)
    target[0][0].w.zero_()
    if hooked is not None:
        part = target.get_submodule(hooked)
        part.register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: None)
    if taken:
        shelf.load_into({"model": target})
        assert target[0][0].w.tolist() == [1, 1]
        return
    with pytest.raises(ts.LayoutError, match="which it would cut short"):
        shelf.load_into({"model": target})
    assert target[0][0].w.tolist() == [0, 0]


def test_a_model_of_other_shapes_is_left_as_it_is(shelf: ts.Shelf) -> None:
    shelf.save({"model": small()})
    wide = nn.Sequential(nn.Linear(4, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 1))
    before = values(wide)
    with pytest.raises(ts.LayoutError, match=r"state\['model'\]\['0.weight'\] is float32\[9, 4\]"):
        shelf.load_into({"model": wide})
    assert alike(values(wide), before)


def test_a_model_takes_its_own_element_type(shelf: ts.Shelf) -> None:
    model = small()
    shelf.save({"model": model})
    half = small().to(torch.bfloat16)
    with torch.no_grad():
        half[0].weight.zero_()
    shelf.load_into({"model": half})
    assert torch.equal(half[0].weight, model[0].weight.to(torch.bfloat16))


def test_what_is_stored_of_torch_keeps_its_form(shelf: ts.Shelf) -> None:
    base = torch.arange(4.0)
    state = {
        "t": base,
        "again": base,
        "part": base[1:3],
        "turned": torch.zeros(2, 2).t(),
        "kinds": [torch.float32, torch.Size([2]), torch.device("cpu")],
    }
    shelf.save(state)
    assert record.get(shelf).tree == [
        "dict",
        *("t", ["tensor", "torch", "float32", [4], ["t", 0], None]),
        *("again", ["tie", 0]),
        *("part", ["tensor", "torch", "float32", [2], ["t", 4], None]),
        *("turned", ["tensor", "torch", "float32", [2, 2], "turned", [1, 2]]),
        "kinds",
        ["list", ["torch.dtype", "float32"], ["torch.Size", 2], ["torch.device", "cpu"]],
    ]
    optimizer = torch.optim.SGD(small().parameters(), 0.1)
    shelf.save(optimizer)
    assert record.get(shelf).tree[0] == "dict"
    model = small()
    shelf.save({"m": model, "o": torch.optim.SGD(model.parameters(), 0.1)})
    assert record.get(shelf).tree[4][0] == "by_name"


def test_what_grew_is_taken_whole(shelf: ts.Shelf) -> None:
    saved = {"losses": [1.5, 2.5, 3.5], "best": {"step": 3}, "both": [torch.ones(2), 1]}
    shelf.save(saved)
    losses, best = [0.0], {}  # type: ignore[var-annotated]
    target = {"losses": losses, "best": best, "both": [torch.zeros(2), 0]}
    shelf.load_into(target)
    assert losses == [1.5, 2.5, 3.5]
    assert best == {"step": 3}
    assert target["losses"] is losses
    assert target["both"][1] == 1
    longer = {"losses": list(range(9)), "best": {"step": 0}, "both": [torch.zeros(2), 0, 5]}
    with pytest.raises(ts.KeyMismatch) as error:
        shelf.load_into(longer)
    assert error.value.missing_keys == ("both.2",)
    assert len(longer["losses"]) == 9
    everything: dict[str, Any] = {}
    shelf.load_into(everything)
    assert everything["losses"] == saved["losses"]


# ---- optimizers are loaded in place


def stepped(make: Any, seed: int) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(40, 8), torch.nn.Linear(8, 2))
    optimizer = make(model.parameters())
    for _ in range(2):
        model(torch.randn(4, 40)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def same(one: Any, other: Any) -> bool:
    if torch.is_tensor(one):
        return bool(torch.equal(one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def kept(optimizer: Any) -> dict[tuple[int, str], Any]:
    return {
        (number, key): value
        for number, state in enumerate(optimizer.state.values())
        for key, value in state.items()
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.AdamW(p, 0.1),
        lambda p: torch.optim.AdamW(p, 0.1, amsgrad=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.9, centered=True),
        lambda p: torch.optim.Adagrad(p, 0.1),
        lambda p: torch.optim.NAdam(p, 0.1),
    ],
)
def test_what_an_optimizer_keeps_is_read_where_it_lies(shelf: ts.Shelf, make: Any) -> None:
    model, optimizer = stepped(make, 1)
    shelf.save({"model": model, "optimizer": optimizer})
    expected = copy.deepcopy(optimizer.state_dict())
    other, target = stepped(make, 2)
    before = kept(target)
    shelf.load_into({"model": other, "optimizer": target})
    assert same(target.state_dict(), expected)
    for place, value in kept(target).items():
        if torch.is_tensor(value) and value.ndim:
            assert value is before[place]
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_what_is_not_the_optimizers_own_is_not_written(shelf: ts.Shelf) -> None:
    model, optimizer = stepped(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 1)
    shelf.save({"model": model, "optimizer": optimizer})
    expected = copy.deepcopy(optimizer.state_dict())
    other, target = stepped(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 2)
    states = list(target.state.values())
    shared = torch.zeros(8)  # of two parameters
    states[1]["momentum_buffer"] = shared
    states[3]["momentum_buffer"] = shared[3:5]
    states[0]["momentum_buffer"] = torch.zeros(40, 8).T  # in another order
    states[2]["momentum_buffer"] = torch.zeros(1)  # of another shape
    shelf.load_into({"model": other, "optimizer": target})
    assert same(target.state_dict(), expected)

    class Own(torch.optim.SGD):  # somebody else's, who may keep what is not its own
        pass

    other, target = stepped(lambda p: Own(p, 0.1, momentum=0.9), 3)
    before = copy.deepcopy(target.state_dict())
    lent = kept(target)
    shelf.load_into({"model": other, "optimizer": target})
    assert same(target.state_dict(), expected)
    for number, state in before["state"].items():
        assert torch.equal(lent[number, "momentum_buffer"], state["momentum_buffer"])


def test_a_load_that_is_refused_leaves_an_optimizer_as_it_was(shelf: ts.Shelf) -> None:
    model, optimizer = stepped(lambda p: torch.optim.AdamW(p, 0.1), 1)
    shelf.save({"model": model, "optimizer": optimizer})
    other, target = stepped(lambda p: torch.optim.AdamW(p, 0.1), 2)
    before = copy.deepcopy(target.state_dict())
    with pytest.raises(ts.KeyMismatch):
        shelf.load_into({"optimizer": target, "model": other, "more": {"a": 1}})
    assert same(target.state_dict(), before)


def test_an_optimizer_of_other_parameters_is_refused_before_anything_is_loaded(
    shelf: ts.Shelf,
) -> None:
    shelf.save({"a": torch.ones(2), "optimizer": torch.optim.SGD([torch.zeros(1)], lr=1)})
    target = torch.zeros(2)
    for optimizer in (
        torch.optim.SGD([torch.zeros(1), torch.zeros(1)], lr=1),
        torch.optim.SGD([{"params": [torch.zeros(1)]}, {"params": [torch.ones(1)]}], lr=1),
    ):
        with pytest.raises(ts.LayoutError, match=r"parameters in its groups, and \[1\] were saved"):
            shelf.load_into({"a": target, "optimizer": optimizer})
        assert target.tolist() == [0, 0]
