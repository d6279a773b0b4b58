"""torch.distributed.checkpoint over a shelf, by one process."""

import inspect
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from dcp_ranks import alone
from support import check

import tensorshelf as ts

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
dcp = pytest.importorskip("torch.distributed.checkpoint")

from torch.distributed.checkpoint import staging, storage  # noqa: E402

from tensorshelf.dcp import ShelfReader, ShelfWriter, from_dcp, to_dcp  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def state_of(seed: int) -> dict[str, Any]:
    """Of all that DCP takes: a model and its optimizer, scalars, bytes, odd tensors."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5 + seed)
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "odd": {
            "bf16": torch.randn(5).bfloat16(),
            "flags": torch.rand(7) > 0.5,
            "complex": torch.randn(3, dtype=torch.complex64).conj(),
            "turned": torch.randn(3, 4).T,
            "every second": torch.randn(10)[::2],
            "none": torch.empty(0, 3),
            "scalar": torch.tensor(2.5 + seed),
            "w[1]": torch.randn(2),
            "__dcp__": torch.randn(2),
            "x" * 3000: torch.randn(2),
        },
        "step": seed,
        "text": "any",
        "bytes": b"\0" * (5000 + seed),
        "list": [torch.randn(2), {"deep": (seed, None)}],
    }


def save(state: dict[str, Any], writer: Any, **options: Any) -> Any:
    with alone():
        return dcp.save(state, storage_writer=writer, **options)


def load(reader: Any, seed: int = 9, **options: Any) -> dict[str, Any]:
    state = state_of(seed)
    with alone():
        dcp.load(state, storage_reader=reader, **options)
    return state


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        for mine, its in zip(one, other, strict=True):
            assert_same(mine, its)
    else:
        assert one == other


def contents(path: pathlib.Path) -> tuple[int, list[str]]:
    with ts.open(path, "r") as shelf:
        return shelf.version, list(shelf)


def test_round_trip_beside_the_writer_of_files(tmp_path: pathlib.Path) -> None:
    state = state_of(1)
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save(state, writer)
        found = load(ShelfReader(tmp_path / "run.shelf"))
    save(state, dcp.FileSystemWriter(tmp_path / "files"))
    assert_same(found, state)
    assert_same(found, load(dcp.FileSystemReader(tmp_path / "files")))


def test_writers_of_one_path_have_one_set_of_options(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"
    with ShelfWriter(path, keep=2) as first:
        save(state_of(1), first)
        save(state_of(2), ShelfWriter(path, keep=2, lock_wait=1))
        save(state_of(3), ShelfWriter(path))  # as the one before has it
        with pytest.raises(dcp.CheckpointException, match="opened by another ShelfWriter"):
            save(state_of(4), ShelfWriter(path, keep=3))
        save(state_of(5), first)
    assert_same(load(ShelfReader(path)), state_of(5))


def test_a_writer_by_way_of_a_linked_folder_is_one_of_the_same_path(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with ShelfWriter(tmp_path / "there" / "run.shelf") as first:
        save(state_of(1), first)
        save(state_of(2), ShelfWriter(tmp_path / "link" / "run.shelf"))
        assert_same(load(ShelfReader(tmp_path / "link" / "run.shelf")), state_of(2))
        save(state_of(3), first)
    assert contents(tmp_path / "there" / "run.0.shelf")[0] == 3


def test_a_writer_that_was_closed_closes_nothing_of_another_s(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"
    first = ShelfWriter(path, threads=2)
    save(state_of(1), first)
    first.close()
    with ShelfWriter(path, threads=1) as second:
        save(state_of(2), second)
        with pytest.raises(dcp.CheckpointException, match="opened by another ShelfWriter"):
            save(state_of(3), first)
        first.close()
        pickle.dumps(first)
        with pytest.raises(ts.ShelfBusy):
            ts.open(tmp_path / "run.0.shelf")
        save(state_of(4), second)
    assert_same(load(ShelfReader(path)), state_of(4))


OPTIONS: dict[str, Any] = {
    "size": "64MiB",
    "tier": "block",
    "block": ts.BlockOptions(buffer="4MiB"),
    "threads": 1,
    "keep_unchanged": True,
}


@pytest.mark.parametrize(
    ("option", "same", "other"),
    [("size", 64 << 20, 65 << 20), ("tier", "block", "auto"), ("threads", 1, 2),
     ("block", ts.BlockOptions(buffer=4 << 20), ts.BlockOptions()),
     ("keep_unchanged", True, False)],
)  # fmt: skip
def test_an_option_of_another_writer_is_compared_by_its_value(
    tmp_path: pathlib.Path, option: str, same: Any, other: Any
) -> None:
    path = tmp_path / "run.shelf"
    with ShelfWriter(path, **OPTIONS) as first:
        save(state_of(1), first)
        save(state_of(2), ShelfWriter(path, **{option: same}))
        with pytest.raises(dcp.CheckpointException, match="with other options"):
            save(state_of(3), ShelfWriter(path, **{option: other}))
    save(state_of(4), ShelfWriter(path, **{option: other}))  # the one before has let go
    assert_same(load(ShelfReader(path)), state_of(4))


@pytest.mark.parametrize("wait", ["5", -1, float("nan"), None])
def test_a_time_to_wait_that_is_none_is_refused(tmp_path: pathlib.Path, wait: Any) -> None:
    for kind in (ShelfWriter, ShelfReader):
        with pytest.raises(ts.BadArgument, match=r"lock_wait=.* is no time"):
            kind(tmp_path / "run.shelf", lock_wait=wait)


def test_a_writer_that_is_refused_leaves_the_other_as_it_is(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"
    with ShelfWriter(path) as first:
        save(state_of(1), first)
        with pytest.raises(dcp.CheckpointException, match="with other options"):
            save(state_of(2), ShelfWriter(path, keep=3, keep_open=False))
        with ShelfWriter(path, keep=3) as other:
            assert isinstance(failure_of(save, state_of(2), other), ts.BadArgument)
        home = first._home
        assert home is not None
        assert home.stays_open
        assert home.shelf is not None


def test_what_was_left_out_is_as_it_is_by_itself(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"
    with ShelfWriter(path) as first:
        save(state_of(1), first)
        plain = {"tier": "auto", "block": ts.BlockOptions(), "keep_unchanged": False, "keep": 0}
        save(state_of(2), ShelfWriter(path, **plain))
        with pytest.raises(dcp.CheckpointException, match="with other options"):
            save(state_of(3), ShelfWriter(path, threads=1))


def test_later_saves_are_versions_of_the_same_tensors(tmp_path: pathlib.Path) -> None:
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save(state_of(1), writer)
        version, names = contents(tmp_path / "run.0.shelf")
        assert (version, len(names)) == (1, len(set(names)))
        writer.step = 70
        with ts.open(tmp_path / "run.0.shelf", "r") as shelf:
            capacity = shelf.info().capacity_bytes
        save(state_of(2), writer)
        assert contents(tmp_path / "run.0.shelf") == (2, names)
        with ts.open(tmp_path / "run.0.shelf", "r") as shelf:
            assert shelf.step == 70
            assert shelf.info().capacity_bytes == capacity
    assert_same(load(ShelfReader(tmp_path / "run.shelf")), state_of(2))


def test_whether_there_is_a_save(tmp_path: pathlib.Path) -> None:
    reader = ShelfReader(tmp_path / "run.shelf")
    assert not reader.has_save
    ts.open(tmp_path / "run.0.shelf").close()
    assert not reader.has_save
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save({"a": torch.ones(1)}, writer)
    assert reader.has_save


def test_what_goes_and_what_changes_its_form(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "of {rank}.shelf"
    with ShelfWriter(path) as writer:
        save({"a": torch.zeros(3), "b": torch.zeros(2), "c": 1}, writer)
        save({"a": torch.ones(2, 2, dtype=torch.int16), "c": torch.ones(1)}, writer)
    assert contents(tmp_path / "of 0.shelf") == (2, ["__dcp__", "a", "c"])
    found = {"a": torch.zeros(2, 2, dtype=torch.int16), "c": torch.zeros(1)}
    with alone():
        dcp.load(found, storage_reader=ShelfReader(path))
    assert found["a"].tolist() == [[1, 1], [1, 1]]


def test_a_part_and_another_type(tmp_path: pathlib.Path) -> None:
    """What is loaded is converted to what takes it, and may lie in no order."""
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save({"a": torch.arange(6.0).reshape(2, 3), "b": 5}, writer)
    found = {"a": torch.zeros(3, 2, dtype=torch.float64).T}
    with alone():
        dcp.load(found, storage_reader=ShelfReader(tmp_path / "run.shelf"))
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_large_tensors_are_read_side_by_side(tmp_path: pathlib.Path) -> None:
    state = {f"t{n}": torch.arange(1 << 19) + n for n in range(6)}
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save(state, writer)
    found = {name: torch.zeros_like(value) for name, value in state.items()}
    with alone():
        dcp.load(found, storage_reader=ShelfReader(tmp_path / "run.shelf"))
    assert_same(found, state)


def test_the_checkpoint_id_is_the_path(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"
    with ShelfWriter(path) as writer:
        save({"a": torch.ones(1)}, writer, checkpoint_id=str(path))
        for call in (writer.reset, ShelfReader(path).reset):
            call(path)
            with pytest.raises(ts.BadArgument) as caught:
                call(tmp_path / "other.shelf")
            check(caught, ts.BadArgument, "bad_argument", ValueError)
    assert ShelfWriter.validate_checkpoint_id(path)
    assert not ShelfReader.validate_checkpoint_id("s3://bucket/run")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(ShelfWriter, storage.StorageWriter), (ShelfReader, storage.StorageReader)],
)
def test_the_contract_with_dcp(ours: type, theirs: type) -> None:
    assert issubclass(ours, theirs)
    for name, its in inspect.getmembers(theirs, inspect.isfunction):
        if not name.startswith("_") and name != "read_metadata":  # see its docstring
            names = [(p.name, p.kind) for p in inspect.signature(its).parameters.values()]
            mine = inspect.signature(getattr(ours, name)).parameters.values()
            assert [(p.name, p.kind) for p in mine] == names, name
    if ours is ShelfWriter:
        assert isinstance(ShelfWriter("run.shelf"), staging.AsyncStager)


def test_copies_for_the_background_use_their_memory_again(tmp_path: pathlib.Path) -> None:
    writer = ShelfWriter(tmp_path / "run.shelf")
    state = {"a": torch.ones(1000), "n": [1, 2]}
    first = writer.stage(state)
    state["a"].fill_(2.0)
    assert first["a"][0] == 1
    second = writer.stage(state)  # the first is in use
    assert second["a"].data_ptr() != first["a"].data_ptr()
    place = first["a"].data_ptr()
    del first
    state["a"].fill_(3.0)
    third = writer.stage(state)
    assert third["a"].data_ptr() == place
    state["a"].fill_(4.0)
    fourth = writer.stage(state)  # both before are in use, one of them in memory used again
    assert fourth["a"].data_ptr() not in (second["a"].data_ptr(), third["a"].data_ptr())
    assert (second["a"][0], third["a"][0], fourth["a"][0]) == (2, 3, 4)
    writer.close()


def test_a_writer_is_pickled_without_its_shelf(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"
    writer = ShelfWriter(path, keep=1)
    writer.step = 5
    save({"a": torch.ones(1)}, writer)
    other = pickle.loads(pickle.dumps(writer))
    assert (other.checkpoint_id, other.step) == (str(path), 5)
    with ts.open(tmp_path / "run.0.shelf", "r+") as shelf:  # neither has it open
        assert shelf.info().keep == 1
    save({"a": torch.ones(1)}, other)
    with ts.open(tmp_path / "run.0.shelf", "r+") as shelf:  # which a pickled one never leaves so
        assert shelf.version == 2
    save({"a": torch.ones(1)}, writer)
    assert pickle.loads(pickle.dumps(ShelfReader(path))).checkpoint_id == str(path)
    writer.close()
    assert contents(tmp_path / "run.0.shelf")[0] == 3


def failure_of(call: Any, *args: Any) -> Any:
    """The error of the one rank."""
    with pytest.raises(dcp.CheckpointException) as caught:
        call(*args)
    return caught.value.failures[0][0]


def test_what_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.0.shelf"
    with ts.open(path) as shelf:
        shelf.mine = [1.0]
        shelf.persist()
    state = {"a": torch.ones(1)}
    writer = ShelfWriter(tmp_path / "run.shelf")
    error = failure_of(save, state, writer)
    assert type(error) is ts.UnsupportedError
    assert "would delete them" in str(error)
    path.unlink()
    with alone(), pytest.raises(ts.UnsupportedError, match="use_collectives"):
        dcp.save(state, storage_writer=writer, no_dist=True, use_collectives=False)
    with pytest.raises(ts.UnsupportedError, match="Rank 0 of the process group"):
        writer.set_up_storage_writer(True, rank=1)
    with pytest.raises(ts.ClosedError):
        ShelfWriter(tmp_path / "x").prepare_global_plan([])
    with pytest.raises(ts.ClosedError):
        ShelfReader(tmp_path / "x").prepare_global_plan([])
    with pytest.raises(ts.BadArgument):
        ShelfWriter(tmp_path / "x", keep=99)
    assert "no shelf at" in str(failure_of(load, ShelfReader(tmp_path / "run.shelf")))
    ts.open(path).close()
    assert "no DCP save was committed" in str(failure_of(load, ShelfReader(tmp_path / "run.shelf")))


@pytest.mark.parametrize(
    "instead",
    [torch.ones(4, 4), torch.ones(3, 2), torch.ones(2, 3).int(), torch.ones(2, 3).bfloat16()],
    ids=["more", "turned", "of another type", "smaller"],
)
def test_a_tensor_that_somebody_replaced_is_told(tmp_path: pathlib.Path, instead: Any) -> None:
    state = {"w": torch.zeros(2, 3)}
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save(state, writer)
    with ts.open(tmp_path / "run.0.shelf") as shelf:
        shelf.replace("w", instead)
        shelf.persist()
    with alone(), pytest.raises(dcp.CheckpointException) as caught:
        dcp.load(state, storage_reader=ShelfReader(tmp_path / "run.shelf"))
    error = caught.value.failures[0][0]
    assert type(error) is ts.CorruptError
    assert "'w' is " in str(error)
    assert "the record says float32[2, 3]" in str(error)
    assert state["w"].count_nonzero() == 0
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save({"w": torch.full((2, 3), 5.0)}, writer)
    with alone():
        dcp.load(state, storage_reader=ShelfReader(tmp_path / "run.shelf"))
    assert state["w"].tolist() == [[5.0] * 3] * 2


def test_a_save_within_another_ends_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = ShelfWriter.finish

    def late(self: Any, metadata: Any, results: Any) -> None:
        monkeypatch.setattr(ShelfWriter, "finish", finish)
        save({"a": torch.full((3,), 2.0)}, self)
        finish(self, metadata, results)

    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save({"a": torch.full((3,), 0.0)}, writer)
        monkeypatch.setattr(ShelfWriter, "finish", late)
        error = failure_of(save, {"a": torch.full((3,), 1.0)}, writer)
        assert type(error) is ts.ClosedError
    found = {"a": torch.zeros(3)}
    with alone():
        dcp.load(found, storage_reader=ShelfReader(tmp_path / "run.shelf"))
    assert found["a"].tolist() == [2, 2, 2]


class OddPlanner(dcp.DefaultSavePlanner):  # type: ignore[misc,name-defined]
    """One whose data a shelf cannot store."""

    def create_global_plan(self, all_plans: Any) -> Any:
        plans, metadata = super().create_global_plan(all_plans)
        metadata.planner_data["odd"] = {1, 2}
        return plans, metadata


def test_metadata_that_cannot_be_stored_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    state = {"a": torch.ones(1)}
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save(state, writer)
        with alone(), pytest.raises(dcp.CheckpointException) as caught:
            dcp.save({"a": torch.zeros(1)}, storage_writer=writer, planner=OddPlanner())
        error = caught.value.failures[0][0]
        assert type(error) is ts.NotStorable
        assert "metadata.planner_data['odd']: a builtins.set" in str(error)
        assert contents(tmp_path / "run.0.shelf")[0] == 1
        save(state, writer)
    assert contents(tmp_path / "run.0.shelf")[0] == 2


@pytest.mark.parametrize(
    "record",
    [
        np.zeros(3, np.float32),
        np.full(64, 255, np.uint8),
        np.frombuffer(b"\3" + b"\0" * 7 + b"\xc1\xc1\xc1", np.uint8),
        np.frombuffer(b"\1" + b"\0" * 7 + b"\x80", np.uint8),
    ],
    ids=["floats", "length", "no msgpack", "empty"],
)
def test_a_record_that_is_none(tmp_path: pathlib.Path, record: Any) -> None:
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save({"a": torch.ones(1)}, writer)
    with ts.open(tmp_path / "run.0.shelf") as shelf:
        shelf.replace("__dcp__", record)
        shelf.persist()
    text = str(failure_of(load, ShelfReader(tmp_path / "run.shelf")))
    assert "'__dcp__'" in text


@pytest.mark.parametrize("count", [4096, 2 << 20], ids=["by the caller", "side by side"])
def test_damage_is_found_as_it_is_read(tmp_path: pathlib.Path, count: int) -> None:
    path = tmp_path / "run.0.shelf"
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save({"a": torch.full((count,), 7.0)}, writer)
    data = bytearray(path.read_bytes())
    at = data.index(np.full(count, 7.0, np.float32).tobytes())
    data[at + 100] ^= 1
    path.write_bytes(data)
    found = {"a": torch.zeros(count)}
    with alone(), pytest.raises(dcp.CheckpointException) as caught:
        dcp.load(found, storage_reader=ShelfReader(tmp_path / "run.shelf"))
    error = caught.value.failures[0][0]
    assert type(error) is ts.CorruptError
    assert f"This is of rank 0, whose shelf is {path}." in error.__notes__


def test_there_and_back_as_files(tmp_path: pathlib.Path) -> None:
    state = state_of(3)
    save(state, dcp.FileSystemWriter(tmp_path / "files"))
    from_dcp(tmp_path / "files", tmp_path / "run.shelf")
    assert_same(load(ShelfReader(tmp_path / "run.shelf")), state)
    to_dcp(tmp_path / "run.shelf", tmp_path / "again")
    assert_same(load(dcp.FileSystemReader(tmp_path / "again")), state)


def test_the_package_alone_imports_no_torch() -> None:
    code = "import sys, tensorshelf; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
