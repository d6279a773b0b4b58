"""shelf.scrub(): what it finds and restores, how fast, and how it ends."""

import gc
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check, in_child
from test_exit import run
from test_heal import rotten, value

import tensorshelf as ts
from tensorshelf import _scrub

FAST = "1TiB"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is tried again at once."""
    monkeypatch.setattr(_scrub, "_AGAIN", 0.001)
    monkeypatch.setattr(_scrub, "_TRIES", 100_000)


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set when a scrub is to sleep for long, or has been refused a repair."""
    event, sleep = threading.Event(), _scrub.Scrub._sleep

    def tell(scrub: ts.Scrub, seconds: float) -> None:
        if seconds > 10 or scrub.report().error is not None:
            event.set()
        sleep(scrub, seconds)

    monkeypatch.setattr(_scrub.Scrub, "_sleep", tell)
    return event


@pytest.fixture
def sound(shelf: ts.Shelf) -> ts.Shelf:
    """A shelf with some chunks."""
    shelf.x = value(70)
    shelf.other = np.arange(10)
    shelf.persist(1)
    return shelf


def test_a_sound_shelf(sound: ts.Shelf) -> None:
    scrub = sound.scrub(FAST, passes=2, pause=0)
    assert scrub.wait()
    found = scrub.report()
    assert found
    assert (found.running, found.passes, found.damage, found.error) == (False, 2, (), None)
    assert found.nbytes == 2 * (3 * (1 << 20) + 80)
    assert found.last == sound.verify()
    assert repr(scrub) == "<Scrub ended, 2 passes, 6.0 MiB, 0 damaged chunks>"
    assert sound.scrub(FAST, passes=0).wait()


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_damage_is_told_as_it_is_found(
    place: Place, reopen: OpenShelf, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    rotten(place, reopen, "by_chunk")
    shelf = reopen(mode=mode)
    told: list[ts.Damage] = []
    scrub = shelf.scrub(FAST, on_damage=told.append, passes=2, pause=0)
    assert scrub.wait()
    found = scrub.report()
    assert not found
    assert found.error is None
    assert found.damage == shelf.verify().damage == tuple(told[:1])
    assert len(told) == 2
    assert "chunk 1 of 'x' is damaged" in caplog.text
    assert "1 damaged chunks" in repr(scrub)


def test_what_is_healable_is_restored(place: Place, reopen: OpenShelf) -> None:
    rotten(place, reopen, "whole")
    shelf = reopen()
    version = shelf.version
    scrub = shelf.scrub(FAST, repair=True, passes=1)
    assert scrub.wait()
    found = scrub.report()
    assert found
    assert found.last is not None
    assert (found.last.healed_as, len(found.last.damage)) == (version + 1, 1)
    assert (shelf.version, found.damage) == (version + 1, ())
    assert shelf.verify()
    assert (shelf.x.numpy() == value(70)).all()


def test_a_repair_waits_for_what_is_not_persisted(
    place: Place, reopen: OpenShelf, asleep: threading.Event
) -> None:
    rotten(place, reopen, "by_chunk")
    shelf = reopen()
    version = shelf.version
    shelf.other = np.arange(1, 11)
    scrub = shelf.scrub(FAST, repair=True, passes=1)
    assert asleep.wait(60)
    assert isinstance(scrub.report().error, ts.UncommittedError)
    assert shelf.version == version
    shelf.persist(9)
    assert scrub.wait()
    found = scrub.report()
    assert found
    assert (shelf.version, shelf.step) == (version + 2, 9)
    assert (shelf.other.numpy() == np.arange(1, 11)).all()


def test_the_pace_is_bounded_and_never_made_up_for() -> None:
    now, waited = 0.0, []

    def wait(seconds: float) -> None:
        nonlocal now
        waited.append(seconds)
        now += max(seconds, 0.0)

    pace = _scrub.Pace(100, wait, lambda: now)
    for nbytes in (100, 50):
        pace.read(nbytes)
    now += 0.25  # of the second that the next are worth
    pace.read(100)
    now += 10
    for nbytes in (100, 100):
        pace.read(nbytes)
    assert waited == [1.0, 0.5, 0.75, 0.0, 1.0]


def test_others_go_on_while_it_pauses(sound: ts.Shelf, asleep: threading.Event) -> None:
    with sound as shelf:
        scrub = shelf.scrub(1)  # a chunk takes days
        assert asleep.wait(60)
        assert scrub.report().nbytes > 0
        shelf.x = value(80)
        shelf.create("y", 5)
        del shelf["other"]
        shelf.persist(2)
        with shelf.transaction():
            shelf.y = np.ones(5, np.float32)
        assert (shelf.x.numpy() == value(80)).all()
        with pytest.raises(ts.UnsupportedError) as caught:
            shelf.scrub(1)
        check(caught, ts.UnsupportedError, "unsupported", ts.ShelfError)
        assert scrub.running
        assert not scrub.wait(0)
        found = scrub.stop()
        assert (found.running, found.passes, bool(found)) == (False, 0, False)
        assert scrub.stop() == found
        again = shelf.scrub(1)
        assert again.running
    assert not again.running


def ends(scrub: ts.Scrub) -> bool:
    return scrub.wait(60)


def close(shelf: ts.Shelf) -> None:
    shelf.close()


def close_in_transaction(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.ClosedError), shelf.transaction():
        shelf.close()


@pytest.mark.parametrize("how", [close, close_in_transaction])
@pytest.mark.parametrize("repair", [False, True])
def test_it_ends_with_the_shelf(
    place: Place, reopen: OpenShelf, how: Callable[[ts.Shelf], None], repair: bool
) -> None:
    rotten(place, reopen, "by_chunk")
    shelf = reopen()
    scrub = shelf.scrub(FAST, repair=repair, pause=0)
    how(shelf)
    assert ends(scrub)
    assert scrub.report().error is None or isinstance(scrub.report().error, ts.UncommittedError)


def test_a_shelf_that_is_let_go_ends_it(sound: ts.Shelf, place: Place) -> None:
    sound.close()
    shelf = ts.open(place[0], tier=place[1])
    gone = weakref.ref(shelf)
    scrub = shelf.scrub(1)
    del shelf
    gc.collect()
    assert gone() is None
    assert ends(scrub)
    ts.open(place[0], tier=place[1]).close()


def test_closing_from_what_it_calls(place: Place, reopen: OpenShelf) -> None:
    rotten(place, reopen, "by_chunk")
    shelf = reopen()
    scrub = shelf.scrub(FAST, on_damage=lambda damage: shelf.close())
    assert ends(scrub)
    assert shelf.closed
    assert scrub.report().error is None


def test_what_it_calls_may_end_it(
    place: Place, reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    rotten(place, reopen, "by_chunk")
    shelf = reopen()

    def refuse(damage: ts.Damage) -> None:
        raise KeyError(damage.tensor)

    scrub = shelf.scrub(FAST, on_damage=refuse)
    assert ends(scrub)
    assert isinstance(scrub.report().error, KeyError)
    assert scrub.report().error.__traceback__ is None
    assert "what it called raised" in caplog.text
    assert not scrub.report()


def test_a_failure_of_the_shelf_ends_it(sound: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ts.IoError("the drive is gone", "Plug it in.")

    class Broken:
        def verify(self, *given: Any) -> None:
            raise lost

    options = _scrub.ScrubOptions(1 << 40, False, None, None, 0.0)
    scrub = _scrub.Scrub(Broken(), "some.shelf", options)  # type: ignore[arg-type]
    assert ends(scrub)
    assert scrub.report().error is lost


def test_a_reader_that_is_overtaken_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tensorshelf")
    whole = {"version": 3, "tensors": 0, "chunks": 0, "nbytes": 0, "damage": [], "healed_as": None}

    class Overtaken:
        times = 0

        def verify(self, *given: Any) -> dict[str, Any]:
            self.times += 1
            if self.times < 3:
                raise ts.StaleError("overwritten", "Refresh.")
            return whole

    options = _scrub.ScrubOptions(1 << 40, False, None, 1, 0.0)
    scrub = _scrub.Scrub(Overtaken(), "some.shelf", options)  # type: ignore[arg-type]
    assert ends(scrub)
    found = scrub.report()
    assert (found.passes, bool(found), found.error) == (1, True, None)
    assert caplog.text.count("begins anew") == 2


def test_a_forked_child_has_none(sound: ts.Shelf) -> None:
    scrub = sound.scrub(1)

    def look() -> None:
        assert not scrub.running
        assert not scrub.report().running
        assert scrub.wait()
        scrub.stop()

    assert in_child(look) == 0
    assert scrub.running
    scrub.stop()


def test_what_cannot_be_meant(sound: ts.Shelf, reopen: OpenShelf) -> None:
    for given in ({"bytes_per_second": 0}, {"passes": -1}, {"pause": -1}, {"pause": "x"}):
        with pytest.raises(ts.BadArgument):
            sound.scrub(**given)
    reader = reopen(mode="r")
    with pytest.raises(ts.ReadOnlyError) as caught:
        reader.scrub(repair=True)
    check(caught, ts.ReadOnlyError, "read_only", ts.ShelfError, PermissionError)
    reader.close()
    with pytest.raises(ts.ClosedError):
        reader.scrub()


def test_one_that_runs_at_the_end_of_the_interpreter(place: Place) -> None:
    code = f"""
import numpy as np
import tensorshelf as ts

shelf = ts.open({str(place[0])!r}, tier={place[1]!r})
shelf.x = np.ones(300_000)
shelf.persist()
scrub = shelf.scrub("1TiB", pause=0)
while scrub.report().passes == 0:
    pass
"""
    for _ in range(3):
        result = run(code)
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
