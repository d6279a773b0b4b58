"""Saves that are copied while a trainer goes on: each is of one moment, whatever trains."""

import contextlib
import copy
import gc
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place

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


# ---- torn


def by_data(p: Any) -> None:
    p.data.add_(1)


def by_numpy(p: Any) -> None:
    p.detach().numpy()[...] += 1


def by_no_grad(p: Any) -> None:
    with torch.no_grad():
        p.add_(1)


def by_inference(p: Any) -> None:
    with torch.inference_mode():
        p.detach().add_(1)


def by_storage(p: Any) -> None:
    p.untyped_storage().copy_(torch.rand(p.numel()).untyped_storage())


def by_fused_step(p: Any) -> None:
    """As a fused optimizer without hooks would: the version counter stays."""
    with torch.no_grad():
        grads, average, squares = torch.ones_like(p), torch.zeros_like(p), torch.zeros_like(p)
        torch._fused_adamw_(
            [p], [grads], [average], [squares], [], [torch.tensor(1.0)],
            lr=0.1, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False,
            maximize=False,
        )  # fmt: skip


@pytest.mark.parametrize("change", [by_data, by_numpy, by_storage, by_fused_step])
def test_what_changes_before_the_gate_is_not_saved(
    shelf: ts.Shelf, change: Callable[[Any], None]
) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
    auto.step(1)  # the first copies everything
    auto.step(2)
    auto.wait()
    kept = saved(shelf, {"model": model})
    for step in (3, 5):
        auto.step(step)
        for p in model.parameters():
            change(p)
        with pytest.raises(ts.TornSave, match=r"'model\.[0-9.a-z]+' changed while it was copied"):
            auto.wait()
        assert shelf.step == step - 1
        if step == 3:
            assert alike(dict(saved(shelf, kept)["model"]), dict(kept["model"]))
        auto.step(step + 1)  # anew
        auto.wait()
        assert shelf.step == step + 1
        assert alike(dict(saved(shelf, kept)["model"]), dict(model.state_dict()))
    assert auto._feed.overlap  # not two in a row


@pytest.mark.parametrize("change", [by_no_grad, by_inference])
def test_what_torch_counts_is_torn_once(shelf: ts.Shelf, change: Callable[[Any], None]) -> None:
    """And copied before step() returns from then on, though not what nobody changed."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
    auto.step(1)
    auto.wait()
    auto.step(2)
    change(model[0].weight)
    with pytest.raises(ts.TornSave, match=r"'model\.0\.weight' changed while it was copied"):
        auto.wait()
    assert shelf.step == 1
    auto.step(3)
    for step in (4, 5):
        auto.step(step)
        before = model[0].weight.detach().clone()
        change(model[0].weight)
        auto.wait()
        assert shelf.step == step
        assert torch.equal(shelf.load()["model"]["0.weight"], before)
    assert auto._feed.sources is not None
    assert "model.3.weight" in auto._feed.sources.lazy
    auto.close()


def first_element(p: Any) -> None:
    """A part so small that the bytes compared are others."""
    with torch.no_grad():
        p.view(-1)[0] += 1


UNCOMPARED = {"bytes_per_second": 1, "check_one_in": 0}


@pytest.mark.parametrize("by", ["commit", "gate", "wait", "optimizer"])
def test_a_part_that_torch_counts_is_told_and_mended(shelf: ts.Shelf, by: str) -> None:
    model = nn.Linear(64, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=UNCOMPARED)
    plain(lambda: model(torch.randn(4, 64)).square().mean(), optimizer)
    auto.step(1)
    auto.step(2)
    auto.wait()
    commit = auto.step(3)
    assert commit is not None
    first_element(model.weight)
    told = pytest.raises(ts.TornSave, match=r"'model\.weight'.* behind step\(3\).* auto\.gate\(\)")
    if by == "wait":
        with told:
            auto.wait()
    else:
        {"commit": commit.wait, "gate": auto.gate, "optimizer": optimizer.step}[by]()
        with told:
            auto.step(4)
    # From here on it is copied before step() returns.
    for step in (5, 6):
        auto.step(step)
        before = model.weight.detach().clone()
        first_element(model.weight)
        auto.wait()
        assert shelf.step == step
        assert torch.equal(shelf.load()["model"]["weight"], before)
    assert auto._feed.overlap
    auto.close()


@pytest.mark.parametrize("by", ["gate", "wait_staged", "staged", "wait", "done"])
def test_who_knows_that_it_is_copied_may_change_it(shelf: ts.Shelf, by: str) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer)
    for step in range(1, 8):
        plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
        commit = auto.step(step)
        assert commit is not None
        if by == "gate":
            auto.gate()
        elif by in ("staged", "done"):
            while not getattr(commit, by)():
                pass
        else:
            getattr(commit, by)()
        first_element(model[0].weight)
    auto.close()
    assert shelf.step == 7


def test_a_change_is_told_where_saves_only_warn(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(64, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, on_error="warn", pipeline=UNCOMPARED)
    plain(lambda: model(torch.randn(4, 64)).square().mean(), optimizer)
    for step in (1, 2, 3):
        auto.step(step)
    first_element(model.weight)
    auto.gate()
    assert auto.step(4) is not None
    assert "'model.weight' was changed behind step(3)" in caplog.text
    auto.close()
    assert torch.equal(shelf.load()["model"]["weight"], model.weight)


@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_a_change_behind_the_last_step_is_told_by_who_closes(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture, on_error: Any
) -> None:
    model = nn.Linear(64, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, on_error=on_error, pipeline=UNCOMPARED)
    plain(lambda: model(torch.randn(4, 64)).square().mean(), optimizer)
    for step in (1, 2, 3):
        auto.step(step)
    first_element(model.weight)
    if on_error == "raise":
        with pytest.raises(ts.TornSave, match=r"'model\.weight' .* behind step\(3\)"):
            shelf.close()
    else:
        shelf.close()
        assert "'model.weight' was changed behind step(3)" in caplog.text
    assert shelf.closed


def test_a_failure_is_told_by_the_next_step_though_that_saves_nothing(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, every=2)
    plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
    auto.step(2)
    auto.wait()
    del shelf["model.0.weight"]
    shelf.persist()
    commit = auto.step(4)
    assert commit is not None
    while not commit.done():
        pass
    auto.gate()  # which lets pass: nothing is copied any more
    with pytest.raises(ts.UnknownName):
        auto.step(5)
    assert auto.step(6) is not None
    auto.close()
    assert shelf.step == 6


def test_torn_saves_count_also_where_each_had_ended_before_the_next(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, on_error="warn", pipeline=RESTING)
    auto.step(1)
    auto.step(2)
    for step in (3, 4, 5, 6):
        commit = auto.step(step)
        if commit is None:
            continue  # which told of the one before
        for p in model.parameters():
            by_data(p)
        assert commit._save is not None
        with contextlib.suppress(ts.TornSave):
            commit._save.wait_staged()
    assert not auto._feed.overlap
    auto.close()


def test_parts_of_one_memory_are_counted_together_and_not_asked(shelf: ts.Shelf) -> None:
    """A forward that changes a buffer beside a parameter is no change of the parameter."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            both = torch.zeros(512)
            self.w = nn.Parameter(both[:256])
            self.register_buffer("seen", both[256:])

        def forward(self, x: Any) -> Any:
            self.seen.add_(1)
            return (self.w * x).sum()

    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer)
    for step in range(1, 9):
        plain(lambda: model(torch.ones(256)), optimizer)
        auto.step(step)
    auto.close()
    assert shelf.step == 8


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


@pytest.mark.parametrize("looked", [False, True])
def test_what_failed_before_anybody_waited_is_told_by_the_next_step(
    shelf: ts.Shelf, looked: bool
) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline={"check_one_in": 1})
    for step in range(1, 4):
        plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
        auto.step(step)
    auto.wait()
    for parameter in model.parameters():
        parameter.data.add_(1)
    del shelf[next(name for name in shelf if name.endswith("3.weight"))]
    shelf.persist()
    commit = auto.step(4)  # it fails behind the step, in the pipeline's thread
    assert commit is not None
    while not commit.done():
        pass
    if looked:
        assert "launched" not in commit.times
        assert auto._timeline.saves[-1].seconds is None
    with pytest.raises(ts.UnknownName):
        auto.step(5)
    auto.step(6)
    auto.close()
    assert shelf.step == 6


def test_two_torn_in_a_row_end_the_overlap(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(
        model=model, optimizer=optimizer, on_error="warn", pipeline=RESTING, every=1
    )
    for step in range(1, 12):
        auto.step(step)
        for p in model.parameters():
            by_data(p)
    auto.close()
    assert "2 saves in a row were abandoned" in caplog.text
    assert "autosave(overlap=False)" in caplog.text
    assert shelf.step == 11
    # From there on each save is of its moment.
    assert auto._flight.commit is None


def test_without_overlap_everything_may_change_at_once(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    state = {"model": model, "optimizer": optimizer}
    auto = shelf.autosave(**state, overlap=False, pipeline=RESTING)
    for step in range(1, 6):
        commit = auto.step(step)
        assert commit is not None
        before = snapshot(state)
        for p in model.parameters():
            by_data(p)
        commit.wait()
        assert alike(dict(saved(shelf, state)["model"]), dict(before["model"]))
    assert "released" in commit.times
    auto.close()


def test_a_gate_by_hand(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    for step in range(1, 6):
        auto.gate()
        for p in model.parameters():
            by_data(p)
        commit = auto.step(step)
    auto.gate()
    assert commit is not None
    assert commit.staged()
    assert commit.wait_staged() is commit
    auto.close()
    assert shelf.step == 5


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
    shelf.autosave(x=[1], pipeline={"nice": 10, "workers": 2, "cpus": (0,)}).close()


class Numbers(torch.utils.data.Dataset):  # type: ignore[name-defined,misc]
    """Counts what is loaded, where no worker does."""

    def __init__(self) -> None:
        self.loaded = 0

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> int:
        self.loaded += 1
        return index


@pytest.mark.parametrize(
    ("workers", "own", "collated"), [(0, False, True), (0, True, False), (2, False, True)]
)
def test_a_loader_resumes_by_its_sampler(
    reopen: OpenShelf, workers: int, own: bool, collated: bool
) -> None:
    def loader() -> Any:
        return torch.utils.data.DataLoader(
            Numbers(),
            batch_size=3 if collated else None,
            sampler=torch.utils.data.RandomSampler(range(23)),
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator().manual_seed(3) if own else None,
        )

    torch.manual_seed(5)
    whole = loader()
    expected = [[str(batch) for batch in whole] + [float(torch.rand(1))] for _ in range(2)]
    torch.manual_seed(5)

    def begin(shelf: ts.Shelf) -> list[Any]:
        with shelf.autosave(rng=ts.RNG()) as auto:
            iterator = iter(auto.batches(loader(), by_sampler=True))
            seen: list[Any] = [str(next(iterator)) for _ in range(5)]
            auto.step(5)
        return seen

    seen = begin(reopen(mode="w"))
    gc.collect()  # and workers end, which were forked while the shelf was open
    torch.manual_seed(99)
    shelf = reopen()
    auto = shelf.autosave(rng=ts.RNG())
    assert auto.resume() == 5
    resumed = loader()
    batches = auto.batches(resumed, by_sampler=True)
    assert [seen + [str(batch) for batch in batches] + [float(torch.rand(1))]] == expected[:1]
    if workers == 0:
        assert resumed.dataset.loaded == 23 - (15 if collated else 5)
    assert [str(batch) for batch in batches] + [float(torch.rand(1))] == expected[1]
    auto.close()


def test_what_has_no_sampler_is_not_resumed_by_one(shelf: ts.Shelf) -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[name-defined,misc]
        def __iter__(self) -> Any:
            return iter(range(4))

    auto = shelf.autosave(rng=ts.RNG())
    for loader in (range(5), torch.utils.data.DataLoader(Stream())):
        with pytest.raises(ts.BadArgument, match="without a sampler of indices"):
            auto.batches(loader, by_sampler=True)
        assert len(list(auto.batches(loader))) > 3
    auto.close()


def test_epochs_with_draws_between_them_resume(reopen: OpenShelf) -> None:
    """``batches()`` is called for each epoch, and something else draws between two."""

    def run(shelf: ts.Shelf, stop: int) -> list[Any]:
        loader = torch.utils.data.DataLoader(range(12), batch_size=3, shuffle=True)
        seen: list[Any] = []
        progress = {"epoch": 0}
        auto = shelf.autosave(progress=progress, rng=ts.RNG())
        step = auto.resume()
        while progress["epoch"] < 4:
            for batch in auto.batches(loader):
                step += 1
                seen.append((step, batch.tolist(), random.random(), float(torch.rand(1))))
                auto.step(step)
                if step == stop:
                    auto.close()
                    return seen
            torch.rand(3)
            progress["epoch"] += 1
        auto.close()
        assert sum(name.startswith("autosave.batches.") for name in shelf) == 3
        return seen

    torch.manual_seed(5)
    random.seed(5)
    expected = run(reopen(mode="w"), 99)
    assert len(expected) == 16
    torch.manual_seed(5)
    random.seed(5)
    shelf = reopen(mode="w")
    seen = []
    for stop in (2, 7, 9, 10, 15, 99):
        seen += run(shelf, stop)
        torch.manual_seed(stop)
        random.seed(stop)
        shelf = reopen()
    assert seen == expected


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


def test_a_shelf_that_is_let_go_waits_for_its_save(shelf: ts.Shelf) -> None:
    class Failing:
        waited = False

        def wait(self) -> None:
            Failing.waited = True
            raise ts.IoError("the flush failed", "look at the drive")

    model = net()
    auto = shelf.autosave(model=model, optimizer=torch.optim.AdamW(model.parameters()))
    for step in range(1, 4):
        commit = auto.step(step)
        assert commit is not None
        commit.wait()
    assert shelf._flight is commit._save  # so that letting go waits for it, and then asks
    auto.close()
    shelf._flight = Failing()  # type: ignore[assignment]
    shelf.__del__()
    assert Failing.waited


def test_the_first_failure_is_raised_by_who_closes(place: Place) -> None:
    """A save that lost its file, and then a change behind the step: of that there is no version."""
    shelf = ts.open(place[0], mode="w", tier=place[1])
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer)
    plain(lambda: model(torch.ones(1, 64)).square().sum(), optimizer)
    auto.step(1)
    auto.wait()
    os.unlink(place[0])
    with contextlib.suppress(ts.ShelfGone):
        auto.step(2)
    first_element(model.weight)
    with pytest.raises(ts.ShelfGone) as error:
        auto.step(3)
    assert not isinstance(error.value.__context__, ts.TornSave)
    auto.close()
    with contextlib.suppress(ts.ShelfGone):
        shelf.close()
    assert shelf.closed
