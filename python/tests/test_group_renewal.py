"""Copies that lack a rank's part are made anew behind a start, before anything is saved."""

import pathlib
import shutil
import threading
from typing import Any

import numpy as np
import pytest
from group_ranks import Kept, Rank, damage, same, steps

import tensorshelf as ts
from tensorshelf._group import kept, member, stream
from tensorshelf._group.copies import Copy
from tensorshelf._group.link import LinkLost
from tensorshelf._group.renewal import Renewal

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def two(tmp_path: pathlib.Path) -> Kept:
    return Kept(tmp_path, 2)


def with_two_copies(folder: pathlib.Path) -> Kept:
    """Of each of three parts."""
    three = Kept(folder, 3)
    three.copies = 2
    return three


def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int, bool]]:
    """What is sent from here on: how, of whom, to whom, and whether it is the whole of it."""
    found: list[tuple[str, int, int, bool]] = []
    exchange = Copy._exchange

    def with_note(self: Copy, asked: dict[str, Any], send: Any, contents: stream.Contents) -> None:
        found.append((asked["do"], *self.pair, contents.whole))
        exchange(self, asked, send, contents)

    monkeypatch.setattr(Copy, "_exchange", with_note)
    return found


def held_by(rank: Rank) -> tuple[int, ...]:
    """Whose copies have its part, behind a start that saves nothing."""
    with rank.open() as shelf:
        auto = rank.autosave(shelf)
        auto.resume()
        auto.close()
        return rank.group.info().held_by


def test_a_second_loss_takes_nothing_where_nothing_was_saved_since(tmp_path: pathlib.Path) -> None:
    three = Kept(tmp_path, 3)
    three.run(lambda rank: steps(rank, 2))
    for lost in (0, 1):
        for path in tmp_path.glob(f"run.{lost}.shelf*"):
            path.unlink()
        assert three.run(lambda rank: steps(rank, 0)) == [(2, 2.0), (2, 3.0), (2, 4.0)]
    infos = three.run(lambda rank: (steps(rank, 0), rank.group.info())[1])
    for owner, info in enumerate(infos):
        assert info.held_by == info.keepers
        assert len(info.keepers) == 1
        same(three, owner, info.keepers[0])


def test_what_is_whole_is_not_sent_again(two: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    two.run(lambda rank: steps(rank, 1))
    two.copy(0, 1).unlink()
    sent = noted(monkeypatch)
    assert two.run(held_by) == [(1,), (0,)]
    assert sent == [("renew", 0, 1, True)]
    two.run(lambda rank: steps(rank, 0))
    assert len(sent) == 1


def test_a_copy_that_was_asked_and_is_damaged_is_sent_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = with_two_copies(tmp_path)
    first, second = sorted(
        three.run(lambda rank: (steps(rank, 2), rank.group.info())[1])[0].keepers
    )
    damage(three.copy(0, first), np.full(1000, 2.0))
    three.path(0).unlink()
    sent = noted(monkeypatch)
    assert three.run(held_by)[0] == (first, second)
    assert sent == [("renew", 0, first, True)]
    same(three, 0, first)


def test_a_copy_that_was_not_asked_is_sent_what_changes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = with_two_copies(tmp_path)
    three.run(lambda rank: steps(rank, 2))
    three.path(0).unlink()
    sent = noted(monkeypatch)
    assert three.run(lambda rank: steps(rank, 1))[0] == (2, 2.0)
    assert sorted(put for put in sent if put[1] == 0) == [
        ("put", 0, 1, False),
        ("put", 0, 2, False),
    ]


def test_resume_does_not_wait_for_it_and_the_first_save_follows(
    two: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.run(lambda rank: steps(rank, 1))
    two.copy(0, 1).unlink()
    sent = noted(monkeypatch)
    begun, go_on, renew = threading.Event(), threading.Event(), Copy.renew

    def held_up(self: Copy, *args: Any) -> int:
        begun.set()
        assert go_on.wait(60)
        return renew(self, *args)

    monkeypatch.setattr(Copy, "renew", held_up)

    def body(rank: Rank) -> tuple[Any, ...]:
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            assert auto.resume() == 1
            before = rank.group.info()
            assert begun.wait(60)
            rank.step(auto, 2)
            meanwhile = rank.group.info()
            if rank.rank == 0:
                go_on.set()
            auto.wait()
            after = rank.group.info()
            auto.close()
            told = [(info.epoch, info.held_by) for info in (before, meanwhile, after)]
            return (*told, rank.group.info().held_by)

    own, other = two.run(body)
    assert own == ((1, ()), (1, ()), (2, (1,)), (1,))
    assert other[0] == (1, (0,))
    assert [each for each in sent if each[1] == 0] == [("renew", 0, 1, True), ("put", 0, 1, False)]
    same(two, 0, 1)
    assert two.shelves() == [(2, 2.0), (2, 3.0)]


def test_a_copy_whose_turn_comes_behind_a_save_is_sent_with_that(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = with_two_copies(tmp_path)
    three.run(lambda rank: steps(rank, 1))
    for path in tmp_path.glob("*.of-0"):
        path.unlink()
    sent = noted(monkeypatch)
    begun, submitted = threading.Event(), threading.Event()
    renew, submit = Copy.renew, member.Member.submit

    def held_up(self: Copy, *args: Any) -> int:
        begun.set()
        assert submitted.wait(60)
        return renew(self, *args)

    def told(self: member.Member, save: member.GroupSave) -> None:
        assert begun.wait(60)
        submit(self, save)
        if self._rank == 0:
            submitted.set()

    monkeypatch.setattr(Copy, "renew", held_up)
    monkeypatch.setattr(member.Member, "submit", told)
    assert three.run(lambda rank: steps(rank, 1)) == [(1, 1.0), (1, 2.0), (1, 3.0)]
    (how, _, first, whole), *others = [each for each in sent if each[1] == 0]
    assert (how, whole) == ("renew", True)
    assert sorted(others) == [("put", 0, k, k != first) for k in (1, 2)]
    for keeper in (1, 2):
        same(three, 0, keeper)


def test_what_a_keeper_refuses_is_told_and_sent_by_the_next_save(
    two: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    two.run(lambda rank: steps(rank, 1))
    two.copy(0, 1).unlink()

    def refused(self: kept.Keeper, asked: dict[str, Any]) -> None:
        with self._received():
            raise ts.ShelfFull("no room", "Make some.")

    monkeypatch.setattr(kept.Keeper, "_renew", refused)
    found = two.run(lambda rank: (steps(rank, 0), rank.group.info().held_by)[1])
    assert found == [(), (0,)]
    assert (
        "the copy with rank 1 is not made anew before the next save: rank 1 (node 1): no room"
        in (caplog.text)
    )
    assert two.run(lambda rank: (steps(rank, 1), rank.group.info().held_by)[1]) == [(1,), (0,)]
    same(two, 0, 1)


def test_what_one_keeper_refuses_another_has_all_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = with_two_copies(tmp_path)
    three.run(lambda rank: steps(rank, 1))
    for path in tmp_path.glob("*.of-0"):
        path.unlink()
    renew, refused = kept.Keeper._renew, []

    def first_refuses(self: kept.Keeper, asked: dict[str, Any]) -> None:
        if not refused:
            refused.append(self.pair.keeper)
            with self._received():
                raise ts.ShelfFull("no room", "Make some.")
        renew(self, asked)

    monkeypatch.setattr(kept.Keeper, "_renew", first_refuses)
    others, *_ = three.run(held_by)
    assert sorted([*others, *refused]) == [1, 2]


def test_what_cannot_be_read_is_no_copy(two: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keeper hears that what came is not what was meant."""
    two.run(lambda rank: steps(rank, 2))
    two.copy(0, 1).unlink()
    run = Renewal.run

    def behind_damage(self: Renewal, *args: Any, **options: Any) -> None:
        with two.path(0).open("r+b") as file:
            at = file.read().find(np.full(1000, 2.0).tobytes())
            assert at > 0
            file.seek(at)
            file.write(b"damaged!")
        run(self, *args, **options)

    monkeypatch.setattr(Renewal, "run", behind_damage)
    assert two.run(held_by) == [(), (0,)]
    with ts.open(two.copy(0, 1), "r") as copy:
        assert copy.step is None
        assert list(copy) == []


def test_one_that_is_under_way_ends_where_its_rank_leaves(
    two: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.run(lambda rank: steps(rank, 1))
    two.copy(0, 1).unlink()
    run = Renewal.run

    def leaves(self: Renewal, *args: Any, stopped: Any, **options: Any) -> None:
        asked = iter([False])  # before it begins
        run(self, *args, stopped=lambda: next(asked, True), **options)

    monkeypatch.setattr(Renewal, "run", leaves)
    assert two.run(held_by, timeout=1) == [(), (0,)]


# ---- who dies when


def dead(*_: Any, **__: Any) -> Any:
    raise RuntimeError("it dies here")


def before_anything_is_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copy, "renew", dead)


def when_half_has_come(patch: pytest.MonkeyPatch) -> None:
    assignment, made = stream._assignment, []

    def second(*args: Any) -> Any:
        made.append(args)
        return assignment(*args) if len(made) == 1 else dead()

    patch.setattr(stream, "_assignment", second)


def when_all_has_come(patch: pytest.MonkeyPatch) -> None:
    receive = stream.receive
    patch.setattr(stream, "receive", lambda *args: (receive(*args), dead()))


def when_it_is_flipped(patch: pytest.MonkeyPatch) -> None:
    tell = kept.Keeper._tell

    def told(self: kept.Keeper, asked: dict[str, Any], *args: Any) -> None:
        (dead if asked["do"] == "renew" else tell)(self, asked, *args)

    patch.setattr(kept.Keeper, "_tell", told)


@pytest.mark.parametrize(
    ("die", "counts"),
    [
        (before_anything_is_sent, False),
        (when_half_has_come, False),
        (when_all_has_come, False),
        (when_it_is_flipped, True),
    ],
)
@pytest.mark.parametrize("older", [False, True])
def test_a_copy_counts_when_all_of_it_is_there(
    two: Kept,
    monkeypatch: pytest.MonkeyPatch,
    die: Any,
    counts: bool,
    older: bool,
) -> None:
    """A second loss shows it: that of the owner's shelf."""
    two.run(lambda rank: steps(rank, 1))
    shutil.copy(two.copy(0, 1), two.folder / "older")
    two.run(lambda rank: steps(rank, 1))
    if older:
        shutil.copy(two.folder / "older", two.copy(0, 1))
    else:
        two.copy(0, 1).unlink()
    with monkeypatch.context() as patch:
        die(patch)
        patch.setattr(threading, "excepthook", lambda _: None)
        held_by = two.run(lambda rank: (steps(rank, 0), rank.group.info().held_by)[1], timeout=1)
    assert held_by == [(), (0,)]
    own = two.path(0).rename(two.folder / "lost")
    if not counts:
        for error in two.run(lambda rank: steps(rank, 0)):
            assert isinstance(error, ts.StaleError if older else ts.ShelfNotFound)
            assert "rank 0" in str(error)
        own.rename(two.path(0))
    assert two.run(lambda rank: steps(rank, 0)) == [(2, 2.0), (2, 3.0)]
    same(two, 0, 1)


def test_who_leaves_sends_no_more_of_it(two: Kept) -> None:
    contents = stream.Contents(True, [], [stream.SentTensor("a", "uint8", [8], [(0, 8)])])

    class Version:
        def names(self) -> list[str]:
            return ["a"]

        def find(self, name: str) -> Any:
            return name

    link: Any = None
    with pytest.raises(LinkLost, match="leaves"):
        stream.send(link, Version(), contents, lambda: True)
