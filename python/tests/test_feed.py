"""Saves that are copied while a trainer goes on: each is of one moment, whatever trains."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn

# Copies rest behind the first tensor until somebody waits: what changes meanwhile changes in time.
RESTING = {"bytes_per_second": 1, "check_one_in": 1}


def net() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Dropout(0.3), nn.Linear(32, 1))


def alike(one: Any, other: Any) -> bool:
    if torch.is_tensor(one):
        return bool(torch.equal(one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def snapshot(state: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy({key: value.state_dict() for key, value in state.items()})


def saved(shelf: ts.Shelf, state: dict[str, Any]) -> dict[str, Any]:
    """What was saved, in new objects' forms."""
    loaded = shelf.load()
    return {key: loaded[key] for key in state}


def plain(loss: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()


def closure(loss: Any, optimizer: Any) -> None:
    def again() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(again)


def accumulated(loss: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    for _ in range(3):
        loss().backward()
    optimizer.step()


OPTIMIZERS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "SGD": (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), plain),
    "AdamW": (lambda p: torch.optim.AdamW(p, 0.1), plain),
    "AdamW, foreach": (lambda p: torch.optim.AdamW(p, 0.1, foreach=True), plain),
    "AdamW, fused": (lambda p: torch.optim.AdamW(p, 0.1, fused=True), plain),
    "Adam, accumulated": (lambda p: torch.optim.Adam(p, 0.1), accumulated),
    "Adagrad": (lambda p: torch.optim.Adagrad(p, 0.1), plain),
    "RMSprop": (lambda p: torch.optim.RMSprop(p, 0.01), plain),
    "LBFGS": (lambda p: torch.optim.LBFGS(p, 0.1, max_iter=3), closure),
}


@pytest.mark.parametrize("resting", [False, True])
@pytest.mark.parametrize(("make", "train"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_each_save_is_of_its_step(shelf: ts.Shelf, make: Any, train: Any, resting: bool) -> None:
    model = net()
    optimizer = make(model.parameters())
    state = {"model": model, "optimizer": optimizer}
    auto = shelf.autosave(**state, pipeline=RESTING if resting else None)
    auto.resume()
    before: dict[str, Any] | None = None
    lazily = 0
    for step in range(1, 9):
        if before is not None:
            model(torch.randn(16, 8))  # changes what batch norm keeps, while copies are under way
        train(lambda: model(torch.randn(16, 8)).square().mean(), optimizer)
        if before is not None:
            # The optimizer stepped behind the gate: what is saved is from before it.
            auto.wait()
            assert shelf.step == step - 1
            loaded = saved(shelf, state)
            assert alike(dict(loaded["model"]), dict(before["model"]))
            assert alike(loaded["optimizer"], before["optimizer"])
        commit = auto.step(step)
        assert commit is not None
        lazily += "released" in commit.times
        before = snapshot(state)
    auto.close()
    assert lazily >= 5 or train is closure  # LBFGS keeps new tensors each time


def test_averages_behind_the_step_and_several_optimizers(shelf: ts.Shelf) -> None:
    one, two = net(), net()
    average = torch.optim.swa_utils.AveragedModel(one)
    state = {
        "one": one,
        "two": two,
        "average": average,
        "first": torch.optim.AdamW(one.parameters(), 0.1),
        "second": torch.optim.SGD(two.parameters(), 0.1, momentum=0.9),
    }
    auto = shelf.autosave(**state, pipeline=RESTING)
    before: dict[str, Any] = {}
    for step in range(1, 6):
        for model, optimizer in ((one, state["first"]), (two, state["second"])):
            plain(lambda model=model: model(torch.randn(4, 8)).square().mean(), optimizer)
        average.update_parameters(one)
        if step > 1:
            auto.wait()
            assert alike(dict(saved(shelf, state)["average"]), dict(before["average"]))
            assert alike(dict(saved(shelf, state)["two"]), dict(before["two"]))
        auto.step(step)
        before = snapshot(state)
    auto.wait()
    assert alike(dict(saved(shelf, state)["average"]), dict(before["average"]))
    auto.close()


def test_a_step_that_a_scaler_skips(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    auto = shelf.autosave(model=model, optimizer=optimizer, scaler=scaler)
    for step in range(1, 6):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean() * (float("inf") if step == 3 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        auto.step(step)
    auto.close()
    assert shelf.step == 5
    assert shelf.load()["scaler"] == scaler.state_dict()


def test_groups_that_are_added_later(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model[0].parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer)
    for step in range(1, 7):
        if step == 4:
            optimizer.add_param_group({"params": list(model[3].parameters()), "lr": 0.5})
        plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
        auto.step(step)
    auto.close()
    other = net()
    again = torch.optim.AdamW(
        [{"params": other[0].parameters()}, {"params": other[3].parameters(), "lr": 0.5}]
    )
    shelf.load_into({"model": other, "optimizer": again}, strict=False)
    assert alike(again.state_dict(), optimizer.state_dict())


def test_a_save_made_anew_waits_for_the_one_before(reopen: OpenShelf) -> None:
    """What it assigns would be in the version of the step before, which is still being copied."""
    shelf = reopen(mode="w", keep=3)
    counts = np.zeros(4)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    log: dict[str, Any] = {"step": 0, "losses": []}
    state = {"counts": counts, "model": model, "optimizer": optimizer, "log": log}
    auto = shelf.autosave(**state, grads=False, pipeline=RESTING)
    seen = []
    for step, losses in ((1, 1), (2, 1), (3, 2000)):  # which outgrow the record
        counts[:] = log["step"] = step
        log["losses"] += [0.5] * losses
        commit = auto.step(step)
        assert commit is not None
        if step == 2:
            seen.append(commit)
    auto.wait()
    assert seen[0].wait().step == 2
    assert shelf.at(seen[0].version).load()["counts"].tolist() == [2] * 4
    assert shelf.load()["counts"].tolist() == [3] * 4
    auto.close()


def test_two_steps_between_two_of_an_optimizer(shelf: ts.Shelf) -> None:
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer, grads=True)
    step = 0
    for _ in range(4):
        for _ in range(2):
            model(torch.ones(1, 64)).sum().backward()
            step += 1
            auto.step(step)
        optimizer.step()
        for p in model.parameters():
            assert p.grad is not None
            p.grad.zero_()
    auto.close()
    assert shelf.step == step


@pytest.mark.parametrize("how", ["refused", "interrupted"])
def test_the_gate_waits_whatever_was_raised_since(
    shelf: ts.Shelf, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    log: dict[str, Any] = {"x": 0}
    auto = shelf.autosave(
        model=model, optimizer=optimizer, log=log, pipeline={"bytes_per_second": 1}
    )
    plain(lambda: model(torch.ones(1, 64)).square().sum(), optimizer)
    auto.step(1)
    auto.wait()
    before = model.weight.detach().clone()
    commit = auto.step(2)
    assert commit is not None
    if how == "refused":
        log["x"] = [lambda: None]
        auto._feed._pipeline = Draining(auto._feed._pipeline)  # type: ignore[assignment]
        with pytest.raises(ts.NotStorable):
            auto.step(3)
    else:
        with monkeypatch.context() as patched:
            patched.setattr(ts.Commit, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                auto.wait()
    assert not commit.staged()
    optimizer.step()  # whose hook waits in the gate
    assert commit.staged()
    log["x"] = 0
    commit.wait()
    assert torch.equal(shelf.load()["model"]["weight"], before)
    auto.close()


class Draining:
    """A pipeline whose drain() returns at once."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def drain(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)


def interrupted(commit: Any) -> None:
    raise KeyboardInterrupt


def test_an_embedding_that_its_forward_changes_is_copied_at_once(shelf: ts.Shelf) -> None:
    model = torch.nn.ModuleDict(
        {"limited": torch.nn.Embedding(50, 4, max_norm=0.1), "plain": torch.nn.Embedding(50, 4)}
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer)
    at = torch.arange(3)
    for step in range(1, 12):
        before = model["limited"].weight.detach().clone()
        loss = sum(part(at + step).sum() for part in model.values())
        assert step < 3 or not torch.equal(before, model["limited"].weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(step)
    assert auto.start is not None
    assert auto.start.sources.lazy == ("model.plain.weight",)
    auto.close()


# ---- whose turn it is


def test_a_shelf_has_one(shelf: ts.Shelf) -> None:
    first = shelf.autosave(x=[1])
    first.step(1)
    first.wait()
    second = shelf.autosave(y=[2])
    with pytest.raises(ts.UnsupportedError, match="another took its place"):
        first.step(2)
    with pytest.raises(ts.UnsupportedError, match=r"holds a run, at step 1.*resume\(\) first"):
        second.step(2)
    assert shelf.load() == {"x": [1], "autosave": {"batches": []}}
    second.close()
    assert repr(second) == "<Autosave of y, every 1 (closed)>"


@pytest.mark.parametrize("value", [3, 1.5, "text", b"", (1, 2), True, 1j])
def test_values_that_could_not_change(shelf: ts.Shelf, value: Any) -> None:
    with pytest.raises(ts.BadArgument, match=r"epoch=.* is a value and no object"):
        shelf.autosave(epoch=value)


def test_options_of_the_pipeline(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.BadArgument, match="no option 'niceness'"):
        shelf.autosave(x=[1], pipeline={"niceness": 3})
    with pytest.raises(ts.BadArgument, match="nice=20"):
        shelf.autosave(x=[1], pipeline={"nice": 20})
    shelf.autosave(x=[1], pipeline={"nice": 19, "workers": 2, "cpus": (0,)}).close()
    shelf.autosave(x=[1], pipeline={"device_pieces": 64, "device_piece_bytes": 1 << 20}).close()


def test_what_is_plain_may_grow(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    record: dict[str, Any] = {"losses": []}
    auto = shelf.autosave(model=model, optimizer=optimizer, record=record)
    lazily = 0
    for step in range(1, 700):  # beyond the room that the record had
        if step < 5 or step > 690:
            plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
        record["losses"].append(1.0 / step)
        commit = auto.step(step)
        assert commit is not None
        lazily += "released" in commit.times
    auto.close()
    assert shelf.load("record") == {"record": record}
    assert 690 < lazily < 698
