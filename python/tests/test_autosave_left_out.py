"""What a run leaves out of its autosave, or changes behind it, and is told of."""

import logging
import pathlib
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
from torch.utils import data  # noqa: E402

import tensorshelf as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


class Run:
    """A model that trains by a schedule, and what of it is saved besides."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.progress: dict[str, Any] = {"seen": 0, "losses": [0.0]}
        self.state = {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.schedule,
            "progress": self.progress,
            "rng": ts.RNG(),
        }

    def steps(self, shelf: ts.Shelf, behind: Any, *, steps: int = 4) -> None:
        with shelf.autosave(**self.state) as auto:
            auto.resume()
            loader = data.DataLoader(torch.ones(steps, 2), batch_size=1)
            for step, batch in enumerate(auto.batches(loader), 1):
                self.model(torch.cat([batch, batch])).sum().backward()
                self.optimizer.step()
                auto.step(step)
                behind(self, auto, step)


BEHIND = {
    "scheduler": lambda run, auto, step: run.schedule.step(),
    "rng": lambda run, auto, step: torch.rand(1),
    "progress": lambda run, auto, step: run.progress.update(seen=step),
    "model": lambda run, auto, step: run.model(torch.ones(2, 2)),  # its buffers
}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """But for those of how long saves take."""
    texts = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    return [text for text in texts if "hides them" not in text]


@pytest.mark.parametrize("key", BEHIND)
def test_what_a_loop_changes_behind_its_step_is_told_once(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    """Neither is it saved, nor done again where the run resumes there."""
    Run().steps(shelf, BEHIND[key])
    (text,) = warnings(caplog)
    assert f"{key}= changed behind step(1), and before the next batch" in text
    assert "step(1, force=True)" in text


def test_what_torch_does_not_count_is_not_told(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    with torch.inference_mode():
        values = torch.zeros(3)
    run = Run()
    run.state["values"] = {"of inference": values}

    def changed(*_: Any) -> None:
        with torch.inference_mode():
            values.add_(1)

    run.steps(shelf, changed)
    assert warnings(caplog) == []


def test_a_loop_that_saves_last_hears_nothing(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    Run().steps(shelf, lambda run, auto, step: None)
    assert warnings(caplog) == []


def test_what_is_saved_once_more_behind_the_change_is_not_told(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    def validated(run: Run, auto: ts.Autosave, step: int) -> None:
        torch.rand(1)
        auto.step(step, force=True)

    Run().steps(shelf, validated)
    assert warnings(caplog) == []


def test_a_schedule_that_is_not_given_is_told(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run()
    del run.state["scheduler"]
    with shelf.autosave(**run.state):
        (text,) = warnings(caplog)
    assert "learning-rate schedule that is in nothing that was given" in text


def test_an_object_that_may_have_the_schedule_is_believed(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    class Trainer:
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    run = Run()
    run.state["scheduler"] = Trainer()
    with shelf.autosave(**run.state):
        assert warnings(caplog) == []


def test_steps_that_begin_anew_are_told_once(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """As where each epoch counts from one, or where nobody took what resume() returned."""
    with shelf.autosave(x=[1]) as auto:
        for step in (1, 2, 2, 1, 2, 1):
            auto.step(step)
        (text,) = warnings(caplog)
        assert "step(1) comes behind step 2" in text
        assert "on from what resume() returns" in text
    caplog.clear()
    with shelf.autosave(x=[1]) as auto:
        assert auto.resume() == 1
        auto.step(0)
    (text,) = warnings(caplog)
    assert "step(0) comes behind step 1" in text


def test_steps_behind_what_a_run_went_back_to_are_not_told(
    shelf_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ts.open(shelf_path, mode="w", keep=4) as shelf:
        with shelf.autosave(x=[1]) as auto:
            for step in range(1, 5):
                auto.step(step)
            assert auto.rollback(2) == 2
            auto.step(3)
            auto.step(7)
            auto.wait()
            assert auto.resume() == 7
            auto.step(8)
        assert warnings(caplog) == []


@pytest.mark.parametrize("key", ["optimizer", "scheduler", "scaler"])
def test_a_copy_of_a_state_is_refused(shelf: ts.Shelf, key: str) -> None:
    """Training does not change it: it would be saved as it was, and resumed into nothing."""
    run = Run()
    run.state["scaler"] = torch.amp.GradScaler("cpu")
    state = run.state | {key: run.state[key].state_dict()}
    with pytest.raises(ts.errors.BadArgument, match=f"{key}= is what state_dict\\(\\) of") as told:
        shelf.autosave(**state)
    assert "Give the object itself" in str(told.value)


def test_a_models_state_may_be_given_in_its_place(shelf: ts.Shelf) -> None:
    """Its tensors are the model's own."""
    run = Run()
    with shelf.autosave(model=run.model.state_dict()) as auto:
        auto.resume()
        auto.step(1)
        auto.wait()
        saved = run.model[0].weight.detach().clone()
        with torch.no_grad():
            run.model[0].weight.zero_()
        auto.resume()
    assert torch.equal(run.model[0].weight, saved)


@pytest.mark.parametrize("count", [15, 17])
def test_another_number_of_samples_is_refused_within_an_epoch(reopen: Any, count: int) -> None:
    """It may give as many batches, and others."""
    values = np.zeros(1)

    def loader(samples: int) -> Any:
        return data.DataLoader(range(samples), batch_size=6, shuffle=True)

    with reopen(mode="w") as shelf, shelf.autosave(values=values, rng=ts.RNG()) as auto:
        for step, _ in enumerate(auto.batches(loader(16)), 1):
            auto.step(step)
            if step == 2:
                break
    assert len(loader(count)) == len(loader(16))
    with reopen() as shelf:
        auto = shelf.autosave(values=values, rng=ts.RNG())
        auto.batches(loader(count))
        with pytest.raises(ts.LayoutError, match=rf"len\(sampler\) {count}, and .* 16"):
            auto.resume()


def test_the_shelf_does_not_go_back_without_its_objects(reopen: Any) -> None:
    values = np.zeros(1)
    shelf = reopen(mode="w", keep=2)
    with shelf.autosave(values=values) as auto:
        for step in (1, 2):
            values[:] = step
            auto.step(step)
        auto.wait()
        with pytest.raises(ts.UnsupportedError, match=r"auto.rollback\(step\)"):
            shelf.rollback(shelf.versions[0].version)
        assert shelf.step == 2
        assert auto.rollback(1) == 1
        assert values == 1
    shelf.rollback(shelf.versions[-1].version)


def test_a_shelf_that_nobody_has_any_more_is_closed(shelf_path: pathlib.Path) -> None:
    """Though a handler of a signal, which stays for good, was set for its autosave."""
    values = np.zeros(1)

    def run() -> None:
        shelf = ts.open(shelf_path, "w")
        auto = shelf.autosave(values=values)
        auto.step(1)
        auto.wait()

    run()
    with ts.open(shelf_path, "r+") as shelf:
        assert shelf.step == 1


def test_who_may_not_write_hears_nothing_else(made: pathlib.Path) -> None:
    with ts.open(made, "r") as shelf:
        with pytest.raises(ts.ReadOnlyError) as told:
            shelf.save({"a": 1, "b": np.ones(3)})
        assert not getattr(told.value, "__notes__", [])


def test_a_masked_array_is_no_array(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.errors.NotStorable, match=r"Use \.filled"):
        shelf.save({"a": np.ma.masked_array([1.0, 2.0], [True, False])})


def test_a_parameter_without_a_shape_gets_one_by_a_forward(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.errors.NotStorable, match="Run one forward first"):
        shelf.save({"model": torch.nn.LazyLinear(3)})
