"""What planted faults went unseen by: rows named twice, twins, steps of 0, reports that lie."""

import pathlib
import signal
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place

import tensorshelf as ts


def test_rows_that_are_named_twice(reopen: OpenShelf) -> None:
    shelf = reopen()
    rows = np.arange(6.0)[:, None] * np.ones(100_000)
    shelf.x = rows  # large, so that rows are read by themselves
    for index in ([3, 3, 4], [4, 3, 3], [0, 5, 5, 0], [1, 2, 2, 3], [-1, -1]):
        assert np.array_equal(shelf.x[index], rows[index]), index


def test_what_is_lent_of_the_committed_value_is_committed(tmpfs: pathlib.Path) -> None:
    with ts.open(tmpfs / "run.shelf", placement="whole") as shelf:
        shelf.x = np.zeros(1000)
        shelf.persist()
        shelf.x = np.ones(1000)
        lent = shelf.x.committed.numpy(copy=False)
        assert not lent.any()
        assert shelf.x.numpy().all()


def test_a_tensor_of_another_shelf_is_another(reopen: OpenShelf, tmpfs: pathlib.Path) -> None:
    shelf = reopen()
    with ts.open(tmpfs / "other.shelf") as other:
        for assign in ("attribute", "item", "copy_", "all"):
            shelf.x = np.zeros(10)
            other.x = np.arange(10.0)
            if assign == "attribute":
                shelf.x = other.x
            elif assign == "item":
                shelf["x"] = other["x"]
            elif assign == "copy_":
                shelf.x.copy_(other.x)
            else:
                shelf.x[...] = other.x
            assert np.array_equal(shelf.x.numpy(), np.arange(10.0)), assign


def test_step_0_is_a_step(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.persist(step=5)
    with shelf.transaction(0):
        shelf.x = [1.0]
    assert shelf.step == 0
    shelf.persist(step=5)
    with shelf.transaction(step=0) as transaction:
        shelf.x = [2.0]
    assert shelf.step == 0
    assert transaction.commit is None or transaction.commit.step == 0
    shelf.prepare(step=0)
    commit = shelf.resolve("commit")
    assert commit is not None
    assert commit.step == 0
    assert shelf.persist(step=0, wait=False).wait().step == 0


def test_a_wait_that_ctrl_c_ends_can_be_begun_again(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.x = np.ones(1000)
    commit = shelf.persist(step=1, wait=False)
    waits = []

    class Interrupted:
        """Of the store's own, whose first wait hears Ctrl-C."""

        def __init__(self, pending: Any) -> None:
            self._pending = pending

        def done(self) -> bool:
            return bool(self._pending.done())

        def wait(self) -> Any:
            waits.append(1)
            if len(waits) == 1:
                signal.raise_signal(signal.SIGINT)
            return self._pending.wait()

    commit._pending = Interrupted(commit._pending)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        commit.wait()
    assert commit.version == 1
    assert commit.step == 1
    assert len(waits) == 2
    assert commit.done()


def test_keep_0_may_be_asked_for_at_reopening(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1, in_flight=1)
    shelf.x = [1.0]
    shelf.persist()
    info = reopen(keep=0).info()
    assert (info.keep, info.in_flight) == (0, 2)
    info = reopen(keep=1, in_flight=1).info()
    assert (info.keep, info.in_flight) == (1, 1)


def test_types_of_one_width_are_not_one_type(reopen: OpenShelf) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    shelf = reopen()
    first, second = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
    shelf.x = np.ones(4, first)
    with pytest.raises(ts.LayoutError):
        shelf.x = np.ones(4, second)
    assert (shelf.x.numpy().astype(np.float32) == 1).all()
    torch = pytest.importorskip("torch")
    shelf.t = torch.ones(4).to(torch.float8_e4m3fn)
    for other in (torch.float8_e5m2, torch.uint8, torch.int8):
        with pytest.raises(ts.LayoutError):
            shelf.t = torch.ones(4).to(other)
        with pytest.raises(ts.LayoutError):
            shelf["t"] = torch.ones(4).to(other)
    assert (shelf.t.torch().float() == 1).all()
    for mine, other in ((np.int32, np.float32), (np.uint8, np.bool_), (np.int64, np.uint64)):
        name = np.dtype(mine).name
        shelf[name] = np.ones(4, mine)
        with pytest.raises(ts.LayoutError):
            shelf[name] = np.full(4, 1, other)
        assert (shelf[name].numpy() == 1).all()


def test_what_was_dropped_was_not_lost(place: Place) -> None:
    path, tier = place
    values = [np.random.default_rng(seed).bytes(3000) for seed in range(3)]
    with ts.open(path, tier=tier, keep=2) as shelf:
        shelf.create("x", (3000,), "uint8")
        for step, value in enumerate(values):
            shelf.names_of_step = np.frombuffer(f"version of step {step}".encode(), np.uint8)
            shelf.x[:] = np.frombuffer(value, np.uint8)
            shelf.persist(step=step)
            del shelf["names_of_step"]
            if step == 0:
                shelf["only-at-first"] = [1]
                shelf.persist(step=9)
                del shelf["only-at-first"]
    data = bytearray(path.read_bytes())
    pages = [
        at for at in range(0x40000, len(data), 4096) if b"only-at-first" in data[at : at + 4096]
    ]
    assert pages  # of an older version alone
    for at in pages:
        data[at + 50] ^= 1
    path.write_bytes(data)
    with ts.open(path, "r", tier=tier) as shelf:
        recovery = shelf.info().recovery
        assert shelf.step == 2
        assert recovery.lost == ()
        assert (
            recovery.dropped
            == tuple(
                n for n in range(recovery.version) if n not in {v.version for v in shelf.versions}
            )[-len(recovery.dropped) :]
        )
        assert recovery.dropped


@pytest.mark.parametrize("rows", [[40_000], [3, 40_000], [-40_001], [2, -40_001]])
def test_the_first_row_beyond_a_large_tensor(shelf: ts.Shelf, rows: list[int]) -> None:
    shelf.create("x", (40_000, 100), "uint8")
    with pytest.raises(IndexError, match="out of bounds for axis 0"):
        shelf.x[rows]
    with pytest.raises(IndexError, match="out of bounds for axis 0"):
        shelf.x[rows] = 1
    assert not shelf.x.numpy().any()


def test_update_looks_at_what_it_gives_tensors_that_are_there(shelf: ts.Shelf) -> None:
    shelf.update(a=np.zeros(2), b=np.zeros(2))
    with pytest.raises(ts.LayoutError, match="'b'"):
        shelf.update(a=np.ones(2), b=None)
    assert shelf.a.numpy().tolist() == [0, 0]


def test_an_edit_that_turns_a_zero_negative_is_written(shelf: ts.Shelf) -> None:
    shelf["x"] = np.zeros(4)
    with shelf.x.edit() as values:
        values[1] = -0.0
    assert np.signbit(shelf.x.numpy()).tolist() == [False, True, False, False]
