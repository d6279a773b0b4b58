"""compact(): shelves that are made as small as what is in them, while they are used."""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check

import tensorshelf as ts

MIB = 1 << 20
COUNT = 10
ROWS = 150_000  # of int64: two chunks, the second one of another size
PAGES = -(-ROWS * 8 // 4096) * 4096
FAILS = [-1, float("nan"), "long", True, -float("inf")]
Array = np.ndarray[Any, Any]


def value(i: int, step: int = 0) -> Array:
    """No two rows, tensors or steps are alike."""
    return np.arange(ROWS) * 100_000 + step * 100 + i


def fill(shelf: ts.Shelf, step: int = 1) -> None:
    for i in range(COUNT):
        shelf[f"t{i}"] = value(i, step)
    shelf.persist(step=step)


def thin(shelf: ts.Shelf) -> None:
    """Deletes every second one: holes between those that stay."""
    for i in range(0, COUNT, 2):
        del shelf[f"t{i}"]
    shelf.persist()


def is_right(shelf: Any, step: int = 1) -> bool:
    left = range(1, COUNT, 2)
    return all(np.array_equal(shelf[f"t{i}"].numpy(), value(i, step)) for i in left)


def size_of(place: Place) -> int:
    return place[0].stat().st_size


def content(slots: int, tensors: int = COUNT // 2) -> int:
    """What so many of these tensors take, with what is beside them in any shelf."""
    return int(1.05 * tensors * slots * PAGES) + 2 * MIB


@pytest.fixture
def thinned(reopen: OpenShelf) -> ts.Shelf:
    """A shelf at step 1 of which half was deleted, on each medium in turn."""
    shelf = reopen()
    fill(shelf)
    thin(shelf)
    return shelf


@pytest.fixture
def beside() -> Iterator[Callable[..., "Future[Any]"]]:
    """Starts a call in another thread."""
    with ThreadPoolExecutor(2) as pool:
        yield pool.submit


# ---- by itself


@pytest.mark.parametrize("options", [{}, {"keep": 2, "in_flight": 2}, {"placement": "by_chunk"}])
def test_a_file_gets_as_small_as_what_is_in_it(
    reopen: OpenShelf, place: Place, options: dict[str, Any]
) -> None:
    shelf = reopen(**options)
    fill(shelf)
    thin(shelf)
    info, before = shelf.info(), size_of(place)
    report = shelf.compact()
    slots = 1 + info.keep + info.in_flight
    assert size_of(place) < 0.8 * before
    assert size_of(place) <= content(slots)
    assert report.bytes_before == info.capacity_bytes
    assert report.bytes_after == shelf.info().capacity_bytes <= size_of(place)
    assert report.bytes_moved > 0
    assert report.damaged == []
    assert (report.version, report.version > info.version) == (shelf.version, True)
    assert shelf.step == 1
    assert is_right(shelf)
    assert shelf.verify().ok
    again = shelf.compact()
    assert (again.bytes_moved, again.bytes_copied) == (0, 0)
    assert again.bytes_after == report.bytes_after
    shelf = reopen()
    assert is_right(shelf)
    fill(shelf, step=2)  # and it grows again
    assert is_right(reopen(), step=2)


def test_handles_and_values_stay(thinned: ts.Shelf, reopen: OpenShelf) -> None:
    handles = {i: thinned[f"t{i}"] for i in range(1, COUNT, 2)}
    values = {i: handle.numpy() for i, handle in handles.items()}
    assert thinned.compact().bytes_moved > 0
    for i, handle in handles.items():
        assert np.array_equal(values[i], value(i, 1))
        assert np.array_equal(handle.numpy(), value(i, 1))
        handle[:] = value(i, 2)
        handle[7] = -i
        assert handle[7] == -i
        assert np.array_equal(values[i], value(i, 1))
    thinned.persist(step=2)
    shelf = reopen()
    for i in handles:
        expected = value(i, 2)
        expected[7] = -i
        assert np.array_equal(shelf[f"t{i}"].numpy(), expected)


def test_a_view_stays_right_and_its_slot_where_it_is(reopen: OpenShelf, place: Place) -> None:
    shelf = reopen(placement="whole")
    fill(shelf)
    thin(shelf)
    last = shelf[f"t{COUNT - 1}"]
    if not shelf.info().promises.mapped:
        with pytest.raises(ts.UnsupportedError):
            last.numpy(copy=False)
        return
    lent = last.numpy(copy=False)
    shelf.compact()
    held = size_of(place)
    assert np.array_equal(lent, value(COUNT - 1, 1))
    last[:] = value(0, 7)
    shelf.persist(step=2)
    assert np.array_equal(lent, value(COUNT - 1, 1))
    del lent
    shelf.compact()
    assert size_of(place) < held
    assert size_of(place) <= content(2)
    assert np.array_equal(last.numpy(), value(0, 7))


def test_what_was_moved_is_no_difference(reopen: OpenShelf) -> None:
    shelf = reopen(in_flight=2)  # one slot to spare for what is held
    fill(shelf)
    thin(shelf)
    with shelf.pin() as held:
        report = shelf.compact()
        assert min(report.bytes_moved, report.bytes_copied) > 0
        assert report.version > held.version
        assert not shelf.diff(held.version)
        shelf["t3"][0] = 5
        shelf.persist()
        assert shelf.diff(held.version).changed == {"t3": [0]}
        assert is_right(held)


def test_what_is_damaged_stays_and_is_named(
    thinned: ts.Shelf, reopen: OpenShelf, place: Place
) -> None:
    thinned.close()
    begin = value(COUNT - 1, 1)[:512].tobytes()
    data = place[0].read_bytes()
    assert data.count(begin) == 1
    with place[0].open("r+b") as file:
        file.seek(data.find(begin) + 100)
        file.write(b"rot")
    shelf = reopen()
    report = shelf.compact()
    assert report.damaged == [f"t{COUNT - 1}"]
    assert [found.tensor for found in shelf.verify().damage] == report.damaged
    for i in range(1, COUNT - 1, 2):
        assert np.array_equal(shelf[f"t{i}"].numpy(), value(i, 1))
    before = size_of(place)
    shelf[f"t{COUNT - 1}"] = value(COUNT - 1, 1)  # which heals it
    shelf.persist()
    assert shelf.compact().damaged == []
    assert size_of(place) <= min(before, content(2))
    assert is_right(shelf)


def test_each_of_several_media_gets_smaller(tmp_path: pathlib.Path) -> None:
    path, part = tmp_path / "run.shelf", tmp_path / "run.part"
    with ts.open(path, also=part, tier="block") as shelf:
        fill(shelf)
        thin(shelf)
        before = path.stat().st_size, part.stat().st_size
        shelf.compact()
        after = path.stat().st_size, part.stat().st_size
        assert after[0] < before[0]
        assert after[1] < before[1]
        assert sum(after) <= 1.05 * (COUNT // 2) * 2 * (2 * MIB) + 2 * MIB  # a chunk on each
    with ts.open(path, tier="block") as shelf:
        assert len(shelf.info().media) == 2
        assert is_right(shelf)
        assert shelf.verify().ok


# ---- where something is not committed


def test_what_is_uncommitted_is_waited_for_and_not_lost(
    thinned: ts.Shelf, reopen: OpenShelf, place: Place
) -> None:
    thinned["t1"][:] = value(1, 2)
    thinned["new"] = np.arange(5)
    before, version = size_of(place), thinned.version
    with pytest.raises(ts.UncommittedError) as caught:
        thinned.compact(patience=0)
    check(caught, ts.UncommittedError, "uncommitted_changes", RuntimeError)
    assert "persist() or discard()" in caught.value.remedy
    assert thinned.version == version
    assert np.array_equal(thinned["t1"].numpy(), value(1, 2))
    thinned.discard()
    assert "new" not in thinned
    assert is_right(thinned)
    thinned["t1"][:] = value(1, 2)
    with pytest.raises(ts.UncommittedError):
        thinned.compact(patience=np.float32(0.01))
    thinned.persist(step=2)
    thinned.compact()
    assert size_of(place) < before
    assert np.array_equal(reopen()["t1"].numpy(), value(1, 2))


def test_who_commits_ends_the_wait(
    thinned: ts.Shelf, beside: Callable[..., "Future[Any]"], place: Place
) -> None:
    before = size_of(place)
    thinned["t1"][:] = value(1, 2)
    compacting = beside(thinned.compact, patience=None)
    step = 2
    while not compacting.done():  # it would wait for ever, were this thread held up
        thinned.persist(step=step)
        step += 1
        thinned["t1"][:] = value(1, step)
    assert compacting.result().bytes_moved > 0
    assert size_of(place) < before
    assert np.array_equal(thinned["t1"].numpy(), value(1, step))
    thinned.discard()
    assert np.array_equal(thinned["t1"].numpy(), value(1, step - 1 if step > 2 else 1))


def test_ctrl_c_ends_the_wait(thinned: ts.Shelf, reopen: OpenShelf) -> None:
    thinned["t1"][:] = value(1, 2)
    timer = threading.Timer(0.05, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        thinned.compact(patience=None)
    timer.join()
    thinned.discard()
    assert thinned.compact(patience=0).bytes_moved > 0
    assert is_right(reopen())


@pytest.mark.parametrize("patience", FAILS)
def test_what_is_no_time(thinned: ts.Shelf, patience: Any) -> None:
    with pytest.raises(ts.BadArgument, match=r"patience=.* is no number of seconds"):
        thinned.compact(patience=patience)


def test_where_it_is_refused(thinned: ts.Shelf, place: Place) -> None:
    version = thinned.version
    with thinned["t1"].edit(), pytest.raises(ts.UnsupportedError, match=r"compact\(\) within"):
        thinned.compact()
    with thinned.transaction() as t, pytest.raises(ts.TransactionError, match=r"compact\(\)"):
        thinned.compact()
    assert t.commit is not None
    thinned.prepare(step=5)
    with pytest.raises(ts.UnresolvedError):
        thinned.compact(patience=0)
    thinned.resolve("abandon")
    assert thinned.version == version + 1  # of the transaction
    with ts.open(place[0], "r", tier=place[1]) as reader, pytest.raises(ts.ReadOnlyError):
        reader.compact()
    thinned.close()
    with pytest.raises(ts.ClosedError):
        thinned.compact()


def test_a_report_says_what_it_did() -> None:
    report = ts.CompactReport(7, 3 * MIB, MIB, 2 * MIB, 512, [], True)
    assert repr(report) == (
        "<CompactReport version 7, 1.0 MiB of 3.0 MiB, 2.0 MiB moved, 512 B copied>"
    )
    report = ts.CompactReport(7, MIB, MIB, 0, 0, ["a", "b.c"], False)
    assert repr(report) == (
        "<CompactReport version 7, 1.0 MiB of 1.0 MiB, 0 B moved, 0 B copied, damaged: 'a', 'b.c', "
        "not all files cut: a version or a mirror was in the way>"
    )


# ---- beside others


def train(shelf: ts.Shelf, rest: Callable[[], bool]) -> int:
    """Assigns two tensors, persists and rests, until that says so; gives the last step."""
    step, more = 1, True
    while more:
        step += 1
        shelf["t1"][:] = value(1, step)
        shelf["t7"][:] = value(7, step)
        shelf.persist(step=step)
        assert np.array_equal(shelf["t7"].numpy(), value(7, step))
        more = rest()
    return step


def is_trained(shelf: ts.Shelf, step: int) -> bool:
    steps = {i: step if i in (1, 7) else 1 for i in range(1, COUNT, 2)}
    right = [np.array_equal(shelf[f"t{i}"].numpy(), value(i, step)) for i, step in steps.items()]
    return all(right) and shelf.verify().ok


def test_beside_a_thread_that_persists_all_the_time(
    thinned: ts.Shelf, reopen: OpenShelf, place: Place, beside: Callable[..., "Future[Any]"]
) -> None:
    before, ended = size_of(place), threading.Event()
    training = beside(train, thinned, lambda: not ended.is_set())
    report = thinned.compact()  # it comes to its end, whatever it gets hold of
    ended.set()
    step = training.result()
    assert size_of(place) <= before
    assert report.bytes_moved > 0
    assert is_trained(thinned, step)
    thinned.compact()
    assert size_of(place) <= content(2)
    assert is_trained(thinned, step)
    assert is_trained(reopen(), step)


def test_in_turns_with_a_thread_that_persists(
    thinned: ts.Shelf, reopen: OpenShelf, place: Place, beside: Callable[..., "Future[Any]"]
) -> None:
    compacting = beside(thinned.compact)
    versions: list[int] = []

    def rest() -> bool:
        versions.append(thinned.version)
        while thinned.version == versions[-1] and not compacting.done():
            pass
        return not compacting.done()

    step = train(thinned, rest)
    assert compacting.result().bytes_copied > 0
    assert size_of(place) <= content(2)
    assert is_trained(thinned, step)
    assert is_trained(reopen(), step)


def test_each_version_that_is_kept_stays_right_meanwhile(
    reopen: OpenShelf, beside: Callable[..., "Future[Any]"]
) -> None:
    shelf = reopen(keep=3, in_flight=2)
    fill(shelf)
    thin(shelf)
    held = shelf.pin()
    compacting = beside(shelf.compact)
    step, read = 1, 0
    while not compacting.done() or read == 0:
        step += 1
        shelf["t1"][:] = value(1, step)
        shelf["t3"][:5000] = value(3, step)[:5000]
        shelf.persist(step=step)
        for version in shelf.versions:
            if version.version < held.version:
                continue
            try:
                old = shelf.at(version.version)
                t1, t3 = old["t1"].numpy(), old["t3"].numpy()
                t9 = old["t9"].numpy()
            except ts.StaleError:
                continue
            assert version.step is not None
            assert np.array_equal(t1, value(1, version.step))
            assert np.array_equal(t3[:5000], value(3, version.step)[:5000])
            assert np.array_equal(t3[5000:], value(3, 1)[5000:])
            assert np.array_equal(t9, value(9, 1))
            read += 1
    assert compacting.result().bytes_moved > 0
    assert is_right(held)
    held.release()
    assert [version.step for version in shelf.versions][-1] == step


READER = f"""
import json, sys
import numpy as np
import tensorshelf as ts

rows = np.arange({ROWS}) * 100_000
counts = dict(right=0, stale=0, wrong=0)
with ts.open(sys.argv[1], "r", tier=sys.argv[2]) as reader:
    handle = reader["t9"]
    while reader.step < 1_000_000:
        reader.refresh()
        old = reader.at(reader.version)
        try:
            right = all(
                np.array_equal(old[f"t{{i}}"].numpy(), rows + step * 100 + i)
                for i, step in ((1, reader.step), (5, 1), (9, 1))
            )
            right = right and np.array_equal(handle.numpy(), rows + 109)
        except ts.StaleError:
            counts["stale"] += 1
        else:
            counts["right" if right else "wrong"] += 1
            if counts["right"] == 1:
                print("ready", flush=True)
print(json.dumps(counts))
"""


def test_a_process_that_follows_sees_what_there_is(thinned: ts.Shelf, place: Place) -> None:
    command = [sys.executable, "-W", "ignore", "-c", READER, str(place[0]), place[1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        step = 1
        for _ in range(3):
            step += 1
            thinned["t1"][:] = value(1, step)
            thinned.persist(step=step)
            assert thinned.compact().damaged == []
            for name in ("a", "b"):
                thinned[name] = np.zeros(ROWS)
            thinned.persist()
            for name in ("a", "b"):
                del thinned[name]
            thinned.persist()
        thinned["t1"][:] = value(1, 1_000_000)
        thinned.persist(step=1_000_000)
        out, _ = reader.communicate(timeout=120)
    assert reader.returncode == 0
    counts = json.loads(out)
    assert counts["wrong"] == 0
    assert counts["right"] > 0


class Counter:
    """What a run changes: a number and an array."""

    def __init__(self) -> None:
        self.n = 0
        self.a = np.zeros(ROWS)

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n, "a": self.a}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n, self.a = state["n"], state["a"]


def test_beside_a_run_that_saves_itself(
    reopen: OpenShelf, place: Place, beside: Callable[..., "Future[Any]"]
) -> None:
    pytest.importorskip("msgpack")
    shelf = reopen(in_flight=2)
    fill(shelf)
    counter = Counter()
    with shelf.autosave(counter=counter) as auto:
        assert auto.resume() == 0
        auto.step(1)
        auto.wait()
        thin(shelf)
        before = size_of(place)
        compacting = beside(shelf.compact)
        step = 1
        while not compacting.done() or step < 5:
            step += 1
            counter.n = step
            counter.a += step
            auto.step(step)
        assert compacting.result().bytes_moved > 0
    assert size_of(place) < before
    shelf = reopen()
    assert is_right(shelf)
    resumed = Counter()
    with shelf.autosave(counter=resumed) as auto:
        assert auto.resume() == step
    assert resumed.n == step
    assert np.array_equal(resumed.a, counter.a)


def test_two_at_once(thinned: ts.Shelf, place: Place, beside: Callable[..., "Future[Any]"]) -> None:
    both = [beside(thinned.compact), beside(thinned.compact)]
    moved = [each.result().bytes_moved for each in both]
    assert min(moved) == 0 < max(moved)  # the second one finds nothing to do
    assert size_of(place) <= content(2)
    assert is_right(thinned)


def test_closing_meanwhile_loses_nothing(
    thinned: ts.Shelf, reopen: OpenShelf, beside: Callable[..., "Future[Any]"]
) -> None:
    begun = thinned.version
    compacting = beside(thinned.compact)
    while thinned.version == begun and not compacting.done():
        pass
    thinned.close()
    with contextlib.suppress(ts.ClosedError):
        compacting.result()
    shelf = reopen()
    assert is_right(shelf)
    assert shelf.verify().ok
    shelf.compact()
    assert is_right(reopen())
