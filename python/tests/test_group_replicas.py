"""Copies of a rank's part with other ranks: kept as it saves, and given back where it is lost."""

import pathlib
import shutil
from typing import Any

import numpy as np
import pytest
from group_ranks import Kept, Rank, damage, dying, same, steps, telling

import tensorshelf as ts
from tensorshelf._group import kept, link, member, renewal, started, stream


@pytest.fixture
def three(tmp_path: pathlib.Path) -> Kept:
    return Kept(tmp_path, 3)


def test_a_lost_shelf_is_had_back_from_its_copy(three):
    assert three.run(lambda rank: steps(rank, 3)) == [(0, 0.0), (0, 1.0), (0, 2.0)]
    three.path(1).unlink()
    assert three.run(lambda rank: steps(rank, 2)) == [(3, 3.0), (3, 4.0), (3, 5.0)]
    assert three.shelves() == [(5, 5.0), (5, 6.0), (5, 7.0)]


def test_each_rank_may_lose_its_shelf_and_the_copies_beside_it(three):
    three.run(lambda rank: steps(rank, 1))
    for lost in range(3):
        for path in three.folder.glob(f"run.{lost}.shelf*"):
            path.unlink()
        begun = three.run(lambda rank: steps(rank, 1))
        assert begun == [(lost + 1, rank + lost + 1.0) for rank in range(3)]


def test_two_parts_that_are_lost_with_their_copies_are_told(three):
    three.run(lambda rank: steps(rank, 2))
    info = three.run(lambda rank: (steps(rank, 1), rank.group.info())[1])
    (keeper,) = info[1].keepers
    three.path(1).unlink()
    three.copy(1, keeper).unlink()
    for error in three.run(lambda rank: steps(rank, 1)):
        assert isinstance(error, ts.ShelfNotFound)
        assert "rank 1" in str(error)


def test_a_copy_has_what_its_owner_has(three):
    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            for number in range(1, 4):
                rank.step(auto, number)
            auto.wait()
            info = rank.group.info()
            return info.keepers, info.keeps

    found = three.run(body)
    for owner, (keepers, _) in enumerate(found):
        assert len(keepers) == 1
        assert owner not in keepers
        assert owner in found[keepers[0]][1]
        with (
            ts.open(three.path(owner), "r") as own,
            ts.open(three.copy(owner, keepers[0]), "r") as copy,
        ):
            assert own.step == copy.step == 3
            assert list(own) == list(copy)
            assert all(bytes(own[name].numpy()) == bytes(copy[name].numpy()) for name in own)
            assert copy.verify()


def test_what_changed_alone_is_sent(three, monkeypatch):
    from tensorshelf._group import stream

    sent = []
    send = stream.send

    def counted(link, version, contents):
        sent.append((contents.whole, contents.nbytes()))
        send(link, version, contents)

    monkeypatch.setattr(stream, "send", counted)
    frozen = np.arange(3 << 20, dtype=np.uint8)

    def body(rank: Rank):
        with rank.open(keep_unchanged=True) as shelf:
            auto = rank.autosave(shelf, frozen=frozen)
            begin = auto.resume()
            for number in range(begin + 1, begin + 4):
                rank.step(auto, number)
            auto.wait()

    three.run(body)
    assert sorted(whole for whole, _ in sent) == [False] * 6 + [True] * 3
    assert all(nbytes > 3 << 20 for whole, nbytes in sent if whole)
    assert all(nbytes < 1 << 20 for whole, nbytes in sent if not whole)
    sent.clear()
    three.run(body)
    assert [whole for whole, _ in sent] == [False] * 9  # the copies are what they were


def test_a_damaged_chunk_is_had_back(three):
    three.run(lambda rank: steps(rank, 3))
    damage(three.path(2), np.full(1000, 5.0))
    assert three.run(lambda rank: steps(rank, 1)) == [(3, 3.0), (3, 4.0), (3, 5.0)]
    with ts.open(three.path(2), "r") as shelf:
        assert shelf.verify()
    assert three.run(lambda rank: steps(rank, 1)) == [(4, 4.0), (4, 5.0), (4, 6.0)]


def test_a_version_beside_the_group_is_not_mended_by_an_older_one(three):
    three.run(lambda rank: steps(rank, 1))
    with ts.open(three.path(1)) as shelf:
        shelf["beside"] = np.ones(3)
        shelf.persist()
    damage(three.path(1), np.full(1000, 2.0))
    error = three.run(lambda rank: steps(rank, 0), timeout=5)[1]
    assert isinstance(error, ts.CorruptError)
    with ts.open(three.path(1), "r") as shelf:
        assert list(shelf["beside"].numpy()) == [1, 1, 1]


def test_a_shelf_that_was_put_back_from_a_copy_is_brought_up(three):
    three.run(lambda rank: steps(rank, 1))
    older = three.folder / "older"
    shutil.copy(three.path(0), older)
    three.run(lambda rank: steps(rank, 1))
    shutil.copy(older, three.path(0))
    assert three.run(lambda rank: steps(rank, 1)) == [(2, 2.0), (2, 3.0), (2, 4.0)]


def test_a_copy_that_is_older_is_not_taken(three):
    three.run(lambda rank: steps(rank, 1))
    (keeper,) = three.run(lambda rank: (steps(rank, 1), rank.group.info().keepers)[1])[0]
    older = three.folder / "older"
    shutil.copy(three.copy(0, keeper), older)
    three.run(lambda rank: steps(rank, 1))
    shutil.copy(older, three.copy(0, keeper))
    assert three.run(lambda rank: steps(rank, 1))[0] == (3, 3.0)  # and made anew
    three.path(0).unlink()
    assert three.run(lambda rank: steps(rank, 1))[0] == (4, 4.0)
    shutil.copy(older, three.copy(0, keeper))
    three.path(0).unlink()
    for error in three.run(lambda rank: steps(rank, 1)):
        assert isinstance(error, ts.StaleError)
        assert "rank 0" in str(error)


@pytest.mark.parametrize("cut", [False, True])
def test_a_copy_that_cannot_be_opened_is_put_aside(three, cut):
    (keeper,) = three.run(lambda rank: (steps(rank, 1), rank.group.info().keepers)[1])[0]
    copy = three.copy(0, keeper)
    left = copy.read_bytes()[:8192] if cut else b"x" * 8192
    copy.write_bytes(left)
    assert three.run(lambda rank: steps(rank, 1))[0] == (1, 1.0)
    assert copy.with_name(copy.name + ".damaged").read_bytes() == left
    three.path(0).unlink()
    assert three.run(lambda rank: steps(rank, 1))[0] == (2, 2.0)


def test_without_a_copy_nobody_commits(three, monkeypatch):
    from tensorshelf._group import stream

    receive = stream.receive
    full = []

    def refused(link, shelf, session, contents):
        receive(link, shelf, session, contents)
        if not contents.whole and not full:
            full.append(True)
            raise ts.ShelfFull("no room", "Make some.")

    monkeypatch.setattr(stream, "receive", refused)

    found = three.run(lambda rank: telling(rank, 4))
    assert [step for _, step in found] == [4, 4, 4]
    assert all([number for number, _ in told] == [2] for told, _ in found)
    assert all("no room" in str(error) for told, _ in found for _, error in told)
    for owner in range(3):  # what was sent behind that was sent right
        three.path(owner).unlink()
        assert three.run(lambda rank: steps(rank, 0))[owner] == (4, owner + 4.0)


def prepare_step_two(ranks: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step, and of the next one what all prepared: they die before they decide."""
    do = member.Member._do

    def not_done(self, save, todo):
        if save.step == 2:
            raise RuntimeError("the rank dies here")
        do(self, save, todo)

    ranks.run(lambda rank: steps(rank, 1))
    with monkeypatch.context() as patch:
        patch.setattr(member.Member, "_do", not_done)
        ranks.run(lambda rank: steps(rank, 1))


def test_what_is_prepared_everywhere_is_committed_from_copies_too(three, monkeypatch):
    """A rank that lost its shelf behind its vote is no reason to go back."""
    prepare_step_two(three, monkeypatch)
    with ts.open(three.path(1), "r") as shelf:
        assert shelf.step == 1
        assert shelf.prepared.step == 2
    three.path(1).unlink()
    assert three.run(lambda rank: steps(rank, 1)) == [(2, 2.0), (2, 3.0), (2, 4.0)]


def test_a_prepared_part_that_is_damaged_is_had_back(three, monkeypatch):
    prepare_step_two(three, monkeypatch)
    damage(three.path(1), np.full(1000, 3.0))
    assert three.run(lambda rank: steps(rank, 1)) == [(2, 2.0), (2, 3.0), (2, 4.0)]


def test_what_comes_otherwise_than_it_was_sent_is_not_kept(three, monkeypatch):
    from tensorshelf._group import link

    turned = []

    def other(self, begun, room, nbytes):
        link._wait(begun)
        if nbytes > 1000:
            turned.append(nbytes)
            if len(turned) == 4:
                room[7] ^= 1
        frame = room.numpy()[:nbytes]
        self._sum = link._core.checksum(frame, self._sum)
        return frame

    monkeypatch.setattr(link.Link, "_come", other)

    found = three.run(lambda rank: telling(rank, 4))
    assert [step for _, step in found] == [4, 4, 4]
    assert all("did not come as it was sent" in str(told[0][1]) for told, _ in found)


def test_copies_are_refused_where_they_cannot_be(tmp_path):
    from torch.distributed import HashStore

    with pytest.raises(ts.BadArgument, match="need as many other ranks"):
        ts.Group(HashStore(), rank=0, members=2, replicate=2)
    for wrong in (-1, True, "1"):
        with pytest.raises(ts.BadArgument, match="no number of copies"):
            ts.Group(HashStore(), rank=0, members=2, replicate=wrong)
    with pytest.raises(ts.BadArgument, match="replica_rate"):
        ts.Group(HashStore(), rank=0, members=2, replicate=1, replica_rate="much")


def test_ranks_that_want_copies_otherwise_are_refused(tmp_path):
    two = Kept(tmp_path, 2)

    def body(rank: Rank):
        if rank.rank == 1:
            number, store = rank.group._number, rank.group._store
            rank.group = ts.Group(store, rank=1, members=2, timeout=20)
            rank.group._number = number
        return steps(rank, 1)

    for error in two.run(body):
        assert isinstance(error, ts.BadArgument)
        assert "rank 1 has replicate=0, and rank 0 1" in str(error)


def test_keepers_are_on_other_nodes_and_keep_equally_many():
    from tensorshelf._group.agree import keepers_of

    nodes = ["a", "a", "b", "b", "c", "c"]
    for copies in (1, 2):
        found = keepers_of(nodes, copies)
        kept = [0] * 6
        for rank, keepers in enumerate(found):
            held = {nodes[keeper] for keeper in keepers}
            assert len(held) == copies
            assert nodes[rank] not in held
            for keeper in keepers:
                kept[keeper] += 1
        assert kept == [copies] * 6
    assert keepers_of(["a", "b", "c"], 0) == [[], [], []]


def test_one_node_for_all_is_told(caplog):
    from tensorshelf._group.agree import keepers_of

    found = keepers_of(["a"] * 4, 1)
    assert all(keepers and rank not in keepers for rank, keepers in enumerate(found))
    assert "do not fit on different nodes" in caplog.text


def test_keepers_are_on_other_racks_where_these_are_known(caplog):
    from tensorshelf._group.agree import keepers_of

    nodes = ["a", "b", "c", "d"] * 2
    racks = ["left", "left", "right", "right"] * 2
    found = keepers_of(nodes, 1, racks)
    assert all(racks[keeper] != racks[rank] for rank, (keeper,) in enumerate(found))
    assert sorted(keeper for (keeper,) in found) == list(range(8))
    assert caplog.text == ""
    found = keepers_of(nodes, 2, racks)  # of two racks there are no three
    assert "do not fit on different racks" in caplog.text
    assert "different nodes" not in caplog.text
    for rank, keepers in enumerate(found):
        assert len({nodes[rank], *(nodes[keeper] for keeper in keepers)}) == 3
    assert all(
        nodes[keeper] != nodes[rank] for rank, (keeper,) in enumerate(keepers_of(nodes, 1, None))
    )


@pytest.mark.parametrize(
    ("racks", "text"),
    [
        (["left", None, "right", "right"], "rank 1 has no rack="),
        (["left", "right", "left", "left"], "rank 1 has rack='right', and others of its node"),
    ],
)
def test_racks_are_given_by_all_and_hold_whole_nodes(tmp_path, racks, text):
    four = Kept(tmp_path, 4)
    four.nodes = ["a", "a", "b", "c"]

    def body(rank):
        rank.group._rack = racks[rank.rank]
        return steps(rank, 1)

    for error in four.run(body):
        assert isinstance(error, ts.BadArgument)
        assert text in str(error)
        assert error.remedy


def test_a_group_keeps_its_copies_on_other_racks(tmp_path):
    four = Kept(tmp_path, 4)
    racks = ["left", "left", "right", "right"]

    def body(rank):
        rank.group._rack = racks[rank.rank]
        steps(rank, 1)
        return rank.group.info().keepers

    for rank, (keeper,) in enumerate(four.run(body)):
        assert racks[keeper] != racks[rank]


def test_copies_lie_in_the_folder_that_is_given(tmp_path):
    two = Kept(tmp_path, 2)
    elsewhere = tmp_path / "copies"
    elsewhere.mkdir()

    def body(rank: Rank):
        rank.group._replicas = rank.group._replicas._replace(folder=str(elsewhere))
        return steps(rank, 1)

    two.run(body)
    assert sorted(path.name for path in elsewhere.iterdir()) == [
        "run.0.shelf.of-1",
        "run.1.shelf.of-0",
    ]
    two.path(0).unlink()
    assert two.run(body) == [(1, 1.0), (1, 2.0)]


def test_what_is_persisted_beside_the_group_comes_with_the_next_save(three):
    """Also where the job starts anew in between, and the copy is of the same epoch."""

    def body(rank: Rank):
        with rank.open(keep=1) as shelf:
            auto = rank.autosave(shelf)
            begin = auto.resume()
            rank.step(auto, begin + 1)
            auto.wait()
            shelf["beside"] = np.full(10, begin + 1.0)
            shelf.persist()

    for _ in range(3):
        three.run(body)
    three.run(lambda rank: steps(rank, 1))
    three.path(1).unlink()
    three.run(lambda rank: steps(rank, 1))
    with ts.open(three.path(1), "r") as shelf:
        assert shelf.step == 5
        assert shelf["beside"].numpy().tolist() == [3.0] * 10


def saved(rank: Rank, count: int) -> tuple[list[tuple[int, type]], int | None]:
    """Saves so many steps: what was raised at which, and the step of the shelf at the end."""
    with rank.open() as shelf:
        auto = rank.autosave(shelf)
        begin = auto.resume()
        told = []
        for number in range(begin + 1, begin + count + 1):
            try:
                rank.step(auto, number)
                auto.wait()
            except ts.ShelfError as error:
                told.append((number, type(error)))
        return told, shelf.step


def once(monkeypatch: Any, where: Any, name: str, wanted: Any, error: Exception) -> None:
    """A call of a function raises, the first for which ``wanted(*args)`` is true."""
    call = getattr(where, name)
    raised = []

    def changed(*args: Any, **options: Any) -> Any:
        if not raised and wanted(*args):
            raised.append(True)
            raise error
        return call(*args, **options)

    monkeypatch.setattr(where, name, changed)


def test_a_commit_that_failed_at_a_keeper_is_done_before_the_next_is_kept(three, monkeypatch):
    from tensorshelf._group import kept

    failure = ts.IoError("the medium failed", "Look at it.")
    once(monkeypatch, kept.KeptShelf, "resolve", lambda _, decision: decision == "commit", failure)
    assert three.run(lambda rank: saved(rank, 3)) == [([], 3)] * 3
    for owner in range(3):
        three.path(owner).unlink()
        assert three.run(lambda rank: steps(rank, 0))[owner] == (3, owner + 3.0)


def test_what_is_committed_is_not_abandoned_for_a_later_save(three, monkeypatch):
    """A keeper has not committed step 2 yet when the save of step 3 fails before it is sent."""
    from tensorshelf._group import kept, member

    wait_prepared = member.GroupSave.wait_prepared

    def torn(self):
        wait_prepared(self)
        if (self.part.rank, self.step) == (0, 3):
            raise ts.TornSave("'values' changed", "Look at it.")

    monkeypatch.setattr(member.GroupSave, "wait_prepared", torn)
    resolve = kept.KeptShelf.resolve
    decided = []

    def fails(self, decision):
        if ".of-0" in self.path:
            decided.append(decision)
            if len(decided) == 2:
                raise ts.IoError("the medium failed", "Look at it.")
        resolve(self, decision)

    monkeypatch.setattr(kept.KeptShelf, "resolve", fails)
    found = three.run(lambda rank: saved(rank, 3))
    assert [step for _, step in found] == [2, 2, 2]
    three.path(0).unlink()
    assert three.run(lambda rank: steps(rank, 0)) == [(2, 2.0), (2, 3.0), (2, 4.0)]


def test_a_refusal_of_a_keeper_that_sounds_like_a_lost_link_is_none(three, monkeypatch):
    from tensorshelf._group import kept

    receive = kept.stream.receive
    refused = []

    def all_has_come(link, shelf, session, contents):
        receive(link, shelf, session, contents)
        if not contents.whole and not refused:
            refused.append(True)
            raise ts.UnresolvedError("something waits", "Decide on it.")

    monkeypatch.setattr(kept.stream, "receive", all_has_come)
    found = three.run(lambda rank: saved(rank, 4))
    assert [step for _, step in found] == [4, 4, 4]
    assert all([number for number, _ in told] == [2] for told, _ in found)


def test_a_rank_that_votes_no_has_abandoned_its_part_by_then(three, monkeypatch):
    """Else a start that finds all prepared would commit what the others were told is none."""
    from tensorshelf._group import copies, member

    three.run(lambda rank: steps(rank, 1))
    put = copies.Copy.put

    def damaged(self, shelf, part, step):
        if self.pair.owner == 1:
            raise ts.CorruptError("damaged", "Load another.")
        put(self, shelf, part, step)

    def dies(self, save, todo):
        raise RuntimeError("the rank dies here")

    with monkeypatch.context() as patch:
        patch.setattr(copies.Copy, "put", damaged)
        patch.setattr(member.Member, "_do", dies)
        three.run(lambda rank: saved(rank, 1))
    with ts.open(three.path(1), "r") as shelf:
        assert shelf.prepared is None
    with ts.open(three.path(0), "r") as shelf:
        assert shelf.prepared.step == 2
    assert three.run(lambda rank: steps(rank, 1)) == [(1, 1.0), (1, 2.0), (1, 3.0)]


def test_what_was_aborted_does_not_come_back_from_copies(three, monkeypatch):
    from tensorshelf._group import kept, member

    three.run(lambda rank: steps(rank, 1))

    decide = kept.Keeper._decide

    def unheard(self, decision, mark):
        if decision == "commit":
            decide(self, decision, mark)

    with monkeypatch.context() as patch:  # a copy is put, and then the rank votes no
        put = member.Copy.put

        def put_and_fail(self, shelf, part, step):
            put(self, shelf, part, step)
            if self.pair.owner == 1:
                raise ts.ShelfFull("no room", "Make some.")

        patch.setattr(member.Copy, "put", put_and_fail)
        patch.setattr(kept.Keeper, "_decide", unheard)
        found = three.run(lambda rank: saved(rank, 1))
        assert [step for _, step in found] == [1, 1, 1]
    for rank in range(3):
        with ts.open(three.path(rank)) as shelf:
            assert shelf.prepared is None
            shelf["beside"] = np.ones(3)
            shelf.persist()
    assert three.run(lambda rank: steps(rank, 1)) == [(1, 1.0), (1, 2.0), (1, 3.0)]
    for rank in range(3):
        with ts.open(three.path(rank), "r") as shelf:
            assert "beside" in shelf


def record_of(path: pathlib.Path) -> np.ndarray:
    with ts.open(path, "r") as shelf:
        return np.array(shelf["__state__"].numpy(copy=True))


@pytest.mark.parametrize("where", ["copy", "own"])
def test_a_damaged_record_is_no_reason_to_stop(three, where):
    (keeper,) = three.run(lambda rank: (steps(rank, 2), rank.group.info().keepers)[1])[1]
    path = three.copy(1, keeper) if where == "copy" else three.path(1)
    damage(path, record_of(path))
    assert three.run(lambda rank: steps(rank, 1)) == [(2, 2.0), (2, 3.0), (2, 4.0)]
    three.path(1).unlink()
    assert three.run(lambda rank: steps(rank, 0))[1] == (3, 4.0)


def test_a_damaged_shelf_that_has_a_version_prepared_is_had_back(three, monkeypatch):
    dying(monkeypatch, three, lambda rank: steps(rank, 2))
    damage(three.path(1), record_of(three.path(1)))
    with ts.open(three.path(1), "r") as shelf:
        assert (shelf.step, shelf.prepared.step) == (1, 2)
    assert three.run(lambda rank: steps(rank, 1)) == [(2, 2.0), (2, 3.0), (2, 4.0)]


def test_a_second_copy_helps_where_the_first_is_damaged(tmp_path):
    three = Kept(tmp_path, 3)
    three.copies = 2
    three.run(lambda rank: steps(rank, 2))
    first = three.run(lambda rank: (steps(rank, 1), rank.group.info().keepers)[1])[0][0]
    damage(three.copy(0, first), np.full(1000, 3.0))
    damage(three.path(0), np.full(1000, 3.0))
    assert three.run(lambda rank: steps(rank, 0))[0] == (3, 3.0)
    three.path(0).unlink()
    assert three.run(lambda rank: steps(rank, 1))[0] == (3, 3.0)
    with ts.open(three.copy(0, first), "r") as copy:  # a save has sent it anew
        assert copy.verify()


def test_a_copy_that_could_not_be_had_is_sent_whole_by_a_save_that_comes_first(three, monkeypatch):
    """Before the copy is made anew: what changed alone would leave the damage in it."""
    three.copies = 2
    frozen = np.arange(1000)

    def body(rank: Rank) -> tuple[int, tuple[int, ...]]:
        with rank.open(keep_unchanged=True) as shelf:
            auto = rank.autosave(shelf, frozen=frozen.copy())
            begin = auto.resume()
            rank.step(auto, begin + 1)
            auto.wait()
            return begin, rank.group.info().keepers

    first, second = three.run(body)[0][1]
    damage(three.copy(0, min(first, second)), frozen)
    three.path(0).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(renewal.Renewal, "run", lambda *_, **__: None)
        assert [begin for begin, _ in three.run(body)] == [1, 1, 1]
    for keeper in (first, second):
        same(three, 0, keeper)


def test_a_damaged_copy_is_told_by_the_rank_that_keeps_it(three):
    (keeper,) = three.run(lambda rank: (steps(rank, 2), rank.group.info().keepers)[1])[0]
    damage(three.copy(0, keeper), np.full(1000, 2.0))
    three.path(0).unlink()
    error = three.run(lambda rank: steps(rank, 0), timeout=3)[0]
    assert isinstance(error, ts.CorruptError)
    assert f"rank {keeper} (node {keeper}): 'values'" in str(error)


def test_what_was_kept_elsewhere_before_is_had_back_too(tmp_path):
    four = Kept(tmp_path, 4)

    def on(nodes: str):
        def body(rank: Rank):
            rank.group._node = nodes[rank.rank]
            return steps(rank, 0 if nodes == "abab" else 2)

        return body

    four.run(on("abcd"))
    damage(four.path(0), np.full(1000, 2.0))
    assert [begin for begin, _ in four.run(on("abab"))] == [2] * 4


def test_a_damaged_part_that_was_to_be_committed_takes_nobody_along(three, monkeypatch):
    """Nor where no copy has it: all go on from the epoch before."""
    from tensorshelf._group import member

    three.run(lambda rank: steps(rank, 1))

    def dies(self, save, todo):
        raise RuntimeError("the rank dies here")

    with monkeypatch.context() as patch:
        patch.setattr(member.Member, "_do", dies)
        three.run(lambda rank: saved(rank, 1))
    damage(three.path(1), np.full(1000, 3.0))
    for path in three.folder.glob("*.of-1"):
        path.unlink()
    assert three.run(lambda rank: steps(rank, 1)) == [(1, 1.0), (1, 2.0), (1, 3.0)]


def test_a_part_that_turns_out_damaged_as_it_is_committed_is_had_back(three, monkeypatch):
    """None goes on from the version before while the others have this one."""
    dying(monkeypatch, three, lambda rank: steps(rank, 2))
    resolve, refused = ts.Shelf.resolve, []

    def damaged(self, decision):
        if decision == "commit" and self._path == str(three.path(1)):
            refused.append(decision)
            raise ts.CorruptError("it cannot be read", "Put it back from a copy.")
        resolve(self, decision)

    monkeypatch.setattr(ts.Shelf, "resolve", damaged)
    assert three.run(lambda rank: steps(rank, 1)) == [(2, 2.0), (2, 3.0), (2, 4.0)]
    assert refused == ["commit"]
    assert three.shelves() == [(3, 3.0), (3, 4.0), (3, 5.0)]


def test_the_first_version_is_not_lost_with_the_one_rank_that_has_committed_it(three, monkeypatch):
    """It was told to be durable there, and then the disk went, before others had committed it."""
    from tensorshelf._group import member

    do = member.Member._do

    def dies(self, save, todo):
        if save.part.rank != 0:
            raise RuntimeError("the rank dies here")
        do(self, save, todo)

    with monkeypatch.context() as patch:
        patch.setattr(member.Member, "_do", dies)
        patch.setattr(kept.Keeper, "_decide", lambda *_: None)
        assert three.run(lambda rank: saved(rank, 1))[0] == ([], 1)
    three.path(0).unlink()
    assert three.run(lambda rank: steps(rank, 1)) == [(1, 1.0), (1, 2.0), (1, 3.0)]


def test_what_was_put_aside_before_stays(three):
    """It may have the last bytes there are of a rank's part."""
    (keeper,) = three.run(lambda rank: (steps(rank, 1), rank.group.info().keepers)[1])[0]
    copy = three.copy(0, keeper)
    for byte in (b"x", b"y", b"z"):
        copy.write_bytes(byte * 8192)
        three.run(lambda rank: steps(rank, 1))
    for byte, end in ((b"x", ".damaged"), (b"y", ".damaged-2"), (b"z", ".damaged-3")):
        assert copy.with_name(copy.name + end).read_bytes() == byte * 8192


def test_a_link_that_broke_while_a_part_was_had_back_is_used_no_more(three, monkeypatch):
    """What is on its way there would be taken for what is sent next."""
    three.copies = 2
    three.run(lambda rank: steps(rank, 1))
    three.path(0).unlink()
    once(
        monkeypatch,
        stream,
        "receive",
        lambda link, shelf, *_: shelf.info()["path"] == str(three.path(0)),
        link.LinkLost("the other end is gone", "Start the job anew."),
    )

    def body(rank: Rank) -> Any:
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            first = auto.resume()
            try:
                rank.step(auto, first + 1)
                auto.wait()
            except ts.ShelfError as error:
                return first, error
            return first, None

    found = three.run(body)
    assert [first for first, _ in found] == [1, 1, 1]
    assert "which keeps a copy of the part of rank 0, does not answer" in str(found[0][1])


def test_a_start_that_fails_behind_its_copies_lets_them_go(three, monkeypatch):
    """Else the next one would find them locked by its own process."""
    failed: set[int] = set()

    class Failing(member.Member):
        def __init__(self, shelf: Any, wire: Any, **more: Any) -> None:
            if shelf._path not in failed:
                failed.add(shelf._path)
                raise RuntimeError("the store is gone")
            super().__init__(shelf, wire, **more)

    three.run(lambda rank: steps(rank, 1))
    monkeypatch.setattr(started, "Member", Failing)

    def body(rank: Rank) -> Any:
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            with pytest.raises(RuntimeError, match="the store is gone"):
                auto.resume()
            return auto.resume()

    assert three.run(body) == [1, 1, 1]
    assert len(failed) == 3


def test_what_failed_at_a_start_is_told_though_its_copies_cannot_be_ended(three, monkeypatch):
    class Failing(member.Member):
        def __init__(self, *_: Any, **__: Any) -> None:
            raise ValueError("the first that failed")

    def gone(self: Any, *_: Any) -> None:
        raise RuntimeError("the store is gone")

    three.run(lambda rank: steps(rank, 1))
    monkeypatch.setattr(started, "Member", Failing)
    monkeypatch.setattr(kept.Keeper, "close", gone)

    def body(rank: Rank) -> Any:
        with rank.open() as shelf, pytest.raises(ValueError, match="the first that failed"):
            rank.autosave(shelf).resume()

    assert three.run(body) == [None, None, None]
