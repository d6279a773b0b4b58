"""Commits in two halves: prepare(), prepared, resolve()."""

import os
import threading
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import check

import tensorshelf as ts


@pytest.fixture(params=["whole", "by_chunk"])
def placement(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shelf(reopen: OpenShelf, placement: str) -> ts.Shelf:
    """At version 1, of x and y."""
    shelf = reopen(placement=placement, in_flight=2)
    shelf.x = np.arange(10.0)
    shelf.y = np.zeros(3)
    shelf.persist(1)
    return shelf


def refused(error: "type[ts.ShelfError]", call: Any) -> None:
    with pytest.raises(error):
        call()


def test_commit(shelf: ts.Shelf) -> None:
    assert shelf.prepared is None
    shelf.x[0] = 7
    made = shelf.prepare(2, id="job 5")
    assert (made.version, made.step, made.id, made.data_bytes) == (2, 2, b"job 5", 8)
    assert shelf.prepared == made
    assert "version 2 prepared" in repr(shelf)
    assert shelf.version == 1
    assert shelf.x.committed[0] == 0
    commit = shelf.resolve("commit")
    assert commit is not None
    assert (commit.version, commit.step) == (2, 2)
    assert shelf.prepared is None
    assert shelf.x.committed[0] == 7
    shelf.x[1] = 8
    assert shelf.persist().version == 3


def test_abandon(shelf: ts.Shelf) -> None:
    x = shelf.x
    shelf.x[0] = 7
    shelf.z = [1, 2]
    del shelf.y
    shelf.prepare()
    assert shelf.resolve("abandon") is None
    assert shelf.version == 1
    assert sorted(shelf) == ["x", "y"]
    assert x[0] == 0
    shelf.x[1] = 8
    assert shelf.persist(5).version == 2
    assert x.numpy()[:3].tolist() == [0, 8, 2]


def test_found_by_opening(reopen: OpenShelf, shelf: ts.Shelf) -> None:
    shelf.x = np.ones(10)
    shelf.z = [1, 2]
    made = shelf.prepare(2, id=b"\x00\xff")
    shelf = reopen()
    assert shelf.prepared == made
    assert shelf.info().recovery.prepared == made
    assert "prepared" in str(shelf.info())
    assert shelf.x[3] == 3

    def assign() -> None:
        shelf.x = np.zeros(10)

    refused(ts.UnresolvedError, assign)
    refused(ts.UnresolvedError, shelf.persist)
    refused(ts.UnresolvedError, shelf.prepare)
    refused(ts.UnresolvedError, lambda: shelf.rollback(1))
    refused(ts.UnresolvedError, shelf.discard)
    commit = shelf.resolve("commit")
    assert commit is not None
    assert commit.version == 2
    assert shelf.x.numpy().tolist() == [1] * 10
    assert shelf.z.numpy().tolist() == [1, 2]
    assign()
    shelf.persist()
    shelf = reopen()
    assert shelf.prepared is None
    assert shelf.x[3] == 0


def test_a_reader_tells_of_it(reopen: OpenShelf, shelf: ts.Shelf) -> None:
    shelf.x[0] = 7
    made = shelf.prepare(2, id="a")
    shelf.close()
    reader = reopen(mode="r")
    assert reader.prepared == made
    assert reader.version == 1
    assert reader.x[0] == 0
    refused(ts.ReadOnlyError, lambda: reader.resolve("commit"))
    refused(ts.ReadOnlyError, reader.prepare)


def test_behind_it(shelf: ts.Shelf) -> None:
    shelf.x[0] = 7
    shelf.prepare(2)
    shelf.x[1] = 8  # there is a third slot
    with pytest.raises(ts.UnresolvedError) as caught:
        shelf.persist(3)
    check(caught, ts.UnresolvedError, "unresolved", RuntimeError)
    refused(ts.UnresolvedError, lambda: shelf.persist(wait=False))
    refused(ts.UnresolvedError, shelf.prepare)
    shelf.resolve("abandon")
    assert shelf.x[1] == 1
    with pytest.raises(ts.AbandonedError) as gone:
        shelf.persist(3)
    check(gone, ts.AbandonedError, "abandoned", RuntimeError)

    def assign() -> None:
        shelf.y[0] = 1

    refused(ts.AbandonedError, assign)
    shelf.discard()
    assign()
    assert shelf.persist(3).version == 2


@pytest.mark.parametrize("decision", ["commit", "abandon"])
def test_a_transaction_behind_it(shelf: ts.Shelf, decision: Any) -> None:
    shelf.x[0] = 7
    shelf.prepare(2)

    def inside() -> None:
        with shelf.transaction(step=3):
            shelf.x[1] = 8
            other = threading.Thread(target=shelf.resolve, args=(decision,))
            other.start()
            other.join(60)
            assert not other.is_alive()  # it waits for no transaction

    if decision == "commit":
        inside()
        assert shelf.version == 3
        assert shelf.x.numpy()[:2].tolist() == [7, 8]
    else:
        refused(ts.AbandonedError, inside)
        assert shelf.version == 1
        assert shelf.x.numpy()[:2].tolist() == [0, 1]
        shelf.y[0] = 1
        assert shelf.persist().version == 2


def test_what_is_prepared_is_not_dropped_by_closing(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.x[0] = 7
    shelf.prepare(2)
    shelf.close()
    assert "never persisted" not in caplog.text


def test_a_handle_from_before_the_decision_is_not_assigned_by_name(
    reopen: OpenShelf, shelf: ts.Shelf
) -> None:
    shelf.x[0] = 7
    shelf.prepare(2)
    shelf = reopen()
    assert "version 2 prepared" in repr(shelf)
    before = shelf.x
    shelf.resolve("commit")

    def assign() -> None:
        shelf.z = before

    refused(ts.UnsupportedError, assign)
    shelf.z = shelf.x
    assert shelf.z[0] == 7


def test_a_file_cut_short_behind_the_durable_version(reopen: OpenShelf, shelf: ts.Shelf) -> None:
    shelf.big = np.zeros(1 << 17)
    shelf.prepare(2)
    path = shelf.info().path
    shelf.close()
    os.truncate(path, os.path.getsize(path) - 4096)
    shelf = reopen()
    assert shelf.prepared is not None
    refused(ts.CorruptError, lambda: shelf.resolve("commit"))
    shelf.resolve("abandon")
    shelf.x[0] = 7
    assert shelf.persist().version == 2
    shelf = reopen()
    assert shelf.x[0] == 7
    assert shelf.verify()


def test_what_is_no_id_and_no_decision(shelf: ts.Shelf) -> None:
    resolve: Any = shelf.resolve
    prepare: Any = shelf.prepare
    refused(ts.BadArgument, lambda: resolve(True))
    refused(ts.BadArgument, lambda: resolve("commit"))
    refused(ts.BadArgument, lambda: prepare(id=7))
    refused(ts.BadArgument, lambda: prepare(id="\udc80"))
    refused(ts.BadArgument, lambda: prepare(id=b"x" * 257))
    refused(ts.BadArgument, lambda: prepare(step=True))
    with pytest.raises(ts.UnsupportedError), shelf.x.edit():
        shelf.prepare()
    assert shelf.prepare(id="x" * 256).id == b"x" * 256
    with pytest.raises(ts.UnsupportedError), shelf.y.edit():
        shelf.resolve("commit")
    assert shelf.version == 1
