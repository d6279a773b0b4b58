"""transaction(): several changes as one version, or none, whatever happens in between."""

import contextlib
import gc
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check, in_child

import tensorshelf as ts

OPTIONS = [
    {"keep": keep, "in_flight": in_flight, "placement": placement}
    for (keep, in_flight), placement in itertools.product(
        [(1, 1), (2, 1), (1, 2), (3, 3)], ["whole", "by_chunk"]
    )
]


@pytest.fixture(params=OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def options(request: pytest.FixtureRequest) -> "dict[str, Any]":
    return dict(request.param)


@pytest.fixture
def kept(reopen: OpenShelf) -> ts.Shelf:
    """A shelf at version 1, with x and y of ones."""
    shelf = reopen(keep=1)
    shelf.x, shelf.y = np.ones(3), np.ones(3)
    shelf.persist(1)
    return shelf


def state(shelf: ts.Shelf) -> "dict[str, list[float]]":
    return {name: tensor.numpy().tolist() for name, tensor in shelf.items()}


def test_all_or_nothing(reopen: OpenShelf, options: "dict[str, Any]") -> None:
    shelf = reopen(**options)
    with shelf.transaction(step=5) as t:
        shelf.x = np.ones(300_000)
        shelf.y = [1.0]
        assert t.commit is None
    assert t.commit is not None
    assert (t.commit.version, t.commit.step, shelf.version, shelf.step) == (1, 5, 1, 5)
    x, y = shelf.x, shelf.y
    with pytest.raises(ZeroDivisionError), shelf.transaction(step=6) as t:  # noqa: PT012
        x[...] = 2
        x[5] = 3
        del shelf.y
        shelf.z = [1.0]
        z = shelf.z
        raise ZeroDivisionError
    assert t.commit is None
    for _ in range(2):
        assert (shelf.version, shelf.step, list(shelf)) == (1, 5, ["x", "y"])
        assert (shelf.x.numpy() == 1).all()
        assert shelf.verify()
        shelf = reopen(**options)
    for handle in (x, y, z):  # of a closed shelf
        with pytest.raises(ts.ClosedError):
            handle.numpy()


def test_handles_after_one_that_was_discarded(kept: ts.Shelf) -> None:
    x, y = kept.x, kept.y
    with contextlib.suppress(ZeroDivisionError), kept.transaction():
        kept.x = [2, 2, 2]
        del kept.y
        kept.z = [1]
        z = kept.z
        raise ZeroDivisionError
    assert (x[0], y[0], x.dirty, y.dirty) == (1, 1, False, False)
    with pytest.raises(ts.UnknownName):
        z.item()
    with pytest.raises(ts.UnsupportedError):
        kept.y = x  # assigned since, and discarded
    kept.y = kept.x


def test_handles_of_what_is_older_than_what_was_discarded(kept: ts.Shelf) -> None:
    kept.x = [2, 2, 2]
    kept.persist()
    x = kept.x
    kept.y = [3, 3, 3]
    kept.discard()
    kept.y = x  # of which nothing was discarded
    assert kept.y[0] == 2


def test_a_handle_out_of_a_block_that_failed_is_no_value(kept: ts.Shelf) -> None:
    with pytest.raises(KeyError), kept.transaction():  # noqa: PT012
        kept.x = np.full(3, 9.0)
        handle = kept.x
        raise KeyError
    with pytest.raises(ts.ShelfError):
        kept.y = handle
    np.testing.assert_array_equal(kept.y, np.ones(3))


def test_handles_of_what_was_deleted_and_came_back(kept: ts.Shelf) -> None:
    x = kept.x
    kept.x = [2, 2, 2]
    kept.persist()
    del kept.x
    kept.discard()
    with pytest.raises(ts.UnsupportedError):
        kept.y = x  # assigned since
    assert x[0] == 2


def test_the_step(kept: ts.Shelf) -> None:
    with kept.transaction() as t:
        pass
    assert (t.step, kept.version, kept.step) == (None, 2, 1)
    with kept.transaction(3) as t:
        t.step = 7
        with pytest.raises(ts.BadArgument):
            t.step = -1
    assert (t.step, kept.step) == (7, 7)
    for bad in (-1, "1", True, 1.5):
        with pytest.raises(ts.BadArgument):
            kept.transaction(bad)  # type: ignore[arg-type]
    assert kept.version == 3


def test_what_is_refused_within(kept: ts.Shelf) -> None:
    with kept.transaction():
        kept.x[0] = 2
        for refused in (
            kept.persist,
            kept.x.persist,
            lambda: kept.persist(wait=False),
            kept.discard,
            lambda: kept.rollback(1),
            kept.transaction().__enter__,
        ):
            with pytest.raises(ts.TransactionError) as caught:
                refused()
            check(caught, ts.TransactionError, "in_transaction", RuntimeError)
    assert state(kept)["x"] == [2, 1, 1]
    assert kept.version == 2


def test_over_uncommitted_changes(kept: ts.Shelf) -> None:
    for change in (
        lambda: kept.x.__setitem__(0, 5),
        lambda: kept.create("z", 3),
        lambda: kept.__delitem__("y"),
    ):
        change()
        with pytest.raises(ts.UncommittedError) as caught, kept.transaction():
            raise AssertionError("it was begun")
        check(caught, ts.UncommittedError, "uncommitted_changes", RuntimeError)
        kept.discard()
    with kept.transaction():
        pass


def test_one_block_used_twice(kept: ts.Shelf) -> None:
    t = kept.transaction(2)
    with t:
        kept.x[0] = 2
    with t:
        kept.x[0] = 3
    assert (kept.version, t.commit and t.commit.version) == (3, 3)
    with contextlib.suppress(ZeroDivisionError), t:
        raise ZeroDivisionError
    assert (kept.version, t.commit) == (3, None)
    t.__exit__(None, None, None)  # not under way: nothing
    assert kept.version == 3


def test_edits(kept: ts.Shelf) -> None:
    with kept.transaction(), kept.x.edit() as x:
        x[0] = 5
    assert kept.x.committed[0] == 5
    block = kept.x.edit()
    with pytest.raises(ts.UnsupportedError, match="the end of a transaction"):  # noqa: PT012, SIM117
        with kept.transaction():
            kept.y[0] = 9
            block.__enter__()[0] = 6
    with pytest.raises(ts.UnsupportedError):  # it was overtaken
        block.__exit__(None, None, None)
    assert (kept.x[0], kept.y[0], kept.version) == (5, 1, 2)


def test_closed_within(reopen: OpenShelf) -> None:
    shelf = reopen()
    with pytest.raises(ts.ClosedError), shelf.transaction():  # noqa: PT012
        shelf.x = [1]
        shelf.close()
    shelf = reopen()
    with contextlib.suppress(ZeroDivisionError), shelf.transaction():
        shelf.x = [1]
        shelf.close()
        raise ZeroDivisionError
    assert list(reopen()) == []


def test_the_file_is_gone(kept: ts.Shelf) -> None:
    os.unlink(kept.info().path)
    with pytest.raises(ts.ShelfGone), kept.transaction():
        kept.x[0] = 2
    assert (kept.x[0], kept.version) == (1, 1)


def test_a_rollback_where_the_file_is_gone(kept: ts.Shelf) -> None:
    kept.x[0] = 2
    kept.persist()
    os.unlink(kept.info().path)
    with pytest.raises(ts.ShelfGone):
        kept.rollback(1)
    kept.discard()
    assert (kept.x[0], kept.version) == (2, 2)


def test_a_decision_where_the_file_is_gone(kept: ts.Shelf) -> None:
    kept.x[0] = 2
    kept.prepare()
    os.unlink(kept.info().path)
    with pytest.raises(ts.ShelfGone):
        kept.resolve("commit")
    assert kept.version == 1
    assert kept.prepared is not None
    kept.resolve("abandon")


def test_what_cannot_be_committed_is_discarded(kept: ts.Shelf) -> None:
    """A freeze that fails leaves everything assigned, and then the block drops it."""
    if not kept.info().promises.mapped:
        return
    kept.big = np.ones(400_000)
    kept.persist()
    path = kept.info().path
    # The version to be copied forward rots under our feet.
    with open(path, "r+b") as file:
        data = file.read()
        at = data.index(np.ones(1000).tobytes(), 1 << 16)
        file.seek(at + 200)
        file.write(b"\xff" * 64)
    with pytest.raises(ts.CorruptError), kept.transaction():  # noqa: PT012
        kept.big[-1] = 2
        kept.y[0] = 2
    assert (kept.y[0], kept.version) == (1, 2)
    with kept.transaction():
        kept.y[0] = 3
    assert kept.version == 3


def test_nothing_is_said_at_close(kept: ts.Shelf, caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.suppress(ZeroDivisionError), kept.transaction():
        kept.x[0] = 2
        raise ZeroDivisionError
    with kept.transaction():
        kept.x[0] = 3
    kept.close()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_nothing_is_leaked(reopen: OpenShelf) -> None:
    shelf = reopen()
    gc.disable()
    try:
        with shelf.transaction() as t:
            shelf.x = [1]
        gone = weakref.ref(shelf.x._shelf)
        assert gone() is shelf
        count = sys.getrefcount(shelf)
        del t
        assert sys.getrefcount(shelf) < count
    finally:
        gc.enable()


def test_one_that_is_begun_and_let_go_ends_with_the_shelf(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.transaction().__enter__()
    shelf.x = [1]
    with pytest.raises(ts.TransactionError):
        shelf.persist()
    shelf.close()
    assert list(reopen()) == []


def test_a_child_that_leaves_the_block(kept: ts.Shelf) -> None:
    def body() -> None:
        with pytest.raises(ts.ForkedError):
            block.__exit__(None, None, None)
        with pytest.raises(ts.ForkedError):
            kept.x[0] = 3

    with kept.transaction() as block:
        kept.x[0] = 2
        assert in_child(body) == 0
    assert (kept.version, kept.x.committed[0]) == (2, 2)


# ---- threads


def test_others_wait_for_its_end(kept: ts.Shelf) -> None:
    """Their assignments belong to it; what would end it waits, and holds nothing meanwhile."""
    done: list[str] = []
    started = threading.Barrier(4)

    def persist() -> None:
        started.wait()
        done.append(f"persist {kept.persist(9).version}")

    def discard() -> None:
        started.wait()
        kept.discard()
        done.append("discard")

    def transact() -> None:
        started.wait()
        with kept.transaction():
            done.append("transaction")

    threads = [threading.Thread(target=body) for body in (persist, discard, transact)]
    with kept.transaction(step=4) as t:
        for thread in threads:
            thread.start()
        started.wait()
        for round_ in range(200):
            kept.x[...] = np.full(3, round_, "float32")
            kept[f"z{round_ % 3}"] = [round_]
        other = threading.Thread(target=lambda: kept.y.fill_(8))
        other.start()
        other.join()
        assert done == []
    assert t.commit is not None
    assert t.commit.version == 2
    for thread in threads:
        thread.join()
    assert sorted(done)[0] == "discard"
    assert kept.at(kept.version).x[0] == 199
    assert (kept.y.committed[0], kept.version) == (8, 4)


def test_a_transaction_in_each_of_many_threads(reopen: OpenShelf) -> None:
    shelf = reopen(keep=2, in_flight=2)
    shelf.a, shelf.b = np.zeros(300_000), np.zeros(300_000)
    shelf.persist()
    errors: list[str] = []

    def work(me: int) -> None:
        for number in range(8):
            with contextlib.suppress(ZeroDivisionError), shelf.transaction():
                stamp = 100 * me + number
                shelf.a[...] = np.full(300_000, stamp, "float32")  # several writes
                shelf.b = np.full(300_000, float(stamp))
                if number % 3 == 2:
                    raise ZeroDivisionError
            with contextlib.suppress(ts.StaleError):
                old = shelf.at(shelf.version)
                a, b = old.a.numpy(), old.b.numpy()
                if not (a == b[0]).all() or not (b == b[0]).all() or b[0] % 100 % 3 == 2:
                    errors.append(f"version {old.version}: {a[0]} and {b[0]}")

    threads = [threading.Thread(target=work, args=(me,)) for me in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert shelf.version == 1 + 4 * 6


def test_left_by_another_thread(kept: ts.Shelf) -> None:
    t = kept.transaction()
    t.__enter__()
    kept.x[0] = 4
    thread = threading.Thread(target=t.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert (kept.version, kept.x.committed[0]) == (2, 4)
    kept.persist()


def test_an_assignment_that_is_under_way_is_whole_in_it(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    size = 5 << 20
    shelf.x = np.zeros(size, "float32")
    shelf.persist()
    stop = threading.Event()

    def assign() -> None:
        for number in itertools.count(1):
            if stop.is_set():
                return
            shelf.x[...] = np.full(size, number, "float64")  # converted, in blocks

    thread = threading.Thread(target=assign)
    thread.start()
    begun = 0
    try:
        for round_ in range(200):
            with contextlib.suppress(ts.UncommittedError, ZeroDivisionError), shelf.transaction():
                begun += 1
                time.sleep(0)
                if round_ % 2:
                    raise ZeroDivisionError
            seen = shelf.x.committed.numpy()
            assert (seen == seen[0]).all()
            shelf.discard()
            if begun >= 6:
                break
    finally:
        stop.set()
        thread.join()
    seen = shelf.x.numpy()
    assert (seen == seen[0]).all()


# ---- Ctrl-C

_INTERRUPTED = """
import os, random, signal, sys, threading, time
import numpy as np
import tensorshelf as ts

shelf = ts.open(sys.argv[1], tier=sys.argv[2], keep=1, in_flight=int(sys.argv[3]))
names = ["a", "b", "c"]
for name in names:
    shelf[name] = np.zeros(200_000)
shelf.persist(0)
random.seed(int(sys.argv[4]))
armed = threading.Event()

def strike():
    while True:
        armed.wait()
        armed.clear()
        time.sleep(random.random() * 0.004)  # the moment of the strike
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=strike, daemon=True).start()
discarded = committed = 0
for number in range(1, 60):
    before = shelf.version
    t = shelf.transaction(step=number)
    try:
        armed.set()
        with t:
            for name in names:
                shelf[name][...] = np.full(200_000, number, "float32")
        while True:
            time.sleep(0.01)  # until it strikes
    except KeyboardInterrupt:
        pass
    values = {float(x) for name in names for x in shelf[name].numpy()[::100_000]}
    durable = {float(x) for name in names for x in shelf[name].committed.numpy()[::100_000]}
    assert values == durable and len(values) == 1, (number, values, durable)
    if t.commit is not None:
        committed += 1
        assert (values, shelf.version, shelf.step) == ({float(number)}, before + 1, number)
    else:
        discarded += 1
        assert shelf.version == before, (shelf.version, before)
    assert not any(shelf[name].dirty for name in names)
    with shelf.transaction():  # it has ended, whatever struck
        pass
print(committed, discarded)
"""


@pytest.mark.parametrize("in_flight", [1, 2])
def test_ctrl_c_at_any_moment(place: Place, in_flight: int) -> None:
    seed = int.from_bytes(os.urandom(2))
    command = [sys.executable, "-W", "ignore", "-c", _INTERRUPTED, str(place[0]), place[1]]
    result = subprocess.run(
        [*command, str(in_flight), str(seed)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, f"seed {seed}: {result.stderr}"
    committed, discarded = map(int, result.stdout.split())
    assert committed + discarded == 59


def test_a_state_that_cannot_be_committed_is_not_assigned(kept: ts.Shelf) -> None:
    pytest.importorskip("msgpack")
    kept.save({"v": 1})
    with kept.transaction(2):
        kept.x[0] = 5
        with pytest.raises(ts.TransactionError, match=r"save\(\) would commit"):
            kept.save({"v": 2})
    assert kept.load() == {"v": 1}
    assert kept.x[0] == 5
    kept.save({"v": 3})
    assert kept.load() == {"v": 3}


@pytest.mark.parametrize("raised", [False, True])
def test_a_step_that_comes_too_late_is_refused(kept: ts.Shelf, raised: bool) -> None:
    t = kept.transaction(2)
    t.step = 3
    with contextlib.suppress(ZeroDivisionError), t:
        t.step = 4
        if raised:
            raise ZeroDivisionError
    with pytest.raises(ts.TransactionError, match="step=5 comes too late"):
        t.step = 5
    assert (t.step, t.commit is None) == (4, raised)


def test_ctrl_c_while_it_commits(kept: ts.Shelf) -> None:
    """Within the native call the signal waits for its end: the version is whole, then it raises."""
    inside, interrupt = threading.Event(), threading.Event()

    def hold() -> None:  # an assignment, for which the end of the transaction waits
        with kept.y._writing():
            inside.set()
            interrupt.wait()
            signal.raise_signal(signal.SIGINT)  # for the main thread, which is in the call
            time.sleep(0.2)  # so that it comes within the call, which waits for this

    thread = threading.Thread(target=hold)
    t = kept.transaction(2)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with t:
            kept.x[0] = 2
            thread.start()
            inside.wait()
            interrupt.set()
        time.sleep(10)  # until it comes, where it comes behind the call
    thread.join()
    assert (t.commit is None) == (kept.version == 1)
    assert kept.x[0] == kept.x.committed[0] == (1 if t.commit is None else 2)
    assert not kept.x.dirty
