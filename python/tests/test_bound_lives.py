"""What the native half keeps alive, and what it remembers of assignments."""

import contextlib
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

import tensorshelf as ts
from tensorshelf import _core
from tensorshelf._options import new_options

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
    kept: list[Any] = [weakref.ref(shelf), weakref.ref(session)]
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
    transaction = _core.TransactionBlock(shelf=shelf, session=session, before_commit=lambda: None)
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
    ref_block = _core.Assignment(ref, session)
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
        ([], [assigned, persisted, deleted, discarded], True),
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


def test_a_save_by_a_pipeline_overtakes_every_handle(reopen: OpenShelf) -> None:
    pytest.importorskip("msgpack")
    shelf = reopen(keep=2)
    values = np.zeros(3)
    with shelf.autosave(x=values) as auto:
        for step in (1, 2):  # the first is no pipeline's, for there is no plan yet
            auto.step(step)
            auto.wait()
        x = shelf.x
        values += 1
        auto.step(3)
        auto.wait()
        with pytest.raises(ts.UnsupportedError, match="'x' was assigned after this handle"):
            shelf.copy = x
        shelf.copy = shelf.x
        assert shelf.copy.numpy().tolist() == [1.0] * 3


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
        shelf=shelf._core, session=known.session, before_commit=before_commit
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
