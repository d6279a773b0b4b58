"""Threads: different tensors at once, one tensor without lost updates, persist() between."""

import contextlib
import itertools
import os
import pathlib
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import OpenShelf
from support import state_of, stopped

import tensorshelf as ts


def test_threads_assign_different_tensors(reopen: OpenShelf) -> None:
    shelf = reopen()
    rounds = 20

    def work(i: int) -> None:
        for step in range(rounds):
            shelf[f"t{i}"] = np.full(50_000 + i, step * 10 + i)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    shelf.persist(rounds)
    shelf = reopen()
    for i in range(8):
        assert (shelf[f"t{i}"].numpy() == (rounds - 1) * 10 + i).all()


def test_persist_beside_assignments_keeps_each_whole(reopen: OpenShelf) -> None:
    """Values converted in many blocks are never cut in two by another thread's persist()."""
    shelf = reopen()
    shelf.x = np.zeros((3, 400_000))
    shelf.persist()
    done = threading.Event()
    seen: list[np.ndarray] = []

    def persist() -> None:
        while not done.is_set():
            shelf.persist()
            seen.append(np.unique(shelf.x.committed.numpy(copy=True)))

    thread = threading.Thread(target=persist)
    thread.start()
    for step in range(1, 8):
        shelf.x[:, ::2] = step  # read, changed, written back
        shelf.x[...] = np.full((400_000, 3), step).T  # converted block by block
    done.set()
    thread.join()
    assert seen
    assert all(len(values) <= 2 for values in seen)
    assert (shelf.x.numpy() == 7).all()


def test_no_update_of_one_tensor_is_lost(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros((1000, 4), np.int64)

    def work(column: int) -> None:
        for step in range(1, 30):
            shelf.x[:, column] = step
            shelf.x[[column], column] = -step

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    expected = np.full((1000, 4), 29)
    expected[range(4), range(4)] = -29
    np.testing.assert_array_equal(shelf.x, expected)


def test_readers_and_a_writer(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(100_000)
    shelf.persist()
    done = threading.Event()

    def read() -> int:
        count = 0
        while not done.is_set() or not count:
            values = shelf.x.committed.numpy(copy=True)
            assert values.min() == values.max()
            count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for step in range(30):
            shelf.x[...] = step
            shelf.persist()
        done.set()
        assert all(reader.result() for reader in readers)


def test_persist_inside_an_assignment_is_refused(shelf: ts.Shelf) -> None:
    """As a signal handler would do it: an error, not a deadlock and not half a value."""

    class Source:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.zeros(3)

    shelf.x = Source()
    with shelf["x"]._writing(), pytest.raises(ts.UnsupportedError, match="signal handler"):
        shelf.persist()
    shelf.persist()


def test_persist_waits_for_an_assignment(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(3)
    log: list[str] = []
    at_gate = threading.Event()

    def persist() -> None:
        at_gate.set()
        shelf.persist()
        log.append("persist")

    with shelf["x"]._writing():
        thread = threading.Thread(target=persist)
        thread.start()
        at_gate.wait()
        with pytest.raises(ts.UnsupportedError, match="inside an assignment"):
            shelf.x = np.ones(3)
        with pytest.raises(ts.UnsupportedError, match="inside an assignment"):
            shelf.x[::2] = 1
        log.append("still x")
    thread.join()
    shelf.x = np.ones(3)
    assert log == ["still x", "persist"]
    assert shelf.x.committed.numpy().tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")
@pytest.mark.parametrize(("in_flight", "wait"), [(1, False), (1, True), (2, True)])
def test_a_persist_that_waits_holds_up_no_assignment(
    tmpfs: pathlib.Path, in_flight: int, wait: bool
) -> None:
    """For room, or for the version before its own to land: they go into the next."""
    shelf = ts.open(tmpfs / "run.shelf", in_flight=in_flight)
    shelf.update(x=[1], y=[1])
    before = set(os.listdir("/proc/self/task"))
    shelf.persist(wait=False).wait()
    (committer,) = set(os.listdir("/proc/self/task")) - before
    second = threading.Thread(target=lambda: shelf.persist(wait=wait).wait())
    assigned: list[int] = []

    def assign() -> None:  # on and on, until the other one sleeps in its call
        asleep = 0
        while asleep < 200:
            shelf.y[0] = asleep
            asleep = asleep + 1 if state_of(second.native_id or 0) == "S" else 0
        assigned.append(asleep)

    with stopped(int(committer)):
        shelf.x[0] = 2
        first = shelf.persist(wait=False)
        second.start()
        other = threading.Thread(target=assign)
        other.start()
        other.join(30)
        waits = (first.done(), second.is_alive())
        in_time = list(assigned)
    second.join()
    other.join()
    assert (waits, in_time) == ((False, True), [200])
    assert shelf.version == 3
    shelf.persist()
    shelf.close()


def test_interrupts_leave_nothing_behind(shelf: ts.Shelf) -> None:
    """Ctrl-C at any moment: the next assignment and persist() go on, from any thread."""
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    delay = random.Random(seed)
    shelf.x = np.zeros((40, 50))
    count = 0

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, delay.uniform(1e-5, 1e-3), 1.0)
                while True:
                    shelf.x[...] = count
                    shelf.x[:, ::2] = count
                    shelf.persist()
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                count += 1
                shelf.x[...] = count  # within the handler, whose traceback holds the frames
                shelf.persist(count)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert count == 300
    with ThreadPoolExecutor(1) as pool:
        pool.submit(shelf.x.fill_, -1).result()
        assert pool.submit(shelf.persist, 301).result().step == 301
    assert (shelf.x.numpy() == -1).all()


def test_no_version_holds_a_tensor_without_its_value(shelf: ts.Shelf) -> None:
    """Creating and replacing are whole for a persist() in another thread."""
    done = threading.Event()

    seen: list[int] = []

    def persist() -> None:
        while not done.is_set():
            shelf.persist()
            with contextlib.suppress(ts.UnknownName, ts.LeasedError):
                assert shelf["x"].committed.numpy(copy=True).all()
                seen.append(shelf.version)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(persist)
        try:
            for round_ in itertools.count():
                if other.done() or (round_ >= 150 and seen):
                    break
                shelf["x"] = np.ones(5000 + round_)
                shelf.replace("x", np.full((2, 3000), 2.0)[:, ::2])
                shelf.replace("x", np.full(9, 3))
                del shelf["x"]
        finally:
            done.set()
        other.result()


@pytest.mark.parametrize("behind", ["assignment", "persist"])
def test_ctrl_c_while_persist_waits_behind_another_thread(shelf: ts.Shelf, behind: str) -> None:
    """It is heard within the wait, and leaves the gate as if persist() had not been called."""
    shelf.x, shelf.y = np.zeros(3), np.zeros(3)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with shelf["x"]._writing():
            inside.set()
            leave.wait()

    def wait_in_persist() -> None:
        inside.wait()
        shelf.persist(5)

    threads = [threading.Thread(target=hold)]
    if behind == "persist":  # which itself waits for the assignment
        threads.append(threading.Thread(target=wait_in_persist))
    for thread in threads:
        thread.start()
    inside.wait()

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            shelf.persist(6)
        if behind == "assignment":
            shelf.y = np.ones(3)  # the gate is open again
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        leave.set()
        for thread in threads:
            thread.join()
    assert shelf.step == (5 if behind == "persist" else None)
    assert shelf.persist(7).step == 7


def test_a_signal_handler_within_a_wait_may_look_and_not_persist(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """It would wait for itself; the assignment goes on, and close() tells that it was dropped."""
    shelf.x = np.zeros(3)
    shelf.persist()
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with shelf["x"]._writing():
            inside.set()
            leave.wait()

    refused: list[Exception] = []

    def persist_meanwhile(number: int, frame: object) -> None:
        assert shelf.x.numpy().tolist() == [0, 0, 0]
        try:
            shelf.persist()
        except ts.UnsupportedError as error:
            refused.append(error)
        leave.set()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    old = signal.signal(signal.SIGALRM, persist_meanwhile)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        shelf.x[...] = np.ones(3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        leave.set()
        thread.join()
    assert "a call that waits" in str(refused[0])
    assert shelf.x.numpy().tolist() == [1, 1, 1]
    shelf.close()
    assert "never persisted" in caplog.text


def test_what_was_refused_or_undone_is_not_told_at_close(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what closing drops: nothing that the store did not take."""
    shelf.x, shelf.y = np.zeros(3), np.zeros(3)
    shelf.persist()
    with shelf.x._writing():
        for value in (np.ones(3), [1, 2, 3]):
            with pytest.raises(ts.UnsupportedError):
                shelf.y = value
    with pytest.raises(ValueError, match="no"), shelf.y._writing():
        raise ValueError("no")
    shelf.close()
    assert "never persisted" not in caplog.text
