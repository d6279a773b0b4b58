"""Tensors that get another name, or another first dimension."""

import pathlib
import re
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import OpenShelf
from support import Place

import tensorshelf as ts


def check(tensor: ts.Tensor | ts.RetainedTensor, wanted: npt.NDArray[Any]) -> None:
    np.testing.assert_array_equal(tensor.numpy(copy=True), wanted)


def test_a_renamed_tensor_stays_itself(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    shelf["old"] = np.arange(6, dtype=np.float32)
    shelf["other"] = 1
    shelf.persist()
    handle = shelf["old"]
    shelf.rename("old", "new")
    assert handle.name == "new"
    assert list(shelf) == ["new", "other"]
    assert "old" not in shelf
    handle += 1
    shelf["new"] += 1
    shelf["copied"] = shelf["new"]
    shelf.persist()
    check(shelf["new"], np.arange(6, dtype=np.float32) + 2)
    check(shelf.at(1)["old"], np.arange(6, dtype=np.float32))
    diff = shelf.diff(1)
    assert (diff.created, diff.erased) == (["copied", "new"], ["old"])
    shelf = reopen()
    check(shelf["new"], np.arange(6, dtype=np.float32) + 2)
    shelf.rollback(1)
    assert list(shelf) == ["old", "other"]


def test_a_dropped_rename_leaves_the_old_name(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf["a"] = np.zeros(3)
    shelf.persist()
    handle = shelf["a"]
    shelf.rename("a", "b")
    shelf["a"] = np.ones(2)
    shelf.discard()
    assert handle.name == "a"
    assert list(shelf) == ["a"]
    with shelf.transaction():
        shelf.rename("a", "b")
    assert list(shelf) == ["b"]
    handle[:] = 5
    check(shelf["b"], np.full(3, 5.0))


def test_a_rename_is_refused_in_plain_words(reopen: OpenShelf, place: Place) -> None:
    shelf = reopen()
    shelf["weights"] = shelf["bias"] = np.zeros(3)
    shelf.persist()
    with pytest.raises(ts.UnknownName, match="weight"):
        shelf.rename("weight", "x")
    with pytest.raises(ts.NameTaken, match="bias"):
        shelf.rename("weights", "bias")
    with pytest.raises(ts.BadName):
        shelf.rename("weights", "")
    with pytest.raises(ts.BadName):
        shelf.rename("weights", 7)  # type: ignore[arg-type]
    with shelf["bias"].edit(), pytest.raises(ts.UnsupportedError, match="edit"):
        shelf.rename("weights", "x")
    shelf.rename("weights", "weights")
    with pytest.raises(ts.UnknownName, match="weight"):
        shelf.rename("weight", "weight")
    assert list(shelf) == ["bias", "weights"]
    reader = ts.open(place[0], mode="r", tier=place[1])
    with pytest.raises(ts.ReadOnlyError):
        reader.rename("bias", "x")
    with pytest.raises(ts.ReadOnlyError):
        reader.resize("bias", 4)


def test_an_edit_in_another_thread_goes_along(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf["a"] = np.zeros(3)
    renamed, begun = threading.Event(), threading.Event()

    def edit() -> None:
        with shelf["a"].edit() as values:
            begun.set()
            renamed.wait(30)
            values[:] = 7

    thread = threading.Thread(target=edit)
    thread.start()
    assert begun.wait(30)
    shelf.rename("a", "b")
    renamed.set()
    thread.join()
    check(shelf["b"], np.full(3, 7.0))


def test_a_handle_of_a_name_that_another_had_is_no_other(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf["a"] = np.zeros(3)
    handle = shelf["a"]
    shelf["b"] = np.ones(3)
    del shelf["b"]
    shelf.rename("a", "b")
    shelf["c"] = handle  # was not assigned since, though a "b" was
    check(shelf["c"], np.zeros(3))


def test_an_edit_stays_where_a_name_is_given_again(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf["a"] = np.zeros(3)

    def rename() -> None:
        shelf.rename("a", "a")

    with shelf["a"].edit() as values:
        thread = threading.Thread(target=rename)
        thread.start()
        thread.join()
        values[:] = 7
    check(shelf["a"], np.full(3, 7.0))


def test_a_discard_behind_a_rename_overtakes_handles(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf["a"] = shelf["c"] = np.zeros(3)
    shelf.persist()
    handle = shelf["a"]
    shelf["a"] = np.ones(3)
    shelf.rename("a", "b2")
    shelf.rename("c", "a")
    shelf.discard()
    with pytest.raises(ts.UnsupportedError, match="'a' was assigned after"):
        shelf["x"] = handle


def test_a_drain_has_the_tensors_of_the_version_by_name(
    reopen: OpenShelf, tmp_path: pathlib.Path
) -> None:
    shelf = reopen(keep=1)
    remote, into = str(tmp_path / "remote"), str(tmp_path / "fetched.shelf")
    state = {"w": np.zeros(10)}
    shelf["x"], shelf["y"] = np.full(5000, 1.0), np.full(5000, 2.0)
    with shelf.autosave(model=state, drain=ts.Drain(remote)) as auto:
        auto.step(1).wait()
        auto.drain.wait()
        shelf.rename("x", "z")
        shelf.rename("y", "x")
        shelf.rename("z", "y")
        state["w"][:] = 1
        auto.step(2).wait()
        auto.drain.wait()
    ts.fetch(remote, into)
    fetched = ts.open(into)
    assert fetched.step == 2
    check(fetched["x"], np.full(5000, 2.0))
    check(fetched["y"], np.full(5000, 1.0))


def test_autosave_saves_under_the_names_of_its_record(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    state = {"w": np.full(40, 1.0), "v": np.full(40, 2.0)}
    with shelf.autosave(model=state) as auto:
        auto.step(1)
        auto.step(2).wait()
        one, other = "model.w", "model.v"
        shelf.rename(one, "t")
        shelf.rename(other, one)
        shelf.rename("t", other)
        state["w"][:], state["v"][:] = 10, 20
        auto.step(3).wait()
        auto.step(4).wait()
        loaded = shelf.load()["model"]
        np.testing.assert_array_equal(loaded["w"], np.full(40, 10.0))
        np.testing.assert_array_equal(loaded["v"], np.full(40, 20.0))
        shelf.rename(one, "elsewhere")
        auto.step(5).wait()
        auto.step(6).wait()
        np.testing.assert_array_equal(shelf.load()["model"]["w"], np.full(40, 10.0))


def test_a_resized_tensor_keeps_what_has_room(reopen: OpenShelf) -> None:
    shelf = reopen(keep=1)
    rows = np.arange(12, dtype=np.int64).reshape(4, 3)
    shelf["w"] = rows
    shelf.persist()
    shelf["w"][0] = 100
    longer = shelf.resize("w", 6)
    assert longer.shape == (6, 3)
    want = np.vstack([rows, np.zeros((2, 3), np.int64)])
    want[0] = 100
    check(longer, want)
    longer[5] = 9
    want[5] = 9
    shelf.persist()
    check(shelf.at(1)["w"], rows)
    shelf.resize("w", 1)
    check(shelf["w"], want[:1])
    shelf.discard()
    check(shelf["w"], want)
    assert shelf.resize("w", 6).is_same(longer)
    shelf.resize("w", 0)
    shelf.persist()
    shelf = reopen()
    assert shelf["w"].shape == (0, 3)
    shelf.resize("w", 2)
    check(shelf["w"], np.zeros((2, 3), np.int64))


def test_a_resize_is_refused_in_plain_words(reopen: OpenShelf) -> None:
    shelf = reopen(size="8MiB")
    shelf["w"] = np.ones((4, 3))
    shelf["scalar"] = 1.5
    shelf.persist()
    handle = shelf["w"]
    with pytest.raises(ts.UnknownName):
        shelf.resize("v", 3)
    for rows in (-1, 1.5, "3", (1, 2), None, True):
        with pytest.raises(ts.LayoutError, match=f"rows={re.escape(repr(rows))} is no number of"):
            shelf.resize("w", rows)  # type: ignore[arg-type]
    with pytest.raises(ts.LayoutError, match="rows"):
        shelf.resize("scalar", 3)
    with pytest.raises(ts.ShelfFull):
        shelf.resize("w", 1_000_000)
    with shelf["w"].edit(), pytest.raises(ts.UnsupportedError, match="edit"):
        shelf.resize("w", 3)
    check(handle, np.ones((4, 3)))
    shelf.resize("w", 5)
    with pytest.raises(ts.UnknownName):
        handle.numpy()


def test_room_is_not_made_within_an_edit(reopen: OpenShelf) -> None:
    shelf = reopen(mode="w")
    shelf.x = np.ones(10)
    with shelf.x.edit() as x:
        with pytest.raises(ts.UnsupportedError, match="edit"):
            shelf.reserve(100)
        x += 1
    shelf.reserve(100)
    assert (shelf.x.numpy() == 2).all()
