"""A remote that is slow, stuck or broken: training goes on, and what becomes of a drain."""

import logging
import pathlib
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from drain_remotes import Remote, assign, copied, entries, new_site, unnamed, use
from drain_run import Run, fetched
from support import in_child

import tensorshelf as ts
from tensorshelf._drain import copier, drainer, standing, upload
from tensorshelf._drain.manifest import CHUNKS

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def shelf(tmpfs: pathlib.Path) -> Iterator[ts.Shelf]:
    with ts.open(tmpfs / "run.shelf", in_flight=2) as shelf:
        yield shelf


def steps_at(remote: Any) -> list[int | None]:
    return [found.step for found in ts.drained(remote)]


def stuck_remote(monkeypatch: pytest.MonkeyPatch) -> Remote:
    """Whose puts wait for ``stuck`` to be set."""
    remote = Remote()
    remote.stuck = threading.Event()
    use(monkeypatch, remote)
    return remote


def test_a_stuck_remote_holds_nothing_up(
    shelf: ts.Shelf,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    remote = stuck_remote(monkeypatch)
    run = Run(shelf, ts.Drain("nowhere", timeout=0.0))
    run.step(1, waits=False)
    assert remote.waiting.wait(60)
    for number in range(2, 12):  # more than the shelf has slots
        run.step(number, waits=False)
    info = run.drain.info()
    assert (info.version, info.on_its_way, info.lag_versions, info.skipped) == (None, 1, 11, 0)
    assert info.lag_seconds is None
    with caplog.at_level(logging.WARNING):
        shelf.close()  # returns, and lets the file go
    assert repr(run.drain) == "<Drainer to nowhere, version None (closed)>"
    run.drain.close()  # twice is allowed
    assert "version 11 is not at nowhere, which has none" in caplog.text
    assert run.drain.info().skipped == 11
    ts.open(shelf._path).close()
    remote.stuck.set()
    run.drain._thread.join(60)
    assert not entries(remote.now())  # nobody commits behind close()


def test_a_stuck_remote_is_told_by_a_step(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remote = stuck_remote(monkeypatch)
    run = Run(shelf, ts.Drain("nowhere", timeout=0.0))
    run.step(1, waits=False)
    assert remote.waiting.wait(60)
    run.step(2, waits=False)
    assert "nothing of version" not in caplog.text
    monkeypatch.setattr(drainer, "_STUCK_SECONDS", -1)
    run.step(3, waits=False)
    run.step(4, waits=False)
    assert caplog.text.count("nothing of version 1 has come to nowhere") == 1
    shelf.close()
    remote.stuck.set()


def test_a_remote_that_is_slow_is_waited_for(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as bytes go on: by this clock they have a moment ago, whenever it looks."""
    remote = stuck_remote(monkeypatch)
    run = Run(shelf, ts.Drain("nowhere", timeout=0.0))
    ahead = SimpleNamespace(monotonic=lambda: time.monotonic() + 60.0)
    monkeypatch.setattr(standing, "time", ahead)
    run.step(1, waits=False)
    assert remote.waiting.wait(60)
    run.drain._standing.moved()
    later = threading.Timer(0.2, remote.stuck.set)  # it waits by then
    later.start()
    assert run.drain.wait(0.0)
    later.join()


def test_it_goes_on_with_the_newest_and_counts_the_others(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = stuck_remote(monkeypatch)
    run = Run(shelf, ts.Drain("nowhere"))
    run.step(1, waits=False)
    assert remote.waiting.wait(60)
    for number in range(2, 7):
        run.step(number, waits=False)
    remote.stuck.set()
    assert run.drain.wait()
    info = run.drain.info()
    assert (info.version, info.drained, info.skipped) == (6, 2, 4)
    run.auto.close()  # what need not stay is deleted by then
    assert [made.step for made in entries(remote.now())] == [6]


def test_no_version_is_pinned_while_a_remote_is_waited_for(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = stuck_remote(monkeypatch)
    run = Run(shelf, ts.Drain("nowhere", timeout=0.0))
    run.step(1, waits=False)
    assert remote.waiting.wait(60)
    run.step(2, waits=False)
    run.step(3, waits=False)
    assert [found.version for found in shelf.versions] == [3]
    shelf.close()
    remote.stuck.set()


def test_what_fails_is_tried_again(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(copier, "_FIRST_PAUSE", 0.01)
    remote = Remote()
    remote.fail_at = {0, 3, 5}
    use(monkeypatch, remote)
    run = Run(shelf, ts.Drain("nowhere", threads=1))
    with caplog.at_level(logging.WARNING):
        run.step(1)
    info = run.drain.info()
    assert (info.version, info.failures, info.error) == (1, 3, None)
    assert caplog.text.count("the remote failed") == 1
    assert len(set(remote.puts)) == len(remote.puts)  # what came there is not sent twice
    assert unnamed(remote.now()) == set()


class Emptied(Remote):
    """It fails once, and has nothing of what lay there when it is back."""

    goes = False

    def _change(self) -> None:
        super()._change()
        if self.goes:
            self.goes = False
            self.durable.clear()
            self.unsettled.clear()
            raise ts.errors.IoError("the remote failed", "Try again.")


def test_what_a_failure_took_is_sent_again(
    shelf: ts.Shelf, tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Emptied()
    use(monkeypatch, remote)
    run = Run(shelf, ts.Drain("nowhere"))
    run.step(1)
    remote.goes = True
    run.step(2)
    assert run.drain.info().failures == 1
    assert fetched("nowhere", tmpfs / "back.shelf") == 2


def test_a_failure_is_told_again_behind_a_success(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(copier, "_FIRST_PAUSE", 0.01)
    remote = Remote()
    use(monkeypatch, remote)
    failures: list[ts.ShelfError] = []
    change = remote._change

    def changes() -> None:
        if failures:
            raise failures.pop()
        change()

    monkeypatch.setattr(remote, "_change", changes)
    run = Run(shelf, ts.Drain("nowhere", threads=1))
    with caplog.at_level(logging.WARNING):
        for number in (1, 2, 3):
            if number != 2:  # behind which all that became of step 1 has come to its end
                failures.append(ts.errors.IoError("the remote failed", "Try again."))
            run.step(number)
    assert run.drain.info().failures == 2
    assert caplog.text.count("the remote failed") == 2


def test_each_outage_begins_with_the_first_pause(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(copier.Copier, "_sleep", lambda self, seconds: pauses.append(seconds))
    down = ts.errors.IoError("the remote failed", "Try again.")
    turns = iter([down, down, down, None, down, True, down, down, standing.GivenUp()])

    def turn() -> bool | None:
        made = next(turns)
        if isinstance(made, Exception):
            raise made
        return made

    work = SimpleNamespace(begin=lambda: None, turn=turn, failed=lambda: None, end=lambda: None)
    noted = standing.Standing(shelf._core, "nowhere", None)
    copier.Copier(ts.Drain("nowhere"), noted, work).run()
    first = copier._FIRST_PAUSE
    grows = [first, 2 * first, 4 * first, copier._LOOK_SECONDS, 8 * first]  # none was sent between
    assert pauses == [*grows, first, 2 * first]


def test_a_failure_of_the_last_attempt_is_told(
    shelf: ts.Shelf, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "lacks" / "remote", timeout=0.0))
    run.step(1, waits=False)
    with caplog.at_level(logging.WARNING):
        assert not run.drain.wait(2.0)
        shelf.close()
    error = run.drain.info().error
    assert error is not None
    assert "Is it mounted?" in error
    assert "version 1 is not at" in caplog.text
    assert error in caplog.text
    assert not (tmp_path / "lacks").exists()


def test_a_folder_that_somebody_removes_is_made_again(
    shelf: ts.Shelf, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setattr(copier, "_FIRST_PAUSE", 0.01)
    run = Run(shelf, ts.Drain(tmp_path / "remote"))
    run.step(1)
    shutil.rmtree(tmp_path / "remote")
    monkeypatch.setattr(upload, "_RELIST_SECONDS", -1.0)
    run.step(2)
    assert fetched(tmp_path / "remote", tmp_path / "back.shelf") == 2


def test_pieces_that_somebody_removes_are_sent_again(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """As a bucket does that cleans up what is old."""
    remote = Remote()
    use(monkeypatch, remote)
    monkeypatch.setattr(upload, "_RELIST_SECONDS", -1.0)
    run = Run(shelf, ts.Drain("nowhere"))
    run.step(1)
    for path in [path for path in remote.now() if path.startswith(CHUNKS)]:
        del remote.durable[path]
    run.step(2)
    assert fetched("nowhere", tmp_path / "back.shelf") == 2


def test_a_later_job_takes_the_place(tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "a.shelf") as one, ts.open(tmpfs / "b.shelf") as two:
        first = Run(one, ts.Drain("nowhere"))
        first.step(1)
        second = Run(two, ts.Drain("nowhere"))
        second.step(2)
        first.step(3, waits=False)
        assert not first.drain.wait()
        assert "another job drains to nowhere" in (first.drain.info().error or "")
        second.step(4)
    assert [made.step for made in entries(remote.now())] == [1, 4]


def test_of_two_that_began_at_one_moment_one_goes_on(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Remote())
    with ts.open(tmpfs / "a.shelf") as one, ts.open(tmpfs / "b.shelf") as two:
        assign(one, 1)
        assign(two, 2)
        first, second = new_site(one), new_site(two)
        assert first._place._writer._generation == second._place._writer._generation
        first._place._writer._token, second._place._writer._token = "0" * 16, "f" * 16
        copied(first, one, tmpfs)
        copied(second, two, tmpfs)
        with pytest.raises(ts.ShelfBusy, match="another job drains"):
            copied(first, one, tmpfs)
        copied(second, two, tmpfs)


def test_it_is_held_back(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    pace = upload.Pace(1000.0)
    monkeypatch.setattr(upload.time, "monotonic", lambda: 50.0)
    pace = upload.Pace(1000.0)
    assert [pace.take(500), pace.take(2000), pace.take(1)] == [0.0, 0.5, 2.5]


def test_close_does_not_wait_for_what_is_held_back_and_given_up(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote()
    use(monkeypatch, remote)
    run = Run(shelf, ts.Drain("nowhere", bytes_per_second=1, threads=1))
    run.step(1, waits=False)
    run.drain._standing.given_up = True  # as close() does
    run.drain._thread.join(60)
    assert not run.drain._thread.is_alive()
    assert not entries(remote.now())


def test_who_was_given_up_commits_nothing(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stuck behind its last piece: another may drain there by now, and go by what lies there."""
    remote = Remote()
    use(monkeypatch, remote)
    reached, goes_on = threading.Event(), threading.Event()
    settle = remote.settle

    def stuck() -> None:
        if remote.unsettled:  # behind its pieces, and not as it looks what lies there
            reached.set()
            goes_on.wait()
        settle()

    monkeypatch.setattr(remote, "settle", stuck)
    run = Run(shelf, ts.Drain("nowhere", timeout=0.0))
    run.step(1, waits=False)
    assert reached.wait(60)
    run.drain.close()
    goes_on.set()
    run.drain._thread.join(60)
    assert not entries(remote.now())


def test_a_spool_that_fails_is_told(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    spool = tmp_path / "lacks"
    run = Run(shelf, ts.Drain(tmp_path / "remote", spool=spool, timeout=0.0))
    run.step(1, waits=False)
    assert not run.drain.wait(1.0)
    error = run.drain.info().error
    assert error is not None
    assert f"the spool in {spool} failed" in error
    spool.mkdir()
    assert run.drain.wait(60)
    assert list(spool.iterdir()) == []


def test_a_child_leaves_it_to_its_parent(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "remote"))
    run.step(1)

    def body() -> None:
        assert not run.drain.wait()
        run.drain.close()

    assert in_child(body) == 0
    run.step(2)


def test_another_autosave_ends_it(shelf: ts.Shelf, tmp_path: pathlib.Path) -> None:
    first = Run(shelf, ts.Drain(tmp_path / "remote"))
    first.step(1)
    second = Run(shelf, ts.Drain(tmp_path / "remote"))
    assert first.drain._standing.ended
    second.step(2)
    assert second.drain.info().version == 2


def test_what_becomes_durable_behind_the_last_look_is_drained_by_close(
    shelf: ts.Shelf, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(shelf, ts.Drain(tmp_path / "remote"))
    run.step(1)
    look, standing = run.drain._copier._work._next, run.drain._standing
    looked = threading.Event()

    def late() -> int | None:
        found = look()
        if not looked.is_set():
            looked.set()
            with standing.changed:
                assert standing.changed.wait_for(lambda: standing.closing, 60)
        return found

    monkeypatch.setattr(run.drain._copier._work, "_next", late)
    assert looked.wait(60)
    run.step(2, waits=False)
    run.auto.close()
    assert steps_at(tmp_path / "remote")[-1] == 2


def test_leaving_the_shelf_drains_the_last(tmpfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with ts.open(tmpfs / "run.shelf") as shelf:
        run = Run(shelf, ts.Drain(tmp_path / "remote"))
        for number in range(1, 4):
            run.step(number, waits=False)
    assert steps_at(tmp_path / "remote")[-1] == 3
    run.drain._thread.join(60)
    run.drain.close()


def test_a_remote_that_hangs_when_it_is_first_asked_is_told(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remote, asked, hangs = Remote(), threading.Event(), threading.Event()
    use(monkeypatch, remote)

    def sizes(folder: str) -> dict[str, int]:
        asked.set()
        hangs.wait()
        return {}

    monkeypatch.setattr(remote, "sizes", sizes)
    run = Run(shelf, ts.Drain("nowhere", timeout=0.0))
    assert asked.wait(60)
    run.step(1, waits=False)
    run.step(2, waits=False)
    assert "nothing of version" not in caplog.text
    monkeypatch.setattr(drainer, "_STUCK_SECONDS", -1)
    run.step(3, waits=False)
    run.step(4, waits=False)
    assert caplog.text.count("has come to nowhere") == 1
    shelf.close()
    hangs.set()


def test_a_drain_that_cannot_begin_ends_when_it_is_given_up(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, asked = Remote(), threading.Event()
    use(monkeypatch, remote)

    def sizes(folder: str) -> dict[str, int]:
        asked.set()
        raise ts.errors.IoError("nobody may list it", "See who may.")

    monkeypatch.setattr(remote, "sizes", sizes)
    run = Run(shelf, ts.Drain("nowhere", timeout=0.0))
    run.step(1, waits=False)
    assert asked.wait(60)
    run.drain.close()
    run.drain._thread.join(60)
    assert not run.drain._thread.is_alive()


def test_a_remote_that_fails_is_not_stuck(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as one that fails, and tried again after a while."""
    remote, naps = Remote(), []
    remote.fail_at = set(range(4))
    use(monkeypatch, remote)
    sleep = copier.Copier._sleep

    def noted(self: copier.Copier, seconds: float) -> None:
        naps.append(self._standing.busy_since)
        sleep(self, 0.0)

    monkeypatch.setattr(copier.Copier, "_sleep", noted)
    run = Run(shelf, ts.Drain("nowhere"))
    run.step(1)
    assert run.drain.info().failures > 0
    assert set(naps) == {None}
