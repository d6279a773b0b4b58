"""Models that are sharded over ranks (FSDP2, tensor parallelism), saved by a group."""

import pathlib
import warnings
from typing import Any

import pytest
from dcp_ranks import run_ranks

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
pytest.importorskip("torch.distributed.fsdp")

import tensorshelf as ts  # noqa: E402
from tensorshelf._state import shards  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

ODD = 7  # rows, which 2 ranks have 4 and 3 of


def sharded() -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, ODD), torch.nn.GELU(), torch.nn.Linear(ODD, 2))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def run_of(model: Any, rank: int) -> tuple[Any, Any]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    return optimizer, ts.RNG()


def open_shelf(folder: pathlib.Path, rank: int) -> ts.Shelf:
    warnings.simplefilter("ignore")
    return ts.open(folder / f"run.{rank}.shelf", size="32MiB", in_flight=2)


def trained(rank: int, folder: pathlib.Path, steps: int) -> tuple[int, list[float], list[bytes]]:
    """From where it was: the first step, the losses, and what this rank has at the end."""
    model = sharded()
    optimizer, rng = run_of(model, rank)
    losses = []
    with open_shelf(folder, rank) as shelf:
        auto = shelf.autosave(group=ts.Group(), model=model, optimizer=optimizer, rng=rng)
        first = auto.resume()
        for step in range(first + 1, steps + 1):
            loss = model(torch.randn(5, 6)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            auto.step(step)
            losses.append(loss.item())
        copied_behind_step = auto.start
        auto.close()
    assert copied_behind_step is None or "model.0.weight" in copied_behind_step.sources.lazy
    kept = [
        optimizer.state[p][key] for p in model.parameters() for key in ("exp_avg", "exp_avg_sq")
    ]
    held = [*model.parameters(), *kept]
    assert all(map(shards.is_sharded, held))
    return (
        first,
        losses,
        [shards.local(each).numpy().tobytes() for each in map(torch.Tensor.detach, held)],
    )


def test_a_sharded_run_goes_on_to_the_last_bit(tmp_path: pathlib.Path) -> None:
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    whole.mkdir()
    parted.mkdir()
    expected = run_ranks(trained, 2, whole, 7)
    begun = run_ranks(trained, 2, parted, 4)
    resumed = run_ranks(trained, 2, parted, 7)
    for (_, losses, held), (_, early, _), (first, late, found) in zip(
        expected, begun, resumed, strict=True
    ):
        assert first == 4
        assert early + late == losses
        assert found == held
    with (
        ts.open(parted / "run.0.shelf", "r") as first,
        ts.open(parted / "run.1.shelf", "r") as last,
    ):
        assert (first["model.0.weight"].shape, last["model.0.weight"].shape) == ((4, 6), (3, 6))
        loaded = first.load("model.0.weight")["model"]["0.weight"]
        assert type(loaded) is torch.Tensor
        assert loaded.shape == (4, 6)


def trained_on_a_device(rank: int, folder: pathlib.Path, steps: int) -> Any:
    """With what a mesh of devices does to a part that is read into host memory: it is copied."""
    from torch.distributed.tensor import DTensor

    def from_local(part: Any, *args: Any, **options: Any) -> Any:
        return as_it_is(part.clone(), *args, **options)

    as_it_is, DTensor.from_local = DTensor.from_local, staticmethod(from_local)
    return trained(rank, folder, steps)


def test_a_part_is_brought_to_its_device_when_it_is_read(tmp_path: pathlib.Path) -> None:
    expected = run_ranks(trained, 2, tmp_path, 4)
    resumed = run_ranks(trained_on_a_device, 2, tmp_path, 4)
    assert [first for first, *_ in resumed] == [4, 4]
    assert [held for *_, held in resumed] == [held for *_, held in expected]


def resumed_otherwise(rank: int, folder: pathlib.Path, how: str) -> str:
    """What is raised where the model is not sharded as the one that was saved."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    model: Any = torch.nn.Sequential(
        torch.nn.Linear(6, ODD), torch.nn.GELU(), torch.nn.Linear(ODD, 2)
    )
    if how == "by columns":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for name, parameter in list(model.named_parameters()):
            dim = parameter.ndim - 1
            new = torch.nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(dim)]))
            module, _, last = name.rpartition(".")
            setattr(model.get_submodule(module), last, new)
    before = [shards.local(p).detach().clone() for p in model.parameters()]
    with open_shelf(folder, rank) as shelf:
        try:
            shelf.load_into({"model": model}, strict=False)
        except ts.LayoutError as error:
            after = [shards.local(p).detach() for p in model.parameters()]
            assert all(map(torch.equal, before, after))
            return str(error)
    return ""


@pytest.mark.parametrize(
    ("how", "text"), [("whole", "not sharded"), ("by columns", "[7, 3] from [0, ")]
)
def test_what_is_sharded_otherwise_is_refused(tmp_path: pathlib.Path, how: str, text: str) -> None:
    run_ranks(trained, 2, tmp_path, 2)
    for error in run_ranks(resumed_otherwise, 2, tmp_path, how):
        assert text in error
        assert "0.weight" in error
        assert "[7, 6]" in error
        assert "Shard it as it was" in error


def of_another_shape(rank: int, folder: pathlib.Path) -> str:
    with ts.open(folder / f"plain.{rank}.shelf", size="8MiB") as shelf:
        shelf.save({"model": torch.nn.Linear(6, ODD + 1).state_dict()})
        model = sharded()
        try:
            shelf.load_into({"model": model[0]})
        except ts.LayoutError as error:
            return str(error)
    return ""


def test_a_whole_tensor_of_another_shape_is_refused(tmp_path: pathlib.Path) -> None:
    for error in run_ranks(of_another_shape, 2, tmp_path):
        assert "no part of a sharded tensor" in error


def resharded(
    rank: int, folder: pathlib.Path, steps: int, of: list[pathlib.Path] | None
) -> tuple[list[float], bool]:
    """Goes on from what ranks had saved, by way of one shelf or their own, over as many as there
    are now.
    """
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    model = sharded()
    optimizer, _ = run_of(model, rank)
    merged: Any = ts.open(folder / "whole.shelf", "r") if of is None else ts.open_merged(of)
    with merged as whole:
        report = whole.load_into({"model": model, "optimizer": optimizer}, strict=of is not None)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        of_model, of_optimizer = get_state_dict(model, optimizer, options=options)
        saved = whole.load(["model", "optimizer"])
    same = rank > 0 or all(
        torch.equal(of_model[name], value) for name, value in saved["model"].items()
    )
    if rank == 0:
        numbered = dict(enumerate(of_optimizer["state"].values()))
        for number, kept in saved["optimizer"]["state"].items():
            same = same and all(torch.equal(numbered[number][key], kept[key]) for key in kept)
    losses = []
    torch.manual_seed(5)  # alike on all ranks: what is computed does not go by their number
    for _ in range(steps):
        loss = model(torch.randn(5, 6)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert report.step == 3
    assert dist.get_world_size() == 1 or shards.is_sharded(next(iter(model.parameters())))
    return losses, same


def test_another_number_of_ranks_goes_on(tmp_path: pathlib.Path) -> None:
    run_ranks(trained, 2, tmp_path, 3)
    paths = [tmp_path / f"run.{rank}.shelf" for rank in range(2)]
    ts.merge(paths, tmp_path / "whole.shelf")
    ((expected, same),) = run_ranks(resharded, 1, tmp_path, 4, None)
    assert same
    for world, of in ((2, None), (3, paths)):
        for losses, same in run_ranks(resharded, world, tmp_path, 4, of):
            assert same
            assert losses == pytest.approx(expected, rel=1e-4)


def partial(rank: int, folder: pathlib.Path, wholly: bool) -> str:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard

    placements = [Partial(), Partial() if wholly else Shard(0)]
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1))
    summand = DTensor.from_local(torch.ones(3), mesh, placements)
    with ts.open(folder / f"partial.{rank}.shelf", size="8MiB") as shelf:
        try:
            shelf.save({"summand": summand})
        except ts.errors.NotStorable as error:
            return str(error)
    return ""


@pytest.mark.parametrize("wholly", [True, False])
def test_a_summand_is_not_stored(tmp_path: pathlib.Path, wholly: bool) -> None:
    for error in run_ranks(partial, 2, tmp_path, wholly):
        assert "summand" in error
        assert "Partial" in error


def by_rows_and_columns(rank: int, folder: pathlib.Path) -> tuple[list[int], bool]:
    """A mesh of two dimensions: offsets in both, and back into tensors that are there."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, 2))
    whole = torch.arange(24.0).reshape(4, 6)
    state = {
        "both": distribute_tensor(whole, mesh, [Shard(0), Shard(1)]),
        "one": distribute_tensor(whole, mesh, [Replicate(), Shard(1)]),
    }
    with ts.open(folder / f"mesh.{rank}.shelf", size="8MiB") as shelf:
        shelf.save(state)
        empty = {key: value.clone().zero_() for key, value in state.items()}
        shelf.load_into(empty)
        same = all(torch.equal(empty[key].to_local(), state[key].to_local()) for key in state)
    return list(shards.part_of(state["both"]).offsets), same


def test_parts_of_a_mesh(tmp_path: pathlib.Path) -> None:
    found = run_ranks(by_rows_and_columns, 4, tmp_path)
    assert found == [([0, 0], True), ([0, 3], True), ([2, 0], True), ([2, 3], True)]


def without_dimensions(rank: int, folder: pathlib.Path) -> tuple[bool, float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))

    def scale(value: float) -> Any:
        return distribute_tensor(torch.tensor(value), mesh, [Replicate()])

    with open_shelf(folder, rank) as shelf:
        kept = {"scale": scale(2.5)}
        auto = shelf.autosave(group=ts.Group(), kept=kept)
        auto.resume()
        auto.step(1)
        auto.close()
        shelf.load_into({"kept": (found := {"scale": scale(0.0)})}, strict=False)
    return shards.is_sharded(found["scale"]), found["scale"].to_local().item()


def test_a_sharded_tensor_without_dimensions(tmp_path: pathlib.Path) -> None:
    assert run_ranks(without_dimensions, 2, tmp_path) == [(True, 2.5)] * 2
    ts.merge([tmp_path / f"run.{rank}.shelf" for rank in range(2)], tmp_path / "whole.shelf")
    with ts.open(tmp_path / "whole.shelf", "r") as shelf:
        assert shelf.load("kept")["kept"]["scale"].item() == 2.5


def planned_again(rank: int, folder: pathlib.Path) -> tuple[bool, bool]:
    """Whether the plan of a save stays, and goes where another tensor comes."""
    model = sharded()
    optimizer, rng = run_of(model, rank)
    with open_shelf(folder, rank) as shelf:
        auto = shelf.autosave(group=ts.Group(), model=model, optimizer=optimizer, rng=rng)
        auto.resume()
        plans = []
        for step in range(1, 5):
            model(torch.randn(5, 6)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            auto.step(step)
            plans.append(auto._feed._plan)
            if step == 3:
                auto.wait()
                state = optimizer.state[next(iter(model.parameters()))]
                state["exp_avg"] = state["exp_avg"].clone()
        auto.close()
    return plans[1] is plans[2], plans[2] is plans[3]


def test_the_plan_of_sharded_tensors_stays_while_they_do(tmp_path: pathlib.Path) -> None:
    assert run_ranks(planned_again, 2, tmp_path) == [(True, False)] * 2


def refusals(rank: int, folder: pathlib.Path) -> list[str]:
    """Of what has the lengths of the part that was saved, and is another part."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))

    def rows(number: int) -> Any:
        return distribute_tensor(torch.arange(float(number)), mesh, [Shard(0)])

    path = str(folder / "part.{}.shelf")
    with ts.open(path.format(rank), size="8MiB") as shelf:
        shelf.save({"rows": rows(4)})
    dist.barrier()
    found = []
    for of, target in ((1 - rank, rows(4)), (rank, rows(3))):
        with ts.open(path.format(of), "r") as shelf:
            try:
                shelf.load_into({"rows": target})
                found.append("")
            except ts.LayoutError as error:
                found.append(str(error))
    return found


def test_another_part_of_the_same_lengths_is_refused(tmp_path: pathlib.Path) -> None:
    (by_offset0, by_shape), (by_offset1, _) = run_ranks(refusals, 2, tmp_path)
    assert "[2] from [0] on of [4], and what was saved is [2] from [2] on of [4]" in by_offset0
    assert "[2] from [2] on of [4], and what was saved is [2] from [0] on of [4]" in by_offset1
    assert "[2] from [0] on of [3], and what was saved is [2] from [0] on of [4]" in by_shape


def nothing_of_it(rank: int, folder: pathlib.Path) -> list[bool]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    one = distribute_tensor(torch.ones(1), init_device_mesh("cpu", (2,)), [Shard(0)])
    length = tuple(one.to_local().shape)
    return [shards.fits(one, [1], [offset], length) for offset in (0, 1)]


def test_where_a_rank_has_nothing_offsets_say_nothing(tmp_path: pathlib.Path) -> None:
    """Releases of torch give others."""
    assert run_ranks(nothing_of_it, 2, tmp_path) == [[True, False], [True, True]]


def moved(rank: int, folder: pathlib.Path, how: str) -> bool:
    """Whether a save is of the part that there is, where its memory was another's before."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (2, 2))
    rows, columns = [Shard(0), Shard(1)], [Shard(1), Shard(0)]
    local = torch.full((2, 2), float(rank))
    box = {"x": DTensor.from_local(local, mesh, rows)}
    if how == "another mesh of parts":
        after = DTensor.from_local(local, mesh, columns)
    else:  # of which the ranks above have one row
        length = 2 if rank < 2 else 1
        after = DTensor.from_local(
            local[:length], mesh, rows, run_check=False, shape=(3, 4), stride=(4, 1)
        )
    with open_shelf(folder, rank) as shelf:
        auto = shelf.autosave(group=ts.Group(), box=box)
        auto.resume()
        for step in (1, 2):
            auto.step(step)
        auto.wait()
        box["x"] = after
        local += 10
        auto.step(3)
        auto.close()
        empty = {"box": {"x": after.clone().zero_()}}
        shelf.load_into(empty, strict=False)
    return torch.equal(empty["box"]["x"].to_local(), after.to_local())


@pytest.mark.parametrize("how", ["another mesh of parts", "another shape"])
def test_a_part_of_another_tensor_is_planned_anew(tmp_path: pathlib.Path, how: str) -> None:
    assert run_ranks(moved, 4, tmp_path, how) == [True] * 4
