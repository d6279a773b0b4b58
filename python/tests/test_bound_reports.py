"""What the native half tells, number by number: of commits, tensors, damage and recovery."""

import dataclasses
import os
import pathlib
import time
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place
from test_salvage import ROOTS, both, spoil

import tensorshelf as ts

MIB = 1 << 20
STEP = 2**63 - 4  # no float, and not 32 bits, holds one near it
PATTERNS = (0x0102030405060708, 0x1112131415161718)


@pytest.fixture
def path(place: Place, reopen: OpenShelf) -> pathlib.Path:
    """A closed shelf, keep=2, at version 3: a of all three, rot of the second and the third."""
    shelf = reopen(keep=2)
    shelf.empty = np.zeros((0, 3))
    shelf.a = np.full(5, 1.0)
    shelf.persist(STEP)
    shelf.rot = np.full(300_000, PATTERNS[0])
    shelf.a = np.full(5, 2.0)
    shelf.persist(STEP + 1)
    shelf.rot[MIB // 8 :] = PATTERNS[1]
    shelf.a = np.full(5, 3.0)
    shelf.persist(STEP + 2)
    shelf.close()
    return place[0]


def place_of(path: pathlib.Path, pattern: int, chunk: int) -> int:
    """Where the pages of this number begin in the file: of a chunk of rot."""
    data = path.read_bytes()
    at = data.index(pattern.to_bytes(8, "little") * 512)
    return at + (chunk << 20)


# ---- counters


@pytest.mark.parametrize("placement", ["whole", "by_chunk"])
def test_every_counter(reopen: OpenShelf, placement: str) -> None:
    shelf = reopen(placement=placement, in_flight=2)
    mapped = shelf.info().promises.mapped
    known = shelf.stats()
    assert {known[name] for name in list(known)[:7]} == {0}
    assert list(known) == [
        "commits", "bytes_staged", "bytes_unchanged", "bytes_copied_forward", "metadata_bytes",
        "bytes_read", "chunks_verified", "chunks_healed", "medium_writes", "medium_bytes",
        "barriers", "commit_seconds",
    ]  # fmt: skip

    def since(before: "dict[str, Any]") -> "dict[str, Any]":
        now = shelf.stats()
        more = {name: now[name] - before[name] for name in now if name != "commit_seconds"}
        before.update(now)
        return {name: number for name, number in more.items() if number}

    nbytes = 8 * 300_001  # three chunks
    shelf.x = np.arange(300_001.0)
    assert since(known) == {"bytes_staged": nbytes, "medium_writes": 3, "medium_bytes": nbytes}
    commit = shelf.persist()
    pages = commit.metadata_nbytes
    assert (commit.nbytes, pages % 4096, pages > 0) == (nbytes, 0, True)
    assert since(known) == {
        "commits": 1, "metadata_bytes": pages,
        "medium_writes": pages // 4096, "medium_bytes": pages, "barriers": 2,
    }  # fmt: skip
    shelf.x[5] = 3  # reads, checks and writes its chunk
    assert since(known) == {
        "bytes_staged": 8, "chunks_verified": 1, "medium_writes": 1, "medium_bytes": MIB
    }  # fmt: skip
    commit = shelf.persist()
    pages = commit.metadata_nbytes
    rest = nbytes - MIB if placement == "whole" else 0
    assert commit.nbytes == 8
    assert since(known) == {
        "commits": 1, "metadata_bytes": pages, "barriers": 2,
        **({"bytes_copied_forward": rest} if rest else {}),
        "medium_writes": pages // 4096 + (2 if rest else 0), "medium_bytes": pages + rest,
    }  # fmt: skip
    shelf.x.numpy()
    checked = {} if mapped else {"chunks_verified": 3}  # mapped, they are what was written here
    assert since(known) == {"bytes_read": nbytes, **checked}
    assert shelf.verify()
    assert since(known) == {"chunks_verified": 3}


def test_seconds_are_seconds(shelf: ts.Shelf) -> None:
    before = time.perf_counter()
    shelf.x = np.ones(1000)
    commits = [shelf.persist(), shelf.persist(wait=False).wait()]
    lasted = time.perf_counter() - before
    told = [commit.seconds for commit in commits]
    assert min(told) > 0
    assert 0 < shelf.stats()["commit_seconds"] <= sum(told) <= lasted


# ---- the shelf, its tensors


def test_info_of_a_shelf_that_was_opened_again(place: Place, reopen: OpenShelf) -> None:
    shelf = reopen(keep=3, in_flight=2)
    first = shelf.info()
    assert (first.created, first.writable, first.version, first.step) == (True, True, 0, None)
    int(first.shelf_id, 16)
    shelf = reopen()  # still at version 0
    info = shelf.info()
    assert (info.created, info.shelf_id) == (False, first.shelf_id)
    assert info.incarnation == first.incarnation + 1
    shelf.odd = np.array([True, False, True])
    shelf.empty = np.zeros(0)
    shelf.persist(STEP)
    info = shelf.info()
    assert (info.tensors, info.tensor_bytes, info.version, info.step) == (2, 3, 1, STEP)
    assert info.capacity_bytes == os.path.getsize(place[0]) > info.free_bytes == shelf.free > 0
    assert (info.keep, info.in_flight) == (3, 2)
    reader = reopen(mode="r").info()
    assert (reader.created, reader.writable, reader.shelf_id) == (False, False, first.shelf_id)
    assert (reader.keep, reader.in_flight, reader.tensor_bytes) == (3, 2, 3)
    other = reopen(mode="w").info()
    assert (other.created, other.tensors) == (True, 0)
    assert other.shelf_id != first.shelf_id


def test_the_promises_of_each_medium(shelf: ts.Shelf) -> None:
    found = shelf.info().promises
    if "tmpfs" in found.detail and found.mapped:
        (note,) = found.notes
        assert note.startswith("tmpfs is memory")
        expected = ("process crash", False, False, 8)
        told = (found.survives, found.needs_flush, found.volatile_cache, found.atomic_bytes)
        assert told == expected
    elif "memory" not in found.detail and "tmpfs" not in found.detail:
        lost = any("power loss can lose" in note for note in found.notes)
        assert found.survives == ("process crash" if lost else "power loss")
        assert not found.needs_flush
        caches = any("volatile write cache" in note for note in found.remarks)
        assert found.volatile_cache == caches
        assert found.atomic_bytes in (512, 4096)


def test_every_note_of_a_medium_is_told(disk: pathlib.Path) -> None:
    """One for each of two fallbacks that were asked for, in the order in which they were met."""
    block = ts.BlockOptions(io_uring=False, direct=False)
    with ts.open(disk / "plain", tier="block") as shelf:
        plain = shelf.info().promises
    with pytest.warns(ts.TierWarning), ts.open(disk / "run", tier="block", block=block) as shelf:
        found = shelf.info().promises
    assert set(plain.notes) < set(found.notes)
    assert len(found.notes) >= 2
    assert "O_DIRECT" not in found.detail
    assert "io_uring" not in found.detail


def test_states_of_a_tensor_from_its_creation_to_a_decision(shelf: ts.Shelf) -> None:
    def state() -> "tuple[int, int, bool, bool]":
        info = shelf.x._ref._info()
        return info.version, info.pending, info.dirty, info.spoiled

    shelf.y = 1
    shelf.persist()
    shelf.create("x", (3,), "int16")
    assert state() == (0, 0, True, False)
    shelf.persist()
    assert state() == (2, 0, False, False)
    shelf.x[0] = 5
    assert state() == (2, 0, True, False)
    shelf.prepare()
    assert state() == (2, 3, False, False)
    shelf.resolve("commit")
    assert state() == (3, 0, False, False)
    shelf.x[0] = 6
    with pytest.raises(ZeroDivisionError), shelf.x._writing() as into:  # noqa: PT012
        into._write(np.zeros(1, np.int16))
        raise ZeroDivisionError
    assert state() == (3, 0, True, True)
    shelf.discard()
    assert state() == (3, 0, False, False)


@pytest.mark.parametrize("step", [0, STEP])
def test_a_step_is_told_by_everything_as_it_was_given(
    reopen: OpenShelf, tmp_path: pathlib.Path, step: int
) -> None:
    shelf = reopen(keep=2)
    shelf.x = np.zeros(100_000)
    assert shelf.prepare().step is None
    assert shelf.prepared == ts.Prepared(1, None, b"", 800_000)
    shelf.resolve("abandon")
    steps = [shelf.persist(step).step, shelf.persist(step, wait=False).step]
    with shelf.transaction(step) as transaction:
        pass
    assert transaction.commit is not None
    steps += [transaction.commit.step, shelf.step, shelf.info().step, shelf.versions[0].step]
    steps += [shelf.at(3).step, shelf.at(2).info().step, shelf.rollback(2).step]
    steps += [shelf.snapshot(tmp_path / "copy").step]
    assert set(steps) == {step}
    made = shelf.prepare(step + 1, id=b"a\0b")
    assert made == ts.Prepared(5, step + 1, b"a\0b", 0)
    shelf = reopen()
    empty = ts.Recovery(4, step, False, False, False, (), (), made, 0, ())
    assert shelf.info().recovery == empty
    commit = shelf.resolve("commit")
    assert commit is not None
    assert (commit.step, shelf.step) == (step + 1, step + 1)


# ---- damage, recovery, repair


@pytest.mark.parametrize("chunk", [1, 2])
def test_damage_is_named_by_its_place(
    path: pathlib.Path, place: Place, reopen: OpenShelf, chunk: int
) -> None:
    at = place_of(path, PATTERNS[1], 0) + (chunk - 1) * MIB
    spoil(path, at + 8192)
    length = MIB if chunk == 1 else 2_400_000 - 2 * MIB
    with ts.open(path, "r", tier=place[1]) as reader:
        slot = reader.verify().damage[0].slot
        assert slot == 1  # of four, the first had version 2
        damage = ts.Damage("rot", 3, slot, chunk, at, length, intact_in=(2,))
        report = ts.VerifyReport(3, 3, 4, 2_400_040, (damage,))
        assert reader.verify() == report
    note = "It opens as it is: nothing was written."
    assert ts.repair(path, tier=place[1]) == ts.Repair(False, 3, STEP + 2, (), (damage,), (note,))
    shelf = reopen()
    del shelf["rot"]
    shelf.persist()
    assert shelf.verify() == ts.VerifyReport(4, 2, 1, 40, ())


def home(version: int) -> int:
    return ROOTS + version % 4 * 4096


NOTHING: Any = ts.Recovery(3, STEP + 2, False, False, False, (), (), None, 0, ())
OLDER = "version 2 was opened in place of a newer, damaged one; every chunk of it was verified."
GONE = "version 2 was retained and cannot be loaded: its root does not verify"
LOST = "version 3 may have been acknowledged, and is lost"
SHOWN = (
    "version 2 is shown as far as it is whole: a tensor that is damaged, or over which a newer "
    "version was written, fails its checksum when it is read, and verify() lists it."
)


@pytest.mark.parametrize(
    ("spoilt", "options", "changes"),
    [
        ((), {"mode": "r"}, {}),
        ((), {"mode": "r+"}, {}),
        ((home(3),), {"mode": "r"}, {}),
        ((home(3),), {"mode": "r+"}, {"repaired_copies": 1}),
        ((home(3), home(2)), {"mode": "r+"}, {"repaired_copies": 2}),
        ((home(4),), {"mode": "r+"}, {"interrupted": True}),
        (both(home(2)), {"mode": "r"}, {"dropped": (2, 1), "notes": (GONE,)}),
        (
            both(home(3)),
            {"mode": "r"},
            {"version": 2, "step": STEP + 1, "degraded": True, "lost": (3,), "notes": (OLDER,)},
        ),
        (
            both(home(3)),
            {"mode": "r", "salvage": True},
            {
                "version": 2, "step": STEP + 1, "degraded": True, "salvaged": True,
                "lost": (3,), "notes": (LOST, SHOWN),
            },
        ),
        (
            (*both(home(3)), *both(home(4))),
            {"mode": "r", "salvage": True},
            {
                "version": 2, "step": STEP + 1, "degraded": True, "salvaged": True,
                "lost": (3, 4), "notes": (LOST, LOST.replace("3", "4"), SHOWN),
            },
        ),
    ],
)  # fmt: skip
def test_what_opening_found(
    path: pathlib.Path, reopen: OpenShelf, spoilt: Any, options: Any, changes: Any
) -> None:
    spoil(path, *spoilt)
    assert reopen(**options).info().recovery == dataclasses.replace(NOTHING, **changes)


def test_a_repair_tells_all_of_it(place: Place, reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.rot = np.full(300_000, PATTERNS[0])
    for step in range(3):
        shelf.x = step
        shelf.persist(STEP + step)
    shelf.close()
    path = place[0]
    at = place_of(path, PATTERNS[0], 0)
    spoil(path, *both(ROOTS), at)  # the root that version 4 would have, and a chunk
    found = ts.repair(path, tier=place[1])
    damage = ts.Damage("rot", 1, 0, 0, at, MIB)
    assert dataclasses.replace(found, notes=()) == ts.Repair(True, 3, STEP + 2, (4,), (damage,), ())
    assert [note.split(":")[0] for note in found.notes] == [
        "Opening it failed",
        "Version 3 is the newest now, and incarnation 3 was given out.",
        "Version 4 may have been acknowledged, and was given up.",
    ]
