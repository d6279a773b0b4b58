"""A save that is begun while a signal's handler raises, as Ctrl-C does: it goes on, and a trainer
that does waits for it as for any other.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from test_feed import RESTING

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


class Run:
    """Of a model whose two rows are as many as steps were done."""

    def __init__(self, shelf: ts.Shelf) -> None:
        self.model = nn.Embedding(2, 1 << 16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        with torch.no_grad():
            self.model.weight.zero_()
        self.shelf = shelf
        self.auto = shelf.autosave(model=self.model, optimizer=self.optimizer, pipeline=RESTING)
        self.auto.resume()
        for step in (1, 2):
            self.train()
            self.auto.step(step)
        self.auto.wait()

    def train(self) -> None:
        self.optimizer.zero_grad()
        (-self.model.weight).sum().backward()
        self.optimizer.step()

    def saved(self) -> tuple[int | None, set[float]]:
        return self.shelf.step, set(self.shelf.load()["model"]["weight"].flatten().tolist())


def interrupt(run: Run, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """That step, behind the begin of its save."""
    planned = run.auto._commits.planned

    def interrupted(*given: Any) -> Any:
        planned(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run.auto._commits, "planned", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.auto.step(step)


@pytest.fixture
def run(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """In which step 3 is interrupted behind the begin of its save."""
    made = Run(shelf)
    made.train()
    interrupt(made, 3, monkeypatch)
    yield made
    made.auto.close()


def test_the_optimizer_waits_for_it(run: Run) -> None:
    run.train()
    run.auto.wait()
    assert run.saved() == (3, {3.0})


def test_who_waits_waits_for_it(run: Run) -> None:
    run.auto.wait()
    assert run.saved() == (3, {3.0})


def test_the_next_one_comes_behind_it(run: Run) -> None:
    run.train()
    run.auto.step(4)
    run.auto.wait()
    assert run.saved() == (4, {4.0})


def test_a_change_behind_it_is_told(run: Run) -> None:
    with torch.no_grad():
        run.model.weight.view(-1)[7] += 1  # so little that bytes that are compared do not tell
    with pytest.raises(ts.TornSave, match=r"'model.weight'"):
        run.auto.wait()


def test_a_change_behind_the_one_before_is_told(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which nobody had asked for when the next one was interrupted."""
    run = Run(shelf)
    run.train()
    run.auto.step(3)
    last = run.auto._feed._last
    last._save.wait_staged()  # and who changes it has not asked
    monkeypatch.setattr(last, "done", lambda: False)
    with torch.no_grad():
        run.model.weight.view(-1)[7] += 1
    interrupt(run, 4, monkeypatch)
    with pytest.raises(ts.TornSave, match=r"'model.weight' was changed behind step\(3\)"):
        run.auto.wait()
    run.auto.close()


def test_it_is_on_its_way_where_that_is_asked(run: Run) -> None:
    assert not run.auto._flight.has_landed()
    run.auto.wait()
    assert run.auto._flight.has_landed()


def test_what_it_failed_with_is_raised_once(run: Run) -> None:
    with torch.no_grad():
        run.model.weight.add_(1)  # before a byte of it was copied
    with pytest.raises(ts.TornSave):
        run.auto.wait()
    run.auto.wait()
    assert run.saved() == (2, {2.0})


def test_resuming_is_behind_it(run: Run) -> None:
    run.train()
    assert run.auto.resume() == 3
    assert set(run.model.weight.flatten().tolist()) == {3.0}


def test_a_child_does_not_wait_for_its_parents(shelf: ts.Shelf) -> None:
    """Its optimizer's hook is the parent's, which has a save on its way."""
    run = Run(shelf)
    run.train()
    run.auto.step(3)
    child = os.fork()
    if child == 0:
        try:
            run.auto.gate()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run.auto.close()
    assert run.saved() == (3, {3.0})


def test_it_is_not_lost_to_a_second_signal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which comes while what was saved before it is compared."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run.auto._feed, "_compare_last", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.auto.wait()
    run.auto.wait()
    assert run.saved() == (3, {3.0})


def test_a_groups_is_waited_for_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a second signal ends the wait at the gate."""
    flight = run.auto._flight
    monkeypatch.setattr(flight, "_all_heard", True)
    lost = run.auto._feed.lost()
    assert lost is not None
    wait_staged = lost.wait_staged
    waits: list[str] = []

    def waiting() -> Any:
        waits.append("wait")
        if len(waits) == 1:
            raise KeyboardInterrupt
        return wait_staged()

    monkeypatch.setattr(lost, "wait_staged", waiting)
    monkeypatch.setattr(run.auto._feed, "lost", lambda: lost if not waits else None)
    with pytest.raises(KeyboardInterrupt):
        flight.gate()
    flight.gate()
    assert waits == ["wait", "wait"]
    run.auto._feed.taken()
    lost.wait()
    assert run.saved() == (3, {3.0})
