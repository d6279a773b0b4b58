"""The shelf against a dict of NumPy arrays, over random programs with reopening among the rules.

hypothesis prints the failing program, shrunk, and how to repeat it.
"""

import pathlib
import shutil
import tempfile
import warnings

import numpy as np
import pytest
from conftest import TMPFS
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import tensorshelf as ts

DTYPES = ["float32", "float64", "int16", "uint8", "complex64", "bool"]
SHAPES = [(), (0,), (7,), (3, 5), (2, 0, 3), (1 << 18,), (300, 1000)]  # the last: several chunks
NAMES = ["a", "b", "layers.0.weight", "naïve", "persist"]


def value_of(dtype: str, shape: "tuple[int, ...]", seed: int) -> np.ndarray:
    raw = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, shape)
    return np.asarray(raw).astype(dtype)


class ShelfMachine(RuleBasedStateMachine):
    """``now`` is what reads must give; ``durable`` what reopening must give."""

    parent = "/tmp"
    tier = "auto"

    @initialize()
    def start(self) -> None:
        self.directory = pathlib.Path(
            tempfile.mkdtemp(prefix="tensorshelf-rules-", dir=self.parent)
        )
        self.now: dict[str, np.ndarray] = {}
        self.durable: dict[str, np.ndarray] = {}
        self.version = 0
        self.step: int | None = None
        self.shelf = self.open()

    def open(self) -> ts.Shelf:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ts.TierWarning)
            return ts.open(self.directory / "run.shelf", tier=self.tier)

    def teardown(self) -> None:
        if hasattr(self, "shelf"):
            self.shelf.close()
            shutil.rmtree(self.directory)

    @rule(
        name=st.sampled_from(NAMES),
        dtype=st.sampled_from(DTYPES),
        shape=st.sampled_from(SHAPES),
        seed=st.integers(0, 9),
    )
    def put(self, name: str, dtype: str, shape: "tuple[int, ...]", seed: int) -> None:
        value = value_of(dtype, shape, seed)
        old = self.now.get(name)
        if old is not None and (old.shape, old.dtype) != (value.shape, value.dtype):
            with pytest.raises(ts.LayoutError):
                self.shelf[name] = value
            self.shelf.replace(name, value)
        else:
            self.shelf[name] = value
        self.now[name] = value

    @rule(name=st.sampled_from(NAMES), dtype=st.sampled_from(DTYPES))
    def create(self, name: str, dtype: str) -> None:
        if name in self.now:
            with pytest.raises(ts.NameTaken):
                self.shelf.create(name, (4,), dtype)
        else:
            self.shelf.create(name, (4,), dtype)
            self.now[name] = np.zeros(4, dtype)

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def put_part(self, name: str, data: st.DataObject) -> None:
        if name not in self.now or not self.now[name].ndim:
            return
        length = len(self.now[name])
        start = data.draw(st.integers(-length - 1, length + 1))
        stop = data.draw(st.integers(-length - 1, length + 1))
        step = data.draw(st.sampled_from([1, 1, 2, -1, 7]))
        self.shelf[name][start:stop:step] = True
        changed = self.now[name].copy()
        changed[start:stop:step] = True
        self.now[name] = changed

    @rule(name=st.sampled_from(NAMES), seed=st.integers(0, 9))
    def put_scattered(self, name: str, seed: int) -> None:
        if name not in self.now:
            return
        mask = np.random.default_rng(seed).random(self.now[name].shape) < 0.01
        self.shelf[name][mask] = True
        changed = self.now[name].copy()
        changed[mask] = True
        self.now[name] = changed

    @rule(name=st.sampled_from(NAMES))
    def add_in_place(self, name: str) -> None:
        if name not in self.now or self.now[name].dtype == bool:
            return
        self.shelf[name] += self.now[name].dtype.type(1)
        self.now[name] = np.asarray(self.now[name] + self.now[name].dtype.type(1))

    @rule(name=st.sampled_from(NAMES), at=st.integers(0, 1 << 20))
    def edit(self, name: str, at: int) -> None:
        if name not in self.now or not self.now[name].size:
            return
        changed = self.now[name].copy()
        with self.shelf[name].edit() as values:
            for array in (values, changed):
                array.reshape(-1)[at % array.size] = True
        self.now[name] = changed

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if name in self.now:
            del self.shelf[name]
            del self.now[name]
        else:
            with pytest.raises(KeyError):
                del self.shelf[name]

    @rule(step=st.none() | st.integers(0, 1000), wait=st.booleans())
    def persist(self, step: "int | None", wait: bool) -> None:
        commit = self.shelf.persist(step, wait=wait)
        self.version += 1
        self.step = self.step if step is None else step  # the last one stated stays
        self.durable = dict(self.now)
        assert commit.wait().version == self.version

    @rule()
    def reopen_discards_what_was_not_persisted(self) -> None:
        self.shelf.close()
        self.shelf = self.open()
        self.now = dict(self.durable)

    @rule(name=st.sampled_from(NAMES))
    def lease(self, name: str) -> None:
        """A lease keeps its value for as long as it lives, whatever is written meanwhile."""
        if name not in self.now:
            return
        lent = self.shelf[name].numpy()
        before = self.now[name]
        try:
            self.shelf[name].fill_(True)
            self.now[name] = np.full_like(before, True)
        except ts.LeasedError:
            assert self.shelf.info().promises.mapped
        np.testing.assert_array_equal(lent, before)

    @rule()
    def verify(self) -> None:
        report = self.shelf.verify()
        assert report.ok
        assert report.nbytes == sum(value.nbytes for value in self.durable.values())

    @invariant()
    def values_are_as_they_should_be(self) -> None:
        if not hasattr(self, "shelf"):
            return
        assert (self.shelf.version, self.shelf.step) == (self.version, self.step)
        assert list(self.shelf) == sorted(self.now, key=str.encode)
        for name, value in self.now.items():
            tensor = self.shelf[name]
            assert (tensor.shape, tensor.dtype) == (value.shape, value.dtype)
            np.testing.assert_array_equal(tensor.numpy(), value)
            durable = self.durable.get(name)
            if durable is not None and durable.shape == value.shape:
                check_durable(tensor, durable)


def check_durable(tensor: ts.Tensor, durable: np.ndarray) -> None:
    """The durable value, unless the name was deleted and made anew since."""
    try:
        committed = tensor.committed.numpy()
    except ts.UnknownName:
        return
    np.testing.assert_array_equal(committed, durable)


@pytest.mark.parametrize("medium", ["tmpfs", "block"])
def test_random_programs(medium: str, tmp_path: pathlib.Path) -> None:
    if medium == "tmpfs" and not TMPFS.is_dir():
        pytest.skip("no tmpfs at /dev/shm")

    class Machine(ShelfMachine):
        parent = str(TMPFS) if medium == "tmpfs" else str(tmp_path)
        tier = "auto" if medium == "tmpfs" else "block"

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
