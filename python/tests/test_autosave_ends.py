"""How an autosave ends, and how it does not, one fact each."""

import signal
import types
from typing import Any, ClassVar

import pytest
from conftest import OpenShelf
from test_feed import RESTING, net, plain

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_while_it_closes_gives_everything_back(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    model = net()
    optimizer = sgd(model)
    auto = shelf.autosave(model=model, optimizer=optimizer)
    auto.step(1)
    monkeypatch.setattr(auto._flight, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        auto.close()
    assert repr(auto).endswith("(closed)>")
    assert signal.getsignal(signal.SIGTERM) == before
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_a_second_ctrl_c_while_it_closes_gives_everything_back_too(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    model = net()
    optimizer = sgd(model)
    auto = shelf.autosave(model=model, optimizer=optimizer)
    auto.step(1)
    monkeypatch.setattr(auto._flight, "wait", interrupted)
    monkeypatch.setattr(auto._feed, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        auto.close()
    assert signal.getsignal(signal.SIGTERM) == before
    assert not optimizer._optimizer_step_pre_hooks
    monkeypatch.undo()
    auto.close()


@pytest.mark.parametrize(
    "options",
    [{"pipeline": {"worker": 2}}, {"every": 0}, {"signals": [signal.SIGKILL]}, {"model": 3}],
    ids=str,
)
def test_one_that_is_refused_leaves_the_one_before_as_it_is(
    shelf: ts.Shelf, options: dict[str, Any]
) -> None:
    auto = shelf.autosave(progress={"n": 1})
    auto.step(1)
    with pytest.raises(ts.BadArgument):
        shelf.autosave(progress={"n": 1}, **options)
    auto.step(2)
    auto.close()
    assert shelf.step == 2


def test_rollback_waits_for_what_is_on_its_way(reopen: OpenShelf) -> None:
    shelf = reopen(keep=4)
    model = net()
    optimizer = sgd(model)
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    for step in (1, 2, 3):
        plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
        auto.step(step)
    expected = model[3].weight.clone()
    assert auto.rollback(3) == 3  # whose copies rest until somebody waits
    assert torch.equal(model[3].weight, expected)
    auto.close()


def test_each_failure_is_told_once_where_saves_only_warn(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    state: dict[str, Any] = {"x": object()}
    auto = shelf.autosave(state=state, on_error="warn")
    for step in (1, 2):
        assert auto.step(step) is None
    state.update(x=1, y=object())
    for step in (3, 4):
        assert auto.step(step) is None
    told = [record.getMessage() for record in caplog.records]
    assert [("['x']" in text, "['y']" in text) for text in told] == [(True, False), (False, True)]
    del state["y"]
    assert auto.step(5) is not None
    auto.close()


def test_a_run_that_an_error_ends_is_told_nothing_else(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    def train() -> None:
        with shelf.autosave(every=4, x=[1]) as auto:
            auto.step(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert caplog.text == ""
    shelf.save({"x": [1]})  # which an autosave that is not closed would refuse


def test_what_was_not_saved_is_told_once_though_it_is_closed_twice(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    auto = shelf.autosave(every=4, x=[1])
    auto.step(1)
    for _ in range(2):
        auto.close()
    assert caplog.text.count("nothing is saved, and step 1 was the last") == 1


def test_steps_that_were_not_saved_are_told_where_the_shelf_is_closed_alone(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    with reopen(mode="w") as shelf:
        auto = shelf.autosave(every=2, progress={"n": 0})
        for step in (1, 2, 3):
            auto.step(step)
        auto.wait()
    assert caplog.text.count("the last save is of step 2, and step 3 was the last") == 1


def test_one_that_fails_twice_as_it_closes_tells_both(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(text: str) -> Any:
        def fail(*_: Any) -> None:
            raise ts.IoError(text, "look at the drive")

        return fail

    auto = shelf.autosave(x=[1])
    with monkeypatch.context() as patch:
        patch.setattr(auto._feed, "close", fails("the flush failed"))
        with pytest.raises(ts.IoError, match="the flush failed"):
            auto.close()
        patch.setattr(auto._flight, "wait", fails("the save failed"))
        with pytest.raises(ts.IoError, match="the save failed") as error:
            auto.close()
    assert error.value.__notes__ == ["Besides: IoError: the flush failed. Look at the drive."]
    auto.close()


def test_resuming_is_measured(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.save({"x": [1]}, step=3)
    clock = types.SimpleNamespace(monotonic=iter((10.0, 13.5)).__next__)
    auto = shelf.autosave(x=[1])
    monkeypatch.setattr("tensorshelf._auto.run.time", clock)
    assert auto.resume() == 3
    assert auto._run.load_seconds == 3.5
    auto.close()


def test_a_state_that_was_saved_without_a_step_resumes_at_0(shelf: ts.Shelf) -> None:
    shelf.save({"x": [1]})
    with shelf.autosave(x=[0]) as auto:
        assert auto.resume() == 0


def test_going_back_to_the_newest_makes_no_version(reopen: OpenShelf) -> None:
    shelf = reopen(keep=4)
    state = [1.5]
    with shelf.autosave(x=state) as auto:
        for step in (1, 2):
            auto.step(step)
        auto.wait()
        before = shelf.version
        state[0] = 2.5
        assert auto.rollback(2) == 2
    assert state == [1.5]
    assert shelf.version == before


def test_a_rollback_to_a_state_of_another_form_changes_nothing(reopen: OpenShelf) -> None:
    shelf = reopen(mode="w", keep=4)
    progress = {"n": 1}
    auto = shelf.autosave(progress=progress)
    auto.step(1)
    progress["more"] = 2
    auto.step(2)
    auto.wait()
    before = [version.version for version in shelf.versions]
    with pytest.raises(ts.KeyMismatch, match="more"):
        auto.rollback(1)
    assert [version.version for version in shelf.versions] == before
    assert (shelf.step, progress) == (2, {"n": 1, "more": 2})


def test_steps_that_a_rollback_undid_are_none_that_were_not_saved(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    auto = reopen(keep=4).autosave(every=4, x=[1])
    for step in range(1, 11):
        auto.step(step)
    auto.rollback(4)
    auto.close()
    assert caplog.text == ""


class Flying:
    """A commit that is on its way for good."""

    copies: ClassVar[list[Any]] = []

    def done(self) -> bool:
        return False

    def staged(self) -> bool:
        return True


def test_what_is_busy_is_skipped_where_it_is_due_and_not_forced(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = shelf.autosave(on_busy="skip", every=2, x=[1])
    monkeypatch.setattr(auto._feed, "save", lambda *_: Flying())
    assert auto.step(2) is not None
    assert auto.step(3) is None
    assert auto.skipped == 0
    assert auto.step(4, force=True) is not None
    assert auto.skipped == 0
    assert auto.step(6) is None
    assert auto.skipped == 1
    auto._flight.commit = None
    auto.close()


def test_a_run_that_was_not_resumed_is_named_by_its_step(shelf: ts.Shelf) -> None:
    shelf.save({"x": [1]})
    for step, text in ((None, "holds a run, and step"), (7, "holds a run, at step 7, and step")):
        if step is not None:
            shelf.save({"x": [1]}, step=step)
        with shelf.autosave(x=[2]) as auto, pytest.raises(ts.UnsupportedError, match=text):
            auto.step(8)
    assert shelf.load() == {"x": [1]}
