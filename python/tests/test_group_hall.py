"""Memory that ranks of one machine share: who finds it, and what where one does not."""

import json
import os
import pathlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from partition_ranks import Job, Parted, expected, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import exchange, hall, hall_ring, ring  # noqa: E402
from tensorshelf._state import ahead  # noqa: E402
from tensorshelf._values import _torch  # noqa: E402
from tensorshelf._values._cuda import DeviceMemory  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

NBYTES = 1 << 16


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Of torch's: on several it may round otherwise from one call to the next."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def test_what_one_puts_into_its_room_another_finds() -> None:
    room = hall.Room(NBYTES)
    found = hall.entered(room.offer, NBYTES)
    room.shut()
    assert found is not None
    room.memory[:] = np.arange(NBYTES, dtype=np.uint8)
    assert (found == room.memory).all()


def changed(offer: str, at: int, to: Any) -> str:
    parts = json.loads(offer)
    parts[at] = to
    return json.dumps(parts)


def test_what_is_no_room_of_that_offer_is_not_entered(tmp_path: pathlib.Path) -> None:
    room, other = hall.Room(NBYTES), hall.Room(NBYTES)
    assert hall.entered(changed(room.offer, 2, json.loads(other.offer)[2]), NBYTES) is None
    assert hall.entered(room.offer, NBYTES // 2) is None
    assert hall.entered(changed(room.offer, 1, 1 << 22), NBYTES) is None  # no process has it
    with open(tmp_path / "file", "wb") as file:
        assert hall.entered(changed(room.offer, 2, file.fileno()), NBYTES) is None
    assert hall.entered(room.offer, NBYTES) is not None
    room.shut()
    assert hall.entered(room.offer, NBYTES) is None
    other.shut()


def test_ranks_of_two_machines_share_none() -> None:
    room = hall.Room(NBYTES)
    room.shut()
    assert hall.of_one_machine([room.offer, room.offer])
    assert not hall.of_one_machine([room.offer, changed(room.offer, 0, "another")])
    assert not hall.of_one_machine([room.offer, ""])


def test_a_machine_that_lends_none_offers_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(os, "posix_fallocate", refused)
    room = hall.Room(NBYTES)
    assert room.offer == ""
    room.shut()


@pytest.mark.parametrize("how", ["one does not find them", "one has none"])
def test_where_one_rank_cannot_all_go_by_links(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    three = Parted(tmp_path, 3)
    three.run(lambda rank: trained(rank, 1))
    entered = exchange.Exchange._entered
    gathered: list[type] = []
    made = exchange.Exchange._made

    def noted(self: exchange.Exchange, go_on: Any) -> Any:
        found = made(self, go_on)
        gathered.append(type(found))
        return found

    def but_one(self: exchange.Exchange, offers: list[str]) -> Any:
        return [] if self._rank == 2 else entered(self, offers)

    monkeypatch.setattr(exchange.Exchange, "_made", noted)
    assert three.run(lambda rank: trained(rank, 0)) == [(1, expected(1))] * 3
    if how == "one does not find them":
        monkeypatch.setattr(exchange.Exchange, "_entered", but_one)
    else:
        monkeypatch.setattr(hall, "of_one_machine", lambda offers: False)
    assert three.run(lambda rank: trained(rank, 0)) == [(1, expected(1))] * 3
    assert gathered == [hall_ring.HallRing] * 3 + [ring.Ring] * 3


def test_rooms_leave_no_files_open(tmp_path: pathlib.Path) -> None:
    two = Parted(tmp_path, 2)
    two.run(lambda rank: trained(rank, 1))
    two.run(lambda rank: trained(rank, 0))
    names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is(fd)]
    assert not [name for name in names if hall._NAME in name]


def _is(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


# ---- what is read while it goes on


def loaded(ranks: Parted, world: int) -> list[Any]:
    """By so many ranks, each with the whole: what each has, or raised."""
    paths = [ranks.path(rank) for rank in range(ranks.members)]
    now = Parted(ranks.folder, world)

    def body(rank: Any) -> Any:
        job = Job(rank.rank).forget()
        with ts.open_merged(paths) as merged:
            merged.load_into({"model": job.model, "optimizer": job.optimizer}, group=rank.group)
        return job.values()

    now.more = {}
    return now.run(body)


@pytest.mark.parametrize("by", ["rooms", "links"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_pieces_may_come_in_small_parts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, by: str, world: int
) -> None:
    three = Parted(tmp_path, 3)
    three.run(lambda rank: trained(rank, 2))
    monkeypatch.setattr(ring, "FRAME_BYTES", 5000)
    monkeypatch.setattr("tensorshelf._state.jobs._BATCH_BYTES", 4096)
    if by == "links":
        monkeypatch.setattr(hall, "of_one_machine", lambda offers: False)
    assert loaded(three, world) == [expected(2)] * world


@pytest.mark.parametrize("by", ["rooms", "links"])
def test_a_piece_that_cannot_be_read_on_the_way_is_told_by_all(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    three = Parted(tmp_path, 3)
    three.run(lambda rank: trained(rank, 1))
    monkeypatch.setattr(ring, "FRAME_BYTES", 5000)
    where = hall_ring.HallRing if by == "rooms" else ring.Ring
    if by == "links":
        monkeypatch.setattr(hall, "of_one_machine", lambda offers: False)
    gather = where.gather

    def failing(self: Any, shares: Any, arrived: Any) -> None:
        count = iter(range(3))

        def damaged(nbytes: int) -> None:
            arrived(nbytes)
            if next(count, None) is None:
                raise ts.CorruptError("chunk 3 is damaged", "Have it back from a copy.")

        gather(self, shares, damaged if self._rank == 1 else arrived)

    monkeypatch.setattr(where, "gather", failing)
    errors = loaded(three, 3)
    assert isinstance(errors[1], ts.CorruptError)
    for error in (errors[0], errors[2]):
        assert isinstance(error, ts.GroupError)
        assert error.rank == 1
        assert "chunk 3 is damaged" in str(error)


def test_what_comes_otherwise_behind_the_first_block_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Parted(tmp_path, 2)
    two.run(lambda rank: trained(rank, 1))
    monkeypatch.setattr(ring, "FRAME_BYTES", 5000)
    take, copy_out = hall_ring.HallRing._take, hall_ring._copy_out
    blocks = threading.local()  # the one that a rank takes: whose, and its number
    seen: set[tuple[int, int]] = set()

    def noted(self: Any, rank: int, number: int, *more: Any) -> None:
        blocks.now = rank, number
        seen.add(blocks.now)
        take(self, rank, number, *more)

    def turned(room: Any, part: Any) -> None:
        if blocks.now == (0, 1):  # the second of rank 0's, which rank 1 alone takes
            room[0] ^= 1
        copy_out(room, part)

    monkeypatch.setattr(hall_ring.HallRing, "_take", noted)
    monkeypatch.setattr(hall_ring, "_copy_out", turned)
    told, own = two.run(lambda rank: trained(rank, 0))
    assert (0, 1) in seen
    assert isinstance(own, ts.CorruptError)
    assert "what rank 0 gave of what all hold alike did not come" in str(own)
    assert isinstance(told, ts.GroupError)
    assert told.rank == 1


def test_what_is_read_ahead_is_told_in_its_order() -> None:
    def failing() -> int:
        raise ts.CorruptError("damaged", "")

    with ahead.Ahead([lambda: 10, lambda: 5, failing, lambda: 1]) as one:
        one.arrived(0)
        one.arrived(12)
        one.arrived(15)
        with pytest.raises(ts.CorruptError, match="damaged"):
            one.arrived(16)


def test_nothing_is_read_ahead_once_its_use_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into memory that somebody else may have by then: what has begun is waited for."""
    begun, waited_for = threading.Event(), threading.Event()
    ended: list[int] = []
    shutdown = ThreadPoolExecutor.shutdown

    def noted(pool: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
        shutdown(pool, False, cancel_futures=cancel_futures)
        if wait:
            waited_for.set()
            shutdown(pool, True)

    def reads(number: int) -> int:
        begun.set()
        waited_for.wait()
        ended.append(number)
        return 1

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", noted)
    try:
        with ahead.Ahead([partial(reads, number) for number in range(40)]):
            begun.wait()
        assert 0 < len(ended) < 40
    finally:
        waited_for.set()


@pytest.mark.parametrize("world", [1, 2])
def test_pieces_that_lie_on_a_device_go_by_host_memory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, world: int
) -> None:
    """Of other ranks' shelves, which give theirs to host memory alone."""
    two = Parted(tmp_path, 2)
    two.run(lambda rank: trained(rank, 1))
    on_device: list[int] = []

    def device_memory_of(value: Any) -> DeviceMemory | None:
        if value.dtype != torch.uint8:
            return None
        on_device.append(value.nbytes)
        return DeviceMemory(value.data_ptr(), value.nbytes)

    monkeypatch.setattr(_torch, "device_memory_of", device_memory_of)
    assert loaded(two, world) == [expected(1)] * world
    assert on_device
