"""What may change when, while a save is copied; and what becomes of a save where it changed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_feed import RESTING, alike, net, plain, saved, snapshot
from test_feed_details import momentum, run

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


def by_data(p: Any) -> None:
    p.data.add_(1)


def by_numpy(p: Any) -> None:
    p.detach().numpy()[...] += 1


def by_no_grad(p: Any) -> None:
    with torch.no_grad():
        p.add_(1)


def by_inference(p: Any) -> None:
    with torch.inference_mode():
        p.detach().add_(1)


def by_storage(p: Any) -> None:
    p.untyped_storage().copy_(torch.rand(p.numel()).untyped_storage())


def by_fused_step(p: Any) -> None:
    """As a fused optimizer without hooks would: the version counter stays."""
    with torch.no_grad():
        grads, average, squares = torch.ones_like(p), torch.zeros_like(p), torch.zeros_like(p)
        torch._fused_adamw_(
            [p], [grads], [average], [squares], [], [torch.tensor(1.0)],
            lr=0.1, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False,
            maximize=False,
        )  # fmt: skip


def first_element(p: Any) -> None:
    """A part so small that the bytes compared are others."""
    with torch.no_grad():
        p.view(-1)[0] += 1


UNCOMPARED = {"bytes_per_second": 1, "check_one_in": 0}


@pytest.mark.parametrize("change", [by_data, by_numpy, by_storage, by_fused_step])
def test_what_changes_before_the_gate_is_not_saved(
    shelf: ts.Shelf, change: Callable[[Any], None]
) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
    auto.step(1)  # the first copies everything
    auto.step(2)
    auto.wait()
    kept = saved(shelf, {"model": model})
    for step in (3, 5):
        auto.step(step)
        for p in model.parameters():
            change(p)
        with pytest.raises(ts.TornSave, match=r"'model\.[0-9.a-z]+' changed while it was copied"):
            auto.wait()
        assert shelf.step == step - 1
        if step == 3:
            assert alike(dict(saved(shelf, kept)["model"]), dict(kept["model"]))
        auto.step(step + 1)  # anew
        auto.wait()
        assert shelf.step == step + 1
        assert alike(dict(saved(shelf, kept)["model"]), dict(model.state_dict()))
    assert auto._feed.overlap  # not two in a row


@pytest.mark.parametrize("change", [by_no_grad, by_inference])
def test_what_torch_counts_is_torn_once(shelf: ts.Shelf, change: Callable[[Any], None]) -> None:
    """And copied before step() returns from then on, though not what nobody changed."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
    auto.step(1)
    auto.wait()
    auto.step(2)
    change(model[0].weight)
    with pytest.raises(ts.TornSave, match=r"'model\.0\.weight' changed while it was copied"):
        auto.wait()
    assert shelf.step == 1
    auto.step(3)
    for step in (4, 5):
        auto.step(step)
        before = model[0].weight.detach().clone()
        change(model[0].weight)
        auto.wait()
        assert shelf.step == step
        assert torch.equal(shelf.load()["model"]["0.weight"], before)
    assert auto._feed.sources is not None
    assert "model.3.weight" in auto._feed.sources.lazy
    auto.close()


@pytest.mark.parametrize("by", ["commit", "gate", "wait", "optimizer"])
def test_a_part_that_torch_counts_is_told_and_mended(shelf: ts.Shelf, by: str) -> None:
    model = nn.Linear(64, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=UNCOMPARED)
    plain(lambda: model(torch.randn(4, 64)).square().mean(), optimizer)
    auto.step(1)
    auto.step(2)
    auto.wait()
    commit = auto.step(3)
    assert commit is not None
    first_element(model.weight)
    told = pytest.raises(ts.TornSave, match=r"'model\.weight'.* behind step\(3\).* auto\.gate\(\)")
    if by == "wait":
        with told:
            auto.wait()
    else:
        {"commit": commit.wait, "gate": auto.gate, "optimizer": optimizer.step}[by]()
        with told:
            auto.step(4)
    # From here on it is copied before step() returns.
    for step in (5, 6):
        auto.step(step)
        before = model.weight.detach().clone()
        first_element(model.weight)
        auto.wait()
        assert shelf.step == step
        assert torch.equal(shelf.load()["model"]["weight"], before)
    assert auto._feed.overlap
    auto.close()


@pytest.mark.parametrize("by", ["gate", "wait_staged", "staged", "wait", "done"])
def test_who_knows_that_it_is_copied_may_change_it(shelf: ts.Shelf, by: str) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer)
    for step in range(1, 8):
        plain(lambda: model(torch.randn(4, 8)).square().mean(), optimizer)
        commit = auto.step(step)
        assert commit is not None
        if by == "gate":
            auto.gate()
        elif by in ("staged", "done"):
            while not getattr(commit, by)():
                pass
        else:
            getattr(commit, by)()
        first_element(model[0].weight)
    auto.close()
    assert shelf.step == 7


def test_a_change_is_told_where_saves_only_warn(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(64, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, on_error="warn", pipeline=UNCOMPARED)
    plain(lambda: model(torch.randn(4, 64)).square().mean(), optimizer)
    for step in (1, 2, 3):
        auto.step(step)
    first_element(model.weight)
    auto.gate()
    assert auto.step(4) is not None
    assert "'model.weight' was changed behind step(3)" in caplog.text
    auto.close()
    assert torch.equal(shelf.load()["model"]["weight"], model.weight)


@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_a_change_behind_the_last_step_is_told_by_who_closes(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture, on_error: Any
) -> None:
    model = nn.Linear(64, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, on_error=on_error, pipeline=UNCOMPARED)
    plain(lambda: model(torch.randn(4, 64)).square().mean(), optimizer)
    for step in (1, 2, 3):
        auto.step(step)
    first_element(model.weight)
    if on_error == "raise":
        with pytest.raises(ts.TornSave, match=r"'model\.weight' .* behind step\(3\)"):
            shelf.close()
    else:
        shelf.close()
        assert "'model.weight' was changed behind step(3)" in caplog.text
    assert shelf.closed


def test_a_change_behind_what_others_never_decided_on_is_told_too(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group may decide on it when the job is started again. Who closes asks it for no end."""
    model = nn.Linear(64, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=UNCOMPARED)
    plain(lambda: model(torch.randn(4, 64)).square().mean(), optimizer)
    for step in (1, 2, 3):
        auto.step(step)
    first_element(model.weight)
    monkeypatch.setattr(auto._feed._commits, "close", lambda: False)
    with pytest.raises(ts.TornSave, match=r"'model\.weight' .* behind step\(3\)"):
        shelf.close()


def test_parts_of_one_memory_are_counted_together_and_not_asked(shelf: ts.Shelf) -> None:
    """A forward that changes a buffer beside a parameter is no change of the parameter."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            both = torch.zeros(512)
            self.w = nn.Parameter(both[:256])
            self.register_buffer("seen", both[256:])

        def forward(self, x: Any) -> Any:
            self.seen.add_(1)
            return (self.w * x).sum()

    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer)
    for step in range(1, 9):
        plain(lambda: model(torch.ones(256)), optimizer)
        auto.step(step)
    auto.close()
    assert shelf.step == 8


def test_without_overlap_everything_may_change_at_once(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    state = {"model": model, "optimizer": optimizer}
    auto = shelf.autosave(**state, overlap=False, pipeline=RESTING)
    for step in range(1, 6):
        commit = auto.step(step)
        assert commit is not None
        before = snapshot(state)
        for p in model.parameters():
            by_data(p)
        commit.wait()
        assert alike(dict(saved(shelf, state)["model"]), dict(before["model"]))
    assert "released" in commit.times
    auto.close()


def test_a_gate_by_hand(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer, pipeline=RESTING)
    for step in range(1, 6):
        auto.gate()
        for p in model.parameters():
            by_data(p)
        commit = auto.step(step)
    auto.gate()
    assert commit is not None
    assert commit.staged()
    assert commit.wait_staged() is commit
    auto.close()
    assert shelf.step == 5


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
        pipeline=UNCOMPARED,
    )
    monkeypatch.setattr(auto._timeline, "saved", lambda *_: None)  # which asks each save
    for step in (1, 2):
        auto.step(step)
        auto.wait()
    auto.step(3)
    if anew:
        progress["more"] = np.ones(2)  # the state takes another form, and is copied at once
        auto.step(4)
        first_element(model.weight)
        auto.step(5)
    else:
        first_element(model.weight)
        with pytest.raises(ts.TornSave, match=r"behind step\(3\)"):
            auto.step(4)
    auto.close()


def test_who_heard_of_a_change_may_change_it_again(shelf: ts.Shelf) -> None:
    """The save that was begun before it was known copied the tensor lazily, by the old plan."""
    model = nn.Linear(64, 64)
    auto = shelf.autosave(model=model, optimizer=momentum(model), pipeline=UNCOMPARED)
    for step in (1, 2):
        auto.step(step)
        auto.wait()
    auto.step(3)
    first_element(model.weight)
    with pytest.raises(ts.TornSave, match=r"behind step\(3\)"):
        auto.step(4)
    saved = model.weight.detach().clone()
    first_element(model.weight)
    auto.wait()
    assert torch.equal(shelf.load()["model"]["weight"], saved)
    first_element(model.weight)
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
