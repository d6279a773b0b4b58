"""Shelves of a group's ranks, read as one by any number of ranks, without one being made."""

import contextlib
import os
import pathlib
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from group_ranks import Rank, Ranks, damage, trained

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from partition_ranks import Job, Parted, expected  # noqa: E402
from partition_ranks import trained as partitioned  # noqa: E402
from test_group_deaths import left_undecided  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import state as joined_state  # noqa: E402
from tensorshelf._state.reader import Reader  # noqa: E402
from tensorshelf._view import Readable  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

SHAPE = (12, 10)
NUMBERS = torch.arange(120.0).reshape(SHAPE)


def rows(rank: int, ranks: int, whole: Any = NUMBERS, name: str = "w") -> ts.Shard:
    """As even a part of them as there is."""
    begin, end = (len(whole) * each // ranks for each in (rank, rank + 1))
    offset = (begin, *(0,) * (whole.ndim - 1))
    return ts.Shard(whole[begin:end] + 0, name, tuple(whole.shape), offset)


def columns(rank: int, ranks: int) -> ts.Shard:
    begin, end = (SHAPE[1] * each // ranks for each in (rank, rank + 1))
    return ts.Shard(NUMBERS[:, begin:end].clone(), "w", SHAPE, (0, begin))


def saved(
    folder: pathlib.Path, members: int, state_of: Callable[[int], dict[str, Any]]
) -> list[pathlib.Path]:
    """The shelves of ranks that save once what they have."""
    ranks = Ranks(folder, members)

    def body(rank: Rank) -> None:
        with rank.open() as shelf:
            auto = shelf.autosave(group=rank.group, signals=(), **state_of(rank.rank))
            auto.resume()
            auto.step(7)
            auto.close()

    assert ranks.run(body) == [None] * members
    return [ranks.path(rank) for rank in range(members)]


def emptied(shard: ts.Shard) -> ts.Shard:
    return ts.Shard(shard.tensor * 0 - 1, shard.name, shard.global_shape, shard.offset)


def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each read of a shelf's tensor, from now on."""
    found: list[int] = []
    read = Readable._read

    def counted(self: Readable, flat: Any, offset: int) -> None:
        found.append(flat.nbytes)
        read(self, flat, offset)

    monkeypatch.setattr(Readable, "_read", counted)
    return found


@pytest.mark.parametrize("before", [rows, columns])
@pytest.mark.parametrize("after", [rows, columns])
@pytest.mark.parametrize("world", [1, 2, 5])
def test_each_rank_gets_what_it_has_now(
    tmp_path: pathlib.Path,
    before: Callable[[int, int], ts.Shard],
    after: Callable[[int, int], ts.Shard],
    world: int,
) -> None:
    paths = saved(tmp_path, 3, lambda rank: {"kept": {"w": before(rank, 3)}})
    for rank in range(world):
        shard = after(rank, world)
        found = emptied(shard)
        with ts.open_merged(reversed(paths)) as view:
            assert (view.ranks, view.step) == (3, 7)
            report = view.load_into({"kept": {"w": found}})
        assert report.step == 7
        assert torch.equal(found.tensor, shard.tensor)


@pytest.mark.parametrize("world", [2, 3, 8])
def test_all_ranks_together_read_each_byte_once(
    tmp_path: pathlib.Path, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torch.arange(24 * 100.0).reshape(24, 100)
    paths = saved(tmp_path, 4, lambda rank: {"kept": {"w": rows(rank, 4, whole)}})
    read = []
    for rank in range(world):
        target = emptied(rows(rank, world, whole))
        with ts.open_merged(paths) as view, monkeypatch.context() as patch:
            counted = read_bytes(patch)
            view.load_into({"kept": {"w": target}})
            read += counted
        assert torch.equal(target.tensor, rows(rank, world, whole).tensor)
    assert sum(read) == whole.nbytes


def loaded_together(paths: Any, folder: pathlib.Path, world: int) -> tuple[list[Job], list[int]]:
    """By so many ranks: what each has, and what all read of the shelves."""

    def body(rank: Rank) -> Job:
        job = Job(rank.rank).forget()
        with ts.open_merged(paths) as view:
            report = view.load_into(
                {"model": job.model, "optimizer": job.optimizer}, group=rank.group
            )
        assert (report.step, report.missing_keys) == (2, ())
        return job

    with pytest.MonkeyPatch.context() as patch:
        counted = read_bytes(patch)
        return Ranks(folder, world).run(body), counted


@pytest.mark.parametrize("how", ["in pieces", "whole"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_that_need_all_read_it_once_together(
    tmp_path: pathlib.Path, world: int, how: str
) -> None:
    before = Parted(tmp_path, 3)
    before.more = {"partition": how == "in pieces"}
    before.run(lambda rank: partitioned(rank, 2))
    paths = [before.path(rank) for rank in range(3)]
    jobs, read = loaded_together(paths, tmp_path, world)
    for job in jobs:
        assert job.values() == expected(2)
    job = Job()
    with ts.open_merged(paths) as view:  # alone it comes to the same
        view.load_into({"model": job.forget().model, "optimizer": job.optimizer})
        assert job.values() == expected(2)
    state = [*job.model.parameters(), job.model.mean]
    kept = [x for each in job.optimizer.state.values() for x in each.values() if x.ndim]
    needed = sum(tensor.nbytes for tensor in (*state, *kept))
    assert needed <= sum(read) <= needed + 60_000 * world  # each reads the records of all


def test_a_rank_that_cannot_load_is_told_to_the_others(tmp_path: pathlib.Path) -> None:
    before = Parted(tmp_path, 2)
    before.run(lambda rank: partitioned(rank, 2))

    def body(rank: Rank) -> None:
        job = Job()
        model = job.model if rank.rank == 0 else torch.nn.Linear(2, 2)
        with ts.open_merged([before.path(0), before.path(1)]) as view:
            view.load_into({"model": model, "optimizer": job.optimizer}, group=rank.group)

    first, second = Ranks(tmp_path, 2).run(body)
    assert isinstance(second, ts.LayoutError)
    assert isinstance(first, ts.GroupError)
    assert first.rank == 1


def test_a_rank_that_cannot_load_the_second_time_is_told_too(tmp_path: pathlib.Path) -> None:
    """The others do not hear what all had come to the first time."""
    before = Parted(tmp_path, 2)
    before.run(lambda rank: partitioned(rank, 2))

    def body(rank: Rank) -> None:
        job = Job()
        with ts.open_merged([before.path(0), before.path(1)]) as view:
            for model in (job.model, job.model if rank.rank == 0 else torch.nn.Linear(2, 2)):
                view.load_into({"model": model}, group=rank.group)

    first, second = Ranks(tmp_path, 2).run(body)
    assert isinstance(second, ts.LayoutError)
    assert isinstance(first, ts.GroupError)
    assert first.rank == 1


def test_a_whole_tensor_is_of_all_parts(tmp_path: pathlib.Path) -> None:
    paths = saved(tmp_path, 2, lambda rank: {"kept": {"w": rows(rank, 2)}, "alike": {"b": NUMBERS}})
    with ts.open_merged(paths) as view:
        state = view.load()
        found = {"w": torch.zeros(SHAPE), "b": torch.zeros(SHAPE)}
        view.load_into({"kept": {"w": found["w"]}, "alike": {"b": found["b"]}})
    for value in (state["kept"]["w"], state["alike"]["b"], *found.values()):
        assert torch.equal(value, NUMBERS)
    assert "group" not in state


ARRAYS = {
    "float64": np.arange(60.0).reshape(12, 5),
    "int8": np.arange(60, dtype=np.int8).reshape(12, 5),
    "text": np.array([f"row {number}" for number in range(12)]),
    "fortran": np.asfortranarray(np.arange(60.0).reshape(12, 5)),
    "empty": np.zeros((12, 0)),
    "bfloat16": torch.arange(60.0).reshape(12, 5).bfloat16(),
    "transposed": torch.arange(60.0).reshape(5, 12).T,
    "complex": torch.arange(12.0) * 1j,
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_any_kind(tmp_path: pathlib.Path, kind: str) -> None:
    whole = ARRAYS[kind]

    def part(rank: int, ranks: int) -> ts.Shard:
        begin, end = (12 * each // ranks for each in (rank, rank + 1))
        offset = (begin, *(0,) * (whole.ndim - 1))
        return ts.Shard(whole[begin:end], "w", tuple(whole.shape), offset)

    paths = saved(tmp_path, 3, lambda rank: {"kept": {"w": part(rank, 3)}})
    with ts.open_merged(paths) as view:
        found = view.load("kept")["kept"]["w"]
        assert found.dtype == whole.dtype
        assert (found == whole).all()
        for rank in range(2):
            expected = part(rank, 2)
            empty = np.empty_like if isinstance(whole, np.ndarray) else torch.empty_like
            target = ts.Shard(empty(expected.tensor), "w", tuple(whole.shape), expected.offset)
            view.load_into({"kept": {"w": target}})
            assert (target.tensor == expected.tensor).all()


def within_one_memory(rank: int) -> dict[str, Any]:
    """Of two ranks."""
    memory = torch.cat([NUMBERS[6 * rank : 6 * rank + 6], NUMBERS[6 * rank : 6 * rank + 6] + 500])
    offset = (6 * rank, 0)
    return {
        "kept": {
            "a": ts.Shard(memory[:6], "a", SHAPE, offset),
            "b": ts.Shard(memory[6:], "b", SHAPE, offset),
            "all": memory,
        }
    }


def test_parts_within_one_memory(tmp_path: pathlib.Path) -> None:
    paths = saved(tmp_path, 2, within_one_memory)
    with ts.open_merged(paths) as view:
        kept = {name: emptied(rows(1, 3, NUMBERS, name)) for name in ("a", "b")}
        view.load_into({"kept": kept}, strict=False)
    assert torch.equal(kept["a"].tensor, NUMBERS[4:8])
    assert torch.equal(kept["b"].tensor, NUMBERS[4:8] + 500)


def test_parts_within_one_memory_are_read_by_one_thread_at_a_time(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is the first within a reader waits there for the other thread, which comes to the lock,
    or past it.
    """
    came: set[int] = set()
    both = threading.Event()
    within: Counter[Reader] = Counter()
    most: Counter[Reader] = Counter()
    read_all = Reader.read_all

    def comes() -> None:
        came.add(threading.get_ident())
        if len(came) == 2:
            both.set()

    class Lock:
        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            comes()
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    def counted(self: Reader, report: Any = None) -> None:
        within[self] += 1
        most[self] = max(most[self], within[self])
        comes()
        assert both.wait(30)
        read_all(self, report)
        within[self] -= 1

    monkeypatch.setattr(joined_state, "threading", SimpleNamespace(Lock=Lock))
    found = {name: np.zeros(SHAPE, np.float32) for name in ("a", "b")}
    with ts.open_merged(saved(tmp_path, 2, within_one_memory)) as view:
        monkeypatch.setattr(Reader, "read_all", counted)
        threads = [
            threading.Thread(target=view._opened()[name]._read, args=(flat_of(into), 0))
            for name, into in found.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert list(most.values()) == [1, 1]  # of each rank's
    assert np.array_equal(found["a"], NUMBERS)
    assert np.array_equal(found["b"], NUMBERS + 500)


def flat_of(values: Any) -> Any:
    return values.reshape(-1).view(np.uint8)


def test_what_is_not_given_is_not_missed(tmp_path: pathlib.Path) -> None:
    paths = saved(
        tmp_path, 2, lambda rank: {"kept": {"a": NUMBERS, "b": NUMBERS}, "more": {"c": 1}}
    )
    with ts.open_merged(paths) as view:
        view.load_into({"kept": {"a": NUMBERS * 0, "b": NUMBERS * 0}})
        with pytest.raises(ts.KeyMismatch, match=r"kept\.b"):
            view.load_into({"kept": {"a": NUMBERS * 0}})
        with pytest.raises(ts.KeyMismatch, match="other"):
            view.load_into({"kept": {"a": NUMBERS * 0, "b": NUMBERS * 0}, "other": 1})
        renamed: dict[str, Any] = {"new": {"a": NUMBERS * 0, "b": NUMBERS * 0}}
        view.load_into(renamed, rename={"kept": "new"})
        assert torch.equal(renamed["new"]["a"], NUMBERS)
        everything: dict[str, Any] = {}
        view.load_into(everything)
    assert everything["more"] == {"c": 1}


@pytest.mark.parametrize(
    ("of_ranks", "own"),
    [
        ([{"seed": 3}, {"seed": 3}], False),
        ([{"seed": 3}, {"seed": 4}], True),
        ([{"seed": 3}, {"seed": 3.0}], True),
        ([{"seed": float("nan")}, {"seed": float("nan")}], False),
        ([{"seed": 3}, {"other": 4}], False),
        ([{"seed": [1, 2]}, {"seed": [1, 2, 3]}], True),
        ([{"seed": (1, {"a": b"x"})}, {"seed": (1, {"a": b"y"})}], True),
        ([{"seed": torch.tensor(1)}, {"seed": torch.tensor(2)}], True),
        ([{"seed": torch.tensor(1)}, {"seed": torch.tensor(1)}], False),
        ([{"seed": torch.ones(3)}, {"seed": torch.zeros(3)}], False),  # as a model's buffers
        ([{"seed": torch.ones(3).int()}, {"seed": torch.zeros(3).int()}], True),
    ],
)
def test_what_is_of_each_rank_alone_is_refused(
    tmp_path: pathlib.Path, of_ranks: Sequence[Any], own: bool
) -> None:
    paths = saved(tmp_path, 2, lambda rank: {"loader": of_ranks[rank], "kept": {"a": NUMBERS}})
    target: dict[str, Any] = {"loader": {"seed": 0}, "kept": {"a": NUMBERS * 0}}
    with ts.open_merged(paths) as view:
        if own:
            with pytest.raises(
                ts.LayoutError, match="'loader' is of each rank alone: ranks 0 and 1"
            ):
                view.load_into(target)
            assert not target["kept"]["a"].any()  # nothing was loaded
        else:
            view.load_into(target)
        view.load_into({"kept": target["kept"]})
        assert torch.equal(target["kept"]["a"], NUMBERS)
        assert view.load("loader")["loader"].keys() == {"seed"}  # rank 0's


def test_the_first_rank_that_differs_is_named(tmp_path: pathlib.Path) -> None:
    paths = saved(tmp_path, 4, lambda rank: {"loader": {"seed": max(rank - 1, 0)}})
    said = "'loader' is of each rank alone: ranks 0 and 2"
    with ts.open_merged(paths) as view, pytest.raises(ts.LayoutError, match=said):
        view.load_into({"loader": {"seed": 0}})


class Seeded:
    """Generators of a rank, as ts.RNG has those of a process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def state_dict(self) -> dict[str, Any]:
        words = random.Random(self.seed).getstate()[1]
        return {"words": np.array(words, np.uint32), "numpy": np.random.RandomState(self.seed)}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@pytest.mark.parametrize("seeds", [(0, 1), (1, 1)])
def test_the_generators_of_ranks_are_their_own(
    tmp_path: pathlib.Path, seeds: tuple[int, int]
) -> None:
    paths = saved(tmp_path, 2, lambda rank: {"rng": Seeded(seeds[rank])})
    with ts.open_merged(paths) as view:
        if seeds[0] == seeds[1]:
            view.load_into({"rng": Seeded(0)})
        else:
            with pytest.raises(ts.LayoutError, match="rng"):
                view.load_into({"rng": Seeded(0)})


def test_damage_is_found_by_who_reads_it(tmp_path: pathlib.Path) -> None:
    whole = np.arange(1 << 19, dtype=np.float64).reshape(4, -1)  # 1 MiB a row
    paths = saved(tmp_path, 2, lambda rank: {"kept": {"w": rows(rank, 2, whole)}})
    damage(paths[1], whole[3, 1000:1100])
    for rank in range(4):
        with ts.open_merged(paths) as view:
            target = {"kept": {"w": emptied(rows(rank, 4, whole))}}
            if rank == 3:
                with pytest.raises(ts.CorruptError):
                    view.load_into(target)
            else:
                view.load_into(target)


def test_shelves_that_are_not_all_are_refused(tmp_path: pathlib.Path) -> None:
    two = Ranks(tmp_path, 2)
    two.run(trained(1))
    with pytest.raises(ts.BadArgument, match="2 ranks"):
        ts.open_merged([two.path(0)])
    with pytest.raises(ts.BadArgument, match="one path"):
        ts.open_merged(str(two.path(0)))
    with ts.open(two.path(0), "r+"):  # none is held any more
        pass


def test_what_waits_for_the_group_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Ranks(tmp_path, 2)
    left_undecided(two, monkeypatch, who_votes={0, 1}, at=3)
    with pytest.raises(ts.UnresolvedError, match="resume"):
        ts.open_merged([two.path(0), two.path(1)])


def opened() -> set[str]:
    """The files that this process has open."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # of the listing itself
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return found


def test_a_closed_view_says_so(tmp_path: pathlib.Path) -> None:
    paths = saved(tmp_path, 2, lambda rank: {"kept": {"w": rows(rank, 2)}})
    view = ts.open_merged(paths)
    assert repr(view) == "<MergedView of 2 ranks, 1 tensors, step 7>"
    assert set(map(str, paths)) <= opened()
    view.close()
    view.close()
    assert not set(map(str, paths)) & opened()
    with pytest.raises(ts.ClosedError):
        view.load()
    assert "closed" in repr(view)
    with ts.open(paths[0], "r+"):
        pass


def test_an_error_at_a_prompt_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorshelf._group.together import _dies_of_an_error

    monkeypatch.delattr(sys, "last_type", raising=False)
    monkeypatch.delattr(sys, "ps1", raising=False)
    assert not _dies_of_an_error()
    monkeypatch.setattr(sys, "last_type", ValueError, raising=False)
    assert _dies_of_an_error()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert not _dies_of_an_error()


def test_who_waits_hears_whether_this_rank_has_voted() -> None:
    from tensorshelf._group.group_save import GroupSave
    from tensorshelf._group.part import Part

    save = GroupSave(
        Part("job", 1, 2, 1, 5), 7, None, timeout=1.0, awaited=lambda: "rank 0 has", where="/x"
    )
    before = str(save.undecided("for 1 s"))
    assert "The part of rank 1, in /x, is not prepared yet" in before
    save.voted = False
    assert "is dropped, for this rank voted against it" in str(save.undecided("for 1 s"))
    save.voted = True
    assert "The part of rank 1, in /x, is prepared, and the next start" in str(
        save.undecided("for 1 s")
    )


def test_one_group_loads_again_and_again(tmp_path: pathlib.Path) -> None:
    before = Parted(tmp_path, 3)
    before.run(lambda rank: partitioned(rank, 2))
    paths = [before.path(rank) for rank in range(3)]

    def body(rank: Rank) -> bool:
        for _ in range(2):
            job = Job(rank.rank).forget()
            with ts.open_merged(paths) as view:
                view.load_into({"model": job.model, "optimizer": job.optimizer}, group=rank.group)
            assert job.values() == expected(2)
        return True

    assert Ranks(tmp_path, 2).run(body) == [True, True]


@pytest.mark.parametrize("kinds", [(torch.float32, torch.int32), (torch.float32,) * 2])
def test_ranks_that_opened_different_saves_load_none(tmp_path: pathlib.Path, kinds: Any) -> None:
    """By a wrong path: of tensors of the same names, and of the same form or others."""
    for number, kind in enumerate(kinds):
        (tmp_path / str(number)).mkdir()

        def save(rank: Rank, kind: Any = kind, value: int = 3 + number) -> None:
            model = torch.nn.Module()
            values = torch.full((4096, 2), value).to(kind)
            model.w = torch.nn.Parameter(values, requires_grad=False)
            with rank.open() as shelf:
                auto = shelf.autosave(group=rank.group, signals=(), model=model)
                auto.resume()
                auto.step(1)
                auto.close()

        assert Parted(tmp_path / str(number), 2).run(save) == [None, None]

    def load(rank: Rank) -> None:
        model = torch.nn.Module()
        values = torch.zeros(4096, 2, dtype=kinds[rank.rank])
        model.w = torch.nn.Parameter(values, requires_grad=False)
        folder = tmp_path / str(rank.rank)
        with ts.open_merged([folder / f"run.{number}.shelf" for number in range(2)]) as view:
            view.load_into({"model": model}, group=rank.group)

    for error in Ranks(tmp_path, 2).run(load):
        assert isinstance(error, ts.LayoutError)
        assert "rank 1 has opened epoch 1" in str(error)
        assert "give all ranks the same paths" in str(error)
