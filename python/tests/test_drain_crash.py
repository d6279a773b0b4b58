"""A job that drains dies at any change of the remote, by a kill or a power cut: what lies there is
a whole version, never older than what was told, and the next job goes on from there."""

import os
import pathlib
from functools import partial
from typing import Any

import pytest
from drain_remotes import (
    Crash,
    Remote,
    assign,
    check_whole,
    copied,
    entries,
    fresh_names,
    new_site,
    shortened,
    unnamed,
    use,
)

import tensorshelf as ts
from tensorshelf._drain.stage import Spool

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

OPTIONS: list[dict[str, Any]] = [
    {},
    {"keep": 2, "compress": "zlib"},
    {"keep_every": 2, "best": "min"},
]
STEPS = 5


def run(shelf: ts.Shelf, folder: object, told: list[int], options: dict[str, Any]) -> None:
    """A job, from the shelf's step on. ``told``: what it said is drained."""
    made = new_site(shelf, **options)
    for step in range((shelf.step or 0) + 1, STEPS + 1):
        assign(shelf, step)
        told.append(copied(made, shelf, folder, metric=abs(step - 2)).step or 0)
        made.collect()


@pytest.mark.parametrize("options", OPTIONS)
def test_at_each_change(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    changes, images = 1, 0
    crash_at = 0
    names = fresh_names(tmpfs)
    seen = set()
    while crash_at < changes:
        remote = Remote()
        remote.crash_at = crash_at
        use(monkeypatch, remote)
        told: list[int] = []
        with ts.open(tmpfs / "run.shelf", "w") as shelf:
            with pytest.raises(Crash):
                run(shelf, tmpfs, told, options)
            for objects in remote.images():
                key = (shelf.step, max(told, default=0), tuple(sorted(objects)))
                if key in seen:
                    continue
                seen.add(key)
                images += 1
                use(monkeypatch, Remote(objects))
                check(objects, next(names), max(told, default=0))
        changes = changes_of(tmpfs, monkeypatch, options) if changes == 1 else changes
        crash_at += 1
    print(f"{crash_at} crashes, {images} images")
    assert crash_at > 30


@pytest.mark.parametrize("options", OPTIONS)
def test_each_change_fails_once(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Of each there is another try, and the power goes behind it."""
    names = fresh_names(tmpfs)
    came_back = 0
    for fail_at in range(changes_of(tmpfs, monkeypatch, options)):
        remote = Remote()
        remote.fail_at = {fail_at}
        use(monkeypatch, remote)
        with ts.open(tmpfs / "run.shelf", "w") as shelf:
            made = patient_site(shelf, options)
            for step in range(1, STEPS + 1):
                assign(shelf, step)
                until_it_works(made, partial(copied, made, shelf, tmpfs, metric=abs(step - 2)))
                until_it_works(made, made.collect)
        came_back += bool(remote.ghosts)
        for objects in [] if not remote.ghosts else remote.images():
            use(monkeypatch, Remote(objects))
            check(objects, next(names), STEPS)
    assert came_back >= 2


def patient_site(shelf: ts.Shelf, options: dict[str, Any]) -> Any:
    """Of a remote that may fail at its first change."""
    try:
        return new_site(shelf, **options)
    except ts.IoError:
        return new_site(shelf, **options)


def until_it_works(made: Any, call: Any) -> None:
    """Twice, where it fails."""
    try:
        call()
    except ts.IoError:
        made.failed()
        call()


def changes_of(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> int:
    """Of a job that does not die."""
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(folder / "run.shelf", "w") as shelf:
        run(shelf, folder, [], options)
    assert unnamed(remote.now()) == set()
    return remote.changes


def check(objects: dict[str, bytes], path: str, told: int) -> None:
    """The newest can be fetched, and so can all that are listed."""
    found = ts.drained("nowhere")
    assert max((each.step or 0 for each in found), default=0) >= told
    if not found:
        assert told == 0
        return
    for each in {found[0].step, found[-1].step}:
        ts.fetch("nowhere", path, step=each)
        with ts.open(path, "r") as shelf:
            assert check_whole(shelf) == each
        os.unlink(path)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_next_job_goes_on(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """It leaves nothing behind, and sends nothing that lies there, twice."""
    changes = changes_of(tmpfs, monkeypatch, options)
    for crash_at in range(changes):
        first = Remote()
        first.crash_at = crash_at
        use(monkeypatch, first)
        with ts.open(tmpfs / "run.shelf", "w") as shelf:
            with pytest.raises(Crash):
                run(shelf, tmpfs, [], options)
            lay_there = first.now()
            second = Remote(lay_there)
            use(monkeypatch, second)
            assign(shelf, 6)
            made = new_site(shelf, **options)
            copied(made, shelf, tmpfs)
            made.collect()
            assert not set(second.puts) & set(lay_there)
            assert unnamed(second.now()) == set()
            assert entries(second.now())[-1].step == 6
            path = str(tmpfs / "back.shelf")
            check(second.now(), path, 6)


def test_what_the_next_job_tells_that_it_found_is_durable(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job before was killed, and the power goes behind it."""
    for crash_at in range(changes_of(tmpfs, monkeypatch, {})):
        remote = Remote()
        remote.crash_at = crash_at
        use(monkeypatch, remote)
        with ts.open(tmpfs / "run.shelf", "w") as shelf:
            with pytest.raises(Crash):
                run(shelf, tmpfs, [], {})
            remote.crash_at = None
            found = new_site(shelf).begin()
            if found is not None:
                for objects in remote.images():
                    assert entries(objects)[-1].step == found.step


@pytest.mark.parametrize("options", OPTIONS)
def test_the_next_job_uses_no_piece_that_was_cut(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Of the version that was on its way, which it drains."""
    changes, cut = changes_of(tmpfs, monkeypatch, options), 0
    for crash_at in range(changes):
        first = Remote()
        first.crash_at = crash_at
        use(monkeypatch, first)
        with ts.open(tmpfs / "run.shelf", "w") as shelf:
            with pytest.raises(Crash):
                run(shelf, tmpfs, [], options)
            cut += len(unnamed(first.now()))
            second = Remote(shortened(first.now()))
            use(monkeypatch, second)
            made = new_site(shelf, **options)
            copied(made, shelf, tmpfs)
            made.collect()
            check(second.now(), str(tmpfs / "back.shelf"), shelf.step or 0)
    assert cut > 30


def test_a_crash_while_the_next_job_collects(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in a row, the second one as it sweeps."""
    first = Remote()
    first.crash_at = changes_of(tmpfs, monkeypatch, {}) - 3  # it has deleted a manifest
    use(monkeypatch, first)
    with ts.open(tmpfs / "run.shelf", "w") as shelf:
        with pytest.raises(Crash):
            run(shelf, tmpfs, [], {})
        step, total = shelf.step or 0, None
        crash_at = 0
        while total is None or crash_at < total:
            second = Remote(first.now())
            second.crash_at = crash_at if total is not None else None
            use(monkeypatch, second)
            made = new_site(shelf)
            told = step - 1
            try:
                told = copied(made, shelf, tmpfs).step or 0
                made.collect()
            except Crash:
                pass
            if total is None:
                total = second.changes
                continue
            for objects in second.images():
                use(monkeypatch, Remote(objects))
                check(objects, str(tmpfs / "back.shelf"), told)
            crash_at += 1


class Pinned:
    """A core that notes how versions are pinned."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self.pins: list[dict[str, Any]] = []

    def pin(self, version: int, **given: Any) -> Any:
        self.pins.append(given)
        return self._core.pin(version, **given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)


def test_saves_wait_for_what_is_read_however_long_that_takes(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain's pin is that of a copy: no save fails by pin_timeout for it."""
    use(monkeypatch, Remote())
    with ts.open(tmpfs / "run.shelf") as shelf:
        assign(shelf, 1)
        core: Any = Pinned(shelf._core)
        spool = Spool(str(tmpfs))
        new_site(shelf).stage(core, shelf.version, spool)
        spool.close()
        assert core.pins == [{"copies": True}]
