"""autosave(drain=): versions that are copied to a remote while training goes on."""

import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from drain_remotes import Remote, entries, unnamed, use
from drain_run import SIZE, Run, fetched

import tensorshelf as ts
from tensorshelf._drain.manifest import CHUNKS

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def shelf(tmpfs: pathlib.Path) -> Iterator[ts.Shelf]:
    with ts.open(tmpfs / "run.shelf", in_flight=2) as shelf:
        yield shelf


def steps_at(remote: Any) -> list[int | None]:
    return [found.step for found in ts.drained(remote)]


# ---- what comes there


@pytest.mark.parametrize("compress", [None, "zlib"])
@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_a_version_comes_there_and_back(
    shelf: ts.Shelf, tmp_path: pathlib.Path, kind: str, compress: Any
) -> None:
    if kind == "memory":
        pytest.importorskip("fsspec")
    remote = tmp_path / "remote" if kind == "directory" else f"memory://{tmp_path}/run"
    run = Run(shelf, ts.Drain(remote, compress=compress))
    for number in (1, 2, 3):
        run.step(number)
    info = run.drain.info()
    assert (info.version, info.step, info.drained, info.skipped) == (3, 3, 3, 0)
    assert (info.lag_versions, info.lag_seconds, info.on_its_way) == (0, 0.0, None)
    assert (info.error, info.failures) == (None, 0)
    run.auto.close()
    assert steps_at(remote) == [3]
    made = ts.fetch(remote, tmp_path / "back.shelf", keep=1)
    assert (made.version, made.step) == (1, 3)
    with ts.open(tmp_path / "back.shelf", "r") as back:
        assert back.info().keep == 1
        assert list(back) == list(shelf)
        for name in back:
            assert back[name].dtype == shelf[name].dtype
            assert np.array_equal(back[name].numpy(), shelf[name].numpy())
        assert back.load().keys() == shelf.load().keys()


def test_a_job_goes_on_from_what_was_fetched(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote"
    run = Run(shelf, ts.Drain(remote))
    run.step(4)
    run.auto.close()
    ts.fetch(remote, tmp_path / "new.shelf", in_flight=2)
    with ts.open(tmp_path / "new.shelf") as other:
        values = np.zeros(SIZE, np.int64)
        auto = other.autosave(values=values, frozen=np.zeros(SIZE, int), drain=ts.Drain(remote))
        assert auto.resume() == 4
        assert (values == 4).all()
        values[:] = 5
        auto.step(5)
    assert steps_at(remote) == [4, 5]  # of the first shelf one stays: it may be another run
    assert fetched(remote, tmp_path / "back.shelf") == 5


def test_only_what_changed_is_sent(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "remote"))
    run.step(1)
    first = run.drain.info()
    run.values[:] = 1
    run.values[0] = 2  # in the first of four pieces
    run.auto.step(2)
    run.auto.wait()
    assert run.drain.wait()
    second = run.drain.info()
    sent = second.sent_bytes - first.sent_bytes
    assert 1 << 20 <= sent < (1 << 20) + 10_000  # that piece, and the record
    assert second.spared_bytes - first.spared_bytes > 5 << 20


def test_what_was_not_written_is_not_read(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "remote"))
    run.step(1)
    shelf["beside"] = np.arange(5)
    shelf.persist()
    before = run.drain.info().read_bytes
    assert run.drain.wait()
    assert run.drain.info().read_bytes - before < 10_000


def test_a_rollback_is_another_version(tmpfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Whose tensors were written by a version before the one that was drained last."""
    with ts.open(tmpfs / "run.shelf", keep=2) as shelf:
        run = Run(shelf, ts.Drain(tmp_path / "remote"))
        run.step(1)
        run.step(2)
        run.auto.rollback(1)
        assert run.drain.wait()
        assert run.drain.info().step == 1
        assert fetched(tmp_path / "remote", tmp_path / "back.shelf") == 1


def test_the_next_job_sends_nothing_anew(tmpfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        with ts.open(tmpfs / "run.shelf") as shelf:
            run = Run(shelf, ts.Drain(tmp_path / "remote"))
            if shelf.step is None:
                run.step(1)
            assert run.drain.wait()
            last = run.drain.info()
    assert (last.version, last.step, last.drained) == (1, 1, 0)
    assert (last.read_bytes, last.sent_bytes, last.lag_versions) == (0, 0, 0)


def test_compression_is_left_where_it_gains_nothing(
    shelf: ts.Shelf, tmp_path: pathlib.Path
) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "remote", compress="zlib"))
    run.values[:] = np.random.default_rng(0).integers(-(2**62), 2**62, SIZE)
    run.auto.step(1)
    run.auto.wait()
    assert run.drain.wait()
    run.auto.close()
    names = [path.name for path in (tmp_path / "remote" / CHUNKS).rglob("*") if path.is_file()]
    plain = [name for name in names if "." not in name]
    assert len(plain) == 4
    assert len(names) > 4
    assert all(name.endswith(".zlib") for name in set(names) - set(plain))


def test_a_directory_can_be_checked_by_hand(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    import hashlib

    Run(shelf, ts.Drain(tmp_path / "remote")).step(1)
    shelf.close()
    files = [path for path in (tmp_path / "remote" / CHUNKS).rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        assert path.parent.name == path.name[:2]


def test_small_tensors_share_objects(tmpfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with ts.open(tmpfs / "run.shelf") as shelf:
        weights = {f"w{number}": np.full(100, number) for number in range(300)}
        auto = shelf.autosave(state=weights, drain=ts.Drain(tmp_path / "remote"))
        auto.step(1)
    assert len([p for p in (tmp_path / "remote" / CHUNKS).rglob("*") if p.is_file()]) == 1
    ts.fetch(tmp_path / "remote", tmp_path / "back.shelf")
    with ts.open(tmp_path / "back.shelf", "r") as back:
        loaded = back.load("state")["state"]
        assert all(np.array_equal(loaded[name], weights[name]) for name in weights)


# ---- what stays


def test_every_so_many_steps(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote()
    use(monkeypatch, remote)
    run = Run(shelf, ts.Drain("nowhere", every=4, keep=9))

    def drained_by(number: int) -> None:
        standing = run.drain._standing
        with standing.changed:
            assert standing.changed.wait_for(lambda: standing.step == number, 60)

    for number in (1, 2, 3, 4):
        run.step(number, waits=False)
    drained_by(4)
    remote.stuck = threading.Event()
    for number in (5, 6, 7, 8):
        run.step(number, waits=False)
    assert remote.waiting.wait(60)  # with step 8, whatever it was waited for before
    for number in range(9, 21):
        run.step(number, waits=False)
        assert run.drain._copier._work._next() == (number if number % 4 == 0 else None)
    remote.stuck.set()
    drained_by(20)
    assert run.drain.info().skipped == 2  # 12 and 16
    run.step(21, waits=False)
    run.auto.close()  # the last, too
    assert [made.step for made in entries(remote.now())] == [4, 8, 20, 21]


def test_what_stays(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    drain = ts.Drain(tmp_path / "remote", keep=2, keep_every=4, best="min")
    run = Run(shelf, drain)
    for number in range(1, 11):
        run.step(number, metric=abs(number - 3))
    run.auto.close()
    found = ts.drained(tmp_path / "remote")
    assert [each.step for each in found] == [3, 4, 8, 9, 10]
    assert [each.step for each in found if each.milestone] == [4, 8]
    assert [each.metric for each in found] == [0, 1, 5, 6, 7]
    assert fetched(tmp_path / "remote", tmp_path / "back.shelf", step=3) == 3
    files = {
        str(path.relative_to(tmp_path / "remote")): path.read_bytes()
        for path in (tmp_path / "remote").rglob("*")
        if path.is_file()
    }
    assert unnamed(files) == set()


def test_a_milestone_that_is_retained_goes_before_the_newest(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "run.shelf", keep=5) as shelf:
        run = Run(shelf, ts.Drain("nowhere", keep_every=3, best="max"))
        remote.stuck = threading.Event()
        run.step(1, waits=False)
        assert remote.waiting.wait(60)
        for number in range(2, 6):
            run.step(number, waits=False, metric=1.0 if number == 4 else 0.0)
        remote.stuck.set()
        assert run.drain.wait()
    assert [made.step for made in entries(remote.now())] == [3, 4, 5]


def test_a_metric_that_is_no_number_is_never_the_best(
    shelf: ts.Shelf, tmp_path: pathlib.Path
) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "remote", best="min"))
    for number, metric in enumerate((2.0, float("nan"), np.float32(1.0), float("-inf"), 3.0), 1):
        run.step(number, metric=metric)
    run.auto.close()
    assert [(each.step, each.metric) for each in ts.drained(tmp_path / "remote")] == [
        (3, 1.0),
        (5, 3.0),
    ]
