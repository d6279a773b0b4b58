"""Data-parallel ranks that save pieces of what all hold alike, and have the whole back."""

import pathlib
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import SECONDS, Kept, Rank, dying  # noqa: E402
from partition_ranks import Job, Parted, expected, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import (  # noqa: E402
    copies,
    exchange,
    hall,
    hall_ring,
    link,
    member,
    ring,
    stage,
)
from tensorshelf._group.wire import Wire  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def three(tmp_path: pathlib.Path) -> Parted:
    return Parted(tmp_path, 3)


@pytest.fixture(params=["rooms", "links"])
def way(request: Any, monkeypatch: Any) -> str:
    """How the bytes go: ranks of one machine share memory, others do not."""
    if request.param == "links":
        monkeypatch.setattr(hall, "of_one_machine", lambda offers: False)
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("members", [1, 2, 4])
def test_each_rank_has_the_whole_back_bit_by_bit(tmp_path, members):
    ranks = Parted(tmp_path, members)
    assert ranks.run(lambda rank: trained(rank, 3)) == [(0, expected(0))] * members
    assert ranks.run(lambda rank: trained(rank, 2)) == [(3, expected(3))] * members
    assert ranks.run(lambda rank: trained(rank, 0)) == [(5, expected(5))] * members


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("members", [2, 3])
def test_shares_come_in_frames(tmp_path, monkeypatch, members):
    monkeypatch.setattr(ring, "FRAME_BYTES", 5000)  # cut anywhere, and more to some than to others
    ranks = Parted(tmp_path, members)
    ranks.run(lambda rank: trained(rank, 1))
    assert ranks.run(lambda rank: trained(rank, 0)) == [(1, expected(1))] * members


def pieces_of(ranks: Parted) -> list[dict[str, tuple[int, int]]]:
    """By their names in the shelf: offset of a block, and bytes."""
    found = []
    for rank in range(ranks.members):
        with ts.open(ranks.path(rank), "r") as shelf:
            found.append({name: shelf[name].nbytes for name in shelf if "[" in name})
    return found


def test_each_byte_is_with_one_rank_and_none_has_a_block_more(three):
    three.run(lambda rank: trained(rank, 1))
    blocks, covered = [], {}
    for found in pieces_of(three):
        blocks.append(sum(-(-nbytes // 4096) for nbytes in found.values()))
        for held, nbytes in found.items():
            name, _, span = held[:-1].rpartition("[")
            begin, end = map(int, span.split(":"))
            assert end - begin == nbytes
            covered.setdefault(name, []).append((begin, end))
    assert max(blocks) - min(blocks) <= 1
    job = Job()
    job.train(1)
    held = {name: tensor for name, tensor in job.model.named_parameters() if tensor.ndim}
    for name, tensor in held.items():
        spans = sorted(covered.get(f"model.{name}", []))
        assert [end for _, end in spans[:-1]] == [begin for begin, _ in spans[1:]]
        assert (spans[0][0], spans[-1][1]) == (0, tensor.nbytes) if spans else not tensor.numel()


def test_what_is_not_alike_each_rank_saves_itself(three):
    three.run(lambda rank: trained(rank, 1))
    for rank in range(3):
        with ts.open(three.path(rank), "r") as shelf:
            assert shelf.load("own")["own"].tolist() == [float(rank)] * 5
            assert "model.mean" in shelf  # a buffer, without DistributedDataParallel


def test_pieces_are_copied_behind_step(three):
    def body(rank: Rank) -> Any:
        job = Job(rank.rank)
        with rank.open() as shelf:
            auto = shelf.autosave(group=rank.group, signals=(), **job.state())
            auto.resume()
            job.train(1)
            auto.step(1)
            auto.wait()
            return auto.start.sources

    lazy = [name for sources in three.run(body) for name in sources.lazy]
    assert any(name.startswith("model.weight[") for name in lazy)
    assert not any(name.startswith("model.turned") for name in lazy)  # it is copied in C order


def test_state_that_appears_later_is_saved_and_had_back(three):
    def body(rank: Rank) -> Any:
        job = Job(rank.rank)
        with rank.open() as shelf:
            auto = shelf.autosave(group=rank.group, signals=(), **job.state())
            auto.resume()
            auto.step(0)  # before the optimizer keeps anything
            job.train(1)
            auto.step(1)
            auto.wait()

    three.run(body)
    assert three.run(lambda rank: trained(rank, 0)) == [(1, expected(1))] * 3


def test_objects_that_keep_state_already_are_filled_in_place(three):
    three.run(lambda rank: trained(rank, 2))

    def places(job: Job) -> list[int]:
        rows = job.optimizer.state.values()
        kept = [tensor for row in rows for tensor in row.values() if tensor.ndim and tensor.numel()]
        return [tensor.data_ptr() for tensor in kept if tensor.is_contiguous()]

    def body(rank: Rank) -> Any:
        job = Job(rank.rank)
        job.train(9)
        before = places(job)
        return trained(rank, 0, job), places(job) == before

    assert three.run(body) == [((2, expected(2)), True)] * 3


def test_strict_false_leaves_out_what_others_need(three):
    """Its piece of that goes to them all the same."""
    three.run(lambda rank: trained(rank, 2))

    def body(rank: Rank) -> Any:
        if rank.rank != 1:
            return trained(rank, 0)
        own = torch.zeros(5)
        with rank.open() as shelf:
            auto = shelf.autosave(group=rank.group, signals=(), own=own)
            return auto.resume(strict=False), own.tolist()

    found = three.run(body)
    assert found[0] == found[2] == (2, expected(2))
    assert found[1] == (2, [1.0] * 5)


# ---- killed


def test_prepared_on_all_and_committed_by_none_is_gone_on_from(three, monkeypatch):
    dying(monkeypatch, three, lambda rank: trained(rank, 2))
    assert three.run(lambda rank: trained(rank, 0)) == [(2, expected(2))] * 3


@pytest.mark.parametrize("committed", [0, 2])
def test_committed_by_one_is_gone_on_from(three, monkeypatch, committed):
    do = member.Member._do

    def not_done(self, save, todo):
        if save.part.number == 2 and self._rank != committed:
            raise RuntimeError("the rank dies here")
        do(self, save, todo)

    with monkeypatch.context() as patched:
        patched.setattr(member.Member, "_do", not_done)
        three.run(lambda rank: trained(rank, 2))
    assert three.run(lambda rank: trained(rank, 0)) == [(2, expected(2))] * 3


def test_not_prepared_on_one_is_not_gone_on_from(three, monkeypatch):
    wait = member.GroupSave.wait_prepared

    def dies(self):
        if self.part.number == 2 and self.part.rank == 1:
            raise RuntimeError("the rank dies here")
        wait(self)

    with monkeypatch.context() as patched:
        patched.setattr(member.GroupSave, "wait_prepared", dies)
        three.run(lambda rank: trained(rank, 2))
    assert three.run(lambda rank: trained(rank, 1)) == [(1, expected(1))] * 3


# ---- who cannot load


def on(rank: int, monkeypatch: Any, where: Any, name: str, instead: Any) -> None:
    """There alone; ``where`` is a class whose objects know their rank."""
    original = getattr(where, name)

    def either(self, *args, **options):
        mine = getattr(self, "_rank", None) if hasattr(self, "_rank") else self.rank
        return (instead if mine == rank else original)(self, *args, **options)

    monkeypatch.setattr(where, name, either)


def raising(error: BaseException) -> Any:
    def call(*args, **options):
        raise error

    return call


def told_of(rank: int, errors: list[Any], own: type[BaseException]) -> str:
    """What the others raise, which name it."""
    assert isinstance(errors[rank], own), errors
    others = [error for number, error in enumerate(errors) if number != rank]
    for error in others:
        assert isinstance(error, ts.errors.GroupError), errors
        assert error.rank == rank
        assert f"rank {rank}" in str(error)
    return str(others[0])


@pytest.mark.parametrize("rank", [0, 1])
def test_who_fails_before_the_exchange_is_named_by_all(three, monkeypatch, rank):
    three.run(lambda rank: trained(rank, 1))
    on(rank, monkeypatch, exchange.Exchange, "__call__", raising(RuntimeError("no room")))
    assert "no room" in told_of(rank, three.run(lambda rank: trained(rank, 0)), RuntimeError)


@pytest.mark.parametrize("rank", [0, 2])
def test_who_fails_within_the_exchange_is_named_by_all(three, monkeypatch, rank, way):
    three.run(lambda rank: trained(rank, 1))
    where, name = (hall_ring.HallRing, "_take") if way == "rooms" else (ring.Ring, "_pass_on")
    on(rank, monkeypatch, where, name, raising(RuntimeError("no room")))
    assert "no room" in told_of(rank, three.run(lambda rank: trained(rank, 0)), RuntimeError)


def test_who_fails_behind_the_exchange_is_named_by_all(three):
    three.run(lambda rank: trained(rank, 1))

    def body(rank: Rank) -> Any:
        job = Job(rank.rank)
        if rank.rank == 1:
            job.optimizer.load_state_dict = raising(ValueError("not these"))
        return trained(rank, 0, job)

    assert "not these" in told_of(1, three.run(body), ValueError)
    assert three.run(lambda rank: trained(rank, 0)) == [(1, expected(1))] * 3


def test_who_says_nothing_is_named_in_time(three, monkeypatch):
    three.run(lambda rank: trained(rank, 1))
    on(1, monkeypatch, exchange.Exchange, "__call__", raising(RuntimeError()))
    on(1, monkeypatch, stage.Stages, "fail", lambda *_: None)
    errors = three.run(lambda rank: trained(rank, 0), timeout=1)
    for error in (errors[0], errors[2]):
        assert isinstance(error, ts.errors.UnresolvedError)
        assert "1 of 3 ranks" in str(error)
        assert ": 1. " in str(error)


@pytest.mark.usefixtures("way")
def test_ctrl_c_is_heard_within_the_exchange(three, monkeypatch):
    three.run(lambda rank: trained(rank, 1))
    gather = exchange.Exchange._gather
    at = threading.local()

    class Thread(threading.Thread):
        def join(self, timeout=None):
            if timeout == exchange._TICK and hasattr(at, "interrupted"):
                raise KeyboardInterrupt
            super().join(timeout)

        def is_alive(self):
            return hasattr(at, "interrupted") or super().is_alive()

    def interrupted(self, spots, shares, arrived):
        at.interrupted = True
        gather(self, spots, shares, arrived)

    monkeypatch.setattr(exchange, "threading", SimpleNamespace(Thread=Thread))
    on(1, monkeypatch, exchange.Exchange, "_gather", interrupted)

    def body(rank: Rank) -> Any:
        try:
            return trained(rank, 0)
        except KeyboardInterrupt as error:
            return error

    # In time where a neighbour waits for a link that the interrupted rank did not begin.
    assert "KeyboardInterrupt" in told_of(1, three.run(body, timeout=20), KeyboardInterrupt)


def test_what_does_not_come_as_it_was_sent_is_told(three, monkeypatch):
    three.run(lambda rank: trained(rank, 1))
    send = link.Link.send_sum
    monkeypatch.setattr(
        link.Link, "send_sum", lambda self, *, right, wait: send(self, right=False, wait=wait)
    )
    monkeypatch.setattr(hall, "of_one_machine", lambda offers: False)
    for error in three.run(lambda rank: trained(rank, 0)):
        assert "did not come as it was sent" in str(error)


def test_what_does_not_come_as_it_was_given_is_told(three, monkeypatch):
    three.run(lambda rank: trained(rank, 1))
    say = hall_ring.HallRing._say

    said = []

    def changed(self, word):
        if self._rank == 1 and not said:
            said.append(word)  # its own
            self._rooms[1][100] ^= 1  # behind the checksum
        say(self, word)

    monkeypatch.setattr(hall_ring.HallRing, "_say", changed)
    errors = three.run(lambda rank: trained(rank, 0))
    assert isinstance(errors[2], ts.errors.CorruptError)
    assert "what rank 1 gave of what all hold alike did not come" in str(errors[2])
    for error in errors[:2]:  # of rank 0, whichever comes first
        assert isinstance(error, (ts.errors.CorruptError, ts.errors.GroupError))


def test_who_has_another_piece_than_its_share_is_named_by_all(three, monkeypatch):
    three.run(lambda rank: trained(rank, 1))
    shares = exchange.Exchange._shares

    def moved(self, spots):
        place = spots[0].place
        other = place._replace(begin=place.begin + 4096, end=place.end + 4096)
        return shares(self, [spots[0]._replace(place=other), *spots[1:]])

    on(1, monkeypatch, exchange.Exchange, "_shares", moved)
    errors = three.run(lambda rank: trained(rank, 0))
    assert "not its share" in told_of(1, errors, ts.errors.LayoutError)


def test_who_lost_a_link_is_named_by_who_did_not(three):
    store = torch.distributed.HashStore()

    def body(rank: Rank) -> None:
        stages = stage.Stages(Wire(store, "start/"), rank.rank, 3, 20.0)
        if rank.rank == 1:
            stages.fail("loaded", link.LinkLost("it broke", "Start anew."))
        else:
            stages.come("loaded")

    errors = three.run(body)
    assert errors[1] is None
    for error in (errors[0], errors[2]):
        assert isinstance(error, ts.errors.GroupError)
        assert error.rank == 1


def test_who_does_not_come_is_named_though_another_lost_a_link_to_it(three):
    store = torch.distributed.HashStore()

    def body(rank: Rank) -> None:
        stages = stage.Stages(Wire(store, "start/"), rank.rank, 3, 0.5)
        if rank.rank == 2:
            stages.fail("loaded", link.LinkLost("it broke", "Start anew."))
        elif rank.rank == 0:
            stages.wire.take("loaded/2", seconds=30.0)
            stages.come("loaded")

    errors = three.run(body)
    for error in (errors[0], errors[2]):
        assert isinstance(error, ts.errors.UnresolvedError)
        assert "1 of 3 ranks did not load in time what all resume: 1" in str(error)


def test_who_does_not_come_where_a_link_broke_is_waited_for_a_moment_alone(three, monkeypatch):
    """Most likely it broke with that rank. As long as the group says would be a hang here."""
    monkeypatch.setattr(stage, "_MOMENT", 0.2)
    store = torch.distributed.HashStore()

    def body(rank: Rank) -> None:
        stages = stage.Stages(Wire(store, "start/"), rank.rank, 3, SECONDS + 20.0)
        if rank.rank == 0:
            stages.come("loaded")
        elif rank.rank == 1:
            stages.fail("loaded", link.LinkLost("it broke", "Start anew."))

    errors = three.run(body)
    for error in errors[:2]:
        assert isinstance(error, ts.errors.UnresolvedError)
        assert "1 of 3 ranks did not load in time what all resume: 2" in str(error)


def test_other_tensors_on_one_rank_are_named(three, monkeypatch):
    three.run(lambda rank: trained(rank, 1))
    listed = exchange.Exchange._shares

    def one_less(self, spots):
        spots.pop(0)
        return listed(self, spots)

    on(2, monkeypatch, exchange.Exchange, "_shares", one_less)
    monkeypatch.setattr(exchange, "_check_own", lambda *_: None)
    for error in three.run(lambda rank: trained(rank, 0)):
        assert isinstance(error, ts.errors.LayoutError)
        assert "rank 2 saved other tensors in pieces than rank 0" in str(error)
        assert "'model.bfloat'" in str(error)


# ---- what was damaged


def damage_piece(ranks: Parted, rank: int, path: pathlib.Path | None = None) -> None:
    path = path or ranks.path(rank)
    with ts.open(path, "r") as shelf:
        name = next(name for name in shelf if "[" in name and shelf[name].nbytes > 8192)
        value = np.asarray(shelf[name].numpy()).reshape(-1).view(np.uint8)[:4096].copy()
    data = bytearray(path.read_bytes())
    at = data.find(value.tobytes())
    assert at > 0
    data[at] ^= 1
    path.write_bytes(data)


def test_a_damaged_piece_is_told_by_all(three):
    three.run(lambda rank: trained(rank, 1))
    damage_piece(three, 1)
    told_of(1, three.run(lambda rank: trained(rank, 0)), ts.errors.CorruptError)


def test_a_damaged_piece_is_had_back_from_its_copy(tmp_path):
    ranks = Parted(tmp_path, 3, copies=1)
    ranks.run(lambda rank: trained(rank, 1))
    damage_piece(ranks, 1)
    assert ranks.run(lambda rank: trained(rank, 1)) == [(1, expected(1))] * 3
    ranks.path(2).unlink()
    assert ranks.run(lambda rank: trained(rank, 0)) == [(2, expected(2))] * 3


def test_what_came_otherwise_from_another_rank_mends_no_shelf(tmp_path, monkeypatch):
    """It is whole, and its copy would bring nothing else."""
    ranks = Parted(tmp_path, 3, copies=1)
    ranks.run(lambda rank: trained(rank, 1))
    fetched = []
    monkeypatch.setattr(copies.Copy, "fetch", lambda self, shelf: fetched.append(self.pair))
    monkeypatch.setattr(hall, "of_one_machine", lambda offers: False)
    on_wire = ring.Neighbours.check_sum

    def otherwise(self):
        on_wire(self)
        raise ts.errors.CorruptError("it came otherwise", "Start the job anew.")

    monkeypatch.setattr(ring.Neighbours, "check_sum", otherwise)
    for error in ranks.run(lambda rank: trained(rank, 0), timeout=5):
        assert "it came otherwise" in str(error)
    assert fetched == []


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_shelf_whose_copy_is_damaged_is_told_by_all(tmp_path, lost):
    """At once: they do not wait for who cannot have it back."""
    ranks = Parted(tmp_path, 3, copies=1)
    ranks.run(lambda rank: trained(rank, 1))
    (keeper,) = ranks.run(lambda rank: (trained(rank, 0), rank.group.info().keepers)[1])[lost]
    damage_piece(ranks, lost, ranks.copy(lost, keeper))
    ranks.path(lost).unlink()
    told_of(lost, ranks.run(lambda rank: trained(rank, 0)), ts.errors.CorruptError)


# ---- other ways to what was saved


def test_one_shelf_says_where_the_rest_is(three):
    three.run(lambda rank: trained(rank, 1))
    with ts.open(three.path(1)) as shelf:
        for call in (
            shelf.load,
            lambda: shelf.load("model"),
            shelf.autosave(**Job().state()).resume,
        ):
            with pytest.raises(ts.errors.BadArgument, match=r"pieces .* tensorshelf\.merge"):
                call()


def test_pieces_may_be_given_up_and_taken_up_again(tmp_path):
    parted, whole = Parted(tmp_path, 2), Kept(tmp_path, 2)
    whole.copies = 0
    for ranks, begin in ((whole, 0), (parted, 1), (whole, 2), (parted, 3)):
        assert ranks.run(lambda rank: trained(rank, 1)) == [(begin, expected(begin))] * 2
        with ts.open(ranks.path(0), "r") as shelf:
            assert ("model.weight" in shelf) == (ranks is whole)


def test_all_ranks_save_pieces_or_none(tmp_path):
    ranks = Kept(tmp_path, 2)
    ranks.copies = 0

    def body(rank: Rank) -> Any:
        rank.group.partition = rank.rank == 1
        return trained(rank, 1)

    for error in ranks.run(body):
        assert isinstance(error, ts.errors.BadArgument)
        assert "rank 1 has partition=True, and rank 0 False" in str(error)


def test_a_group_tells_of_pieces(three):
    def body(rank: Rank) -> Any:
        return rank.group.info().partition, (trained(rank, 1), rank.group.info().partition)[1]

    assert three.run(body) == [(True, True)] * 3
    with pytest.raises(ts.errors.BadArgument, match="partition"):
        ts.Group(torch.distributed.HashStore(), rank=0, members=1, partition="some")
