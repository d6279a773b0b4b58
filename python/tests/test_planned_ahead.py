"""A run that is resumed plans its saves before training goes on."""

from collections.abc import Callable
from typing import Any

import pytest
from support import Place

import tensorshelf as ts
from tensorshelf._auto import commits

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


def run() -> dict[str, Any]:
    """After one step: optimizers keep nothing before it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    train(model, optimizer)
    return {"model": model, "optimizer": optimizer}


def train(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.randn(16, 4)).square().mean().backward()
    optimizer.step()


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The states that were walked for a plan, one after the other."""
    seen: list[Any] = []
    flatten = commits.flatten

    def noted(state: Any) -> Any:
        seen.append(state)
        return flatten(state)

    monkeypatch.setattr(commits, "flatten", noted)
    return seen


def opened(place: Place, **options: Any) -> ts.Shelf:
    path, tier = place
    return ts.open(path, tier=tier, **options)


def first_run(place: Place, **more: Any) -> None:
    with opened(place) as shelf, shelf.autosave(**run(), **more) as auto:
        auto.resume()
        auto.step(1)


def resumed(
    place: Place, state: dict[str, Any], change: Callable[[], None], **options: Any
) -> None:
    """Saves the state after such a change; it is there for the next run."""
    with opened(place) as shelf, shelf.autosave(**state, **options) as auto:
        assert auto.resume() == 1
        change()
        auto.step(2)
    expected = [tensor.clone() for tensor in tensors_of(state)]
    for tensor in tensors_of(state):
        tensor.data.zero_()
    with opened(place) as shelf, shelf.autosave(**state, **options) as auto:
        assert auto.resume() == 2
    for tensor, value in zip(tensors_of(state), expected, strict=True):
        assert torch.equal(tensor, value)


def tensors_of(state: dict[str, Any]) -> list[Any]:
    """Of a model and an optimizer."""
    kept = state["optimizer"].state.values()
    return [*state["model"].state_dict().values(), *(t for each in kept for t in each.values())]


@pytest.mark.parametrize("overlap", [True, False])
def test_the_first_save_of_a_resumed_run_walks_nothing(
    place: Place, walks: list[Any], overlap: bool
) -> None:
    first_run(place)
    state = run()
    walked = 0

    def change() -> None:
        nonlocal walked
        walked = len(walks)
        train(**state)

    walks.clear()
    resumed(place, state, change, overlap=overlap)
    assert walked == 1
    assert len(walks) == 2  # by the run behind it, too


def test_who_resumes_again_leaves_the_plan_that_is_copied_by(
    place: Place, walks: list[Any]
) -> None:
    first_run(place)
    state = run()
    with opened(place) as shelf, shelf.autosave(**state) as auto:
        auto.resume()
        train(**state)
        auto.step(2)
        auto.wait()
        plan = auto._feed._plan
        assert plan is not None
        walks.clear()
        assert auto.resume() == 2
        assert walks == []
        assert auto._feed._plan is plan


def test_another_form_since_it_was_resumed_is_saved_as_it_is(
    place: Place, walks: list[Any]
) -> None:
    first_run(place)
    state = run()
    extra = nn.Parameter(torch.ones(3))

    def change() -> None:
        state["optimizer"].add_param_group({"params": [extra]})
        extra.grad = torch.ones(3)
        state["optimizer"].step()

    walks.clear()
    resumed(place, state, change)
    assert len(walks) == 3  # by the save, and by the run behind it
    with opened(place, mode="r") as shelf:
        assert len(shelf.load()["optimizer"]["param_groups"]) == 2


def test_tensors_that_moved_since_it_was_resumed_are_saved_from_where_they_are(
    place: Place,
) -> None:
    first_run(place)
    state = run()

    def change() -> None:
        for parameter in state["model"].parameters():
            parameter.data = parameter.data.clone() + 1
        train(**state)

    resumed(place, state, change)


def test_a_shelf_of_another_form_is_saved_to_as_before(place: Place, walks: list[Any]) -> None:
    first_run(place)
    state = run()
    state["model"] = nn.Sequential(*state["model"], nn.Linear(1, 2))
    with (
        opened(place) as shelf,
        shelf.autosave(model=state["model"], more=torch.ones(7)) as auto,
    ):
        assert auto.resume(strict=False) == 1
        auto.step(2)
        assert len(walks) == 3  # of the run before, to find out, and by the save
        auto.wait()
        loaded = shelf.load()
        assert torch.equal(loaded["more"], torch.ones(7))
        assert "3.weight" in loaded["model"]
        assert "optimizer" not in loaded


def test_another_layout_of_a_tensor_is_saved_as_before(place: Place) -> None:
    with (
        opened(place) as shelf,
        shelf.autosave(a=Held(torch.zeros(3))) as auto,
    ):
        auto.resume()
        auto.step(1)
    held = Held(torch.zeros(3))
    with opened(place) as shelf, shelf.autosave(a=held) as auto:
        held.grows = True
        assert auto.resume() == 1
        auto.step(2)
        auto.wait()
        assert shelf.load()["a"]["value"].shape == (6,)


class Held:
    """Gives its value as its state, and takes it twice over where it is told to."""

    def __init__(self, value: Any) -> None:
        self.value, self.grows = value, False

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = torch.cat([state["value"]] * 2) if self.grows else state["value"]


def test_what_cannot_be_stored_is_told_by_the_first_save(place: Place) -> None:
    first_run(place, more=Odd())
    odd = Odd()
    with opened(place) as shelf, shelf.autosave(**run(), more=odd) as auto:
        odd.value = object()
        assert auto.resume() == 1
        with pytest.raises(ts.NotStorable, match="more"):
            auto.step(2)


class Odd:
    """Has a state that it does not take."""

    def __init__(self) -> None:
        self.value: object = 1

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
