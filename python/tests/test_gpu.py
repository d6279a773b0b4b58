"""Training on a CUDA device: what a run saves and how it goes on, with the real driver below."""

import pathlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from dcp_ranks import run_ranks
from test_feed import alike, snapshot

import tensorshelf as ts
from tensorshelf._values import _cuda

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(not _cuda.usable(), reason="this build cannot use a CUDA device"),
    pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning"),
]

# Copies rest behind the first tensor until somebody waits: what changes meanwhile changes in time.
RESTING = {"bytes_per_second": 1, "check_one_in": 1}


def net(width: int = 256) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(width, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, width)
    ).cuda()


def batch(width: int = 256) -> Any:
    return torch.randn(64, width, device="cuda")


def train(model: Any, optimizer: Any, width: int = 256) -> None:
    optimizer.zero_grad()
    model(batch(width)).square().mean().backward()
    optimizer.step()


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "AdamW, capturable": lambda p: torch.optim.AdamW(p, 0.01, capturable=True),
}


@pytest.mark.parametrize("resting", [False, True])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_each_save_is_of_its_step(shelf: ts.Shelf, make: Any, resting: bool) -> None:
    model = net()
    optimizer = make(model.parameters())
    state = {"model": model, "optimizer": optimizer}
    auto = shelf.autosave(**state, pipeline=RESTING if resting else {"check_one_in": 1})
    before: dict[str, Any] = {}
    lazily = 0
    for step in range(1, 9):
        train(model, optimizer)
        if before:
            auto.wait()
            assert shelf.step == step - 1
            loaded = shelf.load()
            assert alike(dict(loaded["model"]), dict(before["model"]))
            assert alike(loaded["optimizer"], before["optimizer"])
        commit = auto.step(step)
        assert commit is not None
        lazily += "released" in commit.times
        before = on_host(snapshot(state))
    auto.close()
    assert lazily >= 6


def on_host(value: Any) -> Any:
    if torch.is_tensor(value):
        return value.cpu()
    if isinstance(value, dict):
        return {key: on_host(each) for key, each in value.items()}
    if isinstance(value, list):
        return [on_host(each) for each in value]
    return value


def run(shelf: ts.Shelf, make: Any, steps: int) -> tuple[int, Any, Any]:
    """Goes on from what the shelf has, in new objects: the first step, and what there is then."""
    model, scaler = net(), torch.amp.GradScaler("cuda")
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    auto = shelf.autosave(
        model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, rng=ts.RNG()
    )
    first = auto.resume()
    for step in range(first + 1, steps + 1):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = model(batch()).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        auto.step(step)
    auto.close()
    return first, on_host(dict(model.state_dict())), on_host(optimizer.state_dict())


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_run_goes_on_to_the_last_bit(reopen: OpenShelf, make: Any) -> None:
    torch.cuda.manual_seed(5)
    with reopen() as shelf:
        _, *expected = run(shelf, make, 9)
    torch.cuda.manual_seed(5)
    with reopen(mode="w") as shelf:
        run(shelf, make, 4)
    torch.cuda.manual_seed(6)  # of another process, which resumes
    with reopen() as shelf:
        first, *found = run(shelf, make, 9)
    assert first == 4
    assert alike(found, expected)


def test_saving_and_loading_take_no_memory_there(shelf: ts.Shelf) -> None:
    model = net(1024)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    train(model, optimizer, 1024)
    auto = shelf.autosave(model=model, optimizer=optimizer, rng=ts.RNG())
    optimizer.zero_grad()
    for step in range(1, 4):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        allocated = torch.cuda.memory_allocated()
        auto.step(step)
        auto.wait()
        shelf.load_into({"model": model}, strict=False)
        assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() == allocated
    auto.close()


def test_no_kernel_is_launched_by_a_save(shelf: ts.Shelf) -> None:
    model = net()
    model[0].weight = nn.Parameter(torch.randn(256, 300, device="cuda")[:, 20:276])  # with gaps
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(model=model, optimizer=optimizer)
    for step in (1, 2):
        train(model, optimizer)
        auto.step(step)
        auto.wait()
    train(model, optimizer)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        commit = auto.step(3)
        auto.wait()
        torch.cuda.synchronize()
    auto.close()
    assert commit is not None
    assert "released" in commit.times
    names = [event.name for event in seen.events() if "CUDA" in str(event.device_type)]
    if not names:
        pytest.skip("the profiler sees nothing here")
    assert all(name.startswith("Memcpy DtoH") for name in names), set(names)


def by_data(p: Any) -> None:
    p.data.add_(1)


def by_fused_step(p: Any) -> None:
    zeros = [torch.zeros_like(p)], [torch.zeros_like(p)]
    torch._fused_adamw_(
        [p.detach()], [torch.ones_like(p)], *zeros, [], [torch.ones((), device="cuda")],
        lr=0.5, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip


@pytest.mark.parametrize("change", [by_data, by_fused_step], ids=lambda f: f.__name__)
@pytest.mark.parametrize("compared", [0, 1])
def test_what_changes_before_the_gate_is_not_saved(
    shelf: ts.Shelf, change: Any, compared: int
) -> None:
    """Though torch counts neither, and whether it comes before the copies or behind some."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    auto = shelf.autosave(
        model=model,
        optimizer=optimizer,
        pipeline={**RESTING, "check_one_in": compared},
    )
    for step in (1, 2):
        train(model, optimizer)
        auto.step(step)
        auto.wait()
    for step in range(3, 11):
        train(model, optimizer)
        auto.step(step)
        if step % 2:  # two in a row would end the overlap
            for parameter in model.parameters():
                change(parameter)
                change(optimizer.state[parameter]["exp_avg"])
            torch.cuda.synchronize()
            with pytest.raises(ts.TornSave, match="changed while it was copied"):
                auto.wait()
        else:
            auto.wait()
        assert shelf.step == step - step % 2
    auto.close()


class Slow:
    """A stream that is busy for a while."""

    def __init__(self) -> None:
        self._matrix = torch.randn(4096, 4096, device="cuda")

    def keep_busy(self, times: int = 60) -> None:
        for _ in range(times):
            self._matrix = (self._matrix @ self._matrix).mul_(1e-3).nan_to_num_()


def test_what_is_saved_comes_behind_what_its_stream_had(shelf: ts.Shelf) -> None:
    """And the host runs ahead of the device meanwhile: step() does not wait for it."""
    slow = Slow()
    weight = nn.Parameter(torch.zeros(3000, 1000, device="cuda"))
    optimizer = torch.optim.SGD([weight], 1.0)
    counter = torch.zeros(5, device="cuda")  # changes at once, by the same stream
    auto = shelf.autosave(weights={"w": weight, "counter": counter}, optimizer=optimizer)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for step in range(1, 5):
                slow.keep_busy()
                weight.data.fill_(step)
                counter.fill_(step)
                auto.step(step)
                counter.fill_(-1)
                auto.wait()
                loaded = shelf.load()["weights"]
                assert torch.equal(loaded["w"], torch.full((3000, 1000), float(step)))
                assert loaded["counter"].tolist() == [step] * 5
    auto.close()


def test_a_graph_is_captured_while_saves_are_copied(shelf: ts.Shelf) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train(model, optimizer)
    torch.cuda.current_stream().wait_stream(side)
    auto = shelf.autosave(model=model, optimizer=optimizer, overlap=False)
    for step in (1, 2):
        auto.step(step)
    graph = torch.cuda.CUDAGraph()
    given = batch()
    failed: list[Exception] = []
    ready = torch.full((400, 400), 7.0, device="cuda")
    shelf["beside"] = ready
    torch.cuda.synchronize()
    other = threading.Thread(target=lambda: failed.extend(written(shelf, ready, 200)))
    other.start()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        optimizer.zero_grad(set_to_none=False)
        model(given).square().mean().backward()
        optimizer.step()
    other.join()
    assert failed == []
    assert torch.equal(shelf["beside"].torch(), ready.cpu())
    for step in range(3, 7):
        given.copy_(batch())
        graph.replay()
        auto.step(step)
        assert alike(dict(shelf_at(shelf, auto)["model"]), on_host(dict(model.state_dict())))
    auto.close()


def written(shelf: ts.Shelf, value: Any, times: int) -> Iterator[Exception]:
    try:
        for _ in range(times):
            shelf["beside"] = value
    except Exception as error:
        yield error


def shelf_at(shelf: ts.Shelf, auto: ts.Autosave) -> Any:
    auto.wait()
    return shelf.load()


def test_many_tensors_and_one_of_many_pieces(reopen: OpenShelf) -> None:
    saved = {f"t{i}": torch.randn(i + 1, device="cuda") for i in range(500)}
    saved["large"] = torch.randn(33_000_001, device="cuda")
    saved["half"] = torch.randn(777, device="cuda").to(torch.bfloat16)
    saved["t"] = torch.randn(600, 800, device="cuda").t()
    saved["one"] = torch.tensor(3.0, device="cuda")
    saved["none"] = torch.empty(0, 5, device="cuda")
    with reopen() as shelf:
        shelf.save(saved)
    with reopen(mode="r") as shelf:
        into = {key: torch.zeros_like(value) for key, value in saved.items()}
        shelf.load_into(into)
        assert alike(into, saved)
        assert shelf.verify().damage == ()


def test_arrays_of_cupy(shelf: ts.Shelf) -> None:
    cupy = pytest.importorskip("cupy")
    value = cupy.arange(24_000_000, dtype=cupy.float32).reshape(4000, 6000)
    shelf.x = value
    shelf.columns = value[:, 100:1100]
    np.testing.assert_array_equal(shelf.x.numpy(), value.get())
    np.testing.assert_array_equal(shelf.columns.numpy(), value[:, 100:1100].get())


def resumed(rank: int, folder: pathlib.Path, steps: int) -> tuple[int, Any]:
    """One of two ranks of a data-parallel run, on one device, whose gradients go by the host."""
    import torch.distributed as dist

    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with ts.open(folder / f"run.{rank}.shelf", size="64MiB", in_flight=2) as shelf:
        group = ts.Group(partition="every_rank")
        auto = shelf.autosave(group=group, model=model, optimizer=optimizer, rng=ts.RNG())
        first = auto.resume()
        for step in range(first + 1, steps + 1):
            optimizer.zero_grad()
            model(batch()).square().mean().backward()
            for parameter in model.parameters():
                gradient = parameter.grad.cpu()
                dist.all_reduce(gradient)
                parameter.grad.copy_(gradient)
            optimizer.step()
            for buffer in model.buffers():  # rank 0's, as DistributedDataParallel has it
                held = buffer.cpu()
                dist.broadcast(held, 0)
                buffer.copy_(held)
            auto.step(step)
        auto.close()
    dist.barrier()
    paths = [folder / f"run.{number}.shelf" for number in range(2)]
    into = net()
    with ts.open_merged(paths) as saved:
        saved.load_into({"model": into}, group=ts.Group())
    assert alike(dict(into.state_dict()), dict(model.state_dict()))
    return first, on_host(dict(model.state_dict()))


def both(rank: int, folder: pathlib.Path) -> list[tuple[int, Any]]:
    warnings.simplefilter("ignore")
    found = []
    for name, steps in (("whole", 6), ("ended", 3), ("ended", 6)):
        (folder / name).mkdir(exist_ok=True)
        torch.cuda.manual_seed(rank)
        found.append(resumed(rank, folder / name, steps))
    return found


def test_a_group_on_one_device_goes_on(tmp_path: pathlib.Path) -> None:
    for whole, begun, ended in run_ranks(both, 2, tmp_path):
        assert (whole[0], begun[0], ended[0]) == (0, 0, 3)
        assert alike(ended[1], whole[1])


def sharded(rank: int, folder: pathlib.Path) -> list[tuple[int, Any]]:
    """FSDP2 on a device: DTensors of a mesh of one, and two starts."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    warnings.simplefilter("ignore")
    dist.destroy_process_group()
    dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
    found = []
    for name, steps in (("whole", 6), ("ended", 3), ("ended", 6)):
        model = net()
        torch.cuda.manual_seed(3)
        fully_shard(model, mesh=init_device_mesh("cuda", (1,)))
        optimizer = torch.optim.AdamW(model.parameters())
        with ts.open(folder / f"{name}.shelf", size="64MiB", in_flight=2) as shelf:
            auto = shelf.autosave(model=model, optimizer=optimizer, rng=ts.RNG())
            first = auto.resume()
            for step in range(first + 1, steps + 1):
                train(model, optimizer)
                auto.step(step)
            auto.close()
        state = model.state_dict().items()
        found.append((first, on_host({k: local(v) for k, v in state})))
    return found


def local(value: Any) -> Any:
    return value.to_local() if hasattr(value, "to_local") else value


def test_fsdp_on_a_device_goes_on(tmp_path: pathlib.Path) -> None:
    ((whole, begun, ended),) = run_ranks(sharded, 1, tmp_path)
    assert (whole[0], begun[0], ended[0]) == (0, 0, 3)
    assert alike(ended[1], whole[1])


@pytest.mark.parametrize("how", ["save", "async_save"])
def test_dcp_saves_from_a_device(tmp_path: pathlib.Path, how: str) -> None:
    import torch.distributed.checkpoint as dcp

    from tensorshelf.dcp import ShelfReader, ShelfWriter

    saved = {"w": torch.randn(900, 700, device="cuda"), "b": torch.randn(7, device="cuda")}
    expected = on_host(saved)
    made = getattr(dcp, how)(saved, storage_writer=ShelfWriter(tmp_path / "run.shelf"))
    saved_then = {key: value.clone() for key, value in saved.items()}
    if how == "async_save":
        for value in saved.values():
            value.zero_()
        made.result()
    into = {key: torch.zeros_like(value) for key, value in saved_then.items()}
    dcp.load(into, storage_reader=ShelfReader(tmp_path / "run.shelf"))
    assert alike(on_host(into), expected)
