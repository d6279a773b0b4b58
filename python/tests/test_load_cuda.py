"""Loading into tensors on a CUDA device: what the native half is given, on tensors of host memory
that say they are a device's, and (marked gpu) on one.
"""

from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from device_memory import scatter

import tensorshelf as ts
from tensorshelf import _core
from tensorshelf._values import _cuda, _torch
from tensorshelf._values._cuda import DeviceMemory

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Whatever is float32 lies on device 3; gives what was read into it."""
    calls: list[dict[str, Any]] = []
    host_memory_of = _torch.memory_of

    def is_on_device(value: Any) -> bool:
        return _torch.is_tensor(value) and value.dtype == torch.float32

    def memory_of(value: Any) -> Any:
        return None if is_on_device(value) else host_memory_of(value)

    def device_memory_of(value: Any) -> DeviceMemory | None:
        axes = _torch.axes_of(value) if is_on_device(value) and value.numel() else None
        if axes is None:
            return None
        return DeviceMemory(value.data_ptr(), value.nbytes, 7, 3, axes)

    def read_by(read_into: Any) -> Any:
        def read(ref: Any, **where: Any) -> None:
            calls.append(where)
            flat = np.empty(where["nbytes"], np.uint8)
            read_into(ref, flat, where["offset"])
            scatter(where, flat.tobytes())

        return read

    monkeypatch.setattr(_torch, "memory_of", memory_of)
    monkeypatch.setattr(_torch, "device_memory_of", device_memory_of)
    for kind in (_core.TensorRef, _core.RetainedTensor):
        monkeypatch.setattr(kind, "_read_to_device", read_by(kind._read_into))
    return calls


def test_tensors_on_a_device_are_read_into(shelf: ts.Shelf, reads: list[dict[str, Any]]) -> None:
    saved = {"w": torch.randn(30, 50), "n": torch.arange(5), "t": torch.randn(4, 6).t()}
    shelf.save(saved)
    reads.clear()
    state = {"w": torch.zeros(30, 50), "n": torch.zeros(5, dtype=torch.int64)}
    state["t"] = torch.zeros(6, 4)  # in order, whatever was saved
    shelf.load_into(state)
    assert all(torch.equal(state[key], saved[key]) for key in saved)
    where = {key: value.data_ptr() for key, value in state.items()}
    assert reads == [
        {
            "address": where[key],
            "nbytes": nbytes,
            "offset": 0,
            "stream": 7,
            "device": 3,
            "axes": (),
        }
        for key, nbytes in (("w", 6000), ("t", 96))
    ]


def test_a_model_and_its_optimizer(shelf: ts.Shelf, reads: list[dict[str, Any]]) -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(torch.randn(3, 8)).sum().backward()
    optimizer.step()
    state = {"model": model, "optimizer": optimizer}
    shelf.save(state)
    expected = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.zero_()
    kept = optimizer.state[model.weight]["momentum_buffer"]
    moments = kept.clone()
    kept.zero_()
    reads.clear()
    shelf.load_into(state)
    assert torch.equal(model.weight, expected)
    assert torch.equal(optimizer.state[model.weight]["momentum_buffer"], moments)
    assert {model.weight.data_ptr(), kept.data_ptr()} <= {call["address"] for call in reads}


def test_every_value_that_a_handle_is_of_is_read_into_a_device(reopen: OpenShelf) -> None:
    """Without one, down to the native half, which says so."""
    if _cuda.usable():
        pytest.skip("there is a CUDA device")
    with reopen(keep=1) as shelf:
        shelf.w = np.ones(3)
        shelf.persist()
        memory = DeviceMemory(shelf.w.numpy().ctypes.data, 24)
        for handle in (shelf.w, shelf.w.committed, shelf.at(1).w):
            with pytest.raises(ts.UnsupportedError, match="no CUDA"):
                handle._read_onto(memory, 0)
            with pytest.raises(ts.LayoutError, match="bytes 8 to 32 of 'w'"):
                handle._read_onto(memory, 8)


def test_what_lies_there_with_gaps_is_read_into_as_it_lies(
    shelf: ts.Shelf, reads: list[dict[str, Any]]
) -> None:
    saved = {"t": torch.randn(4, 6), "columns": torch.randn(50, 40), "part": torch.randn(5, 7)}
    shelf.save(saved)
    reads.clear()
    whole = torch.zeros(50, 100)
    state = {"t": torch.zeros(6, 4).t(), "columns": whole[:, 30:70], "part": torch.zeros(7, 7)[2:]}
    shelf.load_into(state)
    assert all(torch.equal(state[key], saved[key]) for key in saved)
    assert not whole[:, :30].any()
    assert not whole[:, 70:].any()
    assert [call["axes"] for call in reads] == [((4, 4), (6, 16)), ((50, 400),), ()]


def test_what_is_scattered_there_or_of_another_type_is_copied(
    shelf: ts.Shelf, reads: list[dict[str, Any]]
) -> None:
    saved = {"t": torch.randn(40, 60), "d": torch.arange(6.0, dtype=torch.float64)}
    shelf.save(saved)
    reads.clear()
    state = {"t": torch.zeros(60, 40).t(), "d": torch.zeros(6)}
    shelf.load_into(state)
    assert torch.equal(state["t"], saved["t"])
    assert state["d"].tolist() == [0, 1, 2, 3, 4, 5]
    assert reads == []


def part_of(name: str, shape: tuple[int, ...]) -> Any:
    """What DCP asks for to read all of a tensor."""
    from torch.distributed.checkpoint.metadata import MetadataIndex
    from torch.distributed.checkpoint.planner import LoadItemType, ReadItem

    begin, index = torch.Size([0] * len(shape)), MetadataIndex(name)
    return ReadItem(LoadItemType.TENSOR, index, begin, index, begin, torch.Size(shape))


def test_elements_in_one_place_are_never_read_into(
    shelf: ts.Shelf, reads: list[dict[str, Any]]
) -> None:
    """What is read last would be what stays."""
    model = nn.Linear(200, 5, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(torch.randn(3, 200)).sum().backward()
    optimizer.step()
    moments = optimizer.state[model.weight]["momentum_buffer"].clone()
    moments[0] += 1
    optimizer.state[model.weight]["momentum_buffer"] = moments
    state = {"model": model, "optimizer": optimizer}
    shelf.save(state)
    optimizer.state[model.weight]["momentum_buffer"] = torch.zeros(200).expand(5, 200)
    reads.clear()
    shelf.load_into(state)
    assert torch.equal(optimizer.state[model.weight]["momentum_buffer"], moments)
    assert [call["address"] for call in reads] == [model.weight.data_ptr()]


def test_dcp_reads_into_what_lies_there_with_gaps(
    shelf: ts.Shelf, reads: list[dict[str, Any]]
) -> None:
    from tensorshelf.dcp._read import job_for

    saved = torch.randn(5, 200)
    shelf.x = saved
    item = part_of("x", (5, 200))
    reads.clear()
    with pytest.raises(RuntimeError, match="single memory location"):  # torch's, as elsewhere
        job_for(shelf.x, item, torch.zeros(200).expand(5, 200))
    scattered = torch.zeros(200, 5).t()
    assert job_for(shelf.x, item, scattered) is None
    assert torch.equal(scattered, saved)
    assert reads == []
    columns = torch.zeros(5, 300)[:, 50:250]
    job = job_for(shelf.x, item, columns)
    assert job is not None
    job.run()
    assert torch.equal(columns, saved)
    assert [call["axes"] for call in reads] == [((5, 1200),)]


@pytest.mark.gpu
def test_loading_into_a_device(shelf: ts.Shelf) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if not _cuda.usable():
        pytest.skip("this build cannot use the CUDA device")
    saved = {"w": torch.randn(3000, 1100), "h": torch.randn(777).to(torch.bfloat16)}
    shelf.save(saved)
    state = {key: torch.zeros_like(value, device="cuda") for key, value in saved.items()}
    busy = torch.randn(4096, 4096, device="cuda")
    for _ in range(50):  # work that the copy has to come after
        busy = busy @ busy / 4096
    state["w"].add_(busy.nan_to_num().sum())
    allocated = torch.cuda.memory_allocated()
    shelf.load_into(state)
    assert torch.cuda.memory_allocated() == allocated
    assert all(torch.equal(state[key].cpu(), saved[key]) for key in saved)
