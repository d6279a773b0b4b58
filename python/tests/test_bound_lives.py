"""What the native half keeps alive, remembers of assignments, and takes for an option."""

import contextlib
import errno
import gc
import os
import pathlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check

import tensorshelf as ts
from tensorshelf import _core
from tensorshelf._options import new_options

MIB = 1 << 20


# ---- what holds what


def native(path: pathlib.Path) -> "tuple[_core.Shelf, _core.Session]":
    shelf = _core.Shelf.open(
        path=os.fsencode(path),
        mode=_core.Mode.append,
        options=new_options(None, "auto", None, None, None, None),
        progress=None,
    )
    return shelf, _core.Session()


def test_a_block_keeps_what_it_works_on(tmpfs: pathlib.Path) -> None:
    """A new tensor's: the shelf and the session; an assignment's: the session; and so on."""
    shelf, session = native(tmpfs / "run.shelf")
    kept = [weakref.ref(shelf), weakref.ref(session)]
    block = shelf.create_with(session, "x", "float64", [3])
    ref_block: Any = None
    transaction: Any = None

    def still() -> list[bool]:
        gc.collect()
        return [found() is not None for found in kept]

    del shelf, session
    assert still() == [True, True]
    with block as into:
        into._write(np.ones(3))
    found = kept[0]()
    assert found is not None
    ref = found.find("x")
    assert ref is not None
    del found, block, into
    assert still() == [False, False]

    shelf, session = native(tmpfs / "other.shelf")
    kept = [weakref.ref(shelf), weakref.ref(session)]
    transaction = _core.TransactionBlock(
        shelf=shelf, session=session, edits={}, before_commit=lambda: None
    )
    del shelf, session
    assert still() == [True, True]
    with transaction:
        found = kept[0]()
        assert found is not None
        found.create("x", "int8", [1])
        del found
    assert transaction._commit is not None
    assert transaction._commit.version == 1
    found, session = kept[0](), kept[1]()
    assert found is not None
    ref = found.find("x")
    assert ref is not None
    ref_block = _core.Assignment(ref, session, "x")
    del found, session, transaction
    assert still() == [False, True]  # a tensor holds the store, and no Shelf
    del ref_block
    assert still() == [False, False]


def test_an_assignment_outside_its_block(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(3)
    block = shelf.x._writing()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="outside its block"):
            block._write(np.ones(3))
        with block as into:
            assert into is block
            into._write(np.full(1, 5.0), 16)
        assert shelf.x.numpy().tolist() == [0, 0, 5]
    shelf.persist()
    with contextlib.suppress(KeyError), block:
        block._write(np.ones(3))
        raise KeyError
    assert shelf.x.numpy().tolist() == [0, 0, 5]


# ---- which handles are overtaken

Change = Callable[[ts.Shelf], object]


def failing(shelf: ts.Shelf) -> None:
    with contextlib.suppress(ZeroDivisionError), shelf.x._writing():
        raise ZeroDivisionError


def discarding(*changes: Change) -> Change:
    def both(shelf: ts.Shelf) -> None:
        with contextlib.suppress(ZeroDivisionError), shelf.transaction():
            for change in changes:
                change(shelf)
            raise ZeroDivisionError

    return both


def refused(shelf: ts.Shelf) -> None:
    with shelf.y._writing():
        for value in (np.ones(3), [1.0, 2.0, 3.0]):
            with pytest.raises(ts.UnsupportedError):
                shelf.x = value


def elsewhere(change: Change) -> Change:
    def in_thread(shelf: ts.Shelf) -> None:
        other = threading.Thread(target=change, args=(shelf,))
        other.start()
        other.join()

    return in_thread


def assigned(shelf: ts.Shelf) -> None:
    shelf.x = np.ones(3)


def listed(shelf: ts.Shelf) -> None:
    shelf.x = [1.0, 1.0, 1.0]


def other(shelf: ts.Shelf) -> None:
    shelf.y = np.ones(3)


def persisted(shelf: ts.Shelf) -> None:
    shelf.persist()


def behind(shelf: ts.Shelf) -> None:
    shelf.persist(wait=False)


def in_transaction(shelf: ts.Shelf) -> None:
    with shelf.transaction():
        assigned(shelf)


def prepared(shelf: ts.Shelf) -> None:
    shelf.prepare()


def committed(shelf: ts.Shelf) -> None:
    shelf.resolve("commit")


def abandoned(shelf: ts.Shelf) -> None:
    shelf.resolve("abandon")


def discarded(shelf: ts.Shelf) -> None:
    shelf.discard()


def replaced(shelf: ts.Shelf) -> None:
    shelf.replace("x", np.ones(3))


def deleted(shelf: ts.Shelf) -> None:
    del shelf.x


def rolled_back(shelf: ts.Shelf) -> None:
    shelf.rollback(1)


@pytest.mark.parametrize(
    ("before", "after", "overtaken"),
    [
        ([], [], False),
        ([], [assigned], True),
        ([], [listed], True),
        ([], [replaced], True),
        ([], [other], False),
        ([], [refused], False),
        ([], [failing], True),  # what a block writes, others may have seen
        ([], [elsewhere(assigned)], False),
        ([elsewhere(assigned)], [assigned], True),
        ([elsewhere(listed)], [listed], True),
        ([assigned], [elsewhere(assigned)], False),
        ([assigned], [], False),
        ([assigned], [discarded], True),
        ([assigned, persisted], [other, discarded], False),
        ([assigned, behind], [other, discarded], False),
        ([assigned, prepared, committed], [other, discarded], False),
        ([in_transaction], [other, discarded], False),
        ([in_transaction], [discarding(other)], False),
        ([], [discarding(assigned)], True),
        ([failing], [discarding(other)], False),
        ([assigned, discarded], [], False),
        ([assigned, discarded], [other, discarded], False),
        ([assigned], [prepared, committed], False),
        ([assigned], [prepared, abandoned], True),
        ([], [other, prepared, abandoned], True),  # of all, as for a rollback
        ([], [persisted, rolled_back], True),
        ([persisted, rolled_back], [], False),
        ([persisted, rolled_back], [other], False),
        ([persisted, rolled_back], [elsewhere(assigned)], False),
        ([], [persisted, elsewhere(rolled_back)], False),
        ([], [assigned, deleted, discarded], True),
        ([assigned, persisted], [deleted, discarded], False),
        ([assigned, persisted, deleted, discarded], [], False),
        ([assigned, persisted, deleted, discarded], [assigned], True),
    ],
)
def test_what_a_handle_missed(
    reopen: OpenShelf, before: list[Change], after: list[Change], overtaken: bool
) -> None:
    shelf = reopen(keep=3)
    shelf.x, shelf.y = np.zeros(3), np.zeros(3)
    shelf.persist()
    for change in before:
        change(shelf)
    x = shelf.x
    for change in after:
        change(shelf)
    value = None if overtaken else shelf.x.numpy()
    if value is None:
        with pytest.raises(ts.UnsupportedError, match="'x' was assigned after this handle"):
            shelf.copy = x
        assert "copy" not in shelf
    else:
        shelf.copy = x
        assert shelf.copy.numpy().tolist() == value.tolist()


@pytest.mark.parametrize(
    ("begin", "end", "stays"),
    [
        ([], discarded, False),
        ([], rolled_back, False),
        ([], discarding(other), False),
        ([], in_transaction, False),  # which assigns x
        ([], persisted, True),
        ([], other, True),
        ([prepared], abandoned, False),
        ([prepared], committed, True),
    ],
)
def test_what_ends_an_edit_elsewhere(
    reopen: OpenShelf, begin: list[Change], end: Change, stays: bool
) -> None:
    shelf = reopen(keep=2)
    shelf.x, shelf.y = np.zeros(3), np.zeros(3)
    shelf.persist()
    for change in begin:
        change(shelf)
    block = shelf.x.edit()
    block.__enter__()[0] = 9
    elsewhere(end)(shelf)
    if stays:
        block.__exit__(None, None, None)
        assert shelf.x[0] == 9
    else:
        with pytest.raises(ts.UnsupportedError, match="assigned during its edit"):
            block.__exit__(None, None, None)
        assert shelf.x[0] != 9


@pytest.mark.parametrize("decision", ["commit", "abandon"])
def test_a_decision_on_what_opening_found_overtakes_every_handle(
    reopen: OpenShelf, decision: Any
) -> None:
    shelf = reopen(keep=1)
    shelf.x, shelf.y = np.zeros(3), np.zeros(3)
    shelf.persist()
    shelf.x[0] = 5
    shelf.prepare()
    shelf = reopen(mode="r+")
    x, y = shelf.x, shelf.y
    shelf.resolve(decision)
    for handle in (x, y):
        with pytest.raises(ts.UnsupportedError, match="was assigned after"):
            shelf.copy = handle
    shelf.copy = shelf.x
    assert shelf.copy[0] == (5 if decision == "commit" else 0)


def test_the_end_of_a_transaction_is_not_asked_for_where_it_failed(shelf: ts.Shelf) -> None:
    asked: list[int] = []
    known = shelf._assignments

    def before_commit() -> None:
        asked.append(shelf.version)
        if shelf.version == 1:
            raise LookupError("not yet")

    block = _core.TransactionBlock(
        shelf=shelf._core, session=known.session, edits=known.edits, before_commit=before_commit
    )
    with block:
        shelf.x = [1.0]
    assert (asked, shelf.version) == ([0], 1)
    with pytest.raises(ZeroDivisionError), block:
        raise ZeroDivisionError
    assert asked == [0]  # the exception is what is told
    with pytest.raises(LookupError, match="not yet"), block:
        shelf.x = [2.0]
    assert (asked, shelf.version, shelf.x[0], block._commit) == ([0, 1], 1, 1, None)
    assert not shelf._core.has_uncommitted()


# ---- options, as they come and as they go


def test_options_where_nothing_is_said() -> None:
    options = _core.OpenOptions()
    told = (options.tier, options.max_size_bytes, options.verify, options.salvage)
    assert told == (_core.Tier.automatic, 0, _core.Verify.on_load, False)
    assert (options.keep, options.in_flight, options.placement) == (None, None, None)
    for block in (options.block, _core.BlockTuning(), ts.BlockOptions()._tuning()):
        told_too = (block.buffer_bytes, block.queue_depth, block.io_uring, block.direct)
        assert told_too == (2 * MIB, 16, True, True)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tier", list(_core.Tier.__members__.values())),  # type: ignore[attr-defined]
        ("verify", list(_core.Verify.__members__.values())),  # type: ignore[attr-defined]
        ("placement", [_core.Placement.whole, _core.Placement.by_chunk, None]),
        ("max_size_bytes", [0, 2**40 + 1, 2**64 - 1]),
        ("keep", [0, 14, None]),
        ("in_flight", [1, 15, None]),
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
        "tier", "verify", "placement", "max_size_bytes", "keep", "in_flight", "salvage"
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
        memoryview(old)  # type: ignore[arg-type]
    check(stale, ts.StaleError, "version_overwritten", RuntimeError)
    shelf.close()
    for handle in (x, old):
        with pytest.raises(ts.ClosedError) as closed:
            memoryview(handle)  # type: ignore[arg-type]
        check(closed, ts.ClosedError, "shelf_closed", ValueError)
