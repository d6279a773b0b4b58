"""A job of the tests of draining."""

import pathlib
from typing import Any

import numpy as np

import tensorshelf as ts

SIZE = 400_000  # of int64: four pieces, and the record is a fifth


class Run:
    """A job that saves one array, drained."""

    def __init__(self, shelf: ts.Shelf, drain: Any, **options: Any) -> None:
        self.shelf = shelf
        self.values = np.zeros(SIZE, np.int64)
        self.frozen = np.arange(SIZE)
        self.auto = shelf.autosave(
            values=self.values, frozen=self.frozen, drain=drain, overlap=False, **options
        )
        assert self.auto.drain is not None
        self.drain: ts.Drainer = self.auto.drain
        self.auto.resume()

    def step(self, number: int, *, waits: bool = True, **options: Any) -> None:
        """Saves, and waits until that is drained."""
        self.values[:] = number
        self.auto.step(number, **options)
        self.auto.wait()
        if waits:
            assert self.drain.wait()


def fetched(remote: Any, path: pathlib.Path, **options: Any) -> Any:
    """The values that a version has, which are one number."""
    ts.fetch(remote, path, **options)
    with ts.open(path, "r") as shelf:
        values = shelf["values"].numpy()
        assert (values == values[0]).all()
        assert (shelf["frozen"].numpy() == np.arange(SIZE)).all()
    path.unlink()
    return int(values[0])
