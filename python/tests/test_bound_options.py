"""Options as they are passed on to the native half, and errors as they come back from it."""

import errno
import os
import pathlib
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check

import tensorshelf as ts
from tensorshelf import _core

MIB = 1 << 20


# ---- options, as they come and as they go


def test_options_where_nothing_is_said() -> None:
    options = _core.OpenOptions()
    told = (options.tier, options.max_size_bytes, options.verify, options.salvage)
    assert told == ("auto", 0, _core.Verify.on_load, False)
    assert (options.keep, options.in_flight, options.placement) == (None, None, None)
    assert options.threads == 0
    assert options.keep_unchanged is False
    assert options.heal is False
    for block in (options.block, _core.BlockTuning(), ts.BlockOptions()._tuning()):
        told_too = (block.buffer_bytes, block.queue_depth, block.io_uring, block.direct)
        assert told_too == (2 * MIB, 16, True, True)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tier", _core.tiers()),
        ("verify", list(_core.Verify.__members__.values())),  # type: ignore[attr-defined]
        ("placement", [_core.Placement.whole, _core.Placement.by_chunk, None]),
        ("max_size_bytes", [0, 2**40 + 1, 2**64 - 1]),
        ("keep", [0, 14, None]),
        ("in_flight", [1, 15, None]),
        ("threads", [1, 64, 0]),
        ("keep_unchanged", [True, False]),
        ("heal", [True, False]),
        ("salvage", [True, False]),
        ("buffer_bytes", [MIB, 2**33]),
        ("queue_depth", [1, 1024]),
        ("io_uring", [False, True]),
        ("direct", [False, True]),
    ],
)
def test_an_option_is_what_it_was_set_to_and_no_other_is(name: str, values: list[Any]) -> None:
    options = _core.OpenOptions()
    of_block = hasattr(options.block, name)
    names = [
        "tier", "verify", "placement", "max_size_bytes", "keep", "in_flight", "threads",
        "keep_unchanged", "heal", "salvage",
    ]  # fmt: skip
    blocks = ["buffer_bytes", "queue_depth", "io_uring", "direct"]
    known = {other: getattr(options, other) for other in names}
    known |= {other: getattr(options.block, other) for other in blocks}
    for value in values:
        setattr(options.block if of_block else options, name, value)
        known[name] = value
        found = {other: getattr(options, other) for other in names}
        assert found | {other: getattr(options.block, other) for other in blocks} == known


def test_how_checksums_are_checked(place: Place, reopen: OpenShelf) -> None:
    path, tier = place
    pattern = bytes(range(1, 9)) * 1024
    shelf = reopen()
    shelf.x = np.frombuffer(pattern, np.uint8)
    shelf.persist()
    shelf.close()
    data = bytearray(path.read_bytes())
    data[data.index(pattern) + 1] = 99
    path.write_bytes(data)
    with ts.open(path, "r", tier=tier, verify="none") as reader:
        assert reader.x[1] == 99
    with ts.open(path, "r", tier=tier) as reader, pytest.raises(ts.CorruptError):
        reader.x[1]
    with pytest.raises(ts.CorruptError):
        ts.open(path, "r", tier=tier, verify="open")


def test_a_repair_takes_the_medium_and_its_tuning(disk: pathlib.Path, tmpfs: pathlib.Path) -> None:
    with ts.open(tmpfs / "run.shelf") as shelf:
        assert shelf.info().promises.mapped
    for block in (ts.BlockOptions(buffer="1MiB", queue_depth=1), ts.BlockOptions(io_uring=False)):
        assert not ts.repair(tmpfs / "run.shelf", tier="block", block=block).repaired
    with ts.open(disk / "run.shelf", tier="block"):
        pass
    with pytest.raises(ts.NotDaxError) as caught:
        ts.repair(disk / "run.shelf", tier="pmem")
    check(caught, ts.NotDaxError, "not_dax", OSError)
    for call in (ts.open, ts.repair):
        with pytest.raises(ts.BadArgument, match="buffer"):
            call(disk / "run.shelf", tier="block", block=ts.BlockOptions(buffer=MIB + 1))


def test_a_tier_that_there_is_not_says_which_there_are(disk: pathlib.Path) -> None:
    path = disk / "run.shelf"
    ts.open(path, tier="block").close()
    options = _core.OpenOptions()
    options.tier = "tape"
    for repair in (
        lambda: ts.repair(path, tier="tape"),
        lambda: _core.repair(path=os.fsencode(path), options=options, progress=None),
    ):
        with pytest.raises(ts.BadArgument, match=r"tier=.tape. is unknown") as caught:
            repair()
        check(caught, ts.BadArgument, "bad_argument", ValueError)
        assert caught.value.remedy == 'Use one of "auto", "pmem", "block", "pool".'


@pytest.mark.parametrize("given", ["False", "no", 1, None, np.int64(0), []])
def test_a_switch_is_true_or_false_and_no_text(disk: pathlib.Path, given: Any) -> None:
    path = disk / "run.shelf"
    with ts.open(path, tier="block") as shelf:
        calls = {
            "heal": lambda: ts.open(path, "r", heal=given),
            "salvage": lambda: ts.open(path, "r", salvage=given),
            "keep_unchanged": lambda: ts.open(path, "r", keep_unchanged=given),
            "io_uring": lambda: ts.open(path, "r", block=ts.BlockOptions(io_uring=given)),
            "direct": lambda: ts.open(path, "r", block=ts.BlockOptions(direct=given)),
            "repair": lambda: shelf.verify(repair=given),
        }
        for name, call in calls.items():
            with pytest.raises(
                ts.BadArgument, match=rf"^{name}=.* is neither True nor False"
            ) as caught:
                call()
            check(caught, ts.BadArgument, "bad_argument", ValueError)
        with pytest.raises(ts.BadArgument, match=r"^repair="):
            shelf.scrub(repair=given)
    ts.open(path, "r", heal=np.True_, salvage=np.False_).close()


def test_what_is_said_of_cuda() -> None:
    found = _core.cuda_support()
    assert sorted(found) == ["built", "devices", "lacks", "runtime_version"]
    assert found["built"] is ts.build_info().libraries["cuda"]
    assert (found["runtime_version"] > 0) is found["built"]
    assert bool(found["lacks"]) is (found["devices"] == 0)


# ---- errors


def test_an_error_of_the_system_has_its_number_and_its_text_in_any_encoding(
    disk: pathlib.Path,
) -> None:
    folder = os.fsdecode(os.fsencode(disk) + b"/\xff\xe4")
    with pytest.raises(ts.ShelfNotFound) as caught:
        ts.open(folder + "/run.shelf", tier="block")
    assert (caught.value.errno, caught.value.code) == (errno.ENOENT, "shelf_not_found")
    assert "\\xff\\xe4" in caught.value.what
    assert "\\xff\\xe4" in caught.value.remedy
    os.mkdir(folder)
    with ts.open(folder + "/run.shelf", tier="block") as shelf:
        assert shelf.info().path == folder + "/run.shelf"
    file = disk / "file"
    file.write_text("")
    with pytest.raises(OSError) as of_file:  # noqa: PT011
        ts.open(file / "run.shelf", "r", tier="block")
    assert of_file.value.errno == errno.ENOTDIR


def test_errors_within_the_buffer_protocol_keep_their_kind(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf.x = np.zeros(3)
    shelf.persist()
    x, old = shelf.x, shelf.at(1).x
    for step in range(2):
        shelf.persist(step)
    with pytest.raises(ts.StaleError) as stale:
        memoryview(old)
    check(stale, ts.StaleError, "version_overwritten", RuntimeError)
    shelf.close()
    for handle in (x, old):
        with pytest.raises(ts.ClosedError) as closed:
            memoryview(handle)
        check(closed, ts.ClosedError, "shelf_closed", ValueError)
