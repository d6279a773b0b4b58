"""What a run leaves out of its autosave, or changes behind it, and is told of."""

import pathlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

import tensorshelf as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def test_a_shelf_that_nobody_has_any_more_is_closed(shelf_path: pathlib.Path) -> None:
    """By its own name alone: handlers of signals stay for as long as the process."""
    values = np.zeros(1)

    def run() -> None:
        shelf = ts.open(shelf_path, "w")
        auto = shelf.autosave(values=values)
        auto.step(1)
        auto.wait()

    run()
    with ts.open(shelf_path, "r+") as shelf:
        assert shelf.step == 1
