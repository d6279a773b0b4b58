"""Runs that add gradients up: saved with them, or not saved in the middle."""

from typing import Any

import pytest
from conftest import OpenShelf

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")

ADDED = 3  # backwards for one step of the optimizer


def run() -> tuple[Any, Any]:
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, torch.optim.AdamW(model.parameters(), 0.1)


def backward(model: Any, number: int) -> None:
    torch.manual_seed(number)
    model(torch.randn(6, 4)).square().mean().backward()


def part(model: Any, optimizer: Any, number: int) -> None:
    """One backward; every third is followed by a step. Numbers from 1."""
    backward(model, number)
    if number % ADDED == 0:
        optimizer.step()
        optimizer.zero_grad()


def test_the_middle_is_refused_and_the_end_is_not(shelf: ts.Shelf) -> None:
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer) as auto:
        for number in range(1, 10):
            part(model, optimizer, number)
            if number % ADDED == 0:
                assert auto.step(number) is not None
            else:
                version = shelf.version
                with pytest.raises(ts.UnsupportedError, match=f"step {number} is in the middle"):
                    auto.step(number)
                assert shelf.version in (version, version + 1)  # one that was on its way
    assert (shelf.version, shelf.step) == (3, 9)


def test_a_save_that_falls_on_the_end_is_fine(shelf: ts.Shelf) -> None:
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer, every=ADDED) as auto:
        for number in range(1, 10):
            part(model, optimizer, number)
            auto.step(number)
    assert (shelf.version, shelf.step) == (3, 9)


def test_the_middle_is_told_and_left_out(shelf: ts.Shelf, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer, on_error="warn") as auto:
        for number in range(1, 7):
            part(model, optimizer, number)
            auto.step(number)
    assert (shelf.version, shelf.step) == (2, 6)
    assert caplog.text.count("in the middle of adding up gradients") == 1
    assert "step 1 is" in caplog.text


def test_what_is_on_its_way_is_not_forgotten_in_the_middle(shelf: ts.Shelf) -> None:
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer) as auto:
        for number in range(1, 2 * ADDED + 1):
            part(model, optimizer, number)
            if number % ADDED == 0:
                flight = auto.step(number)
        backward(model, 7)
        with pytest.raises(ts.UnsupportedError, match="in the middle"):
            auto.step(7)
        assert auto._flight.commit is flight
        plan = auto._feed._plan
        assert plan is not None
        auto.wait()
        assert shelf.step == 6


@pytest.mark.parametrize("end", [2, 3, 4, 8])
@pytest.mark.parametrize("overlap", [True, False])
def test_gradients_that_are_saved_go_on(reopen: OpenShelf, end: int, overlap: bool) -> None:
    whole, optimizer = run()
    for number in range(1, 13):
        part(whole, optimizer, number)
    shelf = reopen(in_flight=2)
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer, grads=True, overlap=overlap) as auto:
        for number in range(1, end + 1):
            part(model, optimizer, number)
            auto.step(number)
        kept = {name: p.grad for name, p in model.named_parameters()}
    shelf = reopen(in_flight=2)
    again, optimizer = run()
    backward(again, 1000)  # gradients that are not the run's
    with shelf.autosave(model=again, optimizer=optimizer, grads=True, overlap=overlap) as auto:
        assert auto.resume() == end
        for name, parameter in again.named_parameters():
            if kept[name] is None:
                assert parameter.grad is None
            else:
                assert torch.equal(parameter.grad, kept[name])
        for number in range(end + 1, 13):
            part(again, optimizer, number)
            auto.step(number)
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_gradients_that_are_dropped_may_be_left_out(shelf: ts.Shelf) -> None:
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer, grads=False) as auto:
        for number in range(1, 4):
            backward(model, number)
            auto.step(number)
    assert shelf.step == 3


def test_what_is_no_middle(shelf: ts.Shelf) -> None:
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer) as auto:
        auto.step(0)  # before anything
        for number in range(1, 4):
            optimizer.zero_grad()
            backward(model, number)
            optimizer.step()  # whose gradients stay
            auto.step(number)
        auto.step(4)  # nothing happened since
        optimizer.zero_grad()
        auto.step(5)
    assert shelf.step == 5


def test_a_scaler_may_leave_steps_out(shelf: ts.Shelf) -> None:
    model, optimizer = run()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with shelf.autosave(model=model, optimizer=optimizer, scaler=scaler) as auto:
        for number in range(1, 4):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(6, 4)).square().mean()).backward()
            if number == 2:
                model[0].weight.grad[0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
            auto.step(number)
    assert shelf.step == 3


def test_what_comes_behind_a_step_of_a_scaler_is_a_middle(shelf: ts.Shelf) -> None:
    model, optimizer = run()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with shelf.autosave(model=model, optimizer=optimizer, scaler=scaler) as auto:
        scaler.scale(model(torch.randn(6, 4)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        backward(model, 2)
        with pytest.raises(ts.UnsupportedError, match="step 1 is in the middle"):
            auto.step(1)


def test_an_optimizer_within_backward_needs_no_overlap(shelf: ts.Shelf) -> None:
    model, _ = run()
    optimizers = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}

    def step(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    hooks = [p.register_post_accumulate_grad_hook(step) for p in model.parameters()]
    state = {"model": model, "optimizers": list(optimizers.values())}
    with pytest.raises(ts.UnsupportedError, match=r"0\.weight has a hook.*overlap=False"):
        shelf.autosave(**state)
    with shelf.autosave(**state, overlap=False) as auto:
        for number in range(1, 5):
            backward(model, number)
            weight = model[0].weight.detach().clone()
            auto.step(number)
    assert torch.equal(shelf.load()["model"]["0.weight"], weight)
    for hook in hooks:
        hook.remove()
    shelf.autosave(**state).close()


def test_gradients_is_a_key_of_its_own(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.BadArgument, match="gradients= is a key of autosave"):
        shelf.autosave(gradients={"a": 1})
