"""What is seldom met: bugs of these kinds were planted, and at first nothing saw them."""

import contextlib
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, state_of

import tensorshelf as ts
from tensorshelf._values import _index


def await_sleep(thread: threading.Thread) -> None:
    """Until the thread waits, for some looks in a row."""
    asleep = 0
    while asleep < 20:
        asleep = asleep + 1 if state_of(thread.native_id or 0) == "S" else 0
        os.sched_yield()


def test_an_edit_that_begins_while_an_array_waits_to_be_assigned(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.x = np.zeros(4)
    begun, go_on = threading.Event(), threading.Event()
    numpy = ts.Tensor.numpy

    def slowly(self: ts.Tensor, *, copy: bool | None = None) -> np.ndarray:
        begun.set()  # the edit has the tensor to itself, and is known to nobody yet
        go_on.wait()
        return numpy(self, copy=copy)

    errors: list[Exception] = []
    assigned = threading.Event()

    def edit() -> None:
        try:
            with shelf.x.edit() as values:
                values[0] = 5
                assigned.wait()
        except ts.UnsupportedError as error:
            errors.append(error)

    monkeypatch.setattr(ts.Tensor, "numpy", slowly)
    editor = threading.Thread(target=edit)
    editor.start()
    begun.wait()
    writer = threading.Thread(target=lambda: shelf.__setitem__("x", np.ones(4)))
    writer.start()
    await_sleep(writer)
    go_on.set()
    writer.join()
    monkeypatch.undo()
    assigned.set()
    editor.join()
    assert "assigned during its edit()" in str(errors[0])
    np.testing.assert_array_equal(shelf.x.numpy(), np.ones(4))


@pytest.mark.parametrize(("mine", "theirs"), [("int64", "uint64"), ("uint64", "int64")])
def test_signed_and_unsigned_of_one_width_are_two_types(
    shelf: ts.Shelf, mine: str, theirs: str
) -> None:
    shelf.x = np.zeros(2, mine)
    with pytest.raises(ts.LayoutError):
        shelf.x = np.array([2**63 - 1, 1], theirs)
    np.testing.assert_array_equal(shelf.x.numpy(), np.zeros(2, mine))


@pytest.mark.parametrize("wait", [True, False])
def test_what_a_version_has_is_not_dropped_by_discard(shelf: ts.Shelf, wait: bool) -> None:
    shelf.x = np.ones(3)
    x = shelf.x
    shelf.persist(wait=wait)
    shelf.discard()
    shelf.y = x  # else: "was assigned (or discarded) after this handle of it was looked up"
    np.testing.assert_array_equal(shelf.y.numpy(), np.ones(3))


def test_axes_beyond_32_bits(shelf: ts.Shelf) -> None:
    shape = (2**31, 0, 2**40)
    assert shelf.create("x", shape).shape == shape
    shelf.persist()
    assert shelf.at(1).x.shape == shape


def test_a_remedy_that_names_a_path_which_is_no_text(tmpfs: pathlib.Path) -> None:
    folder = os.fsencode(tmpfs) + b"/no\xfftext"
    with pytest.raises(ts.ShelfNotFound, match=r"mkdir -p .*no.*text"):
        ts.open(os.fsdecode(folder + b"/run.shelf"))


@pytest.mark.parametrize("index", [np.s_[::-1], np.s_[::-3], np.s_[40:3:-2, ::-2], np.s_[:, ::-1]])
def test_backwards_in_pieces(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, index: object
) -> None:
    monkeypatch.setattr(_index, "SPAN_BYTES", 700)
    values = np.arange(50 * 9).reshape(50, 9)
    shelf.x = values
    np.testing.assert_array_equal(shelf.x[index], values[index])
    values[index] += 1000
    shelf.x[index] = values[index]
    np.testing.assert_array_equal(shelf.x.numpy(), values)


def test_the_array_of_an_edit_that_raised_is_closed(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(2)
    with contextlib.suppress(KeyError), shelf.x.edit() as values:
        values[0] = 1
        raise KeyError
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 2
    with shelf.x.edit() as others:  # and nobody is told that one is under way
        others[1] = 3
    np.testing.assert_array_equal(shelf.x.numpy(), [0, 3])


def test_update_looks_at_every_array_before_it_assigns_one(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.LayoutError, match="'b'"):
        shelf.update(a=np.ones(2), b=np.array(["text"]))
    assert list(shelf) == []


def test_both_outputs_of_a_function_are_assigned(shelf: ts.Shelf) -> None:
    shelf.q, shelf.r = np.zeros(3), np.zeros(3)
    np.divmod([7.0, 8.0, 9.0], 4.0, out=(shelf.q, shelf.r))
    np.testing.assert_array_equal(shelf.q.numpy(), [1, 2, 2])
    np.testing.assert_array_equal(shelf.r.numpy(), [3, 0, 1])


def test_a_version_is_not_committed_to_a_file_that_is_gone(reopen: OpenShelf, place: Place) -> None:
    shelf = reopen()
    shelf.x = [1]
    shelf.prepare(id=b"g")
    os.unlink(place[0])
    with pytest.raises(ts.ShelfGone):
        shelf.resolve("commit")
    assert shelf.version == 0
    shelf.resolve("abandon")


def test_a_child_closes_its_own_shelf_among_those_of_its_parent(tmpfs: pathlib.Path) -> None:
    code = f"""
import os, sys
import tensorshelf as ts

parents = [ts.open({str(tmpfs)!r} + f"/parent-{{i}}") for i in range(20)]
child = os.fork()
if child:
    os.waitpid(child, 0)
    sys.exit()
mine = ts.open({str(tmpfs)!r} + "/own")
mine.x = [1]
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{tmpfs}/own: closed with assignments that were never persisted" in done.stderr


def test_an_update_that_fails_says_what_it_had_assigned(shelf: ts.Shelf) -> None:
    shelf["b"] = np.zeros(3)
    with pytest.raises(ts.LayoutError) as caught:
        shelf.update({"a": np.ones(2), "b": np.zeros((2, 2)), "c": np.ones(2)})
    (note,) = caught.value.__notes__
    assert note.startswith("update() had assigned 1 of 3 before 'b': ")
    assert "a" in shelf
    assert "c" not in shelf
    with pytest.raises(ts.LayoutError) as first:
        shelf.update({"b": np.zeros((2, 2)), "c": np.ones(2)})
    assert not hasattr(first.value, "__notes__")


def test_a_number_rounds(shelf: ts.Shelf) -> None:
    shelf["loss"] = np.float64(2.718)
    assert round(shelf["loss"], 1) == 2.7
    assert round(shelf["loss"]) == 3


def test_several_threads_that_assign_to_a_shelf_that_failed_are_told(tmpfs: pathlib.Path) -> None:
    path, mebibyte = tmpfs / "a.shelf", 1 << 20
    with contextlib.suppress(ts.ShelfError), ts.open(path, "w", threads=2) as shelf:
        shelf.small = np.zeros(mebibyte, np.uint8)
        shelf.large = np.zeros(40 * mebibyte, np.uint8)  # a part for each of two threads
        shelf.persist()
        size = path.stat().st_size
        os.truncate(path, 300_000)
        with pytest.raises(ts.ShelfError):
            shelf.small = np.ones(mebibyte, np.uint8)
        os.truncate(path, size)
        with pytest.raises(ts.ShelfError):
            shelf.large = np.ones(40 * mebibyte, np.uint8)


def test_compact_moves_nothing_that_a_version_in_flight_has(disk: pathlib.Path) -> None:
    size = 8 << 20
    with ts.open(disk / "a.shelf", "w", keep=0, in_flight=2, tier="block") as shelf:
        shelf.erased, shelf.kept = np.full(size, 1, np.uint8), np.full(size, 2, np.uint8)
        shelf.persist()
        del shelf.erased
        for value in range(3, 7):  # until nothing has what was erased: there is room in front
            shelf.kept = np.full(size, value, np.uint8)
            shelf.persist()
        shelf.kept = np.full(size, 99, np.uint8)
        commit = shelf.persist(wait=False)
        shelf.compact()
        commit.wait()
        assert (shelf.kept.numpy() == 99).all()
    with ts.open(disk / "a.shelf", "r") as shelf:
        assert (shelf.kept.numpy() == 99).all()
