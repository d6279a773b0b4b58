"""Damaged chunks: what still holds, verify(repair=True) and open(heal=True)."""

import dataclasses
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check

import tensorshelf as ts

MIB = 1 << 20


def pages(number: int) -> bytes:
    """The beginning of a chunk of value()."""
    return number.to_bytes(8, "little") * 512


def value(number: int, chunks: int = 3) -> "np.ndarray[Any, Any]":
    """Chunks of which each has a number of its own, from this one on."""
    return np.repeat(np.arange(number, number + chunks, dtype=np.int64), MIB // 8)


def places(path: pathlib.Path, number: int) -> list[int]:
    """Where chunks of this number begin in the file."""
    data, found = path.read_bytes(), []
    at = data.find(pages(number))
    while at >= 0:
        found.append(at)
        at = data.find(pages(number), at + MIB)
    return found


def spoil(path: pathlib.Path, at: int) -> None:
    """As a drive would, behind the shelf's back."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


@pytest.fixture(params=["whole", "by_chunk"])
def placement(request: pytest.FixtureRequest) -> str:
    """How tensors choose their slots."""
    return str(request.param)


def rotten(
    place: Place, reopen: OpenShelf, placement: str, keep: int = 0, *, both: bool = False
) -> pathlib.Path:
    """A closed shelf with x at version 2, whose value version 1 had as well; a chunk is damaged."""
    shelf = reopen(placement=placement, keep=keep)
    for step in (1, 2):
        shelf.x = value(70)
        shelf.other = np.arange(10)
        shelf.persist(step)
    shelf.close()
    path = place[0]
    first, second = places(path, 71)
    spoil(path, first + 5000)
    shelf = reopen()
    named_first = not shelf.verify()
    shelf.close()
    if both or not named_first:
        spoil(path, second + 6000)
    if not both and not named_first:
        spoil(path, first + 5000)  # and back
    return path


def test_a_damaged_version_is_not_rolled_back_to(reopen: OpenShelf, place: Place) -> None:
    shelf = reopen(mode="w", keep=1, heal=True)
    for step in (1, 2):
        shelf["w"] = value(10 * step)
        shelf["same"] = np.arange(10)
        shelf.persist(step=step)
    for at in places(place[0], 10):
        spoil(place[0], at)
    with pytest.raises(ts.CorruptError, match="nothing is rolled back, for version 1 is damaged:"):
        shelf.rollback(1)
    shelf = reopen()
    with pytest.raises(ts.CorruptError, match="other tensors of version 1") as caught:
        shelf.at(1)["w"].numpy()
    assert "the newest one does not have this chunk" in caught.value.remedy.lower()
    assert (shelf["w"].numpy() == value(20)).all()
    assert shelf.verify().ok
    shelf.persist(step=3)


def test_what_another_slot_has_is_restored(place: Place, reopen: OpenShelf, placement: str) -> None:
    rotten(place, reopen, placement, keep=1)
    shelf = reopen()
    found = shelf.verify()
    assert not found
    assert found.healed_as is None
    (damage,) = found.damage
    assert (damage.tensor, damage.version, damage.chunk) == ("x", 2, 1)
    assert (damage.healable, damage.healed, damage.intact_in) == (True, False, (1,))
    assert found.left == found.damage
    with pytest.raises(ts.CorruptError) as caught:
        shelf.x.numpy()
    assert "verify(repair=True)" in check(caught, ts.CorruptError, "corrupt", ts.ShelfError).remedy

    report = shelf.verify(repair=True)
    assert report
    assert report.ok
    assert report.left == ()
    assert report.damage == (dataclasses.replace(damage, healed=True),)
    assert (report.version, report.healed_as, shelf.version, shelf.step) == (2, 3, 3, 2)
    assert (shelf.x.numpy() == value(70)).all()
    assert shelf.verify() == dataclasses.replace(report, version=3, damage=(), healed_as=None)
    with pytest.raises(ts.CorruptError):  # which has the slot that is damaged
        shelf.at(2)["x"].numpy()
    assert shelf.verify(repair=True).healed_as is None
    assert shelf.version == 3
    shelf = reopen(verify="open")
    assert (shelf.x.numpy() == value(70)).all()


def test_what_no_slot_has_stays_damaged(place: Place, reopen: OpenShelf, placement: str) -> None:
    rotten(place, reopen, placement, both=True)
    shelf = reopen(heal=True)
    report = shelf.verify(repair=True)
    assert not report
    (damage,) = report.left
    assert (damage.healable, damage.healed, damage.intact_in) == (False, False, ())
    assert (report.healed_as, shelf.version) == (None, 2)
    with pytest.raises(ts.CorruptError) as caught:
        shelf.x.numpy()
    assert "repair=True" not in check(caught, ts.CorruptError, "corrupt", ts.ShelfError).remedy
    assert (shelf.other.numpy() == np.arange(10)).all()
    shelf.x = value(70)
    shelf.persist()
    assert shelf.verify()


def test_an_older_version_may_have_another_value_there(
    place: Place, reopen: OpenShelf, placement: str
) -> None:
    shelf = reopen(placement=placement, keep=1)
    for number in (70, 80):
        shelf.x = value(number)
        shelf.persist()
    shelf.close()
    spoil(place[0], places(place[0], 81)[0])
    shelf = reopen()
    (damage,) = shelf.verify(repair=True).left
    assert (damage.healable, damage.intact_in) == (False, (1,))
    shelf.x[MIB // 8 : MIB // 4] = shelf.at(1)["x"].numpy()[MIB // 8 : MIB // 4]
    shelf.persist()
    assert shelf.verify()


def test_repairing_is_refused(place: Place, reopen: OpenShelf, placement: str) -> None:
    rotten(place, reopen, placement)
    with pytest.raises(ts.ReadOnlyError):
        reopen(mode="r").verify(repair=True)
    shelf = reopen()
    shelf.other = np.arange(10)
    with pytest.raises(ts.UncommittedError) as caught:
        shelf.verify(repair=True)
    check(caught, ts.UncommittedError, "uncommitted_changes", ts.ShelfError)
    shelf.discard()
    with shelf.transaction(), pytest.raises(ts.TransactionError):
        shelf.verify(repair=True)
    with shelf.other.edit(), pytest.raises(ts.UnsupportedError):
        shelf.verify(repair=True)
    shelf.discard()
    shelf.prepare()
    with pytest.raises(ts.UnresolvedError):
        shelf.verify(repair=True)
    shelf.resolve("abandon")
    version = shelf.version
    assert shelf.verify(repair=True).healed_as == version + 1


def test_nothing_of_another_thread_is_committed_with_it(
    place: Place, reopen: OpenShelf, placement: str
) -> None:
    rotten(place, reopen, placement)
    shelf = reopen()

    def meanwhile(done: int, total: int) -> None:
        shelf.other = np.arange(1, 11)

    version = shelf.version
    with pytest.raises(ts.UncommittedError):
        shelf.verify(repair=True, progress=meanwhile)
    assert shelf.version == version
    assert (shelf.other.committed.numpy() == np.arange(10)).all()


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_reads_may_heal(place: Place, reopen: OpenShelf, placement: str, mode: str) -> None:
    path = rotten(place, reopen, placement)
    shelf = reopen(mode=mode)
    with pytest.raises(ts.CorruptError):
        shelf.x.numpy()
    assert shelf.stats()["chunks_healed"] == 0
    shelf = reopen(mode=mode, heal=True)
    before = path.read_bytes()
    assert (shelf.x.numpy() == value(70)).all()
    assert shelf.stats()["chunks_healed"] == 1
    assert shelf.x[MIB // 8 + 5] == 71
    assert (shelf.x.committed.numpy() == value(70)).all()
    assert "tensorshelf_healed_chunks_total" in shelf.metrics()
    assert path.read_bytes() == before
    assert not shelf.verify()
    if mode == "r":
        again = pickle.loads(pickle.dumps(shelf))
        assert (again.x.numpy() == value(70)).all()
        again.close()


def test_what_is_shown_in_place_is_not_healed(place: Place, reopen: OpenShelf) -> None:
    rotten(place, reopen, "whole")
    shelf = reopen(heal=True)
    if not shelf.info().promises.mapped:
        pytest.skip("nothing is shown in place")
    with pytest.raises(ts.CorruptError):
        shelf.x.numpy(copy=False)
    assert shelf.verify(repair=True)
    lent = shelf.x.numpy(copy=False)
    assert (lent == value(70)).all()


def test_a_state_that_was_saved_twice_is_restored(place: Place, reopen: OpenShelf) -> None:
    shelf = reopen(placement="whole")
    state = {"w": value(70), "epoch": 3}
    shelf.save(state, step=1)
    shelf.save({**state, "epoch": 4}, step=2)
    shelf.close()
    first, second = places(place[0], 70)
    spoil(place[0], first)
    shelf = reopen()
    if shelf.verify():  # the other slot is the one that counts
        shelf.close()
        spoil(place[0], first)
        spoil(place[0], second)
        shelf = reopen()
    with pytest.raises(ts.CorruptError):
        shelf.load()
    assert shelf.verify(repair=True).healed_as == shelf.version
    loaded = shelf.load()
    assert (loaded["w"] == value(70)).all()
    assert (loaded["epoch"], shelf.step) == (4, 2)


def test_damage_of_an_older_version_alone_has_advice_of_its_own(
    place: Place, reopen: OpenShelf, placement: str
) -> None:
    with reopen(placement=placement, keep=2) as shelf:
        for step in (1, 2, 3):
            shelf.x = value(10 * step)
            shelf.persist(step=step)
    (at,) = places(place[0], 21)
    spoil(place[0], at)
    with ts.open(place[0], "r", tier=place[1]) as shelf:
        assert (shelf.x.numpy() == value(30)).all()
        assert (shelf.at(1).x.numpy() == value(10)).all()
        with pytest.raises(ts.CorruptError) as caught:
            shelf.at(2).x.numpy()
        assert "Other versions may have it whole" in caught.value.remedy


def test_intact_versions_are_those_that_can_be_read(place: Place, reopen: OpenShelf) -> None:
    writer = reopen(keep=1, in_flight=3)
    for step in range(1, 3):
        writer.x = value(10 * step)
        writer.persist(step=step)
    with ts.open(place[0], "r", tier=place[1]) as reader, reader.pin(1):
        for step in range(3, 5):
            writer.x = value(10 * step)
            writer.persist(step=step)
        (at,) = places(place[0], 41)
        spoil(place[0], at)
        (damage,) = writer.verify().damage
        assert damage.intact_in == (3,)  # and not what a reader alone holds
