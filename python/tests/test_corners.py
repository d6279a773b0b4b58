"""Corners in which planted mistakes survived all other tests."""

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf import _open, _scrub

MIB = 1 << 20


# ---- opening, and where tensors lie


def test_who_erases_behind_an_erasure_hears_that_persist_frees_its_room(tmp_path) -> None:
    with ts.open(tmp_path / "run.shelf", size="12MiB") as shelf:
        shelf.x = np.zeros(3 << 20, np.uint8)
        shelf.persist()
        shelf.y = np.zeros(4)
        del shelf["x"], shelf["y"]
        with pytest.raises(ts.ShelfFull) as full:
            shelf.z = np.zeros(4 << 20, np.uint8)
    assert full.value.remedy.startswith("persist() first: what was erased is free after it.")


def test_a_shelf_that_takes_the_place_of_an_empty_file_is_no_surprise(
    shelf_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tensorshelf")
    shelf_path.touch()
    ts.open(shelf_path, "w").close()
    assert "0 bytes" not in caplog.text
    assert "created" in caplog.text


def test_the_size_that_is_the_limit_is_a_large_one(shelf_path: Path, tmp_path: Path) -> None:
    place = _open.Placing(4096)
    with ts.open(shelf_path, also=tmp_path / "part") as shelf:
        place.media = shelf.info().media
        assert place("x", 4095) == [0]
        assert place("x", 4096) == place.numbers("stripe")


def test_no_stripe_lies_on_a_mirror(shelf_path: Path, tmp_path: Path) -> None:
    with ts.open(shelf_path, mirror=tmp_path / "mirror", place={"*": "stripe"}) as shelf:
        shelf.x = np.zeros(3 * MIB, np.uint8)
        shelf.persist()
        assert shelf.x.media == (0,)


def test_more_media_than_a_shelf_has(shelf_path: Path) -> None:
    with pytest.raises(ts.BadArgument, match="no number of a medium"):
        ts.open(shelf_path, without=8)


def test_a_place_at_home(shelf_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with ts.open(shelf_path, also="~/part", place={"*": "~/part"}) as shelf:
        shelf.x = np.zeros(5)
        shelf.persist()
        assert shelf.x.media == (1,)
    assert (tmp_path / "part").exists()


def test_each_mirror_mirrors_what_was_said(shelf_path: Path, tmp_path: Path) -> None:
    mirrors = {1: tmp_path / "of-1", 0: tmp_path / "of-0"}
    with ts.open(shelf_path, also=tmp_path / "part", mirror=mirrors) as shelf:
        assert [each.mirrors for each in shelf.info().media] == [None, None, 1, 0]


def test_what_is_as_long_as_a_medium_and_bears_a_stamp_alone_may_be_one(
    shelf_path: Path, tmp_path: Path
) -> None:
    torn = bytearray(0x20000)
    (tmp_path / "blank").write_bytes(torn)
    torn[0x1000:0x1008] = b"stamped!"  # a power loss left the stamp, and no header
    (tmp_path / "torn").write_bytes(torn)
    with ts.open(shelf_path, also=[tmp_path / "blank", tmp_path / "torn"]) as shelf:
        assert len(shelf.info().media) == 3


def test_a_mirror_that_is_something_else_by_now(shelf_path: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    with ts.open(shelf_path, mirror=mirror) as shelf:
        shelf.persist()
    mirror.unlink()
    mirror.mkdir()
    with ts.open(shelf_path, "r") as shelf:
        assert shelf.info().media[1].absent
        assert ", missing" in repr(shelf.info())


def test_tensors_of_a_chunk_go_round(shelf_path: Path, tmp_path: Path) -> None:
    with ts.open(shelf_path, also=tmp_path / "part", tier="block") as shelf:
        for number in range(8):
            shelf[f"x{number}"] = np.zeros(MIB, np.uint8)
        shelf.half = np.zeros(MIB + MIB // 2, np.uint8)
        shelf.persist()
        used = [each.capacity_bytes - each.free_bytes for each in shelf.info().media]
        assert used[1] > 4 * MIB


def test_a_transaction_that_ended_takes_no_step(shelf: ts.Shelf) -> None:
    with shelf.transaction() as transaction:
        shelf.x = np.zeros(5)
    with pytest.raises(ts.TransactionError):
        transaction.step = None


def test_an_older_version_has_no_private_tensors(reopen: OpenShelf) -> None:
    shelf = reopen(keep=2)
    shelf["_x"] = np.zeros(5)
    old = shelf.at(shelf.persist().version)
    with pytest.raises(AttributeError, match="object has no attribute"):
        old._x  # noqa: B018


# ---- scrubs

DAMAGE = {
    "tensor": "x",
    "version": 1,
    "slot": 0,
    "chunk": 0,
    "offset": 0,
    "nbytes": 1,
    "medium": 0,
    "intact_in": [],
    "healable": True,
    "healed": False,
    "in_mirror": False,
}
WHOLE = {"version": 3, "tensors": 0, "chunks": 0, "nbytes": 0, "damage": [], "healed_as": None}
DAMAGED = {**WHOLE, "damage": [DAMAGE]}
HEALED = {**WHOLE, "damage": [{**DAMAGE, "healed": True}], "healed_as": 4}


def begin(core: Any, **said: Any) -> ts.Scrub:
    given = {
        "bytes_per_second": 1 << 40,
        "repair": True,
        "on_damage": None,
        "passes": None,
        "pause": 0.0,
        **said,
    }
    return _scrub.Scrub(core, "some.shelf", _scrub.ScrubOptions(**given))


def test_a_report_is_true_where_nothing_is_damaged() -> None:
    whole = ts.VerifyReport(3, 0, 0, 0, ())
    said: dict[str, Any] = {"running": True, "passes": 1, "nbytes": 0, "last": whole, "error": None}
    assert _scrub.ScrubReport(**said, damage=())
    assert not _scrub.ScrubReport(**said, damage=(ts.Damage("x", 1, 0, 0, 0, 1),))


def test_it_is_stopped_by_whom_a_repair_waits_for() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Waits:
        def verify(self, *given: Any) -> Any:
            return DAMAGED

        def heal_found(self, found: Any) -> Any:
            begun.set()
            assert goes_on.wait(30)
            return HEALED

    scrub = begin(Waits(), passes=1)
    assert begun.wait(30)
    scrub.stop()
    goes_on.set()
    assert scrub.wait(30)
    assert scrub.report().error is None


@pytest.mark.parametrize(
    "error", [ts.AbandonedError, ts.LeasedError, ts.UncommittedError, ts.UnresolvedError]
)
def test_a_repair_is_tried_again(
    error: type[ts.ShelfError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_scrub, "_AGAIN", 0.001)

    class Refuses:
        times = 0

        def verify(self, *given: Any) -> Any:
            return DAMAGED

        def heal_found(self, found: Any) -> Any:
            self.times += 1
            if self.times < 3:
                raise error("not now", "Later.")
            return HEALED

    scrub = begin(Refuses(), passes=1)
    assert scrub.wait(30)
    assert scrub.report()


def test_nothing_is_repaired_behind_stop() -> None:
    ready = threading.Event()

    class Stopped:
        healed = False

        def verify(self, *given: Any) -> Any:
            assert ready.wait(30)
            scrub.stop()
            return DAMAGED

        def heal_found(self, found: Any) -> Any:
            self.healed = True
            return HEALED

    core = Stopped()
    scrub = begin(core, passes=1)
    ready.set()
    assert scrub.wait(30)
    assert not core.healed


def test_a_shelf_that_is_closed_ends_it_without_an_error() -> None:
    class Closed:
        def verify(self, *given: Any) -> Any:
            raise ts.ClosedError("closed", "Open it.")

    scrub = begin(Closed())
    assert scrub.wait(30)
    assert scrub.report().error is None
