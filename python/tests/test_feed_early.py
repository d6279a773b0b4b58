"""What may change when, while a save is copied, one fact each."""

from typing import Any

import numpy as np
import pytest
from test_feed import RESTING, net
from test_feed_details import momentum, run

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


def changed(weight: Any) -> None:
    with torch.no_grad():
        weight.view(-1)[0] += 1  # so little that bytes that are compared do not tell


@pytest.mark.parametrize("anew", [False, True])
def test_a_change_is_of_the_save_that_it_came_behind(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """And of none where all was copied, whoever asked how far that is, or did not."""
    model = nn.Linear(64, 64)
    progress: dict[str, Any] = {"n": 0}
    auto = shelf.autosave(
        model=model,
        optimizer=momentum(model),
        progress=progress,
        pipeline={"bytes_per_second": 1, "check_one_in": 0},
    )
    monkeypatch.setattr(auto._timeline, "saved", lambda *_: None)  # which asks each save
    for step in (1, 2):
        auto.step(step)
        auto.wait()
    auto.step(3)
    if anew:
        progress["more"] = np.ones(2)  # the state takes another form, and is copied at once
        auto.step(4)
        changed(model.weight)
        auto.step(5)
    else:
        changed(model.weight)
        with pytest.raises(ts.TornSave, match=r"behind step\(3\)"):
            auto.step(4)
    auto.close()


def test_who_heard_of_a_change_may_change_it_again(shelf: ts.Shelf) -> None:
    """The save that was begun before it was known copied the tensor lazily, by the old plan."""
    model = nn.Linear(64, 64)
    auto = shelf.autosave(
        model=model,
        optimizer=momentum(model),
        pipeline={"bytes_per_second": 1, "check_one_in": 0},
    )
    for step in (1, 2):
        auto.step(step)
        auto.wait()
    auto.step(3)
    changed(model.weight)
    with pytest.raises(ts.TornSave, match=r"behind step\(3\)"):
        auto.step(4)
    saved = model.weight.detach().clone()
    changed(model.weight)
    auto.wait()
    assert torch.equal(shelf.load()["model"]["weight"], saved)
    changed(model.weight)
    auto.step(5)
    auto.close()
    assert torch.equal(shelf.load()["model"]["weight"], model.weight)


def test_what_was_changed_too_early_once_is_not_forgotten_for_another(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = momentum(model)
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING, on_error="warn")
    run(auto, model, optimizer, 1, 2)
    for step, weight in ((3, model[3].weight), (5, model[0].weight)):
        auto.step(step)
        with torch.no_grad():
            weight.add_(1)
        auto.wait()
        auto.step(step + 1)
        auto.wait()
    sources = auto._feed.sources
    assert sources is not None
    assert {"model.0.weight", "model.3.weight"} <= set(sources.eager)
    assert "model.3.bias" in sources.lazy
    auto.close()


def test_a_resumed_run_without_overlap_may_change_everything_at_once(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = momentum(model)
    shelf.save({"model": model, "optimizer": optimizer}, step=1)
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING, overlap=False)
    auto.resume()
    auto.step(2)
    before = model[3].weight.clone()
    model[3].weight.data.add_(1)
    auto.wait()
    assert torch.equal(shelf.load()["model"]["3.weight"], before)
    auto.close()


def test_a_step_within_an_edit_is_refused(shelf: ts.Shelf) -> None:
    shelf.mine = [1.0]
    auto = shelf.autosave(x=np.zeros(3))
    auto.resume()
    for step in (1, 2):  # by both ways of saving
        with shelf.mine.edit(), pytest.raises(ts.UnsupportedError, match="within the edit"):
            auto.step(step)
        auto.step(step)
    auto.close()
    assert shelf.step == 2
