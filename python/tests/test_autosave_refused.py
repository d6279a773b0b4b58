"""What autosave refuses, warns of, or takes as the same run under other names."""

import errno
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place

import tensorshelf as ts

pytest.importorskip("msgpack")


# ---- what is given


class NoState:
    """Nothing of it could be resumed."""


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"x": NoState}, "x= is the class NoState, which has no state"),
        ({"x": dict}, "x= is the class dict"),
        ({"x": NoState()}, "x= is a NoState, which has no state that could be resumed"),
        ({"x": {1, 2}}, "x= is a set, which has no state"),
        ({"x": print}, "x= is a builtin_function_or_method, which has no state"),
    ],
)
def test_what_has_no_state_is_refused_at_once(shelf: ts.Shelf, state: Any, text: str) -> None:
    with pytest.raises(ts.BadArgument, match=text) as error:
        shelf.autosave(**state)
    assert error.value.remedy
    shelf.autosave(x=None, y={}, z=[], a=np.zeros(2), rng=ts.RNG()).step(1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pipeline": "abc"}, "pipeline='abc' is no dict"),
        ({"pipeline": ""}, "pipeline='' is no dict"),
        ({"pipeline": {3: 1}}, "the pipeline has no option 3"),
        ({"pipeline": {"cpus": 3}}, "cpus=3 is no list of cores"),
        ({"pipeline": {"cpus": "01"}}, "cpus='01' is no list of cores"),
        ({"pipeline": {"cpus": [0, "1"]}}, "has what is no core's number"),
        ({"pipeline": {"workers": 1.5}}, "workers=1.5 is no whole number"),
        ({"pipeline": {"nice": None}}, "nice=None is no whole number"),
        ({"pipeline": {"device_pieces": 2.5}}, "device_pieces=2.5 is no whole number"),
        ({"pipeline": {"device_pieces": -1}}, "device_pieces=-1 is out of range"),
        ({"pipeline": {"device_pieces": 1 << 40}}, f"device_pieces={1 << 40} is out of range"),
        ({"pipeline": {"device_piece_bytes": -1}}, "device_piece_bytes=-1 is out of range"),
        (
            {"pipeline": {"bytes_per_second": 1 << 70}},
            f"bytes_per_second={1 << 70} is out of range",
        ),
        ({"pipeline": {"workers": -1}}, "workers=-1 is out of range"),
        ({"pipeline": {"workers": 1 << 40}}, f"workers={1 << 40} is out of range"),
        ({"pipeline": {"nice": 1 << 40}}, f"nice={1 << 40} is out of range"),
        ({"pipeline": {"nice": -(1 << 40)}}, f"nice={-(1 << 40)} is out of range"),
        ({"pipeline": {"check_one_in": -1}}, "check_one_in=-1 is out of range"),
        ({"pipeline": {"device_pieces": 65}}, "device_pieces=65 is out of range: 64 at most"),
        ({"pipeline": {"device_piece_bytes": 1000}}, "device_piece_bytes=1000 is no multiple of"),
        ({"pipeline": {"trace": 1}}, "trace=1 is neither True nor False"),
        ({"signals": 3}, "signals=3 is no list of signals"),
        ({"grads": 3}, "grads=3 is neither True, False nor None"),
        ({"every": np.float64(2)}, "is no number of steps"),
        ({"every": np.int64(0)}, "is no number of steps"),
    ],
)
def test_options_of_another_kind_are_refused(
    shelf: ts.Shelf, options: dict[str, Any], text: str
) -> None:
    before = shelf.autosave(x=[1])
    with pytest.raises(ts.BadArgument, match=text) as error:
        shelf.autosave(x=[1], **options)
    assert error.value.remedy
    before.step(1)  # it was not closed for that


def test_numbers_of_steps_may_be_numpys(shelf: ts.Shelf) -> None:
    auto = shelf.autosave(x=[1], every=np.int64(2), pipeline={"workers": np.int32(1)})  # type: ignore[arg-type]
    assert [auto.step(n) is not None for n in (1, np.int64(2))] == [False, True]
    for done in (None, "2", 1.5):
        with pytest.raises(ts.BadArgument, match="step="):
            auto.step(done)  # type: ignore[arg-type]
    for skipped in ("x", -1, True, 1.5):
        with pytest.raises(ts.BadArgument, match="skip_batches="):
            auto.rollback(2, skip_batches=skipped)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [None, True, 1.0, "1"])
def test_a_rollback_goes_to_a_number(reopen: OpenShelf, step: Any) -> None:
    shelf = reopen(keep=2)
    auto = shelf.autosave(x=[1])
    auto.step(1)
    with pytest.raises(ts.BadArgument, match="step="):
        auto.rollback(step)
    assert shelf.load() is not None  # it was rolled back to nothing
    assert auto.step(2) is not None


def test_what_cannot_be_written_is_told(
    shelf: ts.Shelf, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    auto = shelf.autosave(x=[1])
    for write in (auto.write_trace, auto.report):
        with pytest.raises(ts.IoError, match="lacking/file cannot be written") as error:
            write(tmp_path / "lacking" / "file")
        assert error.value.errno == errno.ENOENT
    monkeypatch.setenv("HOME", str(tmp_path))
    auto.write_trace("~/trace.json")
    assert (tmp_path / "trace.json").exists()


def test_who_reads_hears_that_and_is_not_sent_to_replace_the_shelf(
    shelf: ts.Shelf, place: Place
) -> None:
    with shelf.autosave(x=[1]) as auto:
        auto.step(1)
    shelf.close()
    with ts.open(place[0], mode="r", tier=place[1]) as reader:
        auto = reader.autosave(x=[2])
        with pytest.raises(ts.ReadOnlyError):
            auto.step(2)


def test_nothing_at_all_is_refused_at_the_first_step(shelf: ts.Shelf) -> None:
    auto = shelf.autosave()
    with pytest.raises(ts.BadArgument, match="given nothing to save") as error:
        auto.step(1)
    assert "autosave(model=model" in error.value.remedy
    assert list(auto.batches([1, 2])) == [1, 2]
    auto.step(2)  # of a loader alone
    auto.wait()
    assert shelf.step == 2


def test_a_closed_shelf_is_told_at_once(shelf: ts.Shelf) -> None:
    shelf.close()
    with pytest.raises(ts.ClosedError):
        shelf.autosave(x=[1])


# ---- one state in a shelf


def test_save_beside_an_autosave_is_refused(shelf: ts.Shelf) -> None:
    auto = shelf.autosave(x=(kept := [1]))
    auto.step(1)
    with pytest.raises(ts.UnsupportedError, match=r"the run that autosave.. saves") as error:
        shelf.save({"other": 2})
    assert "close() the autosave" in error.value.remedy
    shelf.mine = np.ones(3)  # a tensor beside the run's stays
    kept[0] = 2
    auto.step(2)
    auto.close()
    assert shelf.load()["x"] == [2]
    assert shelf.mine[0] == 1
    shelf.save({"other": 2})
    assert shelf.load() == {"other": 2}


# ---- loaders


def given(shelf: ts.Shelf, loader: Any, count: int) -> list[int]:
    """What a run is given of it, which is then saved."""
    with shelf.autosave() as auto:
        auto.resume()
        iterator = iter(auto.batches(loader))
        seen = [next(iterator) for _ in range(count)]
        auto.step((shelf.step or 0) + 1)
    return seen


def test_a_loader_of_another_length_is_refused_within_an_epoch(reopen: OpenShelf) -> None:
    given(reopen(mode="w"), range(10), 4)
    with pytest.raises(ts.LayoutError, match=r"gives 8 batches an epoch.* at 4 of 10") as error:
        given(reopen(), range(8), 1)
    assert "Resume with the loader that was saved" in error.value.remedy
    assert given(reopen(), range(10), 2) == [4, 5]


def test_a_loader_of_another_length_begins_the_next_epoch(reopen: OpenShelf) -> None:
    shelf = reopen(mode="w")
    with shelf.autosave() as auto:
        iterator = iter(auto.batches(range(10)))
        for _ in range(10):
            next(iterator)  # the last one, too: the loop is left before its end
        auto.step(10)
    with reopen().autosave() as auto:
        auto.resume()
        batches = auto.batches(range(8))
        assert list(batches) == []  # the rest of the epoch
        assert list(batches) == list(range(8))


def test_a_loader_without_a_length_is_taken_as_it_is(reopen: OpenShelf) -> None:
    class Stream:
        def __init__(self, count: int) -> None:
            self.count = count

        def __iter__(self) -> Any:
            return iter(range(self.count))

    given(reopen(mode="w"), Stream(10), 4)
    assert given(reopen(), Stream(8), 2) == [4, 5]


def test_loaders_that_were_not_given_again_are_told(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    given(reopen(mode="w"), range(10), 4)
    caplog.clear()
    with reopen().autosave(x=[1]) as auto:
        auto.resume(strict=False)
        auto.step(2)
        auto.step(3)
    told = [text for text in caplog.messages if "were not given to auto.batches()" in text]
    assert len(told) == 1
    assert told[0].startswith("autosave: 1 loaders")


# ---- objects


def trained(kind: str) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def with_model(shelf: ts.Shelf, model: Any, optimizer: Any) -> ts.Autosave:
    return shelf.autosave(model=model, optimizer=optimizer)


def alone(shelf: ts.Shelf, model: Any, optimizer: Any) -> ts.Autosave:
    """Without its model its parameters go by their numbers."""
    return shelf.autosave(optimizer=optimizer)


@pytest.mark.parametrize("how", [with_model, alone])
@pytest.mark.parametrize("kinds", [("AdamW", "SGD"), ("SGD", "AdamW"), ("RMSprop", "Adagrad")])
def test_another_kind_of_optimizer_is_refused(
    reopen: OpenShelf, how: Callable[..., ts.Autosave], kinds: tuple[str, str]
) -> None:
    saved, other = kinds
    with how(reopen(mode="w"), *trained(saved)) as auto:
        auto.step(1)
    model, optimizer = trained(other)
    before = model.weight.detach().clone()
    with (
        pytest.raises(ts.LayoutError, match=f"optimizer.* is {other}, with") as error,
        how(reopen(), model, optimizer) as auto,
    ):
        auto.resume()
    assert "Nothing was loaded" in error.value.remedy
    assert (model.weight == before).all()
    with how(reopen(), *trained(saved)) as auto:
        assert auto.resume() == 1


def test_what_a_version_of_torch_adds_is_no_other_kind(reopen: OpenShelf) -> None:
    model, optimizer = trained("AdamW")
    del optimizer.param_groups[0]["differentiable"]  # as one that did not know it yet
    with with_model(reopen(mode="w"), model, optimizer) as auto:
        auto.step(1)
    with with_model(reopen(), *trained("AdamW")) as auto:
        assert auto.resume() == 1


def test_a_schedule_that_is_not_resumed_is_no_other_kind(reopen: OpenShelf) -> None:
    """Its own values in the groups, beside an option that the saved run did not know."""
    torch = pytest.importorskip("torch")
    model, optimizer = trained("AdamW")
    torch.optim.lr_scheduler.StepLR(optimizer, 3)
    optimizer.param_groups[0]["note"] = "mine"
    del optimizer.param_groups[0]["differentiable"]
    with with_model(reopen(mode="w"), model, optimizer) as auto:
        auto.step(1)
    with with_model(reopen(), *trained("AdamW")) as auto:
        assert auto.resume() == 1


def test_a_run_that_could_not_be_resumed_is_not_saved_over(reopen: OpenShelf) -> None:
    with reopen(mode="w").autosave(x=[1]) as auto:
        auto.step(5)
    shelf = reopen()
    auto = shelf.autosave(y=[1])
    with pytest.raises(ts.KeyMismatch):
        auto.resume()
    with pytest.raises(ts.UnsupportedError, match=r"holds a run, at step 5, and step\(\)"):
        auto.step(6)
    assert auto.resume(strict=False) == 5
    assert auto.step(6) is not None
    auto.close()


def test_a_run_resumes_under_other_names(reopen: OpenShelf) -> None:
    torch = pytest.importorskip("torch")
    model, optimizer = trained("AdamW")
    with with_model(reopen(mode="w"), model, optimizer) as auto:
        auto.step(5)
    other, its = trained("AdamW")
    its.state.clear()
    shelf = reopen()
    with shelf.autosave(net=other, optimizer=its) as auto:
        with pytest.raises(ts.KeyMismatch):
            auto.resume()
        with pytest.raises(ts.BadArgument, match=r"makes 'one' of 'model\.\w+' and of 'model"):
            shelf.load("optimizer", rename=lambda name: name if name[0] == "o" else "one")
        assert auto.resume(rename={"model": "net"}) == 5
    assert torch.equal(other.weight, model.weight)
    for parameter, its_own in zip(other.parameters(), model.parameters(), strict=True):
        kept = its.state[parameter]
        assert torch.equal(kept["exp_avg"], optimizer.state[its_own]["exp_avg"])


# ---- the end of the program


@pytest.mark.parametrize(
    "held",
    [
        "pass",
        "hold = [shelf]; hold.append(hold)",
        "import os; os.hold = shelf",
    ],
)
def test_nothing_is_told_twice_at_the_end_of_the_program(place: Place, held: str) -> None:
    """A shelf that was closed is let go while the interpreter ends."""
    code = f"""
import numpy as np
import tensorshelf as ts

shelf = ts.open({str(place[0])!r}, tier={place[1]!r}, in_flight=2)
auto = shelf.autosave(x=np.ones(1000))
auto.step(1)
auto.close()
shelf.close()
{held}
"""
    words = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with ts.open(pathlib.Path(place[0]), mode="r") as shelf:
        assert shelf.step == 1


@pytest.mark.parametrize("mtbi", [0, -1.0, float("nan"), float("inf"), 10**400, True, "a day"])
def test_a_time_between_interruptions_that_is_none_is_refused(shelf: ts.Shelf, mtbi: Any) -> None:
    with pytest.raises(ts.BadArgument, match=r"mtbi=.* is no time"):
        shelf.autosave(every="auto", mtbi=mtbi, a=np.zeros(2))


@pytest.mark.parametrize("deadline", [-1, float("nan"), None, False, "soon"])
def test_a_deadline_that_is_none_is_refused(shelf: ts.Shelf, deadline: Any) -> None:
    with pytest.raises(ts.BadArgument, match=r"deadline=.* is no time"):
        shelf.autosave(deadline=deadline, a=np.zeros(2))


def test_what_cannot_be_saved_any_more_is_told_by_itself(shelf: ts.Shelf) -> None:
    """And not as what happened while something else was handled."""

    class Held:
        value: Any = np.zeros(3)

        def state_dict(self) -> dict[str, Any]:
            return {"value": self.value}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.value = state["value"]

    held = Held()
    auto = shelf.autosave(held=held)
    for step in (1, 2):
        auto.step(step)
    auto.wait()
    held.value = object()
    with pytest.raises(ts.ShelfError, match="value") as told:
        auto.step(3)
    assert told.value.__context__ is None
    held.value = np.ones(3)
    auto.step(4)
    auto.wait()
    assert shelf.step == 4
