"""Options that a call does not have."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorshelf as ts

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

CALLS: dict[str, Callable[..., Any]] = {
    "open": lambda shelf, **options: ts.open("s", "r", **options),
    "load": lambda shelf, **options: shelf.load(**options),
    "load_into": lambda shelf, **options: shelf.load_into({}, **options),
    "save": lambda shelf, **options: shelf.save({}, **options),
    "snapshot": lambda shelf, **options: shelf.snapshot("s", **options),
    "resume": lambda shelf, **options: shelf.autosave(a=np.ones(1)).resume(**options),
    "batches": lambda shelf, **options: shelf.autosave(a=np.ones(1)).batches([], **options),
}


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [
        ("open", "in_fligth", "in_flight"),
        ("load", "key", "keys"),
        ("load_into", "stric", "strict"),
        ("save", "stepp", "step"),
        ("snapshot", "keeps", "keep"),
        ("resume", "renames", "rename"),
        ("batches", "epochs", "epoch"),
    ],
)
def test_the_one_that_may_be_meant_is_named(
    shelf: ts.Shelf, call: str, given: str, meant: str
) -> None:
    with pytest.raises(ts.errors.BadArgument) as told:
        CALLS[call](shelf, **{given: 1})
    assert isinstance(told.value, TypeError)  # as Python raises
    assert told.value.what == f"{call}() has no option {given}=; did you mean {meant}=?"
    assert meant in told.value.remedy


def test_an_option_that_is_like_none_has_those_that_there_are(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.errors.BadArgument) as told:
        shelf.load_into({}, quickly=True)
    assert told.value.what == "load_into() has no option quickly="
    assert told.value.remedy == "load_into() takes state, strict, rename, progress."


def test_what_torch_calls_so_is_told_as_it_is_here(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.errors.BadArgument, match="Build the objects on the device"):
        shelf.load(map_location="cpu")


def test_a_call_is_documented_as_it_is() -> None:
    assert ts.open.__doc__
    assert "in_flight" in ts.open.__annotations__
    assert ts.Shelf.load.__name__ == "load"
