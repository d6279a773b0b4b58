"""The shelf against dicts of NumPy arrays, over random programs with reopening, decisions about
what is prepared, and another process that is killed among the rules.

hypothesis prints the failing program, shrunk, and how to repeat it.
"""

import os
import pathlib
import shutil
import signal
import tempfile
import time
import warnings
from typing import Any, NamedTuple

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


Values = dict[str, np.ndarray]


class Stop(Exception):
    """Leaves a transaction."""


class Saved(NamedTuple):
    """A version."""

    step: "int | None"
    values: Values


class ShelfMachine(RuleBasedStateMachine):
    """``now`` is what reads must give; ``saved`` the versions that reopening must give."""

    parent = "/tmp"
    tier = "auto"

    @initialize(
        keep=st.integers(0, 3),
        in_flight=st.integers(1, 3),
        placement=st.sampled_from([None, "whole", "by_chunk"]),
    )
    def start(self, keep: int, in_flight: int, placement: "str | None") -> None:
        self.directory = pathlib.Path(
            tempfile.mkdtemp(prefix="tensorshelf-rules-", dir=self.parent)
        )
        self.now: Values = {}
        self.saved: dict[int, Saved] = {0: Saved(None, {})}
        self.floor = 0
        self.keep = self.stored_keep = keep
        self.sum = keep + in_flight
        self.changed = False
        self.leased: list[tuple[np.ndarray, np.ndarray]] = []
        self.on_their_way: list[tuple[ts.Commit, int]] = []
        self.shelf = self.open(keep=keep, in_flight=in_flight, placement=placement)

    def open(self, **options: Any) -> ts.Shelf:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ts.TierWarning)
            return ts.open(self.directory / "run.shelf", tier=self.tier, **options)

    @property
    def version(self) -> int:
        return max(self.saved)

    @property
    def durable(self) -> Values:
        return self.saved[self.version].values

    def note_commit(self, step: "int | None", values: Values) -> None:
        step = self.saved[self.version].step if step is None else step  # the last one stays
        self.saved[self.version + 1] = Saved(step, dict(values))
        self.floor = max(self.floor, self.version - self.keep)
        self.stored_keep = self.keep
        self.changed = False

    def settle(self) -> None:
        """Waits for what is on its way."""
        for commit, version in self.on_their_way:
            assert commit.version == version
            assert commit.step == self.saved[version].step
        self.on_their_way.clear()

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
        self.changed = True

    @rule(name=st.sampled_from(NAMES), dtype=st.sampled_from(DTYPES))
    def create(self, name: str, dtype: str) -> None:
        if name in self.now:
            with pytest.raises(ts.NameTaken):
                self.shelf.create(name, (4,), dtype)
        else:
            self.shelf.create(name, (4,), dtype)
            self.now[name] = np.zeros(4, dtype)
            self.changed = True

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
        self.changed = True

    @rule(name=st.sampled_from(NAMES), seed=st.integers(0, 9))
    def put_scattered(self, name: str, seed: int) -> None:
        if name not in self.now:
            return
        mask = np.random.default_rng(seed).random(self.now[name].shape) < 0.01
        self.shelf[name][mask] = True
        changed = self.now[name].copy()
        changed[mask] = True
        self.now[name] = changed
        self.changed = True

    @rule(name=st.sampled_from(NAMES))
    def add_in_place(self, name: str) -> None:
        if name not in self.now or self.now[name].dtype == bool:
            return
        self.shelf[name] += self.now[name].dtype.type(1)
        self.now[name] = np.asarray(self.now[name] + self.now[name].dtype.type(1))
        self.changed = True

    @rule(name=st.sampled_from(NAMES), at=st.integers(0, 1 << 20))
    def edit(self, name: str, at: int) -> None:
        if name not in self.now or not self.now[name].size:
            return
        changed = self.now[name].copy()
        with self.shelf[name].edit() as values:
            for array in (values, changed):
                array.reshape(-1)[at % array.size] = True
        self.now[name] = changed
        self.changed = True

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if name in self.now:
            del self.shelf[name]
            del self.now[name]
            self.changed = True
        else:
            with pytest.raises(KeyError):
                del self.shelf[name]

    @rule(step=st.none() | st.integers(0, 1000), wait=st.booleans())
    def persist(self, step: "int | None", wait: bool) -> None:
        commit = self.shelf.persist(step, wait=wait)
        self.note_commit(step, self.now)
        self.on_their_way.append((commit, self.version))
        if wait:
            self.settle()

    @rule()
    def wait(self) -> None:
        self.settle()

    @rule()
    def reopen_discards_what_was_not_persisted(self) -> None:
        self.shelf.close()
        self.settle()
        self.shelf = self.open()
        self.keep = self.stored_keep
        self.now = dict(self.durable)
        self.changed = False

    @rule(data=st.data(), placement=st.sampled_from([None, "whole", "by_chunk"]))
    def reopen_with_another_split(self, data: st.DataObject, placement: "str | None") -> None:
        self.shelf.close()
        self.settle()
        self.keep = data.draw(st.integers(0, self.sum - 1))
        self.shelf = self.open(keep=self.keep, in_flight=self.sum - self.keep, placement=placement)
        self.now = dict(self.durable)
        self.changed = False

    @rule()
    def discard(self) -> None:
        self.shelf.discard()
        self.now = dict(self.saved[self.version].values)
        self.changed = False

    @rule(back=st.integers(0, 5))
    def rollback(self, back: int) -> None:
        number = max(0, self.version - back)
        if not self.changed:
            self.settle()
        try:
            commit = self.shelf.rollback(number)
        except ts.UncommittedError:
            assert self.changed
            return
        except ts.StaleError:
            assert not self.differs
            assert number < self.floor
            return
        assert not self.differs
        self.settle()
        to = self.saved[number]
        self.note_commit(None, to.values)
        self.saved[self.version] = to  # its step too, where it had none
        self.now = dict(to.values)
        assert (commit.version, commit.step) == (self.version, to.step)

    @property
    def differs(self) -> bool:
        """That something was changed to another value: then a rollback must be refused."""
        return self.now.keys() != self.durable.keys() or any(
            (old.dtype, old.shape) != (self.now[name].dtype, self.now[name].shape)
            or not np.array_equal(old, self.now[name])
            for name, old in self.durable.items()
        )

    @rule(
        step=st.none() | st.integers(0, 1000),
        names=st.lists(st.sampled_from(NAMES), max_size=3),
        seed=st.integers(0, 9),
        raises=st.booleans(),
    )
    def transaction(self, step: "int | None", names: "list[str]", seed: int, raises: bool) -> None:
        before, differs = dict(self.now), self.differs
        t = self.shelf.transaction(step)
        try:
            with t:
                assert not differs
                for name in names:
                    if name in self.now and seed % 3 == 0:
                        self.delete(name)
                    else:
                        self.put(name, DTYPES[seed % len(DTYPES)], SHAPES[seed % len(SHAPES)], seed)
                with pytest.raises(ts.TransactionError):
                    self.shelf.persist()
                if raises:
                    raise Stop
        except ts.UncommittedError:
            assert self.changed
        except Stop:
            self.now = before
            self.changed = False
            assert t.commit is None
        else:
            self.settle()
            self.note_commit(step, self.now)
            assert t.commit is not None
            assert t.commit.version == self.version

    @rule(
        step=st.none() | st.integers(0, 1000),
        behind=st.lists(st.sampled_from(NAMES), max_size=2),
        seed=st.integers(0, 9),
        reopens=st.booleans(),
        commits=st.booleans(),
    )
    def prepare_and_decide(
        self, step: "int | None", behind: "list[str]", seed: int, reopens: bool, commits: bool
    ) -> None:
        self.settle()
        durable, prepared = self.durable, dict(self.now)
        made = self.shelf.prepare(step, id=b"%d" % seed)
        assert (made.version, made.id) == (self.version + 1, b"%d" % seed)
        self.changed = False
        if reopens:
            self.shelf.close()
            self.shelf = self.open()
            assert self.shelf.prepared == made
            with pytest.raises(ts.UnresolvedError):
                self.shelf.create("never", (1,))
        else:
            self.put_behind(behind, seed)
        with pytest.raises(ts.UnresolvedError):
            self.shelf.persist()
        assert self.shelf.version == self.version
        changed = self.changed
        if commits:
            commit = self.shelf.resolve("commit")
            assert commit is not None
            self.note_commit(step, prepared)
            self.changed = changed
            assert (commit.version, commit.step) == (self.version, self.saved[self.version].step)
            self.keep = self.shelf.info().keep  # as it was opened since
            return
        self.shelf.resolve("abandon")
        self.keep = self.shelf.info().keep
        self.now = dict(durable)
        self.changed = False
        if changed:
            with pytest.raises(ts.AbandonedError):
                self.shelf.persist()
            self.shelf.discard()

    def put_behind(self, names: "list[str]", seed: int) -> None:
        """Where the prepared version leaves a slot for it."""
        for name in names:
            before = dict(self.now)
            try:
                self.put(name, DTYPES[seed % len(DTYPES)], SHAPES[seed % len(SHAPES)], seed)
            except ts.UnresolvedError:
                self.now = before
                if name in before:
                    np.testing.assert_array_equal(self.shelf[name].numpy(), before[name])

    @rule(commits=st.integers(1, 4), seed=st.integers(0, 9), pause=st.integers(0, 3))
    def another_process_is_killed(self, commits: int, seed: int, pause: int) -> None:
        """It shows what it acknowledged, or the one version that was on its way."""
        self.shelf.close()
        self.settle()
        saved = self.saved[self.version]
        plan = [
            {**saved.values, "killed": value_of("float64", (1000,), seed + number)}
            for number in range(commits + 1)
        ]
        acknowledged = self.persist_until_killed(plan, commits, pause / 1000)
        self.shelf = self.open()
        self.keep = self.stored_keep
        late = self.shelf.version - self.version - acknowledged
        assert late in (0, 1)
        for values in plan[: acknowledged + late]:
            self.note_commit(None, values)
        self.now = dict(self.durable)
        self.changed = False

    def persist_until_killed(self, plan: "list[Values]", count: int, pause: float) -> int:
        """SIGKILL after so many versions of the plan, and a while; how many were acknowledged."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                shelf = self.open()
                if "killed" in shelf:
                    del shelf.killed
                for values in plan:
                    shelf.killed = values["killed"]
                    shelf.persist()
                    os.write(write, b".")
            finally:
                os.close(write)
                os.kill(os.getpid(), signal.SIGSTOP)  # not one step of an ending interpreter
        os.close(write)
        seen = 0
        while seen < count and os.read(read, 1):
            seen += 1
        time.sleep(pause)  # the moment of the kill, not a wait for anything
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while os.read(read, 1):
            seen += 1
        os.close(read)
        return seen

    @rule(name=st.sampled_from(NAMES), back=st.integers(0, 3))
    def put_back(self, name: str, back: int) -> None:
        """One tensor from a version that is kept."""
        self.settle()
        number = max(self.floor, self.version - back)
        old = self.saved[number].values.get(name)
        now = self.now.get(name)
        if old is None or (now is not None and (now.shape, now.dtype) != (old.shape, old.dtype)):
            return
        self.shelf[name] = self.shelf.at(number)[name]
        self.now[name] = old
        self.changed = True

    @rule(name=st.sampled_from(NAMES), back=st.integers(0, 3))
    def lend_of_a_version(self, name: str, back: int) -> None:
        """What is lent stays, whatever follows, until it is given back."""
        self.settle()
        number = max(self.floor, self.version - back)
        old = self.saved[number].values.get(name)
        if old is None:
            return
        try:
            self.leased.append((self.shelf.at(number)[name].numpy(copy=False), old))
        except ts.UnsupportedError:
            return
        for lent, value in self.leased:
            np.testing.assert_array_equal(lent, value)
        self.leased.clear()

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
            self.changed = True
        except ts.LeasedError:
            assert self.shelf.info().promises.mapped
        np.testing.assert_array_equal(lent, before)

    @rule()
    def verify(self) -> None:
        self.settle()
        report = self.shelf.verify()
        assert report.ok
        assert report.nbytes == sum(value.nbytes for value in self.durable.values())

    @rule()
    def read_another_process_wise(self) -> None:
        """A reader finds the same versions."""
        self.settle()
        with self.open(mode="r") as reader:
            self.check_versions(reader)

    def check_versions(self, shelf: ts.Shelf) -> None:
        assert [found.version for found in shelf.versions] == list(
            range(self.floor, self.version + 1)
        )
        for found in shelf.versions:
            step, values = self.saved[found.version]
            old = shelf.at(found.version)
            assert found.step == old.step == step
            assert list(old) == sorted(values, key=str.encode)
            for name, value in values.items():
                assert (old[name].shape, old[name].dtype) == (value.shape, value.dtype)
                np.testing.assert_array_equal(old[name].numpy(), value)
        if self.floor:
            with pytest.raises(ts.StaleError):
                shelf.at(self.floor - 1)

    @invariant()
    def values_are_as_they_should_be(self) -> None:
        if not hasattr(self, "shelf"):
            return
        assert list(self.shelf) == sorted(self.now, key=str.encode)
        for name, value in self.now.items():
            tensor = self.shelf[name]
            assert (tensor.shape, tensor.dtype) == (value.shape, value.dtype)
            np.testing.assert_array_equal(tensor.numpy(), value)
        if self.on_their_way:
            return
        assert (self.shelf.version, self.shelf.step) == (
            self.version,
            self.saved[self.version].step,
        )
        for name, value in self.now.items():
            durable = self.durable.get(name)
            if durable is not None and durable.shape == value.shape:
                check_durable(self.shelf[name], durable)
        self.check_versions(self.shelf)


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
