"""What training loops do around an autosave: what is saved is what a resumed run needs, or the
mistake is told.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import OpenShelf

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")

Warnings = pytest.LogCaptureFixture


def run() -> tuple[Any, Any]:
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def backward(model: Any) -> None:
    model(torch.randn(6, 4)).square().mean().backward()


def loader(workers: int = 0, **options: Any) -> Any:
    data = torch.utils.data.TensorDataset(torch.arange(24.0).reshape(12, 2))
    return torch.utils.data.DataLoader(
        data, **{"batch_size": 2, "shuffle": True, "num_workers": workers, **options}
    )


# ---- gradients that nobody has used yet


@pytest.mark.parametrize("backwards", [1, 2])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_behind_the_optimizers_step_are_the_middle(
    shelf: ts.Shelf, backwards: int, set_to_none: bool
) -> None:
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer) as auto:
        for number in range(1, 6):
            backward(model)
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
            auto.step(number)
            backward(model)
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
            for _ in range(backwards):
                backward(model)
            with pytest.raises(ts.UnsupportedError, match="in the middle of adding up"):
                auto.step(number)
            optimizer.step()
            optimizer.zero_grad()
            auto.step(number)


def keeps(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def zeroes(model: Any, optimizer: Any) -> None:
    backward(model)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def clips(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    backward(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()


@pytest.mark.parametrize("train", [keeps, zeroes, clips])
def test_used_gradients_are_not_the_middle(shelf: ts.Shelf, train: Callable[..., None]) -> None:
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer) as auto:
        for number in range(1, 6):
            train(model, optimizer)
            auto.step(number)
            auto.step(number)  # once more, behind a validation, say
    assert shelf.step == 5


def test_an_optimizer_may_leave_gradients_to_another(shelf: ts.Shelf) -> None:
    """The second backward of an adversarial training reaches the first model, too."""
    (judge, first), (forger, second) = run(), run()
    head = torch.nn.Linear(1, 4)
    state = {"judge": judge, "forger": forger, "first": first, "second": second}
    with shelf.autosave(**state) as auto:
        for number in range(1, 6):
            first.zero_grad()
            backward(judge)
            first.step()
            second.zero_grad()
            judge(head(forger(torch.randn(6, 4)))).mean().backward()
            second.step()
            auto.step(number)
    assert shelf.step == 5
