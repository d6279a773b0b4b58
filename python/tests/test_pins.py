"""Versions that readers hold: pin() beside a writer, in this process and in others."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check
from test_older_copies import lose

import tensorshelf as ts


def commit(shelf: ts.Shelf, *steps: int) -> None:
    for step in steps:
        shelf["w"] = np.full((300, 400), step, np.float32)
        shelf.persist(step=step)


def read(place: Place) -> ts.Shelf:
    return ts.open(place[0], mode="r", tier=place[1])


def test_a_pinned_version_stays_and_the_writer_goes_on(reopen: OpenShelf, place: Place) -> None:
    writer = reopen(mode="w", in_flight=2)
    writer.save({"epoch": 3, "weights": [np.full(1000, 3)]}, step=3)
    with read(place) as reader, reader.pin() as held:
        assert (held.version, held.step) == (1, 3)
        assert isinstance(held, ts.PinnedVersion)
        assert repr(held).startswith("<PinnedVersion 1 (step 3) of ")
        for step in range(4, 20):
            writer.save({"epoch": step, "weights": [np.full(1000, step)]}, step=step)
        state = held.load()
        assert state["epoch"] == 3
        assert (state["weights"][0] == 3).all()
        assert [version.version for version in writer.versions] == [17]  # it is the reader's
        assert reader.refresh()
        assert [version.version for version in reader.versions] == [1, 17]
        assert (held["weights.0"].numpy() == 3).all()


def test_the_error_names_the_reader_and_nothing_is_lost(reopen: OpenShelf, place: Place) -> None:
    writer = reopen(mode="w", pin_timeout=0.02)
    commit(writer, 1)
    with read(place) as reader:
        held = reader.pin(1)
        commit(writer, 2)
        with pytest.raises(ts.PinnedError) as caught:
            commit(writer, 3)
        check(caught, ts.PinnedError, "version_pinned", TimeoutError)
        assert f"version 1 of {place[0]} is held by a reader, pid {os.getpid()}, for " in str(
            caught.value
        )
        assert 'on_pin="outrun"' in caught.value.remedy
        assert (writer.w.numpy() == 2).all()
        held.release()
        held.release()
        commit(writer, 3, 4)
    assert (writer.w.numpy() == 4).all()


@pytest.mark.parametrize("how", ["close", "drop", "with"])
def test_what_lets_a_version_go(reopen: OpenShelf, place: Place, how: str) -> None:
    writer = reopen(mode="w", pin_timeout=0.02)
    commit(writer, 1)
    reader = read(place)
    held: Any = reader.pin()
    commit(writer, 2)
    if how == "close":
        reader.close()
        with pytest.raises(ts.ClosedError):
            held.load()
    elif how == "drop":
        del held
        gc.collect()
    else:
        with held:
            pass
    commit(writer, 3, 4)
    reader.close()


def test_a_writer_holds_a_version_for_itself_and_closing_waits_for_nobody(
    reopen: OpenShelf,
) -> None:
    writer = reopen(mode="w", in_flight=2)
    commit(writer, 1)
    held = writer.pin()
    commit(writer, *range(2, 9))
    assert (held.w.numpy() == 1).all()
    writer.close()
    held.release()


def test_a_reader_is_lent_the_slot_of_what_it_holds(reopen: OpenShelf, place: Place) -> None:
    writer = reopen(mode="w", in_flight=2, placement="whole", pin_timeout=0.02)
    commit(writer, 1)
    with read(place) as reader:
        with pytest.raises(ts.UnsupportedError, match="cannot be lent"):
            reader.at(1).w.numpy(copy=False)
        with reader.pin() as held:
            if not reader.info().promises.mapped:
                with pytest.raises(ts.UnsupportedError, match="not mapped"):
                    held.w.numpy(copy=False)
                return
            lent = held.w.numpy(copy=False)
        commit(writer, *range(2, 9))
        assert (lent == 1).all()
        with pytest.raises(ValueError, match="read-only"):
            lent[0] = 2
        writer.close()
        with pytest.raises(ts.PinnedError, match="shown in place there"):
            reopen(on_pin="outrun", pin_timeout=0.02)
        assert (lent == 1).all()
        del lent
        commit(reopen(on_pin="outrun"), 9)


def test_outrun(reopen: OpenShelf, place: Place) -> None:
    writer = reopen(mode="w", on_pin="outrun")
    commit(writer, 1)
    with read(place) as reader, reader.pin() as held:
        commit(writer, *range(2, 9))
        with pytest.raises(ts.StaleError):
            held.w.numpy()


def test_a_version_is_pinned_twice_and_the_newest_by_default(
    reopen: OpenShelf, place: Place
) -> None:
    writer = reopen(mode="w", keep=1, in_flight=2)
    commit(writer, 1)
    with read(place) as reader:
        held = reader.pin(1)
        commit(writer, 2, 3, 4)
        again = reader.pin(1)
        held.release()
        commit(writer, 5)
        assert (again.w.numpy() == 1).all()
        assert reader.pin().version == 5
        reader.snapshot(place[0].with_suffix(".copy"), version=1)
    with ts.open(place[0].with_suffix(".copy"), "r") as copy:
        assert (copy.w.numpy() == 1).all()


def test_a_writer_waits_so_long_for_its_own_pin(reopen: OpenShelf) -> None:
    writer = reopen(mode="w", pin_timeout=0.02)
    commit(writer, 1)
    held = writer.pin()
    commit(writer, 2)
    with pytest.raises(
        ts.PinnedError, match=r"version 1 .* held by a pin\(\) of this very process"
    ):
        commit(writer, 3)
    assert (held.w.numpy() == 1).all()
    held.release()
    commit(writer, 3)
    assert (writer.w.numpy() == 3).all()


def test_a_writer_waits_so_long_for_a_pin_of_another_thread(reopen: OpenShelf) -> None:
    """That thread may wait for the writer itself."""
    writer = reopen(mode="w", pin_timeout=0.02)
    commit(writer, 1)
    held: Any = None

    def hold() -> None:
        nonlocal held
        held = writer.pin()

    other = threading.Thread(target=hold)
    other.start()
    other.join()
    commit(writer, 2)
    with pytest.raises(
        ts.PinnedError, match=r"version 1 .* held by a pin\(\) of this very process"
    ):
        commit(writer, 3)
    held.release()
    commit(writer, 3, 4)
    assert (writer.w.numpy() == 4).all()


def test_a_writer_waits_for_a_drain_that_copies_however_long_it_takes(reopen: OpenShelf) -> None:
    writer = reopen(mode="w", pin_timeout=0.01)
    commit(writer, 1)
    held = [writer._core.pin(copies=True)]
    commit(writer, 2)
    threading.Timer(0.1, held.clear).start()
    commit(writer, 3, 4)
    assert (writer.w.numpy() == 4).all()


def test_a_snapshot_of_a_reader_is_of_the_newest(reopen: OpenShelf, place: Place) -> None:
    writer = reopen(mode="w", in_flight=2)
    commit(writer, 1)
    with read(place) as reader:
        commit(writer, *range(2, 9))
        assert reader.snapshot(place[0].with_suffix(".copy")).step == 8
    with ts.open(place[0].with_suffix(".copy"), "r") as copy:
        assert (copy.w.numpy() == 8).all()


def test_what_is_shown_of_a_version_keeps_the_shelf_open(reopen: OpenShelf, place: Place) -> None:
    commit(reopen(mode="w"), 1)
    assert (read(place).at(1)["w"].numpy() == 1).all()
    tensor = read(place).at(1).w
    gc.collect()
    assert (tensor.numpy() == 1).all()


_HOLDS = """
import sys
import tensorshelf as ts

reader = ts.open(sys.argv[1], mode="r", tier=sys.argv[2])
held = reader.pin()
print(held.version, flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_lets_go(reopen: OpenShelf, place: Place) -> None:
    writer = reopen(mode="w", pin_timeout=None)
    commit(writer, 1)
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, os.fspath(place[0]), place[1]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"1\n"
    commit(writer, 2)
    timer = threading.Timer(0.1, other.send_signal, [signal.SIGKILL])
    timer.start()
    commit(writer, 3, 4)
    other.communicate()
    assert other.returncode == -signal.SIGKILL


def test_ctrl_c_is_heard_in_a_wait_for_a_reader(tmp_path: pathlib.Path) -> None:
    program = (
        "import os, signal, sys, threading, numpy as np, tensorshelf as ts\n"
        "writer = ts.open(sys.argv[1], pin_timeout=None)\n"
        "writer.w = np.ones(1000); writer.persist()\n"
        "reader = ts.open(sys.argv[1], mode='r'); held = reader.pin()\n"
        "writer.w = np.ones(1000); writer.persist()\n"
        "threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
        "try:\n    writer.w = np.zeros(1000)\n"
        "except KeyboardInterrupt:\n    print('heard', writer.w.numpy().min())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, os.fspath(tmp_path / "p.shelf")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "heard 1.0\n", done.stderr


@pytest.mark.parametrize(
    "wrong", [{"on_pin": "run"}, {"pin_timeout": -1}, {"pin_timeout": float("nan")},
              {"pin_timeout": "1"}],
)  # fmt: skip
def test_options_that_are_none(place: Place, wrong: dict[str, Any]) -> None:
    with pytest.raises(ts.BadArgument, match=next(iter(wrong))):
        ts.open(place[0], **wrong)
    assert not os.path.exists(place[0])


def test_of_several_that_wait_the_oldest_is_named(reopen: OpenShelf, place: Place) -> None:
    writer = reopen(mode="w", keep=1, pin_timeout=0.02)
    commit(writer, 1, 2)
    with read(place) as reader:
        held = [reader.pin(1), reader.pin(2)]
        with pytest.raises(ts.PinnedError, match="version 1 of"):
            commit(writer, 3, 4, 5)
        for each in held:
            each.release()
    writer.discard()
    commit(writer, 6)
    own = [writer.pin(each.version) for each in reversed(writer.versions)]
    oldest = min(each.version for each in own)
    with pytest.raises(ts.PinnedError, match=rf"version {oldest} of .*this very process"):
        commit(writer, 7, 8, 9)


def test_a_version_that_was_given_up_is_waited_for(reopen: OpenShelf, place: Place) -> None:
    """A reader holds it, and the writer that opens after damage would write over it."""
    writer = reopen(mode="w", keep=1)
    commit(writer, 1, 2, 3)
    writer.close()
    with read(place) as reader:
        held = reader.pin(3)
        whole = place[0].read_bytes()
        lose(place[0], 3, 3)
        with pytest.raises(ts.PinnedError, match="version 3 of") as caught:
            reopen(pin_timeout=0.02)
        assert caught.value.code == "version_pinned"
        place[0].write_bytes(whole)
        assert (held.w.numpy() == 3).all()
        held.release()
    commit(reopen(), 4)


def test_who_held_one_before_counts_no_more(reopen: OpenShelf) -> None:
    """It is the copy that is waited for, however long."""
    writer = reopen(mode="w", pin_timeout=0.02)
    commit(writer, 1)
    writer.pin(1).release()
    copies = [writer._core.pin(1, copies=True)]
    timer = threading.Timer(0.3, copies.clear)
    timer.start()
    commit(writer, 2, 3)
    assert (writer.w.numpy() == 3).all()
