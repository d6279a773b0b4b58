"""What data-parallel ranks hold alike: which tensors that are, and that it is so at each save."""

import pathlib
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Rank  # noqa: E402
from partition_ranks import Job, Parted, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf import _core  # noqa: E402
from tensorshelf._group import drift, member, routes  # noqa: E402
from tensorshelf._group.parted import Ranks, parted  # noqa: E402
from tensorshelf._state.flatten import flatten  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def three(tmp_path: pathlib.Path) -> Parted:
    return Parted(tmp_path, 3)


class DistributedDataParallel(torch.nn.Module):
    """As torch's, to what looks at it."""

    def __init__(self, module: torch.nn.Module, rank: int = 0, *, buffers: bool = True) -> None:
        super().__init__()
        self.module = module
        self.broadcast_buffers = buffers
        self.process_group = SimpleNamespace(rank=lambda: rank, size=lambda: 2)
        self.parameters_to_ignore: set[str] = set()


def names(state: Any, rank: int = 0) -> tuple[set[str], set[str]]:
    """In pieces; and those of them that all ranks hold alike."""
    found = parted(flatten(state), state, Ranks(rank, 2, [0, 1]))
    return set(found.flat.wholes), set(found.alike)


def test_parameters_and_what_optimizers_keep_are_alike():
    job = Job()
    job.train(1)
    in_pieces, alike = names(job.state())
    kept = [f"optimizer.state.model.{name}" for name in ("weight", "turned", "bfloat")]
    expected = {"model.weight", "model.turned", "model.bfloat", "model.frozen"}
    assert (
        alike
        == in_pieces
        == expected | {f"{name}.{kind}" for name in kept for kind in ("exp_avg", "exp_avg_sq")}
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_buffers_are_those_of_rank_0_where_all_get_them_from_there(rank):
    model = torch.nn.BatchNorm1d(8)
    statistics = {"model.running_mean", "model.running_var"}
    weights = {"model.weight", "model.bias"}
    assert names({"model": model}, rank) == (weights, weights)
    given = {"model": DistributedDataParallel(model, rank)}
    assert names(given, rank) == (weights | statistics, weights)
    flat = parted(flatten(given), given, Ranks(rank, 2, [0, 1])).flat
    assert ("model.running_mean[0:32]" in flat.tensors) == (rank == 0)
    given = {"model": DistributedDataParallel(model, rank, buffers=False)}
    assert names(given, rank) == (weights, weights)
    given = {"model": DistributedDataParallel(model, 1 - rank)}  # of other ranks than the group
    assert names(given, rank) == (weights, weights)


def test_where_ranks_are_numbered_anew_each_saves_its_buffers(three):
    """Some have the number of torch.distributed's rank still, and others have not."""

    def steps(nodes: str) -> list[Any]:
        def body(rank: Rank) -> tuple[int, int, float]:
            (three.folder / nodes[rank.rank]).mkdir(exist_ok=True)
            path = three.folder / nodes[rank.rank] / "run.{part}.shelf"
            model = DistributedDataParallel(torch.nn.BatchNorm1d(8), rank.rank)
            model.process_group = SimpleNamespace(rank=lambda: rank.rank, size=lambda: 3)
            with ts.open_part(path, rank.group, size="64MiB") as shelf:
                auto = shelf.autosave(group=rank.group, signals=(), model=model)
                begin = auto.resume()
                model.module.running_mean += rank.group.rank
                auto.step(begin + 1)
                auto.close()
                return rank.group.rank, begin, float(model.module.running_mean[0])

        return three.run(body)

    assert steps("abc") == [(0, 0, 0.0), (1, 0, 1.0), (2, 0, 2.0)]
    assert steps("bac") == [(1, 1, 1.0), (0, 1, 0.0), (2, 1, 2.0)]
    assert steps("bac") == [(1, 2, 2.0), (0, 2, 0.0), (2, 2, 4.0)]


def test_ranks_that_take_buffers_from_others_save_nothing(three):
    def body(rank: Rank) -> Any:
        model = DistributedDataParallel(torch.nn.BatchNorm1d(8), rank.rank)
        model.process_group = SimpleNamespace(rank=lambda: rank.rank, size=lambda: 3)
        model.broadcast_buffers = rank.rank != 2
        with rank.open() as shelf:
            auto = shelf.autosave(group=rank.group, signals=(), model=model)
            auto.resume()
            auto.step(1)
            auto.wait()

    for error in three.run(body):
        assert isinstance(error, ts.errors.GroupError)
        assert error.rank == 2


def test_what_is_made_of_distributed_data_parallel_is_as_that():
    class Own(DistributedDataParallel):
        pass

    given = {"model": Own(torch.nn.BatchNorm1d(8))}
    weights = {"model.weight", "model.bias"}
    assert names(given) == (weights | {"model.running_mean", "model.running_var"}, weights)
    given["model"].parameters_to_ignore = {"weight"}
    assert names(given)[1] == {"model.bias"}


def test_what_is_kept_of_a_part_within_other_memory_is_not_alike():
    memory = torch.zeros(128)
    model = torch.nn.Linear(8, 8, bias=False)
    model.weight = torch.nn.Parameter(memory[64:].view(8, 8))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    part = ts.Shard(model.weight, "whole", global_shape=(16, 8), offset=(8, 0))
    state = {"part": part, "memory": memory, "model": model, "optimizer": optimizer}
    assert names(state) == (set(), set())


def test_what_is_ignored_or_sharded_is_not_alike():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    wrapped = DistributedDataParallel(model)
    wrapped.parameters_to_ignore = {"0.weight"}
    shard = ts.Shard(model[1].weight, "whole", global_shape=(16, 8), offset=(8, 0))
    state = {"model": wrapped, "optimizer": optimizer, "shard": shard}
    _, alike = names(state)
    assert alike == {"model.0.bias", "model.1.bias"} | {
        f"optimizer.state.model.{name}.bias.{kind}"
        for name in "01"
        for kind in ("exp_avg", "exp_avg_sq")
    }

    class ZeroRedundancyOptimizer(torch.optim.Adam):
        pass

    other = ZeroRedundancyOptimizer(model.parameters())
    other.load_state_dict(optimizer.state_dict())
    _, alike = names({"model": model, "optimizer": other})
    assert not [name for name in alike if name.startswith("optimizer")]


def test_a_buffer_that_ddp_ignores_is_each_ranks():
    wrapped = DistributedDataParallel(torch.nn.BatchNorm1d(8))
    wrapped.parameters_to_ignore = {"running_mean"}
    in_pieces, _ = names({"model": wrapped})
    assert in_pieces == {"model.weight", "model.bias", "model.running_var"}


def test_views_of_one_memory_stay_as_they_are():
    model = torch.nn.Linear(8, 8, bias=False)
    assert names({"model": model, "rows": model.weight.detach()[2:]}) == (set(), set())


# ---- drift


def drifting(rank: Rank, apart: set[int], steps: int) -> tuple[list[Any], int | None]:
    """They differ from the third step on; what step() raised."""
    job = Job(rank.rank)
    errors = []
    with rank.open() as shelf:
        auto = shelf.autosave(group=rank.group, signals=(), **job.state())
        auto.resume()
        for step in range(1, steps + 1):
            job.train(step)
            if step == 3 and rank.rank in apart:
                with torch.no_grad():
                    job.model.frozen[1234] += 1  # which no step changes
            try:
                auto.step(step)
                auto.wait()
            except ts.ShelfError as error:
                errors.append(error)
        return errors, shelf.step


@pytest.mark.parametrize(
    ("apart", "who"), [({1}, "rank 1 differs from rank 0"), ({0, 2}, "rank 1 differs from rank 0")]
)
def test_ranks_that_differ_are_named_and_nothing_is_saved(three, apart, who):
    found = three.run(lambda rank: drifting(rank, apart, 16))
    for errors, step in found:
        assert step is not None
        assert 2 <= step < 14  # the tensor's turn comes within so many saves as there are chunks
        assert len(errors) == 16 - step  # from there on none
        for error in errors:
            assert isinstance(error, ts.errors.GroupError)
            assert error.rank == 1
            assert f"{who} in 'model.frozen' (bytes 0 to 16000)" in str(error)
            assert "start the job anew" in error.remedy
    (step,) = {step for _, step in found}
    begun = three.run(lambda rank: trained(rank, 1))
    assert [begin for begin, _ in begun] == [step] * 3
    assert begun[0] == begun[1] == begun[2]


@pytest.mark.parametrize(
    ("apart", "who", "named"),
    [
        ({2}, "rank 2 differs from rank 1", 2),  # the relay finds it, which compares its own two
        ({1, 2}, "rank 0 differs from rank 1", 0),  # the coordinator: what votes together is alike
        ({0}, "rank 0 differs from rank 1", 0),
    ],
)
def test_ranks_behind_a_relay_are_compared_too(three, monkeypatch, apart, who, named):
    monkeypatch.setattr(routes, "_WORTH", -100)
    three.nodes = ["a", "b", "b"]
    found = three.run(lambda rank: drifting(rank, apart, 16))
    for errors, step in found:
        assert step is not None
        assert len(errors) == 16 - step > 2
        for error in errors:
            assert error.rank == named
            assert f"{who} in 'model.frozen'" in str(error)


def test_ranks_that_differ_and_die_before_they_hear_of_it_save_nothing(three, monkeypatch):
    do = member.Member._do
    refused = []

    def not_done(self, save, todo):
        if todo == _core.Todo.abandon:
            refused.append(save.part.number)
            raise RuntimeError("the rank dies here")
        do(self, save, todo)

    with monkeypatch.context() as patched:
        patched.setattr(member.Member, "_do", not_done)
        three.run(lambda rank: drifting(rank, {2}, 16), timeout=2)
    with ts.open_merged([three.path(rank) for rank in range(3)]) as saved:
        assert saved.step == min(refused) - 1
    begun = three.run(lambda rank: trained(rank, 0))
    assert [begin for begin, _ in begun] == [min(refused) - 1] * 3


def test_ranks_that_differ_in_which_tensors_there_are_save_nothing(three):
    def body(rank: Rank) -> Any:
        job = Job(rank.rank)
        if rank.rank == 1:
            job.model.register_parameter("more", torch.nn.Parameter(torch.zeros(8)))
        with rank.open() as shelf:
            auto = shelf.autosave(group=rank.group, signals=(), **job.state())
            auto.resume()
            job.train(1)
            auto.step(1)
            auto.wait()

    for error in three.run(body):
        assert isinstance(error, ts.errors.GroupError)
        assert error.rank == 1


def test_the_whole_state_is_compared_in_turn():
    wholes = {"a": torch.zeros(300_000), "b": torch.zeros(3), "turned": torch.zeros(600, 500).t()}
    chunks = drift.Chunks(wholes)
    places = [chunks.place(number) for number in range(5, 10)]
    assert sorted(places) == [
        ("a", 0, 1 << 20),
        ("a", 1 << 20, 1_200_000),
        ("b", 0, 12),
        ("turned", 0, 1 << 20),
        ("turned", 1 << 20, 1_200_000),
    ]
    before = [chunks.chunk(number).hash() for number in range(5, 10)]
    wholes["turned"][499, 599] = 1
    after = [chunks.chunk(number).hash() for number in range(5, 10)]
    changed = [place for place, a, b in zip(places, before, after, strict=True) if a != b]
    assert changed == [("turned", 1 << 20, 1_200_000)]
    assert drift.Chunks({}).place(1) is None


def test_a_hash_is_of_the_moment_at_which_it_was_taken():
    tensor = torch.zeros(10)
    chunk = drift.Chunks({"a": tensor}).chunk(1)
    before = chunk.known
    tensor += 1
    assert chunk.hash() == before != drift.Chunks({"a": tensor}).chunk(1).known


def test_a_save_has_the_mark_of_what_it_prepared(three, monkeypatch):
    """By which its copies know it, and what it votes against is dropped."""
    marks = []
    hear = member.Member._hear

    def noted(self, save, *others):
        marks.append((self._core.prepared()["id"] == save.part.mark(), save.part.alike is not None))
        hear(self, save, *others)

    monkeypatch.setattr(member.Member, "_hear", noted)
    three.run(lambda rank: trained(rank, 3))
    assert len(marks) == 9
    assert all(same for same, _ in marks)
    assert any(known for _, known in marks)
