"""Which ranks save pieces: how they are chosen, and that any set of them saves and resumes."""

import os
import pathlib
import random
import stat
import tempfile
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank, dying  # noqa: E402
from partition_ranks import Job, Parted, expected, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import drive, started  # noqa: E402
from tensorshelf._group.writers import Site, chosen  # noqa: E402
from tensorshelf._state import split, writers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

# Of four ranks on two nodes, the first of which has two sockets; each node has one drive.
SETS: list[tuple[Any, list[int]]] = [
    (True, [0, 1, 2]),
    ("every_rank", [0, 1, 2, 3]),
    ("per_socket", [0, 1, 2]),
    ("per_node", [0, 2]),
    (3, [0, 1, 2]),
    (2, [0, 2]),
    (1, [0]),
]
each_set = pytest.mark.parametrize(("choice", "ranks"), SETS, ids=[repr(s) for s, _ in SETS])


@pytest.fixture
def four(tmp_path: pathlib.Path) -> Parted:
    made = Parted(tmp_path, 4)
    made.nodes, made.sockets = ["a", "a", "b", "b"], [0, 1, 0, 0]
    return made


def trained_by(four: Parted, choice: Any, count: int) -> list[Any]:
    """Begin, what each had then, and who wrote, as each rank knows."""
    four.more = {"partition": choice}
    return four.run(lambda rank: (*trained(rank, count), rank.group.info().writers))


def who_has_pieces(four: Parted) -> list[int]:
    found = []
    for rank in range(four.members):
        with ts.open(four.path(rank), "r") as shelf:
            assert "own" in shelf
            if any("[" in name for name in shelf):
                found.append(rank)
    return found


# ---- sets of four ranks


@each_set
def test_any_set_saves_and_resumes_bit_by_bit(four, choice, ranks):
    assert trained_by(four, choice, 2) == [(0, expected(0), tuple(ranks))] * 4
    assert who_has_pieces(four) == ranks
    assert trained_by(four, choice, 0) == [(2, expected(2), tuple(ranks))] * 4


def test_each_start_may_have_another_set(four):
    for begin, (choice, ranks) in enumerate([SETS[3], SETS[1], SETS[6], SETS[5], SETS[0]]):
        assert trained_by(four, choice, 1) == [(begin, expected(begin), tuple(ranks))] * 4
        assert who_has_pieces(four) == ranks


def test_writers_have_as_much_to_a_block(four):
    trained_by(four, "per_node", 1)
    blocks = []
    for rank in (0, 2):
        with ts.open(four.path(rank), "r") as shelf:
            pieces = [shelf[name].nbytes for name in shelf if "[" in name]
            blocks.append(sum(-(-nbytes // 4096) for nbytes in pieces))
    assert abs(blocks[0] - blocks[1]) <= 1


@pytest.mark.parametrize("choice", [True, "per_node", 1])
def test_what_any_set_saved_is_merged_and_loaded_by_another(four, choice):
    trained_by(four, choice, 2)
    paths = [four.path(rank) for rank in range(4)]
    ts.merge(paths, four.folder / "whole.shelf")
    job = Job().forget()
    with ts.open(four.folder / "whole.shelf", "r") as shelf:
        shelf.load_into({"model": job.model, "optimizer": job.optimizer}, strict=False)
    assert job.values() == expected(2)

    new = Parted(four.folder, 2)
    new.path = lambda rank: new.folder / f"new.{rank}.shelf"  # type: ignore[method-assign]
    new.more = {"partition": 1}

    def loaded(rank: Rank) -> Any:
        job = Job(rank.rank).forget()
        with ts.open_merged(paths) as saved:
            saved.load_into({"model": job.model, "optimizer": job.optimizer}, group=rank.group)
        found = job.values()
        return found, trained(rank, 1, job)

    assert new.run(loaded) == [(expected(2), (0, expected(2)))] * 2
    assert who_has_pieces(new) == [0]


# ---- killed


def test_what_some_ranks_wrote_and_none_committed_is_gone_on_from(four, monkeypatch):
    four.more = {"partition": "per_node"}
    dying(monkeypatch, four, lambda rank: trained(rank, 2))
    assert trained_by(four, 3, 0) == [(2, expected(2), (0, 1, 2))] * 4


@pytest.mark.parametrize("lost", [0, 1], ids=["of a writer", "of another"])
def test_a_lost_shelf_is_had_back_from_its_copy(four, lost):
    four.copies, four.more = 1, {"partition": "per_node"}
    four.run(lambda rank: trained(rank, 2))
    four.path(lost).unlink()
    assert four.run(lambda rank: trained(rank, 1)) == [(2, expected(2))] * 4
    assert four.run(lambda rank: trained(rank, 0)) == [(3, expected(3))] * 4


def test_drift_of_a_rank_that_writes_nothing_is_found(four):
    four.more = {"partition": 1}

    def body(rank: Rank) -> Any:
        job = Job(rank.rank)
        if rank.rank == 3:
            with torch.no_grad():
                for parameter in job.model.parameters():
                    parameter.add_(1)
        return trained(rank, 1, job)

    for error in four.run(body):
        assert isinstance(error, ts.errors.GroupError)
        assert error.rank == 3


# ---- the choice


def sites(*told: tuple[str, int | None, str | None]) -> list[Site]:
    return [Site(*each) for each in told]


#   (node, socket, drive) of each rank                                        True     "per_socket"
@pytest.mark.parametrize(
    ("told", "best", "per_socket"),
    [
        ([("a", 0, "x")] * 4, [0], [0]),
        ([("a", 0, "x"), ("a", 0, "y"), ("a", 0, "x"), ("a", 0, "y")], [0, 1], [0]),
        ([("a", 0, "x"), ("a", 1, "x"), ("a", 0, "x"), ("a", 1, "x")], [0, 1], [0, 1]),
        ([("a", 1, "x"), ("a", 0, "x"), ("b", 1, "x"), ("b", 0, "x")], [0, 1, 2, 3], [0, 1, 2, 3]),
        ([("a", 0, drive) for drive in "wxyz"], [0, 1, 2, 3], [0]),
        ([("a", None, "x")] * 2 + [("b", None, "x")] * 2, [0, 2], [0, 2]),
        ([("a", 0, None)] * 4, [0, 1, 2, 3], [0]),  # mapped
        ([("a", 0, None), ("a", 0, "x"), ("a", 0, "x"), ("a", 0, None)], [0, 1, 3], [0]),
    ],
)
def test_each_drive_has_a_writer_of_each_socket(told, best, per_socket):
    assert chosen(True, sites(*told)) == best
    assert chosen("per_socket", sites(*told)) == per_socket
    assert chosen("every_rank", sites(*told)) == [0, 1, 2, 3]
    assert chosen(False, sites(*told)) == []


def test_of_many_ranks_nodes_and_sockets_have_equally_many():
    told = [Site(f"node {rank // 8}", rank // 4 % 2) for rank in range(128)]
    assert chosen(16, told) == list(range(0, 128, 8))
    assert chosen(32, told) == chosen("per_socket", told) == list(range(0, 128, 4))
    assert chosen(1, sites(("a", 1, "x"), ("a", 0, "x"))) == [0]  # whatever the numbers


def test_shelves_on_other_drives_are_written_by_other_ranks(four, monkeypatch):
    """As ``True`` finds them: the first node's ranks share a socket and have a drive each."""
    four.sockets = [0, 0, 0, 0]
    monkeypatch.setattr(
        started, "drive_of", lambda path: "23"[int(path[-7])] if path[-7] in "01" else "4"
    )
    assert trained_by(four, True, 1) == [(0, expected(0), (0, 1, 2))] * 4
    assert who_has_pieces(four) == [0, 1, 2]


def test_where_the_medium_is_mapped_every_rank_writes():
    if not (os.path.isdir("/dev/shm") and ts.build_info().libraries["libpmem2"]):
        pytest.skip("no tmpfs that is mapped")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        four = Parted(pathlib.Path(folder), 4)
        four.nodes = ["a"] * 4
        assert trained_by(four, True, 1) == [(0, expected(0), (0, 1, 2, 3))] * 4
        assert trained_by(four, True, 0) == [(1, expected(1), (0, 1, 2, 3))] * 4


def test_partitions_lie_on_their_drive(tmp_path, monkeypatch):
    about = tmp_path.stat().st_dev
    number = f"{os.major(about)}:{os.minor(about)}"
    monkeypatch.setattr(drive, "_DEVICES", str(tmp_path / "block"))
    (tmp_path / "block").mkdir()
    (tmp_path / "shelf").touch()
    assert drive.drive_of(str(tmp_path / "shelf")) == number  # nothing is known of it
    whole, part = tmp_path / "devices" / "vdz", tmp_path / "devices" / "vdz" / "vdz1"
    part.mkdir(parents=True)
    (whole / "dev").write_text("300:0\n")
    (tmp_path / "block" / number).symlink_to(part)
    assert drive.drive_of(str(tmp_path / "shelf")) == number  # a drive without partitions
    (part / "partition").write_text("1\n")
    assert drive.drive_of(str(tmp_path / "shelf")) == "300:0"
    (whole / "dev").unlink()
    assert drive.drive_of(str(tmp_path / "shelf")) == "unknown"
    assert drive.drive_of(str(tmp_path / "none")) == "unknown"


def test_a_shelf_on_a_device_lies_on_that(monkeypatch):
    """And not on the drive that has the device's name."""
    about = SimpleNamespace(
        st_mode=stat.S_IFBLK, st_dev=os.makedev(0, 6), st_rdev=os.makedev(300, 0)
    )
    found = SimpleNamespace(stat=lambda path: about, major=os.major, minor=os.minor)
    monkeypatch.setattr(drive, "os", found)
    assert drive.drive_of("/dev/vdz") == "300:0"


# ---- refused


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("per_rack", "partition='per_rack' chooses no writers"),
        (2.0, "partition=2.0 chooses no writers"),
        (None, "partition=None chooses no writers"),
        (0, "partition=0 is no number of writers among 4 ranks"),
        (-1, "partition=-1 is no number of writers"),
        (5, "partition=5 is no number of writers among 4 ranks"),
    ],
)
def test_what_chooses_no_writers_is_refused(choice, told):
    with pytest.raises(ts.errors.BadArgument, match=told):
        ts.Group(torch.distributed.HashStore(), rank=0, members=4, partition=choice)


@pytest.mark.parametrize("socket", [-1, True, "0"])
def test_what_is_no_socket_is_refused(socket):
    with pytest.raises(ts.errors.BadArgument, match="is no number of one"):
        ts.Group(torch.distributed.HashStore(), rank=0, members=1, socket=socket)


def test_all_ranks_choose_alike(four):
    def body(rank: Rank) -> Any:
        rank.group.partition = 1 if rank.rank == 2 else True
        return trained(rank, 1)

    for error in four.run(body):
        assert isinstance(error, ts.errors.BadArgument)
        assert "rank 2 has partition=1, and rank 0 True" in str(error)


@pytest.mark.parametrize("last", [4, 7])
def test_pieces_of_ranks_that_are_not_here_are_told(four, monkeypatch, last):
    trained_by(four, "every_rank", 1)
    place = split.Place
    monkeypatch.setattr(split, "Place", lambda *told: place(*told)._replace(writers=[0, 2, last]))
    for error in trained_by(four, "every_rank", 0):
        assert f"rank {last} has a piece of" in str(error)


# ---- as a shelf has them


@pytest.mark.parametrize(
    ("ranks", "stored"),
    [
        ([0], 1),
        ([0, 1, 2], 3),
        ([0, 4, 8], [0, 3, 4]),
        ([0, 1, 2, 4, 6], [0, 3, 1, 4, 2, 2]),
        ([3], [3, 1, 1]),
        (list(range(0, 4096, 8)), [0, 512, 8]),
    ],
)
def test_writers_are_stored_as_runs(ranks, stored):
    assert writers.stored(ranks) == stored


def test_what_was_stored_is_what_is_read():
    rng = random.Random(seed := random.randrange(2**32))
    print("seed", seed)
    for _ in range(300):
        ranks = sorted(rng.sample(range(40), rng.randrange(1, 40)))
        stored = writers.stored(ranks)
        assert writers.are_valid(stored)
        assert (writers.count(stored), writers.last(stored)) == (len(ranks), ranks[-1])
        numbers = {rank: number for number, rank in enumerate(ranks)}
        assert [writers.number(stored, rank) for rank in range(41)] == [
            numbers.get(rank) for rank in range(41)
        ]


@pytest.mark.parametrize(
    "found",
    [
        *(0, -1, 2**31 + 1, True, None, "2", 2.0),
        *([], [0, 1], [0, 0, 1], [0, 1, 0], [-1, 2, 1], [0, 2, 1, 1, 1, 1], [4, 1, 1, 0, 1, 1]),
        *([0, 2**31, 2], [0, 2, "1"], [0, True, 1]),
    ],
)
def test_what_is_no_set_of_writers_is_not_believed(found):
    assert not writers.are_valid(found)


def test_a_piece_is_shared_out_as_before_where_all_write():
    """Shelves that say how many ranks wrote are read as they were."""
    wholes = {"a": (3, 50_000), "b": (3, 4), "c": (1, 100)}
    same = {name: ([0, by, 1], nbytes) for name, (by, nbytes) in wholes.items()}
    assert [split.shares(wholes, rank) for rank in range(4)] == [
        split.shares(same, rank) for rank in range(4)
    ]
    moved = {name: ([5, by, 2], nbytes) for name, (by, nbytes) in wholes.items()}
    assert [split.shares(moved, rank) for rank in (5, 7, 9)] == [
        split.shares(wholes, rank) for rank in range(3)
    ]
    assert split.shares(moved, 6) == {}
