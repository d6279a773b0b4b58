"""What a run that is resumed is told, and what it must not be given, one fact each."""

import logging
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from test_feed import RESTING

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


def test_resuming_again_goes_back_to_what_was_saved_last(reopen: OpenShelf) -> None:
    """And not to a version before that, with the state of a later one: a cell that is run twice."""
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    progress = {"n": 0}
    shelf = reopen(in_flight=2)
    auto = shelf.autosave(model=model, optimizer=optimizer, progress=progress, pipeline=RESTING)
    auto.resume()
    for step in (1, 2, 3):
        progress["n"] = step
        auto.step(step)
    assert auto.resume() == 3
    assert progress == {"n": 3}
    auto.close()


KINDS = [
    ("int64", "uint8", 300, False),
    ("int64", "uint8", -1, False),
    ("int64", "uint64", -1, False),
    ("int32", "uint32", -7, False),
    ("uint8", "uint16", 7, True),
    ("uint8", "uint64", 7, True),
    ("int64", "int32", 1 << 40, False),
    ("int64", "int32", -7, True),
    ("uint8", "int8", 200, False),
    ("uint8", "int8", 100, True),
    ("int64", "complex64", (1 << 24) + 1, False),
    ("int64", "complex64", -7, True),
    ("int64", "float32", (1 << 24) + 1, False),
    ("int64", "float32", 1 << 24, True),
    ("float64", "float32", 1e300, False),
    ("float64", "float32", 0.1, True),
    ("float32", "float16", 1e30, False),
    ("float64", "float32", float("inf"), True),
    ("complex128", "complex64", 1e300, False),
]


@pytest.mark.parametrize(("saved", "given", "value", "fits"), KINDS)
@pytest.mark.parametrize("kinds", ["torch to torch", "torch to numpy", "numpy to torch", "numpy"])
def test_no_number_becomes_another_one(
    shelf: ts.Shelf, kinds: str, saved: str, given: str, value: float, fits: bool
) -> None:
    made: Any = np.full(3, value, saved)
    target: Any = np.zeros(3, given)
    shelf.save({"x": torch.from_numpy(made) if kinds.startswith("torch") else made})
    into = {"x": target if kinds.endswith("numpy") else torch.from_numpy(target)}
    if fits:
        shelf.load_into(into)
        assert (target == np.full(3, value).astype(given)).all()
        return
    with pytest.raises(ts.LayoutError, match=f"{saved} was saved, (with a number|which)"):
        shelf.load_into(into)


def test_parameters_that_are_stepped_and_not_saved_are_told(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    model, criterion = nn.Linear(3, 2), nn.Linear(2, 1)
    optimizer = torch.optim.AdamW([*model.parameters(), *criterion.parameters()])
    alone = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
    with shelf.autosave(model=model, optimizer=optimizer, alone=alone):
        pass
    told = [text for text in caplog.messages if "nothing that was given" in text]
    assert len(told) == 2
    assert "(AdamW) steps 2 parameters" in told[0]
    assert "(SGD) steps 1 parameters" in told[1]


def test_parameters_that_are_saved_are_not_told(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(3, 2)
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([*model.parameters(), weight], lr=0.1)
    caplog.set_level(logging.INFO)
    with shelf.autosave(parts={"model": [model], "weight": weight}, optimizer=optimizer):
        pass
    assert "nothing that was given" not in caplog.text


def test_a_state_without_memory_is_no_reason_to_fail(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    sparse = torch.eye(2).to_sparse()
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
    with shelf.autosave(sparse=sparse, optimizer=optimizer):
        pass
    assert "(SGD) steps 1 parameters" in caplog.text


def test_what_save_saved_lacks_nothing_that_a_user_gave(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.save({"x": [1]}, step=3)
    with shelf.autosave(x=[2]) as auto:
        assert auto.resume(strict=False) == 3
    assert "strict=False" not in caplog.text


def test_what_is_not_loaded_without_strict_is_told(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    with reopen(mode="w").autosave(x=[1], y={"a": 1}) as auto:
        auto.step(5)
    with reopen().autosave(x=[2], z=[3]) as auto:
        assert auto.resume(strict=False) == 5
    told = [text for text in caplog.messages if "strict=False" in text]
    assert len(told) == 1
    assert "1 given and not saved ('z'), 1 saved and not given ('y'); the rest is" in told[0]
    caplog.clear()
    with reopen().autosave(z=[3]) as auto:
        assert auto.resume(strict=False) == 5
    assert "; nothing was loaded" in caplog.text
    caplog.clear()
    with reopen().autosave(x=[2], y={"a": 2}) as auto:
        assert auto.resume(strict=False) == 5
    assert "strict=False" not in caplog.text


def test_what_takes_no_state_is_refused_wherever_it_lies(shelf: ts.Shelf) -> None:
    class Silent:
        def state_dict(self) -> dict[str, int]:
            return {"n": 1}

    with pytest.raises(ts.BadArgument, match=r"state\['parts'\]\['a'\]\[1\] is a Silent, which"):
        shelf.autosave(parts={"a": [1, Silent()]})


SCHEDULES = {
    "LambdaLR": (lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (n + 1)), True),
    "CyclicLR": (
        lambda o: torch.optim.lr_scheduler.CyclicLR(
            o, 0.01, [group["lr"] for group in o.param_groups], cycle_momentum=False
        ),
        True,
    ),
    "CosineAnnealingLR": (lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10), True),
    "ReduceLROnPlateau": (
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(
            o, patience=0, min_lr=[group["lr"] / 2 for group in o.param_groups]
        ),
        True,
    ),
    "ExponentialLR": (lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9), False),
    "in turn": (
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [
                torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
                torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (n + 1)),
            ],
            [2],
        ),
        True,
    ),
}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(("make", "by_order"), SCHEDULES.values(), ids=SCHEDULES)
def test_a_schedule_goes_by_the_order_of_groups(
    reopen: OpenShelf, make: Any, by_order: bool, alike: bool, order: tuple[int, int]
) -> None:
    """Which an optimizer does not, that finds its parameters by their names."""

    def run(shelf: ts.Shelf, order: tuple[int, int]) -> dict[str, float]:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        groups = [
            {"params": [*layer.parameters()], "lr": 0.1 if alike or number == 0 else 0.001}
            for number, layer in enumerate(model)
        ]
        optimizer = torch.optim.SGD([groups[at] for at in order], lr=0.1)
        schedule = make(optimizer)
        with shelf.autosave(model=model, optimizer=optimizer, schedule=schedule) as auto:
            step = auto.resume()
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            by_loss = isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)
            schedule.step(*[1.0] * by_loss)
            auto.step(step + 1)
        places = zip(order, optimizer.param_groups, strict=True)
        return {f"{at}": group["lr"] for at, group in places}

    run(reopen(mode="w"), (0, 1))
    whole = run(reopen(), (0, 1))
    run(reopen(mode="w"), (0, 1))
    if by_order and not alike and order == (1, 0):
        with pytest.raises(ts.LayoutError, match=r"'schedule'.* by the order of its optimizer's"):
            run(reopen(), order)
        return
    assert run(reopen(), order) == whole
