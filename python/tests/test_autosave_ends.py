"""How an autosave ends, and how it does not, one fact each."""

import signal
from typing import Any

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
