"""Shelves of a group's ranks, made one."""

import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dcp_ranks import run_ranks
from group_ranks import Rank, Ranks, trained

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
pytest.importorskip("torch.distributed.fsdp")

from test_group_deaths import left_undecided  # noqa: E402
from test_group_fsdp import ODD, open_shelf, sharded  # noqa: E402
from test_group_fsdp import trained as fsdp  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group.joined import JoinedTensor  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def two(tmp_path):
    return Ranks(tmp_path, 2)


def merged(ranks: Ranks, *, to: str = "whole.shelf", of: Any = (0, 1)) -> pathlib.Path:
    ts.merge([ranks.path(rank) for rank in of], ranks.folder / to)
    return ranks.folder / to


def of_rank_0(rank: int, folder: pathlib.Path) -> Any:
    """What is sharded, gathered by torch itself."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with ts.open(folder / f"run.{rank}.shelf", in_flight=2) as shelf:
        auto = shelf.autosave(group=ts.Group(), model=model, optimizer=optimizer, rng=ts.RNG())
        auto.resume()
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        of_model, of_optimizer = get_state_dict(model, optimizer, options=whole)
        auto.close()
    kept = of_optimizer["state"] if rank == 0 else {}
    return {
        **{name: value.numpy() for name, value in of_model.items()},
        **{
            f"{name}.{key}": value.numpy() for name, of in kept.items() for key, value in of.items()
        },
    }


def test_what_was_sharded_is_whole(tmp_path: pathlib.Path) -> None:
    run_ranks(fsdp, 2, tmp_path, 3)
    expected, _ = run_ranks(of_rank_0, 2, tmp_path)
    made = ts.merge([tmp_path / "run.1.shelf", tmp_path / "run.0.shelf"], tmp_path / "whole.shelf")
    assert made.step == 3
    model = torch.nn.Sequential(torch.nn.Linear(6, ODD), torch.nn.GELU(), torch.nn.Linear(ODD, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with ts.open(tmp_path / "whole.shelf", "r+") as shelf:
        assert shelf["model.0.weight"].shape == (ODD, 6)
        auto = shelf.autosave(model=model, optimizer=optimizer, rng=ts.RNG())
        assert auto.resume() == 3  # by one process, without a group
        found = {name: value.numpy() for name, value in model.state_dict().items()}
        for name, parameter in model.named_parameters():
            for key, value in optimizer.state[parameter].items():
                found[f"{name}.{key}"] = value.numpy()
        auto.close()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def parts(rank: int, folder: pathlib.Path, how: str) -> None:
    """Of 6 rows that are 0 to 5, saved as ranks never do that go by one program."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    begin, end = ((0, 3), (3, 6))[rank]
    if (how, rank) == ("some of it twice", 0):
        end = 4
    rows = torch.arange(begin, end, dtype=torch.float32)
    if (how, rank) == ("another tensor", 1):
        rows = rows.double()
    mesh = init_device_mesh("cpu", (2,))
    value = DTensor.from_local(rows, mesh, [Shard(0)], run_check=False, shape=(6,), stride=(1,))
    with open_shelf(folder, rank) as shelf:
        auto = shelf.autosave(group=ts.Group(), kept={"a": value, "b": value})
        auto.resume()
        auto.step(1)
        auto.close()


def test_ties_of_what_was_sharded_stay(tmp_path: pathlib.Path) -> None:
    run_ranks(parts, 2, tmp_path, "alike")
    ts.merge([tmp_path / f"run.{rank}.shelf" for rank in range(2)], tmp_path / "whole.shelf")
    with ts.open(tmp_path / "whole.shelf", "r") as shelf:
        kept = shelf.load("kept")["kept"]
    assert kept["a"] is kept["b"]
    assert torch.equal(kept["a"], torch.arange(6.0))


@pytest.mark.parametrize("how", ["some of it twice", "another tensor"])
def test_parts_that_are_not_of_one_tensor_are_refused(tmp_path: pathlib.Path, how: str) -> None:
    run_ranks(parts, 2, tmp_path, how)
    with pytest.raises(ts.CorruptError, match=how):
        ts.merge([tmp_path / f"run.{rank}.shelf" for rank in range(2)], tmp_path / "whole.shelf")
    assert not (tmp_path / "whole.shelf").exists()


def test_what_all_have_alike_is_rank_0s(two):
    two.run(trained(2))
    with ts.open(merged(two), "r") as shelf:
        assert shelf.step == 2
        state = shelf.load()
    assert state.keys() == {"values", "autosave"}
    np.testing.assert_array_equal(state["values"], np.full(1000, 2.0))


def test_all_ranks_are_asked_for(two):
    two.run(trained(1))
    for of in ((0,), (0, 0), (0, 0, 1)):
        with pytest.raises(ts.BadArgument, match="2 ranks"):
            merged(two, of=of)
    with pytest.raises(ts.BadArgument, match="no shelves"):
        merged(two, of=())
    assert not (two.folder / "whole.shelf").exists()


def test_one_path_is_no_list(two):
    with pytest.raises(ts.BadArgument, match="a list"):
        ts.merge(str(two.path(0)), two.folder / "whole.shelf")


def test_a_shelf_of_a_group_is_not_resumed_alone(two):
    two.run(trained(1))
    with ts.open(two.path(0), "r+") as shelf:
        auto = shelf.autosave(values=np.zeros(1000), signals=())
        with pytest.raises(ts.BadArgument, match=r"merge\(\)"):
            auto.resume()


def test_other_jobs_are_refused(two, tmp_path):
    two.run(trained(1))
    (tmp_path / "other").mkdir()
    other = Ranks(tmp_path / "other", 2)
    other.run(trained(1))
    with pytest.raises(ts.BadArgument, match="different jobs"):
        ts.merge([two.path(0), other.path(1)], tmp_path / "whole.shelf")


def test_an_older_copy_is_refused(two):
    two.run(trained(1))
    copy = two.path(1).read_bytes()
    two.run(trained(1))
    two.path(1).write_bytes(copy)
    with pytest.raises(ts.StaleError, match="rank 1"):
        merged(two)


def test_what_waits_for_the_group_is_told(two, monkeypatch):
    left_undecided(two, monkeypatch, who_votes={0, 1}, at=3)
    with pytest.raises(ts.UnresolvedError, match="resume"):
        merged(two)
    two.run(trained(0))
    with ts.open(merged(two), "r") as shelf:
        assert shelf.step == 3


def test_what_one_had_not_prepared_is_left_out(two, monkeypatch):
    left_undecided(two, monkeypatch, who_votes={1}, at=3)
    with ts.open(merged(two), "r") as shelf:
        assert shelf.step == 2


def test_what_was_prepared_for_other_steps_is_left_out(two, monkeypatch):
    """The next start drops it, for nobody can have committed it."""
    left_undecided(two, monkeypatch, who_votes={0, 1}, at=3, apart=1)
    with ts.open(merged(two), "r") as shelf:
        assert shelf.step == 2


@pytest.mark.parametrize("name", ["whole.pt", "whole.npz"])
def test_a_path_of_another_format_is_refused(tmp_path, name):
    with pytest.raises(ts.errors.BadArgument, match="would be a shelf") as told:
        ts.merge([tmp_path / "run.0.shelf"], tmp_path / name)
    assert ".safetensors" in told.value.remedy


def test_what_is_there_stays(two):
    two.run(trained(1))
    merged(two)
    before = (two.folder / "whole.shelf").read_bytes()
    with pytest.raises(ts.ShelfExists):
        merged(two)
    assert (two.folder / "whole.shelf").read_bytes() == before


@pytest.mark.parametrize("name", ["whole.shelf", "whole.safetensors"])
def test_what_is_there_is_refused_before_anything_is_read(two, name):
    """As that may take long: here there is nothing to read."""
    if name.endswith(".safetensors"):
        pytest.importorskip("safetensors")
    (two.folder / name).write_bytes(b"of somebody")
    with pytest.raises(ts.ShelfExists):
        merged(two, to=name)


def test_where_it_fails_no_file_is_left(two):
    def body(rank: Rank):
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.close()
            shelf.values[:] = 7.0

    two.run(body)
    data = bytearray(two.path(0).read_bytes())
    with ts.open(two.path(0), "r") as shelf:
        there = shelf["values"].numpy().tobytes()
    at = bytes(data).find(there)
    while at >= 0:  # in each of its slots
        data[at] ^= 1
        at = bytes(data).find(there, at + 1)
    two.path(0).write_bytes(data)
    with pytest.raises(ts.CorruptError):
        merged(two)
    assert not (two.folder / "whole.shelf").exists()


def test_the_shelf_without_a_state_is_named(two):
    for rank in (0, 1):
        ts.open(two.path(rank), size="8MiB").close()
    with pytest.raises(ts.UnknownName, match=r"no state was saved in .*run\.0\.shelf"):
        merged(two)


def test_a_run_of_one_process_is_no_groups(two):
    with ts.open(two.path(0), size="8MiB") as shelf:
        shelf.save({"values": np.zeros(3)})
    with pytest.raises(ts.BadArgument, match="no group saved"):
        merged(two, of=(0,))


@pytest.mark.parametrize("name", ["whole.shelf", "whole.safetensors"])
def test_the_new_one_may_lie_below_the_home(two, monkeypatch, name):
    if name.endswith(".safetensors"):
        pytest.importorskip("safetensors")
    two.run(trained(1))
    (two.folder / "home").mkdir()
    (two.folder / "here").mkdir()
    monkeypatch.setenv("HOME", str(two.folder / "home"))
    monkeypatch.chdir(two.folder / "here")
    ts.merge([two.path(0), two.path(1)], f"~/{name}")
    assert [path.name for path in (two.folder / "home").iterdir()] == [name]
    assert not list((two.folder / "here").iterdir())
    with pytest.raises(ts.ShelfExists):
        ts.merge([two.path(0), two.path(1)], f"~/{name}")


def test_below_the_home_no_file_is_left_either(two, monkeypatch):
    def body(rank: Rank):
        rank.values = np.zeros(1 << 18)  # 2 MiB
        return trained(1)(rank)

    two.run(body)
    (two.folder / "home").mkdir()
    monkeypatch.setenv("HOME", str(two.folder / "home"))
    with pytest.raises(ts.ShelfFull):
        ts.merge([two.path(0), two.path(1)], "~/whole.shelf", size="1MiB")
    assert not list((two.folder / "home").iterdir())


def test_a_kill_leaves_nothing_under_its_name(two):
    """It has that when it is whole."""
    two.run(trained(1))
    to = two.folder / "whole.shelf"
    seen: list[bool] = []
    ts.merge([two.path(0), two.path(1)], to, progress=lambda *_: seen.append(to.exists()))
    assert seen
    assert not any(seen)
    with ts.open(to, "r") as shelf:
        assert shelf.step == 1


def test_a_part_of_what_is_read_whole_is_refused():
    about: Any = SimpleNamespace(nbytes=8)
    tensor = JoinedTensor(about, [], [], [])
    for nbytes, offset in ((4, 0), (8, 4)):
        with pytest.raises(ts.BadArgument, match="read whole"):
            tensor._read(np.empty(nbytes, np.uint8), offset)
