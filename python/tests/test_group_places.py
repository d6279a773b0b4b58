"""Ranks that a launcher numbers anew take the parts whose shelves lie on their nodes."""

import pathlib
import shutil
import threading
from typing import Any

import numpy as np
import pytest
from group_ranks import Rank, Ranks

import tensorshelf as ts
from tensorshelf._group import member
from tensorshelf._group.part import Part
from tensorshelf._group.placing import Seen, Sight, Taken, placed
from tensorshelf._group.wire import Wire

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


class Nodes(Ranks):
    """Each has a folder of its own, and the launcher's ranks are on them in any order."""

    def __init__(self, folder: pathlib.Path, nodes: str) -> None:
        super().__init__(folder, len(nodes))
        self.nodes = nodes
        self.copies = 1

    def node(self, rank: int) -> pathlib.Path:
        return self.folder / self.nodes[rank]

    def lost(self, node: str) -> None:
        shutil.rmtree(self.folder / node)

    def open(self, rank: Rank, **options: Any) -> ts.Shelf:
        """Behind which ``rank.group`` has the part's number."""
        folder = self.node(rank.rank)
        folder.mkdir(exist_ok=True)
        number = rank.group._number
        rank.group = ts.Group(
            rank.group._store,
            rank=rank.rank,
            members=self.members,
            timeout=rank.group.timeout,
            replicate=self.copies,
            node=self.nodes[rank.rank],
        )
        rank.group._number = number
        shelf = ts.open_part(folder / "run.{part}.shelf", rank.group, size="64MiB", **options)
        rank.values = np.full(1000, float(rank.group.rank))
        return shelf

    def steps(self, count: int) -> list[Any]:
        """By the launcher's ranks: the part, where it began, and its value then."""

        def body(rank: Rank) -> tuple[int, int, float]:
            with self.open(rank, in_flight=2) as shelf:
                auto = rank.autosave(shelf)
                begin = auto.resume()
                value = float(rank.values[0])
                for number in range(begin + 1, begin + count + 1):
                    rank.step(auto, number)
                auto.close()
                return rank.group.rank, begin, value

        return self.run(body, timeout=20)


def test_each_rank_takes_the_part_that_lies_on_its_node(tmp_path: pathlib.Path) -> None:
    job = Nodes(tmp_path, "abc")
    assert job.steps(2) == [(0, 0, 0.0), (1, 0, 1.0), (2, 0, 2.0)]
    job.nodes = "cab"
    assert job.steps(1) == [(2, 2, 4.0), (0, 2, 2.0), (1, 2, 3.0)]
    shelves = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*.shelf"))
    assert shelves == ["a/run.0.shelf", "b/run.1.shelf", "c/run.2.shelf"]
    job.nodes = "abc"
    assert job.steps(0) == [(0, 3, 3.0), (1, 3, 4.0), (2, 3, 5.0)]


def test_a_node_that_takes_the_place_of_a_lost_one_has_its_part_back(
    tmp_path: pathlib.Path,
) -> None:
    job = Nodes(tmp_path, "abc")
    job.steps(2)
    job.lost("b")
    job.nodes = "dca"
    assert job.steps(0) == [(1, 2, 3.0), (2, 2, 4.0), (0, 2, 2.0)]
    job.lost("a")  # though nothing was saved since
    job.nodes = "cde"
    assert job.steps(1) == [(2, 2, 4.0), (1, 2, 3.0), (0, 2, 2.0)]


def test_a_shelf_that_was_named_by_another_number_is_found(tmp_path: pathlib.Path) -> None:
    job = Nodes(tmp_path, "ab")
    job.steps(1)
    (tmp_path / "a/run.0.shelf").rename(tmp_path / "a/run.17.shelf")
    (tmp_path / "a/run.0.shelf").touch()
    assert job.steps(1) == [(0, 1, 1.0), (1, 1, 2.0)]
    with ts.open(tmp_path / "a/run.17.shelf", "r") as shelf:
        assert shelf.step == 2


def test_a_file_of_no_bytes_is_no_shelf_yet(tmp_path: pathlib.Path) -> None:
    """As a crash leaves it that came while a shelf was made."""
    job = Nodes(tmp_path, "ab")
    path = tmp_path / "a/run.0.shelf"
    path.parent.mkdir()
    path.touch()
    assert job.steps(1) == [(0, 0, 0.0), (1, 0, 1.0)]
    with ts.open(path, "r") as shelf:
        assert shelf.step == 1


def test_what_is_named_otherwise_is_no_shelf_of_the_groups(tmp_path: pathlib.Path) -> None:
    job = Nodes(tmp_path, "ab")
    job.steps(1)
    for name in ("runx0.shelf", "run.0.shelf.old", "run.00.shelf"):
        shutil.copy(tmp_path / "a/run.0.shelf", tmp_path / "a" / name)
    assert job.steps(1) == [(0, 1, 1.0), (1, 1, 2.0)]
    with ts.open(tmp_path / "a/run.0.shelf", "r") as shelf:
        assert shelf.step == 2


def test_what_is_in_the_way_is_told_to_all_and_left_alone(tmp_path: pathlib.Path) -> None:
    job = Nodes(tmp_path, "ab")
    job.steps(1)
    path = tmp_path / "b/run.1.shelf"
    path.write_bytes(b"x" * 8192)
    for error in job.steps(1):
        assert isinstance(error, ts.BadArgument)
        assert f"{path} on b is in the way of a new shelf for part 1" in str(error)
    assert path.read_bytes() == b"x" * 8192
    path.unlink()
    assert job.steps(1) == [(0, 1, 1.0), (1, 1, 2.0)]


def test_what_one_rank_raises_all_do(tmp_path: pathlib.Path) -> None:
    """And a rank that does not come is named."""
    job = Nodes(tmp_path, "ab")

    def body(rank: Rank) -> None:
        if rank.rank == 0:
            job.open(rank).close()

    found, _ = job.run(body, timeout=0.5)
    assert isinstance(found, ts.UnresolvedError)
    assert "1 of 2 ranks did not come: 1" in str(found)


def test_a_group_has_its_parts_once(tmp_path: pathlib.Path) -> None:
    job = Nodes(tmp_path, "ab")

    def twice(rank: Rank) -> None:
        with job.open(rank, in_flight=2) as shelf:
            for begun in (False, True):
                if begun:
                    rank.autosave(shelf)
                    rank.group._has_places = False
                with pytest.raises(ts.UnsupportedError, match="has its parts already"):
                    ts.open_part(tmp_path / "run.{part}.shelf", rank.group)

    assert job.run(twice) == [None, None]


def test_where_the_store_may_lie_a_rank_stays_till_all_have_left(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is with the launcher's rank 0, whatever part that has."""
    job = Nodes(tmp_path, "ab")
    job.copies = 0
    job.steps(1)
    job.nodes = "ba"
    stays, take = threading.Event(), Wire.take

    def told(self: Wire, key: str, **options: Any) -> bytes:
        if key == "all left":
            stays.set()
        return take(self, key, **options)

    monkeypatch.setattr(Wire, "take", told)

    def body(rank: Rank) -> int:
        with job.open(rank, in_flight=2) as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            assert rank.rank == 0 or stays.wait(10)
            auto.close()
        return rank.group.rank

    assert job.run(body) == [1, 0]


@pytest.mark.parametrize(
    ("path", "options", "says"),
    [
        ("run.shelf", {}, "has no place for a part's number"),
        ("run.{part}.{part}.shelf", {}, "or several"),
        ("of-{part}/run.shelf", {}, "has no place"),
        ("run.{part}.shelf", {"mode": "r"}, "Leave out mode="),
    ],
)
def test_a_path_needs_a_place_for_the_number(path: str, options: Any, says: str) -> None:
    from torch.distributed import HashStore

    group = ts.Group(HashStore(), rank=0, members=1)
    with pytest.raises(ts.BadArgument, match=says):
        ts.open_part(path, group, **options)


# ---- who takes what


def shelf(part: int, epoch: int = 1, members: int = 4, job: str = "j", number: int = -1) -> Seen:
    number = part if number < 0 else number
    return Seen(f"{job}.{part}.{epoch}", number, [Part(job, part, members, 1, epoch)])


@pytest.mark.parametrize(
    ("sees", "parts"),
    [
        ([[], [], [], []], [0, 1, 2, 3]),
        ([[0], [1], [2], [3]], [0, 1, 2, 3]),
        ([[3], [2], [1], [0]], [3, 2, 1, 0]),
        ([[0, 1, 2, 3]] * 4, [0, 1, 2, 3]),  # one folder of all
        ([[2, 3], [2, 3], [0, 1], [0, 1]], [2, 3, 0, 1]),
        ([[1], [], [2], [0]], [1, 3, 2, 0]),
        ([[1], [], [], [0]], [1, 3, 2, 0]),  # rank 2 has its own number
        ([[3], [], [], [0]], [3, 1, 2, 0]),
        ([[0, 1, 2], [0, 1, 2], [], []], [0, 1, 2, 3]),  # more than there are ranks for
        ([[1], [1, 2], [2, 3], []], [1, 2, 3, 0]),
        ([[1], [1, 2], [2, 3], [2]], [1, 2, 3, 0]),
        ([[1, 2], [0], [1], [3]], [2, 0, 1, 3]),
    ],
)
def test_parts_go_where_their_shelves_are(sees: list[list[int]], parts: list[int]) -> None:
    sights = [Sight(f"n{rank}", [shelf(part) for part in there]) for rank, there in enumerate(sees)]
    found = placed(sights)
    assert [place.part for place in found] == parts
    for place, there in zip(found, sees, strict=True):
        assert (place.path is not None) == (place.part in there)


def test_the_newest_shelf_of_a_part_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    two = [shelf(0, 2, 2), shelf(0, 1, 2, number=7)]
    for seen in (two, two[::-1]):  # a folder lists them in any order
        sights = [Sight("old", [shelf(0, 1, 2)]), Sight("new", seen)]
        assert placed(sights) == [Taken(1, None), Taken(0, "j.0.2")]
    assert caplog.text == ""
    sights = [
        Sight("old", [shelf(0, 1, 2)]),
        Sight("new", [shelf(0, 2, 2), shelf(1, 1, 2)]),
    ]
    assert placed(sights) == [Taken(0, "j.0.1"), Taken(1, "j.1.1")]
    assert "part 0 goes elsewhere than j.0.2: no rank is left there" in caplog.text


def test_a_part_without_copies_goes_nowhere_else(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It alone has committed what all have prepared: without it they would begin anew."""
    job = Nodes(tmp_path, "aab")
    job.copies = 0
    do = member.Member._do

    def dead(self: member.Member, *args: Any) -> None:
        if self._rank != 1:
            raise RuntimeError("it dies here")
        do(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(member.Member, "_do", dead)
        assert job.steps(1)[1] == (1, 0, 1.0)
    job.nodes = "abb"
    for error in job.steps(0):
        assert isinstance(error, ts.ShelfNotFound)
        assert f"part 1 lies in {tmp_path / 'a/run.1.shelf'}, and no rank is left" in str(error)
    job.nodes = "aab"
    assert job.steps(0) == [(0, 1, 1.0), (1, 1, 2.0), (2, 1, 3.0)]


def test_what_is_prepared_makes_a_shelf_newer() -> None:
    committed, prepared = (Part("j", 0, 2, 1, epoch) for epoch in (1, 2))
    sights = [
        Sight("a", [Seen("older", 0, [committed])]),
        Sight("b", [Seen("newer", 0, [committed, prepared])]),
    ]
    assert placed(sights) == [Taken(1, None), Taken(0, "newer")]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([shelf(0, members=1), shelf(0, members=1, job="k")], "are of different jobs"),
        ([shelf(0, members=3)], "is of a group of 3 ranks, and these are 1"),
        ([shelf(7, members=1)], "is of a group of 1 ranks, and these are 1"),
        ([Seen("x", 0, [], "it is damaged")], "x on n is in the way .* it is damaged"),
        ([Seen("x", 0, [Part("j", 0, 1, 1, 1), Part("j", 1, 1, 1, 2)])], "parts of two ranks"),
    ],
)
def test_what_does_not_fit_is_refused(files: list[Seen], says: str) -> None:
    with pytest.raises(ts.BadArgument, match=says):
        placed([Sight("n", files)])


def test_another_part_in_the_way_is_refused() -> None:
    sights = [Sight("a", [shelf(0, 2, 2), shelf(0, 1, 2, number=1)]), Sight("b", [])]
    assert placed(sights) == [Taken(0, "j.0.2"), Taken(1, None)]
    sights = [Sight("a", []), Sight("b", [shelf(0, 2, 2), shelf(0, 1, 2, number=1)])]
    assert placed(sights) == [Taken(1, None), Taken(0, "j.0.2")]
    sights = [Sight("a", [shelf(0, 1, 2, number=1)]), Sight("b", [shelf(0, 2, 2)])]
    with pytest.raises(ts.BadArgument, match="it holds the part of rank 0"):
        placed(sights)
