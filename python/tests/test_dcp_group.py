"""torch.distributed.checkpoint over shelves, by several ranks: one save of all, or none."""

import functools
import os
import pathlib
from typing import Any

import pytest
from dcp_ranks import alone, die, run_ranks

import tensorshelf as ts

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
dcp = pytest.importorskip("torch.distributed.checkpoint")

from tensorshelf.dcp import ShelfReader, ShelfWriter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

ROWS = 8


def sharded(value: float, world: int) -> Any:
    """A matrix of ROWS rows over all ranks, each element its number plus the value."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    whole = torch.arange(ROWS * 3.0).reshape(ROWS, 3) + value
    return distribute_tensor(whole, mesh, [Shard(0)])


def state_of(value: float, world: int) -> dict[str, Any]:
    return {"w": sharded(value, world), "same": torch.full((5,), value), "step": int(value)}


def save(rank: int, folder: pathlib.Path, world: int, values: list[float], **options: Any) -> int:
    """Saves by one writer, once for each value; the version of this rank's shelf in the end."""
    with ShelfWriter(folder / "run.shelf", **options) as writer:
        for value in values:
            dcp.save(state_of(value, world), storage_writer=writer)
    with ts.open(folder / f"run.{rank}.shelf", "r") as shelf:
        return shelf.version


def save_unheard(rank: int, folder: pathlib.Path, values: list[float]) -> int:
    hear_nothing()
    return save(rank, folder, 2, values)


def load_here(folder: pathlib.Path) -> tuple[Any, Any, Any]:
    """What one process without a group finds."""
    state = {"w": torch.zeros(ROWS, 3), "same": torch.zeros(5), "step": 0}
    with alone():
        dcp.load(state, storage_reader=ShelfReader(folder / "run.shelf"), no_dist=True)
    return state["w"], state["same"], state["step"]


def check_whole(folder: pathlib.Path, value: float) -> None:
    w, same, step = load_here(folder)
    assert torch.equal(w, torch.arange(ROWS * 3.0).reshape(ROWS, 3) + value)
    assert torch.equal(same, torch.full((5,), value))
    assert step == value


def test_saves_of_two_ranks(tmp_path: pathlib.Path) -> None:
    assert run_ranks(save, 2, tmp_path, 2, [1.0]) == [1, 1]
    check_whole(tmp_path, 1.0)
    with ts.open(tmp_path / "run.1.shelf", "r") as shelf:
        assert shelf.version == 1
        assert {"__dcp__", "w[4,0]"} < set(shelf)
        assert "w[0,0]" not in shelf
    assert run_ranks(save, 2, tmp_path, 2, [2.0, 3.0]) == [3, 3]
    check_whole(tmp_path, 3.0)


def test_a_rank_that_does_not_hear_is_told_by_the_next_save(tmp_path: pathlib.Path) -> None:
    assert run_ranks(save_unheard, 2, tmp_path, [1.0]) == [1, 0]
    assert run_ranks(save_unheard, 2, tmp_path, [2.0, 3.0]) == [3, 2]
    check_whole(tmp_path, 3.0)  # or by who loads
    with ts.open(tmp_path / "run.1.shelf", "r") as shelf:
        assert shelf.version == 3


def test_a_kill_before_the_flip_leaves_the_save_before(tmp_path: pathlib.Path) -> None:
    run_ranks(save, 2, tmp_path, 2, [1.0])
    run_ranks(save_and_die, 2, tmp_path, 2, "before", dies=True)
    with ts.open(tmp_path / "run.1.shelf", "r") as shelf:
        assert (shelf.version, shelf.prepared is not None) == (1, True)
    check_whole(tmp_path, 1.0)
    assert run_ranks(save, 2, tmp_path, 2, [3.0]) == [2, 2]  # the second was abandoned
    check_whole(tmp_path, 3.0)


@pytest.mark.parametrize("first", ["load", "save"])
def test_a_kill_behind_the_flip_leaves_the_save(tmp_path: pathlib.Path, first: str) -> None:
    run_ranks(save, 2, tmp_path, 2, [1.0])
    run_ranks(save_and_die, 2, tmp_path, 2, "behind", dies=True)
    with ts.open(tmp_path / "run.1.shelf", "r") as shelf:
        assert (shelf.version, shelf.prepared is not None) == (1, True)
    if first == "load":
        check_whole(tmp_path, 2.0)
    assert run_ranks(save, 2, tmp_path, 2, [3.0]) == [3, 3]  # the second was committed
    check_whole(tmp_path, 3.0)


def test_a_kill_in_the_first_save_leaves_none(tmp_path: pathlib.Path) -> None:
    run_ranks(save_and_die, 2, tmp_path, 2, "before", dies=True)
    with pytest.raises(dcp.CheckpointException, match=r"no DCP save was committed in .*run\.0\."):
        load_here(tmp_path)
    run_ranks(save, 2, tmp_path, 2, [1.0])
    check_whole(tmp_path, 1.0)


def save_and_die(rank: int, folder: pathlib.Path, world: int, when: str) -> None:
    """Both ranks die: between preparing and finishing, or when the coordinator has flipped."""
    import torch.distributed as dist

    group = dist.new_group()  # of its own: the other one's calls go on

    def dying(self: ts.Shelf, *args: Any, **options: Any) -> Any:
        if when == "behind":
            persist(self, *args, **options)
        dist.barrier(group=group)
        die()

    persist = ts.Shelf.persist
    ts.Shelf.persist = dying  # type: ignore[method-assign]
    prepare = ts.Shelf.prepare
    if rank == 1:
        ts.Shelf.prepare = preparing(prepare, group)  # type: ignore[method-assign]
    save(rank, folder, world, [2.0])


def preparing(prepare: Any, group: Any) -> Any:
    """Lets rank 1 go on to the result that it waits for, and die by a thread when rank 0 does."""
    import threading

    import torch.distributed as dist

    def wait_and_die() -> None:
        dist.barrier(group=group)
        die()

    def prepared(self: ts.Shelf, *args: Any, **options: Any) -> Any:
        made = prepare(self, *args, **options)
        threading.Thread(target=wait_and_die, daemon=True).start()
        return made

    return prepared


def save_and_fail(rank: int, folder: pathlib.Path, who: int) -> str:
    """The second of three saves fails on one rank; what the ranks are told."""
    with ShelfWriter(folder / "run.shelf") as writer:
        dcp.save(state_of(1.0, 2), storage_writer=writer)
        create = ts.Shelf.__setitem__
        if rank == who:
            ts.Shelf.__setitem__ = full  # type: ignore[method-assign]
        with pytest.raises(dcp.CheckpointException) as caught:
            dcp.save(state_of(2.0, 2), storage_writer=writer)
        ts.Shelf.__setitem__ = create  # type: ignore[method-assign]
        return str(caught.value)


def full(self: ts.Shelf, name: str, value: Any) -> None:
    raise ts.ShelfFull("no room on this drive", "Make some.")


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_fails(tmp_path: pathlib.Path, who: int) -> None:
    told = run_ranks(save_and_fail, 2, tmp_path, who)
    path = tmp_path / f"run.{who}.shelf"
    assert all("no room on this drive" in text for text in told)
    assert all(f"This is of rank {who}, whose shelf is {path}." in text for text in told)
    check_whole(tmp_path, 1.0)
    run_ranks(save, 2, tmp_path, 2, [3.0])
    check_whole(tmp_path, 3.0)


def save_and_lose_the_answer(rank: int, folder: pathlib.Path) -> list[int]:
    """The second commit fails behind its flip; this shelf's versions after that and the next."""
    versions = []
    with ShelfWriter(folder / "run.shelf") as writer:
        dcp.save(state_of(1.0, 2), storage_writer=writer)
        persist = ts.Shelf.persist

        def flip_and_fail(self: ts.Shelf, *args: Any, **options: Any) -> Any:
            persist(self, *args, **options)
            raise ts.IoError("the drive went away", "Look after it.")

        ts.Shelf.persist = flip_and_fail  # type: ignore[method-assign]
        with pytest.raises(dcp.CheckpointException, match="the drive went away"):
            dcp.save(state_of(2.0, 2), storage_writer=writer)
        ts.Shelf.persist = persist  # type: ignore[method-assign]
        for value in (None, 3.0):
            if value is not None:
                dcp.save(state_of(value, 2), storage_writer=writer)
            with ts.open(folder / f"run.{rank}.shelf", "r") as shelf:
                versions.append(shelf.version)
    return versions


def test_a_commit_that_fails_behind_its_flip_is_one(tmp_path: pathlib.Path) -> None:
    assert run_ranks(save_and_lose_the_answer, 2, tmp_path) == [[2, 3], [1, 3]]
    check_whole(tmp_path, 3.0)


def hear_nothing() -> None:
    """From here on no rank hears at once what is committed."""
    from tensorshelf.dcp import _news

    _news._commit = lambda home, parts: None


def save_by_one_planner(rank: int, folder: pathlib.Path) -> list[int]:
    """With plans cached, each writer of its own; the version of this shelf after each save."""
    from torch.distributed.checkpoint import DefaultSavePlanner

    hear_nothing()
    versions = []
    for value in (1.0, 2.0, 3.0):
        with ShelfWriter(folder / "run.shelf") as writer:
            planner = DefaultSavePlanner(enable_plan_caching=True)
            dcp.save(state_of(value, 2), storage_writer=writer, planner=planner)
        with ts.open(folder / f"run.{rank}.shelf", "r") as shelf:
            versions.append(shelf.version)
    return versions


def test_plans_that_the_planner_keeps(tmp_path: pathlib.Path) -> None:
    assert run_ranks(save_by_one_planner, 2, tmp_path) == [[1, 2, 3], [0, 1, 2]]
    check_whole(tmp_path, 3.0)


def save_out_of_sight(rank: int, folder: pathlib.Path) -> str:
    """With plans cached, and each shelf where no other rank sees it."""
    from torch.distributed.checkpoint import DefaultSavePlanner

    hear_nothing()
    own = folder / f"node-{rank}"
    own.mkdir()
    with ShelfWriter(own / "run.shelf") as writer:
        for value in (1.0, 2.0, 3.0):
            dcp.save(state_of(value, 2), storage_writer=writer)  # the plan says what is decided
        planner = DefaultSavePlanner(enable_plan_caching=True)
        dcp.save(state_of(4.0, 2), storage_writer=writer, planner=planner)
        planner = DefaultSavePlanner(enable_plan_caching=True)
        with pytest.raises(dcp.CheckpointException) as caught:
            dcp.save(state_of(5.0, 2), storage_writer=writer, planner=planner)
        dcp.save(state_of(6.0, 2), storage_writer=writer)
    return str(caught.value)


def test_shelves_that_no_other_rank_sees(tmp_path: pathlib.Path) -> None:
    told = run_ranks(save_out_of_sight, 2, tmp_path)
    assert all("use a planner without enable_plan_caching" in text for text in told)
    os.rename(tmp_path / "node-0" / "run.0.shelf", tmp_path / "run.0.shelf")
    os.rename(tmp_path / "node-1" / "run.1.shelf", tmp_path / "run.1.shelf")
    check_whole(tmp_path, 6.0)


def save_and_load(rank: int, folder: pathlib.Path) -> tuple[bool, int]:
    """Loads while both writers have their shelves open, the last save prepared on rank 1."""
    hear_nothing()
    with ShelfWriter(folder / "run.shelf") as writer:
        dcp.save(state_of(1.0, 2), storage_writer=writer)
        found = state_of(0.0, 2)
        dcp.load(found, storage_reader=ShelfReader(folder / "run.shelf"))
        whole = torch.equal(found["w"].to_local(), state_of(1.0, 2)["w"].to_local())
        with ts.open(folder / f"run.{rank}.shelf", "r") as shelf:
            return whole, shelf.version


def test_loads_beside_the_open_writers(tmp_path: pathlib.Path) -> None:
    assert run_ranks(save_and_load, 2, tmp_path) == [(True, 1), (True, 1)]


def load_all(rank: int, folder: pathlib.Path, world: int) -> bool:
    found = state_of(0.0, world)
    dcp.load(found, storage_reader=ShelfReader(folder / "run.shelf"))
    mine, wanted = found["w"].to_local(), state_of(1.0, world)["w"].to_local()
    return torch.equal(mine, wanted) and found["step"] == 1


def test_four_ranks_load_what_two_saved(tmp_path: pathlib.Path) -> None:
    run_ranks(save, 2, tmp_path, 2, [1.0])
    assert run_ranks(load_all, 4, tmp_path, 4) == [True] * 4


def test_a_shelf_that_is_lost_and_one_that_is_another(tmp_path: pathlib.Path) -> None:
    run_ranks(save_unheard, 2, tmp_path, [1.0])
    path = tmp_path / "run.1.shelf"
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(dcp.CheckpointException, match=f"of rank 1, whose shelf is {path}") as gone:
        load_here(tmp_path)
    assert "ShelfNotFound" in str(gone.value)
    with ts.open(path) as other:
        other.w = [1.0]
        other.persist()
    with pytest.raises(dcp.CheckpointException, match="holds version 1 with no DCP save") as wrong:
        load_here(tmp_path)
    assert "It is shelf " in str(wrong.value)
    path.write_bytes(kept)
    check_whole(tmp_path, 1.0)
    run_ranks(save_unheard, 2, tmp_path, [2.0])
    path.write_bytes(kept)  # older than the group
    with pytest.raises(dcp.CheckpointException, match=r"version 1 prepared as .*Put run\.1\.shelf"):
        load_here(tmp_path)


def test_an_older_version_of_another_group_is_no_part(tmp_path: pathlib.Path) -> None:
    """Though it has the number that the record names."""
    own, other = tmp_path / "own", tmp_path / "other"
    for folder, values in ((own, [1.0]), (other, [5.0, 6.0])):
        folder.mkdir()
        run_ranks(functools.partial(save, keep=3), 2, folder, 2, values)
    (own / "run.1.shelf").write_bytes((other / "run.1.shelf").read_bytes())
    with pytest.raises(dcp.CheckpointException, match=r"It is shelf .*, another one"):
        load_here(own)


def save_what_one_has(rank: int, folder: pathlib.Path) -> int:
    """The tensors of this rank's shelf, which nobody has open behind the save."""
    with ShelfWriter(folder / "run.shelf", keep_open=False) as writer:
        dcp.save({"same": torch.ones(5)}, storage_writer=writer)
        with ts.open(folder / f"run.{rank}.shelf", "r+") as shelf:
            return len(shelf)


def test_a_rank_without_a_part_keeps_its_shelf_no_longer_open(tmp_path: pathlib.Path) -> None:
    assert sorted(run_ranks(save_what_one_has, 2, tmp_path)) == [0, 2]


def save_by_rank_1_alone(rank: int, folder: pathlib.Path) -> None:
    with ShelfWriter(folder / "run.shelf") as writer:
        dcp.save({"same": torch.ones(5)} if rank == 1 else {}, storage_writer=writer)


def test_a_save_that_rank_0_has_no_part_of_is_one(tmp_path: pathlib.Path) -> None:
    run_ranks(save_by_rank_1_alone, 2, tmp_path)
    found = {"same": torch.zeros(5)}
    with alone():
        dcp.load(found, storage_reader=ShelfReader(tmp_path / "run.shelf"), no_dist=True)
    assert found["same"].tolist() == [1.0] * 5


def save_and_open_the_others(rank: int, folder: pathlib.Path) -> int:
    """The tensors of the other rank's shelf, which that has closed."""
    import torch.distributed as dist

    with ShelfWriter(folder / "run.shelf", keep_open=False) as writer:
        dcp.save(state_of(1.0, 2), storage_writer=writer)
        dist.barrier()
        with ts.open(folder / f"run.{1 - rank}.shelf", "r+") as shelf:
            count = len(shelf)
        dist.barrier()  # closing a writer would let its shelf go
        return count


def test_a_rank_with_a_part_keeps_its_shelf_no_longer_open(tmp_path: pathlib.Path) -> None:
    assert all(run_ranks(save_and_open_the_others, 2, tmp_path))


def test_a_part_that_is_damaged_before_its_rank_has_committed_it(tmp_path: pathlib.Path) -> None:
    run_ranks(save_unheard, 2, tmp_path, [1.0])
    path = tmp_path / "run.1.shelf"
    data = bytearray(path.read_bytes())
    data[data.index((torch.arange(12.0, 24.0) + 1).numpy().tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(dcp.CheckpointException, match="gives it up, so that saves go on"):
        load_here(tmp_path)
    told = run_ranks(fail_to_save, 2, tmp_path)
    assert all("CorruptError" in text and "of rank 1, whose shelf is" in text for text in told)
    with ts.open(path) as shelf:
        shelf.resolve("abandon")
    run_ranks(save, 2, tmp_path, 2, [2.0])
    check_whole(tmp_path, 2.0)


def test_what_another_group_prepared_is_left_to_it(tmp_path: pathlib.Path) -> None:
    run_ranks(save_unheard, 2, tmp_path, [1.0])
    (tmp_path / "run.0.shelf").unlink()
    told = run_ranks(fail_to_save, 2, tmp_path)
    assert all("UnresolvedError" in text and "prepared as part" in text for text in told)
    with ts.open(tmp_path / "run.1.shelf") as shelf:
        assert shelf.prepared is not None
        shelf.resolve("abandon")
    run_ranks(save, 2, tmp_path, 2, [2.0])
    check_whole(tmp_path, 2.0)


def fail_to_save(rank: int, folder: pathlib.Path) -> str:
    with ShelfWriter(folder / "run.shelf") as writer:
        with pytest.raises(dcp.CheckpointException) as caught:
            dcp.save(state_of(9.0, 2), storage_writer=writer)
        return str(caught.value)
