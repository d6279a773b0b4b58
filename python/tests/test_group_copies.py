"""What goes wrong about copies of other ranks' parts, and what is left of it."""

import errno
import pathlib
import shutil
import threading
import types
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Kept, Rank, damage, dying, keepers, same, steps, telling  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import agree, copies, kept, link, member, stream, together, wire  # noqa: E402
from tensorshelf._group.offer import Held, Offer  # noqa: E402
from tensorshelf._group.part import Part  # noqa: E402
from tensorshelf._group.writers import Site  # noqa: E402


@pytest.fixture
def three(tmp_path: pathlib.Path) -> Kept:
    return Kept(tmp_path, 3)


# ---- which copies are taken


def test_a_copy_under_another_ranks_name_is_refused(three):
    three.run(lambda rank: steps(rank, 1))
    (keeper,) = keepers(three)[0]
    (other,) = {0, 1, 2} - {0, keeper}
    three.copy(0, keeper).rename(three.copy(other, keeper))
    for error in three.run(lambda rank: steps(rank, 1)):
        assert isinstance(error, ts.BadArgument)
        assert f"of-{other}, which holds the part of rank 0 of 3" in str(error)


def test_a_copy_of_another_job_is_refused(tmp_path):
    jobs = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        jobs.append(Kept(tmp_path / name, 3))
        jobs[-1].run(lambda rank: steps(rank, 1))
    one, other = jobs
    (keeper,) = keepers(one)[0]
    shutil.copy(other.copy(0, keeper), one.copy(0, keeper))
    for error in one.run(lambda rank: steps(rank, 1)):
        assert isinstance(error, ts.BadArgument)
        assert "are of different jobs" in str(error)


def test_a_part_that_is_prepared_alone_is_refused_elsewhere(tmp_path):
    part = Part("job", 1, 2, 7, 1)
    offers = [
        Offer(Site("a"), 1, Held("there", None, part, 1), {}),
        Offer(Site("b"), 1, Held("here", None, None, None), {}),
    ]
    with pytest.raises(ts.BadArgument, match="there, which holds the part of rank 1 of 2"):
        agree.answer(offers)


def test_of_two_copies_the_older_is_not_taken(three):
    three.copies = 2
    three.run(lambda rank: steps(rank, 1))
    for keeper in (1, 2):
        older = three.folder / "older"
        shutil.copy(three.copy(0, keeper), older)
        begin = three.run(lambda rank: steps(rank, 1))[0][0] + 1
        shutil.copy(older, three.copy(0, keeper))
        three.path(0).unlink()
        assert three.run(lambda rank: steps(rank, 1))[0] == (begin, float(begin))


def test_what_a_copy_has_prepared_is_taken_for_a_shelf_that_is_behind():
    """Rank 1 has committed it, and the shelf of rank 0 was put back from an older copy."""
    first, second = (Part("job", 0, 2, 7, number) for number in (1, 2))
    offers = [
        Offer(Site("a"), 1, Held("own", first, None, None), {}),
        Offer(
            Site("b"),
            1,
            Held("other", second._replace(rank=1), None, None),
            {0: Held("copy", first, second, 2)},
        ),
    ]
    found = agree.answer(offers)
    assert (found.number, found.lost, found.holding) == (2, [True, False], [[1], []])
    assert found.copy_todos == [{}, {"0": "commit"}]


def test_what_is_prepared_alone_says_of_how_many_ranks_the_job_is():
    """As it is left where all die in the first save."""
    prepared = [Part("job", rank, 2, 7, 1) for rank in range(2)]
    offers = [Offer(Site("a"), 0, Held("own", None, part, 1, blank=True), {}) for part in prepared]
    assert agree.answer(offers).todos == ["commit", "commit"]
    with pytest.raises(ts.BadArgument, match="3 ranks"):
        agree.answer([*offers, Offer(Site("a"), 0, Held("own", None, None, None, blank=True), {})])


def test_a_generation_is_behind_those_of_what_is_prepared_alone():
    """As a start leaves it that dies in its first save: else what it left might count as newer."""
    old, new = 4 << 32, 5 << 32 | 0xFFFFFFFF
    committed, prepared = Part("job", 0, 1, old, 3), Part("job", 0, 1, new, 1)
    found = agree.answer([Offer(Site("a"), 0, Held("own", committed, prepared, 4), {})])
    assert found.generation > new


@pytest.mark.parametrize("has", [0, 1])
def test_stores_of_two_kinds_are_refused(has):
    held = Held("own", None, None, None, blank=True)
    offers = [Offer(Site("a"), 0, held, {}, queues=rank == has) for rank in range(2)]
    with pytest.raises(
        ts.BadArgument, match=f"of rank {has} has queues, and that of rank {1 - has}"
    ):
        agree.answer(offers)
    assert agree.answer([offer._replace(queues=True) for offer in offers]).number == 0


@pytest.mark.parametrize("lost", [False, True])
def test_a_generation_is_behind_those_of_what_a_copy_has_prepared(lost):
    """Of a part whose own shelf was lost, or put back as it was before."""
    old, new = 4 << 32, 5 << 32 | 0xFFFFFFFF
    parts = [Part("job", rank, 2, old, 3) for rank in range(2)]
    own = Held("own", None, None, None, blank=True) if lost else Held("own", parts[0], None, None)
    copy = Held("copy", parts[0], Part("job", 0, 2, new, 4), 4)
    other = Held("other", parts[1], None, None)
    found = agree.answer([Offer(Site("a"), 1, own, {}), Offer(Site("b"), 1, other, {0: copy})])
    assert found.number == 3
    assert found.generation > new


def other_steps(rank: Rank) -> None:
    """Rank 1 saves another step than the others, the second time."""
    with rank.open() as shelf:
        auto = rank.autosave(shelf)
        auto.resume()
        rank.step(auto, 1)
        rank.step(auto, 3 if rank.rank == 1 else 2)
        auto.wait()


@pytest.mark.parametrize("lost", [(), (1,)])
def test_what_is_prepared_for_other_steps_is_dropped_in_copies_too(three, monkeypatch, lost):
    dying(monkeypatch, three, other_steps)
    for rank in lost:
        three.path(rank).unlink()
    assert three.run(lambda rank: steps(rank, 1)) == [(1, 1.0), (1, 2.0), (1, 3.0)]
    assert three.shelves() == [(2, 2.0), (2, 3.0), (2, 4.0)]


def test_a_copy_with_a_rank_that_keeps_it_no_more_is_given_back(tmp_path, monkeypatch):
    posted = []
    post = wire.Wire.post

    def noted(self, box, value):
        posted.append((box, value))
        post(self, box, value)

    monkeypatch.setattr(wire.Wire, "post", noted)
    four = Kept(tmp_path, 4)
    four.nodes = ["a", "a", "b", "b"]
    four.run(lambda rank: steps(rank, 1))
    before = keepers(four)
    four.nodes = ["a", "b", "a", "b"]
    after = agree.keepers_of(four.nodes, 1)
    lost, kept_no_more = next(
        (rank, before[rank][0]) for rank in range(4) if before[rank][0] not in after[rank]
    )
    four.path(lost).unlink()
    posted.clear()
    assert four.run(lambda rank: steps(rank, 1), timeout=20)[lost] == (1, lost + 1.0)
    told = [value for box, value in posted if box == f"asked/{lost}/{kept_no_more}"]
    assert len(told) == 2
    assert b"bye" in told[1]


def test_what_is_sent_of_many_tensors_is_no_message_of_the_store(three, monkeypatch):
    """A TCPStore takes 8 MiB at once, and ends the connection of who sends more."""
    longest = [0]

    def noted(method):
        def call(self, key, value):
            longest.append(len(value))
            method(self, key, value)

        return call

    monkeypatch.setattr(wire.Wire, "post", noted(wire.Wire.post))
    monkeypatch.setattr(wire.Wire, "put", noted(wire.Wire.put))
    monkeypatch.setattr(stream, "_SAID_BYTES", 1000)  # in several frames
    many = {f"tensor {number} of many": np.full(3, float(number)) for number in range(300)}

    def body(rank: Rank, count: int) -> Any:
        state = {name: value + rank.rank for name, value in many.items()}
        with rank.open() as shelf:
            auto = rank.autosave(shelf, many=state)
            begin = auto.resume()
            for number in range(begin + 1, begin + count + 1):
                rank.step(auto, number)
            auto.wait()
            return begin, float(state["tensor 299 of many"][0])

    assert three.run(lambda rank: body(rank, 2)) == [(0, 299.0), (0, 300.0), (0, 301.0)]
    three.path(1).unlink()
    assert three.run(lambda rank: body(rank, 1)) == [(2, 299.0), (2, 300.0), (2, 301.0)]
    assert max(longest) < 8000


def test_ctrl_c_as_the_thread_of_a_copy_begins_lets_it_go(three, monkeypatch):
    """It is in the hands of who closes it by then."""
    three.run(lambda rank: steps(rank, 1))
    start = kept.Keeper.start

    def body(rank: Rank) -> list[int | None]:
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            with pytest.raises((KeyboardInterrupt, ts.ShelfError)):
                auto.resume()
        found = []
        for path in three.folder.glob(f"run.{rank.rank}.shelf.of-*"):
            with ts.open(path) as copy:
                found.append(copy.step)
        return found

    for behind in (False, True):

        def interrupted(self, behind=behind):
            if behind:
                start(self)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(kept.Keeper, "start", interrupted)
            assert three.run(body, timeout=2) == [[1], [1], [1]]


def test_a_copy_that_nobody_keeps_any_more_is_let_go(tmp_path):
    four = Kept(tmp_path, 4)
    four.nodes = ["a", "a", "b", "b"]
    four.run(lambda rank: steps(rank, 1))
    before = keepers(four)
    four.nodes = ["a", "b", "a", "b"]
    four.run(lambda rank: steps(rank, 1))
    after = keepers(four)
    old = [(owner, before[owner][0]) for owner in range(4) if before[owner] != after[owner]]
    assert old

    def body(rank: Rank) -> list[int | None]:
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            found = []
            for owner, keeper in old:
                if keeper == rank.rank:
                    with ts.open(four.copy(owner, keeper)) as copy:
                        found.append(copy.step)
            auto.close()
            return found

    assert [step for steps in four.run(body) for step in steps] == [1] * len(old)


def test_a_copy_that_is_in_use_stays_where_it_is(three):
    three.run(lambda rank: steps(rank, 1))
    (keeper,) = keepers(three)[0]
    with ts.open(three.copy(0, keeper), "a"):
        for error in three.run(lambda rank: steps(rank, 1)):
            assert isinstance(error, ts.ShelfError)
            assert "of-0" in str(error)
    assert not list(three.folder.glob("*.damaged"))
    assert three.run(lambda rank: steps(rank, 1))[0] == (1, 1.0)


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    two = Kept(tmp_path, 2)
    elsewhere = tmp_path / "copies"
    elsewhere.mkdir()
    two.more = {"replicas": elsewhere}
    names = ["7", "run.0.shelf.of-", "run.0.shelf.of-1.damaged", "run.0.shelf.of-x", "other.of-1"]
    for name in names:
        (elsewhere / name).write_text(name * 3000)
    two.run(lambda rank: steps(rank, 1))
    two.run(lambda rank: steps(rank, 1))
    assert all((elsewhere / name).read_text() == name * 3000 for name in names)
    assert len(list(elsewhere.iterdir())) == len(names) + 2


def test_a_start_that_fails_lets_copies_go(three):
    three.run(lambda rank: steps(rank, 1))
    before = keepers(three)
    (keeper,) = before[0]
    shutil.copy(three.path(keeper), three.copy(0, keeper))
    owner, other = next((owner, each) for owner, (each,) in enumerate(before) if each != keeper)

    def body(rank: Rank) -> None:
        with rank.open() as shelf:
            with pytest.raises(ts.BadArgument):
                rank.autosave(shelf).resume()
            if rank.rank == other:
                ts.open(three.copy(owner, other), "a").close()

    assert three.run(body) == [None] * 3


def test_the_folder_may_be_below_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    store = torch.distributed.HashStore()
    group = ts.Group(store, rank=0, members=2, replicate=1, replicas="~/copies")
    assert group._replicas.folder == str(tmp_path / "copies")


# ---- what a copy has


def test_what_changed_beside_the_group_comes_however_it_changed(three):
    """Other types, another shape, erased tensors, and more versions than are kept."""
    first, _, last = makes = [
        np.arange(10.0),
        np.arange(10),
        np.arange(20, dtype=np.float32).reshape(4, 5),
    ]

    def body(rank: Rank) -> tuple[int, ...]:
        with rank.open(keep=1) as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            shelf["gone"] = first
            for number, made in enumerate(makes, 1):
                shelf["beside"] = made
                shelf.persist()
                rank.step(auto, number)
                auto.wait()
                del shelf["beside"]
            shelf["beside"] = last.reshape(10, 2)
            del shelf["gone"]
            for _ in range(4):
                shelf.persist()
            rank.step(auto, 4)
            auto.wait()
            return rank.group.info().keepers

    for owner, (keeper,) in enumerate(three.run(body)):
        same(three, owner, keeper)
        with ts.open(three.path(owner), "r") as own:
            assert own.step == 4
            assert "gone" not in own


def test_what_is_erased_beside_the_group_goes_from_copies_too(three, monkeypatch):
    """Though what changed alone is sent; and what is made anew has its new type there."""
    sent = []
    send = stream.send

    def noted(link, version, contents):
        sent.append(contents.whole)
        send(link, version, contents)

    monkeypatch.setattr(stream, "send", noted)

    def body(rank: Rank) -> tuple[int, ...]:
        with rank.open(keep=4) as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            shelf["gone"] = shelf["anew"] = np.arange(10.0)
            shelf.persist()
            rank.step(auto, 1)
            auto.wait()
            del shelf["gone"], shelf["anew"]
            shelf["anew"] = np.arange(10)
            shelf.persist()
            rank.step(auto, 2)
            auto.wait()
            return rank.group.info().keepers

    for owner, (keeper,) in enumerate(three.run(body)):
        same(three, owner, keeper)
        with ts.open(three.path(owner), "r") as own:
            assert own.step == 2
            assert "gone" not in own
    assert sorted(sent) == [False] * 3 + [True] * 3


def test_a_copy_that_was_lost_is_sent_whole_where_the_owner_is_mended(three):
    three.copies = 2
    frozen = np.arange(3 << 20, dtype=np.uint8)

    def body(rank: Rank) -> tuple[int, bool]:
        with rank.open(keep_unchanged=True) as shelf:
            mine = frozen.copy() if shelf.step is None else np.zeros_like(frozen)
            auto = rank.autosave(shelf, frozen=mine)
            begin = auto.resume()
            rank.step(auto, begin + 1)
            auto.wait()
            return begin, bool((mine == frozen).all())

    three.run(body)
    three.copy(0, 2).unlink()
    damage(three.path(0), np.full(1000, 1.0))
    assert three.run(body) == [(1, True)] * 3
    same(three, 0, 2)


def test_what_cannot_be_read_is_not_given_back(three):
    """The keeper sends as many bytes as it said, and a sum that they have not."""
    three.run(lambda rank: steps(rank, 2))
    (keeper,) = keepers(three)[0]
    three.path(0).unlink()
    damage(three.copy(0, keeper), np.full(1000, 2.0))
    error = three.run(lambda rank: steps(rank, 1), timeout=3)[0]
    assert isinstance(error, ts.CorruptError)
    with ts.open(three.path(0), "r") as shelf:
        assert "values" not in shelf


def came_otherwise(receive: Any) -> Any:
    """What comes is refused when it is all there."""

    def receiving(*args: Any) -> None:
        receive(*args)
        raise ts.CorruptError("it came otherwise", "Try again.")

    return receiving


def test_a_fetch_that_fails_leaves_nothing_assigned(three, monkeypatch):
    three.run(lambda rank: steps(rank, 2))
    three.path(0).unlink()

    def body(rank: Rank, _):
        with rank.open() as shelf:
            with pytest.raises(ts.CorruptError):
                rank.autosave(shelf).resume()
            shelf.persist()
            return list(shelf)

    with monkeypatch.context() as patched:
        patched.setattr(stream, "receive", came_otherwise(stream.receive))
        found = three.run(lambda rank: (steps, body)[rank.rank == 0](rank, 0), timeout=2)
    assert found[0] == []


def test_a_copy_that_refused_keeps_nothing_assigned(three, monkeypatch):
    """It would get into the next version of the copy."""
    put, names = kept.Keeper._put, []

    def put_and_commit(self, asked):
        try:
            put(self, asked)
        except ts.CorruptError:
            self._shelf.core.persist(self._shelf.session, asked["step"])
            names.append(self._shelf.core.names())
            raise

    monkeypatch.setattr(kept.Keeper, "_put", put_and_commit)
    monkeypatch.setattr(stream, "receive", came_otherwise(stream.receive))
    for told, step in three.run(lambda rank: telling(rank, 1)):
        assert step is None
        assert "it came otherwise" in str(told[0][1])
    assert names == [[]] * 3


def test_a_fetch_that_fails_and_stays_assigned_says_so(three, monkeypatch):
    three.run(lambda rank: steps(rank, 2))
    three.path(0).unlink()

    def discard(*_):
        raise ts.ShelfFailed("an earlier write failed", "Reopen it.")

    def body(rank: Rank, _):
        with rank.open() as shelf:
            with monkeypatch.context() as patched:
                patched.setattr(type(shelf._core), "discard", discard)
                with pytest.raises(ts.CorruptError) as caught:
                    rank.autosave(shelf).resume()
            return caught.value.__notes__

    with monkeypatch.context() as patched:
        patched.setattr(stream, "receive", came_otherwise(stream.receive))
        found = three.run(lambda rank: (steps, body)[rank.rank == 0](rank, 0), timeout=2)
    assert any("stays assigned: an earlier write failed" in note for note in found[0])


def test_where_one_copy_cannot_be_the_others_drop_it_too(three, monkeypatch):
    three.copies = 2
    receive = stream.receive
    refused = []
    *_, last = agree.keepers_of(three.nodes, 2)[2]  # behind one that has it already

    def once(link, shelf, session, contents):
        receive(link, shelf, session, contents)
        that = threading.current_thread().name == f"keeper of 2 on {last}"
        if that and not contents.whole and not refused:
            refused.append(True)
            raise ts.ShelfFull("no room", "Make some.")

    run = kept.Keeper._run

    def named(self):
        threading.current_thread().name = f"keeper of {self.pair.owner} on {self.pair.keeper}"
        run(self)

    monkeypatch.setattr(kept.Keeper, "_run", named)
    monkeypatch.setattr(stream, "receive", once)
    told = three.run(lambda rank: telling(rank, 4), timeout=20)
    assert [([number for number, _ in heard], step) for heard, step in told] == [([2], 4)] * 3
    assert f"rank {last} (node {last}): no room" in str(told[2][0][0][1])
    assert f"rank {last} (node {last}): no room" in str(told[0][0][0][1])


def test_where_a_copy_refuses_what_comes_behind_is_sent_right(three, monkeypatch):
    """More than a frame of it was on its way."""
    assignment = stream._assignment
    much = np.zeros(20 << 20, dtype=np.uint8)
    refused = []

    def once(shelf, session, tensor):
        if tensor.shape == [much.size] and shelf.version == 1 and not refused:
            refused.append(True)
            raise ts.ShelfFull("no room", "Make some.")
        return assignment(shelf, session, tensor)

    monkeypatch.setattr(stream, "_assignment", once)

    def body(rank: Rank) -> tuple[list[int], tuple[int, ...]]:
        with ts.open(three.path(rank.rank), size="128MiB") as shelf:
            auto = rank.autosave(shelf, zeros=much.copy() if rank.rank == 0 else much[:1].copy())
            zeros = auto._run.state["zeros"]
            auto.resume()
            told = []
            for number in range(1, 4):
                zeros += 1
                try:
                    rank.step(auto, number)
                    auto.wait()
                except ts.ShelfError:
                    told.append(number)
            return told, rank.group.info().keepers

    for owner, (told, (keeper,)) in enumerate(three.run(body, timeout=20)):
        assert told == [2]
        same(three, owner, keeper)


def test_a_copy_that_refused_is_sent_whole_then(three, monkeypatch):
    """It may have lost what changes would build on."""
    put, refused = kept.Keeper._put, []

    def loses(self, asked):
        if asked["step"] != 2 or refused:
            put(self, asked)
            return
        refused.append(self.pair)
        self._shelf.core.erase("frozen")
        self._shelf.core.persist(self._shelf.session, 1)
        with self._received():
            raise ts.ShelfFull("no room", "Make some.")

    monkeypatch.setattr(kept.Keeper, "_put", loses)

    def body(rank: Rank) -> list[int]:
        with rank.open(keep_unchanged=True) as shelf:
            auto = rank.autosave(shelf, frozen=np.arange(1000))
            auto.resume()
            told = []
            for number in range(1, 4):
                try:
                    rank.step(auto, number)
                    auto.wait()
                except ts.ShelfError:
                    told.append(number)
            return told

    assert three.run(body) == [[2]] * 3
    ((owner, keeper),) = refused
    same(three, owner, keeper)


def test_an_error_of_the_system_has_its_number_with_the_owner_too(three, monkeypatch):
    receive = stream.receive

    def full(*args):
        receive(*args)
        raise ts.IoError("the drive is full", "Make room.", errno.ENOSPC)

    monkeypatch.setattr(kept.stream, "receive", full)
    for told, _ in three.run(lambda rank: telling(rank, 1)):
        ((_, error),) = told
        assert type(error) is ts.IoError
        assert error.errno == errno.ENOSPC
        assert "): the drive is full" in str(error)


# ---- who does not answer


def test_a_keeper_that_does_not_take_it_is_named(three, monkeypatch):
    """And nothing goes over that link again: what was on its way would be taken for it."""
    send = stream.send
    sends = []

    def lost(pair, version, contents):
        if threading.current_thread().name == "owner 0":
            sends.append(contents.whole)
            if len(sends) == 2:
                raise link.LinkLost("it is gone", "Look for it.")
        send(pair, version, contents)

    bring = member.Member._bring_to_its_end

    def named(self, save):
        threading.current_thread().name = f"owner {self._rank}"
        bring(self, save)

    monkeypatch.setattr(member.Member, "_bring_to_its_end", named)
    monkeypatch.setattr(stream, "send", lost)
    (own, step), *others = three.run(lambda rank: telling(rank, 3), timeout=2)
    assert step == 1
    assert [number for number, _ in own] == [2, 3]
    for _, error in own:
        assert type(error) is ts.UnresolvedError
        assert "(node 1), which keeps a copy of the part of rank 0, does not answer" in str(error)
        assert "Start the job anew" in str(error)
    assert len(sends) == 2
    assert [step for _, step in others] == [1, 1]
    monkeypatch.setattr(stream, "send", send)
    assert three.run(lambda rank: steps(rank, 1)) == [(1, 1.0), (1, 2.0), (1, 3.0)]


def test_what_nobody_foresaw_at_a_keeper_is_told(three, monkeypatch):
    receive = stream.receive

    def broken(*args):
        receive(*args)
        raise KeyError("nobody foresaw that")

    monkeypatch.setattr(stream, "receive", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    for told, step in three.run(lambda rank: telling(rank, 1), timeout=5):
        assert step is None
        assert "nobody foresaw that" in str(told[0][1])


def test_a_keeper_ends_though_its_owner_does_not_say_bye(three, monkeypatch):
    start, begun = kept.Keeper.start, []

    def noted(self):
        begun.append(self._thread)
        start(self)

    monkeypatch.setattr(kept.Keeper, "start", noted)
    monkeypatch.setattr(copies.Copy, "bye", lambda self: None)
    monkeypatch.setattr(together, "_FAREWELL", 0.1)
    assert three.run(lambda rank: steps(rank, 1)) == [(0, 0.0), (0, 1.0), (0, 2.0)]
    assert len(begun) == 3
    for thread in begun:
        thread.join(20)
    assert not any(thread.is_alive() for thread in begun)


def test_saves_leave_nothing_in_the_store(three):
    def body(rank: Rank, count: int) -> Any:
        steps(rank, count)
        return rank.group._store

    few, many = (
        three.run(lambda rank, count=count: body(rank, count))[0].num_keys() for count in (2, 9)
    )
    assert many == few


# ---- what could not be undone is told


class Failing:
    """The native half of a shelf whose medium fails."""

    def discard(self, session: object) -> None:
        raise ts.ShelfFull("no room is left", "Free some.", errno.ENOSPC)

    def prepared(self) -> dict[str, Any]:
        return {"id": b"mark"}


def test_what_was_voted_against_and_stays_prepared_is_told(caplog):
    def resolve(*, commit: bool) -> None:
        assert not commit
        raise ts.ShelfFull("no room is left", "Free some.", errno.ENOSPC)

    voter = types.SimpleNamespace(_core=Failing(), _resolve=resolve, where=lambda: "a.shelf")
    for mark, told in (
        (b"another", []),
        (b"mark", ["what this rank votes against stays prepared"]),
    ):
        save = types.SimpleNamespace(part=types.SimpleNamespace(mark=lambda mark=mark: mark))
        member.Member._drop_what_is_left(voter, save)
        assert [text in caplog.text for text in told] == [True] * len(told)
        assert len(caplog.records) == len(told)


def test_what_came_of_a_copy_and_stays_assigned_is_told(caplog):
    shelf = types.SimpleNamespace(path="a.shelf.of-1", core=Failing(), session=None)
    kept.KeptShelf.discard(shelf)
    assert "a.shelf.of-1 keeps a part of what came" in caplog.text
