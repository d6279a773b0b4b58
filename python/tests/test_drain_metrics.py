"""A metric is of the save that it was given with, and of no other of that step."""

import pathlib

import pytest
from drain_run import Run

import tensorshelf as ts
from tensorshelf._drain.metrics import Metrics

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

Told = list[tuple[int, float | None, int]]  # step, metric, the version that was durable then


@pytest.mark.parametrize(
    ("told", "step", "version", "expected"),
    [
        ([(1, 0.5, 0)], 1, 1, 0.5),
        ([(1, 0.5, 0)], 1, 7, 0.5),  # other saves were on their way
        ([(1, 0.5, 0)], 2, 2, None),
        ([(1, 0.5, 3)], 1, 3, None),  # it was durable before
        ([(2, 0.1, 1), (2, None, 3)], 2, 4, None),  # it went back meanwhile
        ([(2, 0.1, 1), (2, None, 3)], 2, 2, 0.1),  # which is retained still
        ([(2, 0.1, 1), (2, None, 1)], 2, 2, None),  # the first one failed
        ([(2, None, 1), (2, 0.1, 2)], 2, 2, None),  # saved again behind a validation
        ([(2, None, 1), (2, 0.1, 2)], 2, 3, 0.1),
        ([(2, float("nan"), 1), (2, float("inf"), 1)], 2, 2, None),
        ([(2, 0.1, 1)], None, 2, None),
    ],
)
def test_whose_it_is(told: Told, step: int | None, version: int, expected: float | None) -> None:
    metrics = Metrics(ts.Drain("nowhere", best="min"))
    for of_step, metric, after in told:
        metrics.measured(of_step, metric, after=after)
    assert metrics.of(step, version) == expected


@pytest.mark.parametrize("metric", ["best", [1.0], 10**400])
def test_what_is_no_number_is_refused(metric: object) -> None:
    metrics = Metrics(ts.Drain("nowhere", best="min"))
    with pytest.raises(ts.BadArgument, match="is no number"):
        metrics.measured(1, metric, after=0)


def test_so_many_are_remembered() -> None:
    metrics = Metrics(ts.Drain("nowhere", best="min"))
    for step in range(5000):
        metrics.measured(step, 0.5, after=step)
    assert len(metrics._saves) == 1000


def drained_at(remote: pathlib.Path) -> dict[int, tuple[int | None, float | None]]:
    return {each.version: (each.step, each.metric) for each in ts.drained(remote)}


def test_behind_a_rollback_an_older_one_does_not_count(
    tmpfs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with ts.open(tmpfs / "run.shelf", keep=3) as shelf:
        run = Run(shelf, ts.Drain(tmp_path / "remote", keep=9, best="min"))
        run.step(1, metric=0.5)
        run.step(2, metric=0.1)
        run.auto.rollback(1)
        assert run.drain.wait()
        run.drain.measured(2, None)
        run.step(2)
    found = drained_at(tmp_path / "remote")
    assert (found[2], found[4]) == ((2, 0.1), (2, None))


def test_each_save_is_told_of(tmpfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with ts.open(tmpfs / "run.shelf", keep=3) as shelf:
        run = Run(shelf, ts.Drain(tmp_path / "remote", keep=9, best="min"))
        run.step(1, metric=0.5)
        run.step(2, metric=0.1)
        run.auto.rollback(1)
        assert run.drain.wait()
        run.step(2)
    assert drained_at(tmp_path / "remote") == {
        1: (1, 0.5),
        2: (2, 0.1),
        3: (1, None),
        4: (2, None),
    }
