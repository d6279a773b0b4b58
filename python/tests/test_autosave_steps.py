"""Whose step a shelf has that an autosave saves to, and which epoch of a loop is one."""

import pathlib
from typing import Any

import numpy as np
import pytest

import tensorshelf as ts

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def test_the_step_beside_an_autosave_is_the_runs(shelf_path: pathlib.Path) -> None:
    """Else resume() would tell another one than its state was saved at."""
    run = {"weights": 1}
    with ts.open(shelf_path) as shelf:
        auto = shelf.autosave(run=run)
        auto.resume()
        auto.step(5)
        auto.wait()
        for commit in (
            lambda: shelf.persist(1000),
            lambda: shelf.persist(1000, wait=False),
            lambda: shelf.prepare(1000),
            lambda: shelf.transaction(1000),
        ):
            with pytest.raises(ts.UnsupportedError, match="step=1000 would pass for the step"):
                commit()
        with shelf.transaction() as changes:
            with pytest.raises(ts.UnsupportedError, match="step=1000 would pass for the step"):
                changes.step = 1000
            changes.step = 5
        shelf.note = np.ones(3)
        shelf.persist()
        shelf.persist(5)
        auto.close()
        assert shelf.persist(1000).step == 1000  # nobody saves a run there any more
        shelf.persist(5)
    with ts.open(shelf_path) as shelf:
        assert shelf.autosave(run=run).resume() == 5
        assert shelf.note[0] == 1


def test_a_tensor_that_was_renamed_is_made_anew_by_the_next_save(
    shelf_path: pathlib.Path,
) -> None:
    """Under its own name, by which the record has it."""
    values = np.zeros(1000)
    with ts.open(shelf_path) as shelf:
        auto = shelf.autosave(values=values)
        auto.resume()
        for step in (1, 2, 3):
            values[:] = step
            auto.step(step)
            auto.wait()
            if step == 2:
                shelf.rename("values", "other")
        assert (shelf["values"].numpy() == 3).all()
        assert (shelf["other"].numpy() == 2).all()
        auto.close()
    with ts.open(shelf_path) as shelf:
        assert shelf.autosave(values=values).resume() == 3
        assert (values == 3).all()


@pytest.mark.parametrize("epoch", [True, 1.0, "1", np.array([1]), -1])
def test_an_epoch_is_a_whole_number(shelf: ts.Shelf, epoch: Any) -> None:
    """What is saved of it has to be one when the run is resumed."""
    auto = shelf.autosave(run={"a": 1})
    auto.resume()
    with pytest.raises(ts.BadArgument, match="epoch="):
        auto.batches([1, 2, 3], epoch=epoch)


@pytest.mark.parametrize("epoch", [np.int64(1), np.array(1)])
def test_what_counts_as_one_is_resumed(shelf_path: pathlib.Path, epoch: Any) -> None:
    for _ in range(2):
        with ts.open(shelf_path) as shelf:
            auto = shelf.autosave(run={"a": 1})
            step = auto.resume()
            assert list(auto.batches([1, 2, 3], epoch=epoch)) == ([] if step else [1, 2, 3])
            auto.step(step + 1)
            auto.wait()


def test_a_url_is_no_shelf() -> None:
    with pytest.raises(ts.ShelfNotFound, match="is a URL") as error:
        ts.open("s3://bucket/run.shelf")
    assert "Drain" in error.value.remedy


def test_no_name_is_listed_twice(shelf: ts.Shelf) -> None:
    shelf["persist"] = np.ones(3)
    shelf["weights"] = np.ones(3)
    shelf.persist()
    for listed in (dir(shelf), dir(shelf.at(shelf.version))):
        assert len(listed) == len(set(listed))
        assert {"persist", "weights"} <= set(listed)
