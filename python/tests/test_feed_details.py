"""Details of saving a run again and again, one fact each."""

import gc
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from test_feed import RESTING, net, plain

import tensorshelf as ts
from tensorshelf._auto.measured import Costs
from tensorshelf._values import _torch

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn

Warnings = pytest.LogCaptureFixture


def momentum(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def run(auto: Any, model: Any, optimizer: Any, *steps: int) -> None:
    for step in steps:
        plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
        auto.step(step)


# ---- where values lie


def test_numbers_of_the_other_byte_order_are_saved_again(shelf: ts.Shelf) -> None:
    class Gives:  # another array at each look
        n = 0

        def state_dict(self) -> dict[str, Any]:
            return {"a": (np.arange(3) + self.n).astype(">f8")}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    gives = Gives()
    auto = shelf.autosave(gives=gives)
    for step in (1, 2, 3):
        gives.n = step
        auto.step(step)
        auto.wait()
        assert shelf.load()["gives"]["a"].tolist() == [step, step + 1, step + 2]


def test_memory_that_the_model_lets_go_stays_until_it_is_copied(shelf: ts.Shelf) -> None:
    model = net()
    weight = model[3].weight
    memory = np.zeros(64, np.float32)
    alive = weakref.ref(memory)
    weight.data = torch.from_numpy(memory)[:32].view(1, 32)  # nobody else keeps all of it
    del memory
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    run(auto, model, optimizer, 1, 2)
    weight.data = torch.zeros_like(weight)
    gc.collect()
    assert alive() is not None
    auto.wait()


def test_what_no_optimizer_waits_for_is_copied_at_once(shelf: ts.Shelf) -> None:
    auto = shelf.autosave(model=net())
    for step in (1, 2):
        auto.step(step)
        auto.wait()
    assert auto.start is not None
    assert auto.start.sources.lazy == ()


def test_parts_of_one_memory_come_back_wherever_they_begin(shelf: ts.Shelf) -> None:
    memory = torch.arange(64, dtype=torch.uint8)
    state = {"a": memory[4:16].view(torch.float32), "b": memory[8:24].view(torch.float64)}
    shelf.save(state)
    loaded = shelf.load()
    for key, value in state.items():
        assert torch.equal(loaded[key].view(torch.uint8), value.view(torch.uint8))


def test_each_device_has_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def current_stream(device: int | None = None) -> Any:
        return types.SimpleNamespace(cuda_stream=100 + (device or 0))

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    assert _torch.current_stream(3) == 103


@pytest.mark.parametrize("kept", [{"n": 3}, 3])
def test_what_an_optimizer_keeps_by_no_parameter_comes_back(shelf: ts.Shelf, kept: Any) -> None:
    model = nn.Linear(1, 1)
    optimizer = momentum(model)
    optimizer.state["global"] = kept
    auto = shelf.autosave(model=model, optimizer=optimizer)
    for step in (1, 2):
        auto.step(step)
    auto.close()
    assert shelf.load()["optimizer"]["state"]["global"] == kept
    again = momentum(model)
    shelf.load_into({"model": model, "optimizer": again}, strict=False)
    assert again.state["global"] == kept


@pytest.mark.parametrize(
    "value",
    [torch.zeros(2, 3).t(), torch.zeros(8)[::2], np.zeros(8)[::-2], np.zeros((2, 3), order="F")],
    ids=["transposed", "every second", "backwards", "Fortran"],
)
def test_what_lies_in_no_order_is_saved_as_it_is_now(shelf: ts.Shelf, value: Any) -> None:
    auto = shelf.autosave(state={"value": value})
    for step in (1, 2, 3):
        value[0] = step
        auto.step(step)
        auto.wait()
        assert shelf.load()["state"]["value"].tolist() == value.tolist()
    auto.close()


def test_what_cannot_be_planned_is_told_once(shelf: ts.Shelf, caplog: Warnings) -> None:
    caplog.set_level("INFO", "tensorshelf")
    z = torch.zeros(2, dtype=torch.complex64)
    auto = shelf.autosave(state={"z": z.conj()})
    for step in (1, 2, 3):
        z[0] = complex(step, 1)
        auto.step(step)
        auto.wait()
        assert shelf.load()["state"]["z"].tolist() == [complex(step, -1), 0]
    assert caplog.text.count("copied before step() returns") == 1
    auto.close()


def test_what_left_the_state_before_it_was_resumed_leaves_the_shelf(shelf: ts.Shelf) -> None:
    shelf.save({"x": {"a": np.ones(2), "b": np.ones(2)}}, step=1)
    auto = shelf.autosave(x={"a": np.zeros(2)})
    assert auto.resume(strict=False) == 1
    auto.step(2)
    auto.close()
    assert "x.b" not in shelf
    assert shelf.load("x")["x"].keys() == {"a"}


# ---- hooks


def test_closing_takes_the_hooks_away(shelf: ts.Shelf) -> None:
    from torch.optim import optimizer

    def count() -> tuple[int, int]:
        return len(optimizer._global_optimizer_pre_hooks), len(
            optimizer._global_optimizer_post_hooks
        )

    before = count()
    with shelf.autosave(model=net()):
        assert count() > before
    assert count() == before


def test_an_optimizer_of_other_parameters_besides_is_told_too(
    shelf: ts.Shelf, caplog: Warnings
) -> None:
    model = net()
    auto = shelf.autosave(model=model, optimizer=momentum(model))
    other = torch.optim.Adam([*model.parameters(), nn.Parameter(torch.ones(1))], 0.1)
    plain(lambda: model(torch.randn(4, 8)).square().mean(), other)
    assert "an optimizer (Adam) steps parameters" in caplog.text
    auto.close()


def test_an_optimizer_whose_last_group_alone_is_saved_waits_too(
    shelf: ts.Shelf, caplog: Warnings
) -> None:
    model = net()
    auto = shelf.autosave(model=model, optimizer=momentum(model), pipeline=RESTING)
    own = [nn.Parameter(torch.ones(1))]
    other = torch.optim.Adam([{"params": own}, {"params": model.parameters()}], 0.1)
    for step in (1, 2):
        plain(lambda: model(torch.randn(4, 8)).square().mean(), other)
        commit = auto.step(step)
    assert commit is not None
    assert not commit.staged()
    before = model[3].weight.detach().clone()
    plain(lambda: model(torch.randn(4, 8)).square().mean(), other)
    auto.wait()
    assert torch.equal(shelf.load()["model"]["3.weight"], before)
    assert caplog.text.count("an optimizer (Adam) steps parameters") == 1
    auto.close()


def test_each_kind_of_optimizer_that_is_not_saved_is_told_once(
    shelf: ts.Shelf, caplog: Warnings
) -> None:
    model = net()
    auto = shelf.autosave(model=model, optimizer=momentum(model))
    for make in (torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adam):
        plain(lambda: model(torch.randn(4, 8)).square().mean(), make(model.parameters()))
    assert [record.getMessage().split()[3] for record in caplog.records] == ["(Adam)", "(RMSprop)"]
    auto.close()


# ---- gradients


def test_the_first_parameter_may_be_frozen(shelf: ts.Shelf) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    auto = shelf.autosave(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(ts.UnsupportedError, match="adding up"):
        auto.step(1)


@pytest.mark.parametrize("trained", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("apart", [False, True], ids=["one group", "two"])
def test_gradients_of_few_parameters_are_the_middle_too(
    shelf: ts.Shelf, trained: int, apart: bool
) -> None:
    parts = [nn.Parameter(torch.ones(2), requires_grad=at == trained) for at in range(2)]
    model = nn.ParameterList(parts)
    groups = [{"params": [part]} for part in parts] if apart else parts
    auto = shelf.autosave(model=model, optimizer=torch.optim.SGD(groups, 0.1))
    parts[trained].sum().backward()
    with pytest.raises(ts.UnsupportedError, match="adding up"):
        auto.step(1)


def test_steps_that_are_not_due_are_looked_at_too(shelf: ts.Shelf) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    auto = shelf.autosave(model=model, optimizer=optimizer, scaler=scaler, every=2)
    for step, value in ((1, 1.0), (2, float("inf"))):  # the second the scaler leaves out
        optimizer.zero_grad()
        scaler.scale(model(torch.full((1, 1), value)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        auto.step(step)
    auto.wait()
    assert shelf.step == 2


# ---- resuming and going back


def test_a_state_of_save_is_resumed_under_another_name(shelf: ts.Shelf) -> None:
    model = nn.Linear(2, 2)
    shelf.save({"net": model}, step=5)
    assert shelf.autosave(model=model).resume(rename={"net": "model"}) == 5


def test_rollback_takes_the_newest_version_of_a_step(reopen: OpenShelf) -> None:
    shelf = reopen(keep=4)
    progress = {"x": 0}
    auto = shelf.autosave(progress=progress)
    for step, x in ((1, 1), (1, 2), (2, 3)):
        progress["x"] = x
        auto.step(step, force=True)
        auto.wait()
    auto.rollback(1)
    assert progress["x"] == 2


def test_an_epoch_that_is_announced_is_not_begun(reopen: OpenShelf) -> None:
    loader = [0, 1, 2]
    auto = reopen().autosave(progress={"n": 0})
    assert list(auto.batches(loader, epoch=0)) == loader
    auto.batches(loader, epoch=1)
    auto.step(3)  # before its first batch
    auto.close()
    auto = reopen().autosave(progress={"n": 0})
    auto.resume()
    assert list(auto.batches(loader, epoch=1)) == loader


class Stateful:
    """A loader of six batches with a state of its own."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        at, self.at = self.at, 0
        for number in range(at, 6):
            self.at = number + 1
            yield number
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_a_rollback_skips_of_a_loader_with_a_state_of_its_own(reopen: OpenShelf) -> None:
    shelf = reopen(keep=4)
    loader = Stateful()
    auto = shelf.autosave(progress={"n": 0})
    for step, _ in enumerate(auto.batches(loader), 1):
        auto.step(step)
        auto.wait()
        if step == 3:
            break
    auto.rollback(1, skip_batches=2)
    assert list(auto.batches(loader)) == [3, 4, 5]


def test_a_loader_that_is_left_alone_is_told_when_another_begins_an_epoch(
    shelf: ts.Shelf, caplog: Warnings
) -> None:
    auto = shelf.autosave(progress={"n": 0})
    for n in range(3):
        next(iter(auto.batches([n, n + 1])))
    auto.step(1)
    auto.close()
    auto = shelf.autosave(progress={"n": 0})
    auto.resume()
    train, _ = [auto.batches([n, n + 1]) for n in range(2)]
    list(train)
    auto.step(2)
    assert caplog.text == ""
    list(train)
    auto.step(3)
    assert "1 loaders" in caplog.text


def test_an_epoch_that_had_ended_has_ended_of_a_longer_loader_too(shelf: ts.Shelf) -> None:
    auto = shelf.autosave(progress={"n": 0})
    list(auto.batches([0, 1, 2]))
    auto.step(1)
    auto.close()
    auto = shelf.autosave(progress={"n": 0})
    batches = auto.batches([0, 1, 2, 3, 4])
    auto.resume()
    assert list(batches) == []
    assert list(batches) == [0, 1, 2, 3, 4]


# ---- what is told


def test_the_trace_names_what_was_copied_when(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = momentum(model)
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline={"trace": True})
    for step in (1, 2, 3):
        run(auto, model, optimizer, step)
        auto.wait()
    save = auto._timeline.saves[-1]
    eager = {name for name, _, _, ended in save.copies if ended <= save.times["released"]}
    assert auto.start is not None
    assert eager == set(auto.start.sources.eager)


def test_a_save_that_lands_ends_the_row_of_torn_ones(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = momentum(model)
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING, on_error="warn")
    for step in range(1, 9):
        run(auto, model, optimizer, step)
        if step in (3, 6):
            model[3].weight.detach().numpy()[:] += 1
        auto.gate()
        while not auto._flight.has_landed():
            pass  # nobody calls wait(), which would end the row, too
    assert auto._feed.overlap


def test_an_interval_that_hides_is_rounded_up() -> None:
    costs = Costs(step=1.0, stall=0.1, save=1.2, nbytes=100)
    assert "every=2 hides" in costs.told(1)
    assert costs.is_hidden(2)
