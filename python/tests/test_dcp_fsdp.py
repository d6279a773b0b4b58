"""FSDP2 and saves in the background over shelves."""

import os
import pathlib
import select
from typing import Any

import pytest
from dcp_ranks import alone, die, run_ranks

import tensorshelf as ts

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
dcp = pytest.importorskip("torch.distributed.checkpoint")

from tensorshelf.dcp import ShelfReader, ShelfWriter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def made(seed: int, *, over: int = 0) -> tuple[Any, Any]:
    """A model and its optimizer, a step behind them, over so many ranks."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    if over:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (over,))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(4, 6)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def state_of(model: Any, optimizer: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    state, of_optimizer = get_state_dict(model, optimizer)
    return {"model": state, "optimizer": of_optimizer}


def whole(state: Any) -> Any:
    """The tensors of a state, gathered."""
    if isinstance(state, dict):
        return {key: whole(value) for key, value in state.items()}
    if hasattr(state, "full_tensor"):
        state = state.full_tensor()
    return state.tolist() if isinstance(state, torch.Tensor) else state


def save_and_load(rank: int, folder: pathlib.Path) -> Any:
    state = state_of(*made(0, over=2))
    with ShelfWriter(folder / "run.shelf") as writer:
        dcp.save(state, storage_writer=writer)
        dcp.save(state, storage_writer=writer)
    other = made(1, over=2)
    found = state_of(*other)
    assert whole(found["model"]) != whole(state["model"])
    dcp.load(found, storage_reader=ShelfReader(folder / "run.shelf"))
    assert whole(found) == whole(state)
    return whole(state)


def test_a_sharded_model_and_its_optimizer(tmp_path: pathlib.Path) -> None:
    saved, other = run_ranks(save_and_load, 2, tmp_path)
    assert saved == other
    found = state_of(*made(1))  # one process, nothing sharded
    with alone():
        dcp.load(found, storage_reader=ShelfReader(tmp_path / "run.shelf"), no_dist=True)
    assert whole(found) == saved


def save_by_a_process(rank: int, folder: pathlib.Path, then_die: bool) -> int:
    """Twice, with a save of this process before; the process id of the one that saves."""
    from torch.distributed.checkpoint import _async_process_executor as executor
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    writer = ShelfWriter(folder / "run.shelf")
    dcp.save({"w": torch.full((2,), 0.0), "n": 0}, storage_writer=writer)
    for value in (1.0, 2.0):
        w = torch.full((2,), value)
        saving = dcp.async_save(
            {"w": w, "n": int(value)},
            storage_writer=writer,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        )
        w.fill_(-1.0)  # what is saved was copied before
        saving.result()
    found = {"w": torch.zeros(2), "n": 0}
    dcp.load(found, storage_reader=ShelfReader(folder / "run.shelf"))
    assert found["w"].tolist() == [2.0, 2.0]
    process = executor._CHECKPOINT_PROCESS
    assert process is not None
    pid = int(process._save_process.pid)
    (folder / f"saver-{rank}").write_text(str(pid))
    if then_die:
        die()
    return pid


def test_a_process_that_saves_goes_with_the_one_that_trains(tmp_path: pathlib.Path) -> None:
    run_ranks(save_by_a_process, 2, tmp_path, True, dies=True)
    for rank in (0, 1):
        ended(int((tmp_path / f"saver-{rank}").read_text()))
        with ts.open(tmp_path / f"run.{rank}.shelf", "r+") as shelf:
            assert shelf.version == 3
            assert shelf.prepared is None
    found = {"w": torch.zeros(2), "n": 0}
    with alone():
        dcp.load(found, storage_reader=ShelfReader(tmp_path / "run.shelf"), no_dist=True)
    assert (found["w"].tolist(), found["n"]) == ([2.0, 2.0], 2)


def ended(pid: int) -> None:
    """Waits for a process that is no child of ours."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([watched], [], [], 60)[0]
    finally:
        os.close(watched)


def save_by_a_thread(rank: int, folder: pathlib.Path) -> None:
    with ShelfWriter(folder / "run.shelf") as writer:
        saving = None
        for value in (1.0, 2.0, 3.0):
            w = torch.full((1000,), value)
            if saving is not None:
                saving.result()
            saving = dcp.async_save({"w": w, "n": torch.tensor(rank)}, storage_writer=writer)
            w.fill_(-1.0)
        saving.result()


def test_a_thread_that_saves(tmp_path: pathlib.Path) -> None:
    run_ranks(save_by_a_thread, 2, tmp_path)
    found = {"w": torch.zeros(1000)}
    with alone():
        dcp.load(found, storage_reader=ShelfReader(tmp_path / "run.shelf"), no_dist=True)
    assert torch.equal(found["w"], torch.full((1000,), 3.0))
