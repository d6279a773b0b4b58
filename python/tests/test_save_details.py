"""Details of saving a state and loading it, one fact each."""

from typing import Any

import numpy as np
import pytest
from test_save import same

import tensorshelf as ts

pytest.importorskip("msgpack")


def full(value: float) -> Any:
    return np.full(3, float(value))


# ---- names


def test_a_name_that_was_given_out_is_given_out_once(shelf: ts.Shelf) -> None:
    state = {"a": {"b.c": full(1)}, "a.b": {"c": full(2)}, "a.b.c": full(3)}
    shelf.save(state)
    assert same(shelf.load(), state)


def test_a_name_is_as_long_as_its_bytes(shelf: ts.Shelf) -> None:
    state = {"\xe9" * 600: full(1), "\xe9" * 450: full(2)}
    shelf.save(state)
    assert same(shelf.load(), state)
    assert "\xe9" * 450 in shelf


# ---- arrays that show one memory


def test_an_array_and_its_transpose_are_two(shelf: ts.Shelf) -> None:
    array = np.arange(4).reshape(2, 2)
    shelf.save({"array": array, "turned": array.T})
    assert shelf.load()["turned"].tolist() == [[0, 2], [1, 3]]


# ---- what a save does to the shelf


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_save_that_is_interrupted_leaves_nothing_assigned(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    state = {"a": full(1), "b": full(1)}
    shelf.save(state)
    assign = type(shelf).__setitem__

    def until_b(self: ts.Shelf, name: str, value: Any) -> None:
        if name == "b":
            raise error
        assign(self, name, value)

    monkeypatch.setattr(type(shelf), "__setitem__", until_b)
    with pytest.raises(error):
        shelf.save({"a": full(2), "b": full(2)})
    monkeypatch.undo()
    shelf.persist()
    assert same(shelf.load(), state)


def test_a_part_that_somebody_deleted_may_leave_the_state(shelf: ts.Shelf) -> None:
    shelf.save({"a": full(1), "b": full(2)})
    del shelf["b"]
    shelf.persist()
    shelf.save({"a": full(3)})
    assert same(shelf.load(), {"a": full(3)})


def test_text_that_is_no_unicode_is_saved_again_and_again(shelf: ts.Shelf) -> None:
    progress = {"file": "caf\udce9", "n": 0}  # as os.fsdecode() gives it
    auto = shelf.autosave(progress=progress)
    for step in (1, 2, 3):
        progress["n"] = step
        auto.step(step)
        auto.wait()
        assert shelf.load()["progress"] == progress


# ---- what is loaded


def test_no_keys_at_all_load_nothing(shelf: ts.Shelf) -> None:
    shelf.save({"a": full(1)})
    assert shelf.load(keys=[]) == {}
    shelf.save({})
    assert shelf.load(keys=[]) == {}
