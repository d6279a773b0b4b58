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


# ---- epochs


def trained(shelf: ts.Shelf, stop_after: int | None, told: str) -> list[Any]:
    """The values of batches of three epochs; the run ends behind so many calls of step()."""
    torch.manual_seed(3)
    model, optimizer = run()
    progress = {"epoch": 0}
    auto = shelf.autosave(model=model, optimizer=optimizer, rng=ts.RNG(), progress=progress)
    step = auto.resume()
    batches, seen, calls = loader(), [], 0

    def save() -> bool:
        nonlocal calls
        auto.step(step)
        calls += 1
        return calls == stop_after

    for epoch in range(progress["epoch"], 3):
        if told != "at the end":
            progress["epoch"] = epoch
        for (batch,) in auto.batches(batches, epoch=epoch):
            seen.append((epoch, batch.tolist()))
            optimizer.zero_grad()
            backward(model)
            optimizer.step()
            step += 1
            if save():
                auto.close()
                return seen
        if told == "at the end":
            progress["epoch"] = epoch + 1
        if told != "at the begin" and save():
            break
    auto.close()
    return seen


@pytest.mark.parametrize("told", ["at the begin", "at the end", "at the begin, saved behind"])
def test_each_epoch_is_trained_once(reopen: OpenShelf, told: str) -> None:
    with reopen() as shelf:
        whole = trained(shelf, None, told)
    assert [epoch for epoch, _ in whole] == [0] * 6 + [1] * 6 + [2] * 6
    for stop in range(1, 21):
        with reopen(mode="w") as shelf:
            seen = trained(shelf, stop, told)
        with reopen() as shelf:
            seen += trained(shelf, None, told)
        assert seen == whole, stop


def test_an_epoch_that_was_trained_is_refused(shelf: ts.Shelf) -> None:
    batches = loader()
    auto = shelf.autosave(rng=ts.RNG())
    for epoch in range(2):
        for _ in auto.batches(batches, epoch=epoch):
            auto.step(1)
    again = shelf.autosave(rng=ts.RNG())
    again.resume()
    with pytest.raises(ts.BadArgument, match="epoch=0: the saved run was in epoch 1"):
        again.batches(batches, epoch=0)
    assert len(list(again.batches(batches, epoch=2))) == 6


def test_an_epoch_without_rest_is_told(shelf: ts.Shelf, caplog: Warnings) -> None:
    batches = loader()
    auto = shelf.autosave(rng=ts.RNG())
    for _ in auto.batches(batches):
        pass
    auto.step(1)
    again = shelf.autosave(rng=ts.RNG())
    again.resume()
    assert list(again.batches(batches)) == []
    assert "this iteration gives none" in caplog.text
    assert len(list(again.batches(batches))) == 6


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"shuffle": False}, "sampler SequentialSampler, and that of the saved run RandomSampler"),
        ({"batch_size": 3}, "batch_size 3, and that of the saved run 2"),
        ({"drop_last": True}, "drop_last True"),
    ],
    ids=str,
)
def test_another_loader_is_refused_within_an_epoch(
    shelf: ts.Shelf, changed: dict[str, Any], text: str
) -> None:
    auto = shelf.autosave(rng=ts.RNG())
    for number, _ in enumerate(auto.batches(loader())):
        if number == 2:
            break
    auto.step(1)
    again = shelf.autosave(rng=ts.RNG())
    again.resume()
    with pytest.raises(ts.LayoutError, match=text):
        again.batches(loader(**changed))


def test_other_workers_are_told(shelf: ts.Shelf, caplog: Warnings) -> None:
    auto = shelf.autosave(rng=ts.RNG())
    for _ in auto.batches(loader()):
        break
    auto.step(1)
    again = shelf.autosave(rng=ts.RNG())
    again.resume()
    again.batches(loader(1))
    assert "num_workers=0, and this one has 1" in caplog.text


# ---- going back


def test_batches_from_before_a_rollback_end(reopen: OpenShelf) -> None:
    shelf = reopen(keep=4)
    model, _ = run()
    auto = shelf.autosave(model=model, rng=ts.RNG())
    batches = loader()
    first: list[Any] = []

    def loop() -> Iterator[Any]:
        for (batch,) in auto.batches(batches, epoch=0):
            yield batch.tolist()

    old = loop()
    for step in range(1, 5):
        first.append(next(old))
        auto.step(step)
    assert auto.rollback(2) == 2
    with pytest.raises(ts.UnsupportedError, match=r"iterate over auto\.batches\(loader\) anew"):
        next(old)
    assert list(loop())[:2] == first[2:4]
    auto.close()


def test_what_a_rollback_skips_stays_skipped(reopen: OpenShelf) -> None:
    shelf = reopen(keep=4)
    auto = shelf.autosave(rng=ts.RNG())
    batches = loader()
    whole = []
    for step, (batch,) in enumerate(auto.batches(batches, epoch=0), 1):
        whole.append(batch.tolist())
        auto.step(step)
    assert auto.rollback(2, skip_batches=3) == 2
    assert shelf.step == 2
    auto.close()
    with reopen() as again:
        auto = again.autosave(rng=ts.RNG())
        assert auto.resume() == 2
        assert [batch.tolist() for (batch,) in auto.batches(batches, epoch=0)] == whole[5:]


# ---- what is not saved


def test_the_last_step_can_be_saved_whatever_every_says(shelf: ts.Shelf, caplog: Warnings) -> None:
    counter = {"n": 0}
    auto = shelf.autosave(counter=counter, every=4)
    for step in range(1, 11):
        counter["n"] = step
        auto.step(step)
    assert auto.step(10, force=True) is not None
    auto.close()
    assert shelf.load()["counter"] == {"n": 10}
    assert caplog.text == ""


def test_steps_that_no_save_has_are_told(shelf: ts.Shelf, caplog: Warnings) -> None:
    auto = shelf.autosave(counter={"n": 0}, every=4)
    for step in range(1, 11):
        auto.step(step)
    auto.close()
    assert "the last save is of step 8, and step 10 was the last" in caplog.text


def test_a_loop_without_step_is_told(shelf: ts.Shelf, caplog: Warnings) -> None:
    model, optimizer = run()
    with shelf.autosave(model=model, optimizer=optimizer):
        keeps(model, optimizer)
    assert "no step() was called" in caplog.text
    caplog.clear()
    with shelf.autosave(model=model, optimizer=optimizer) as auto:  # only looks
        auto.resume()
    assert caplog.text == ""


def test_a_state_of_save_is_resumed(shelf: ts.Shelf) -> None:
    model, optimizer = run()
    keeps(model, optimizer)
    shelf.save({"model": model, "optimizer": optimizer}, step=7)
    other, again = run()
    with torch.no_grad():
        other[0].weight.zero_()
    auto = shelf.autosave(model=other, optimizer=again)
    assert auto.resume() == 7
    assert torch.equal(other[0].weight, model[0].weight)
    auto.step(8)
    auto.close()
    with pytest.raises(ts.KeyMismatch):
        shelf.autosave(net=other).resume()


# ---- an optimizer that is not saved


@pytest.mark.parametrize("when", ["not given", "made anew"])
def test_an_optimizer_that_is_not_saved_is_told_and_waits(
    shelf: ts.Shelf, caplog: Warnings, when: str
) -> None:
    model, optimizer = run()
    state = {"model": model, "known": run()[1]} if when == "not given" else {
        "model": model, "optimizer": optimizer
    }  # fmt: skip
    auto = shelf.autosave(**state, pipeline={"bytes_per_second": 1, "check_one_in": 1})
    if when == "made anew":
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(1, 6):
        keeps(model, optimizer)
        auto.step(step)
        before = model[0].weight.clone()
        keeps(model, optimizer)  # waits for what is being copied
        auto.wait()
        assert torch.equal(shelf.load()["model"]["0.weight"], before)
    assert caplog.text.count("an optimizer (SGD) steps parameters that are saved") == 1
    other, elsewhere = run()
    keeps(other, elsewhere)
    auto.close()
    caplog.clear()
    keeps(model, optimizer)
    assert caplog.text == ""


def test_an_autosave_that_gave_way_tells_of_no_optimizer(shelf: ts.Shelf, caplog: Warnings) -> None:
    model, optimizer = run()
    first = shelf.autosave(model=model)
    with shelf.autosave(model=model, optimizer=optimizer) as auto:
        keeps(model, optimizer)
        auto.step(1)
    assert "(closed)" in repr(first)
    assert "is not itself" not in caplog.text


# ---- arguments


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mtbi": 60.0}, "chooses nothing"),
        ({"overlap": "no"}, "neither True nor False"),
        ({"loader": "a loader"}, r"auto\.batches\(loader\)"),
    ],
    ids=str,
)
def test_arguments_that_cannot_be(shelf: ts.Shelf, options: dict[str, Any], text: str) -> None:
    if "loader" in options:
        options = {"loader": loader()}
    with pytest.raises(ts.BadArgument) as caught:
        shelf.autosave(counter={"n": 0}, **options)

    assert re.search(text, f"{caught.value} {caught.value.remedy}")


def test_what_is_kept_is_named(shelf: ts.Shelf) -> None:
    auto = shelf.autosave(counter={"n": 0})
    auto.step(3)
    with pytest.raises(ts.UnknownName) as caught:
        auto.rollback(1)
    assert "Kept are those of the steps 3." in caught.value.remedy
