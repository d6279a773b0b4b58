"""Saves of a model on a CUDA device: what is handed to the pipeline, on tensors of host memory that
say they are a device's, and (marked gpu) on one.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from device_memory import gathered, scatter
from test_feed import alike, snapshot

import tensorshelf as ts
from tensorshelf import _core
from tensorshelf._values import _cuda, _torch
from tensorshelf._values._cuda import DeviceMemory

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


class Device:
    """What is handed to the pipeline of each plan: name in the shelf, laziness, and device."""

    def __init__(self) -> None:
        self.stream = 7
        self.plans: list[dict[str, tuple[bool, Any]]] = []
        self.gathered: list[Any] = []


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Whatever is float32 lies on device 3."""
    found = Device()
    host_memory_of, native_plan = _torch.memory_of, _core.SavePlan

    def is_on_device(value: Any) -> bool:
        return _torch.is_tensor(value) and value.dtype == torch.float32

    def memory_of(value: Any) -> Any:
        return None if is_on_device(value) else host_memory_of(value)

    def device_memory_of(value: Any) -> DeviceMemory | None:
        axes = _torch.axes_of(value) if is_on_device(value) and value.numel() else None
        if axes is None:
            return None
        return DeviceMemory(value.data_ptr(), value.nbytes, found.stream, 3, axes)

    def read(ref: Any, **where: Any) -> None:
        flat = np.empty(where["nbytes"], np.uint8)
        ref._read_into(flat, where["offset"])
        scatter(where, flat.tobytes())

    def on_host(source: Any) -> Any:
        ref, address, nbytes, lazy, at = source
        if at is not None and at[2]:  # as it is now
            value = gathered({"address": address, "nbytes": nbytes, "axes": at[2]})
            found.gathered.append(np.frombuffer(value, np.uint8))
            address = found.gathered[-1].ctypes.data
        return ref, address, nbytes, lazy, None

    def plan(sources: list[Any]) -> Any:
        found.plans.append({ref._info().name: (lazy, at) for ref, _, _, lazy, at in sources})
        return native_plan([on_host(source) for source in sources])

    monkeypatch.setattr(_torch, "is_on_device", is_on_device)
    monkeypatch.setattr(_torch, "memory_of", memory_of)
    monkeypatch.setattr(_torch, "device_memory_of", device_memory_of)
    monkeypatch.setattr(_torch, "current_stream", lambda number: found.stream + number - 3)
    monkeypatch.setattr(_core, "SavePlan", plan)
    monkeypatch.setattr(_core.TensorRef, "_read_to_device", read)
    return found


def net() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 1))


def train(model: Any, optimizer: Any, **where: Any) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 8, **where)).square().mean().backward()
    optimizer.step()


def test_what_lies_on_a_device_is_copied_by_the_pipeline(shelf: ts.Shelf, device: Device) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    state = {"model": model, "optimizer": optimizer}
    auto = shelf.autosave(**state, rng=ts.RNG())
    for step in range(1, 7):
        train(model, optimizer)
        commit = auto.step(step)
        assert commit is not None
        assert ("released" in commit.times) == (step > 1)  # by the pipeline
        before = snapshot(state)
        auto.wait()
        assert alike(dict(shelf.load()["model"]), dict(before["model"]))
        assert alike(shelf.load()["optimizer"], before["optimizer"])
    auto.close()
    (plan,) = device.plans
    of = {True: (True, (7, 3, ())), False: (False, (7, 3, ()))}
    assert plan["model.0.weight"] == of[True]
    assert plan["model.1.running_mean"] == of[False]  # changes in the next forward
    assert plan["optimizer.state.model.0.weight.exp_avg"] == of[True]
    assert (
        plan["optimizer.state.model.0.weight.step"] == of[True]
    )  # nobody waits for its one element
    assert plan["__state__"] == (False, None)
    assert {at for _, at in plan.values()} == {None, (7, 3, ())}


def test_elements_without_dimensions_come_back(reopen: OpenShelf, device: Device) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    with reopen() as shelf:
        auto = shelf.autosave(model=model, optimizer=optimizer)
        for step in range(1, 4):
            train(model, optimizer)
            auto.step(step)
        auto.wait()
    other = net()
    again = torch.optim.Adam(other.parameters())
    with reopen() as shelf:
        assert shelf.autosave(model=other, optimizer=again).resume() == 3
        counts = [kept["step"] for kept in again.state.values()]
        assert counts == [torch.tensor(3.0)] * len(counts)
        assert counts[0].ndim == 0
        assert alike(again.state_dict(), optimizer.state_dict())


def test_another_stream_is_another_plan(shelf: ts.Shelf, device: Device) -> None:
    model = net()
    auto = shelf.autosave(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    for step, stream in enumerate((7, 7, 8, 8), 1):
        device.stream = stream
        commit = auto.step(step)
        assert commit is not None
        assert ("released" in commit.times) == (step in (2, 4))
    auto.close()
    first, second = device.plans
    assert first["model.0.weight"][1] == (7, 3, ())
    assert second["model.0.weight"][1] == (8, 3, ())


def test_what_lies_there_with_gaps_is_too(shelf: ts.Shelf, device: Device) -> None:
    model = nn.Linear(4, 5, bias=False)
    model.weight = nn.Parameter(torch.randn(5, 10)[:, 2:6])
    auto = shelf.autosave(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    for step in (1, 2):
        commit = auto.step(step)
        assert commit is not None
        assert ("released" in commit.times) == (step > 1)
        auto.wait()
    assert torch.equal(shelf.load()["model"]["weight"], model.weight)
    auto.close()
    (plan,) = device.plans
    assert plan["model.weight"] == (True, (7, 3, ((5, 40),)))


def test_what_is_scattered_there_is_copied_at_once(shelf: ts.Shelf, device: Device) -> None:
    model = nn.Linear(30, 20, bias=False)
    model.weight = nn.Parameter(torch.randn(30, 20).t())
    given: dict[str, Any] = {"history": torch.zeros(3)}

    class Meter:  # gives another tensor at each look
        def state_dict(self) -> dict[str, Any]:
            return {"mean": given["history"].clone()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            given["history"] = state["mean"]

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    auto = shelf.autosave(model=model, optimizer=optimizer, meter=Meter())
    for step in range(1, 5):
        given["history"] += 1
        with torch.no_grad():
            model.weight.add_(1)
        commit = auto.step(step)
        auto.wait()
        assert commit is not None
        assert ("released" in commit.times) == (step > 1)
        loaded = shelf.load()
        assert torch.equal(loaded["model"]["weight"], model.weight)
        assert loaded["meter"]["mean"].tolist() == [step] * 3
    auto.close()
    assert device.plans[0]["model.weight"] == (False, None)


@pytest.mark.parametrize(
    ("in_use", "cores", "options", "workers"),
    [
        (False, 16, {}, 1),
        (True, 16, {}, 8),
        (True, 64, {}, 8),
        (True, 6, {}, 3),
        (True, 1, {}, 1),
        (True, 16, {"cpus": (0,)}, 1),
        (True, 2, {"workers": 5}, 5),
    ],
)
def test_where_cuda_is_in_use_half_of_the_cores_copy(
    shelf: ts.Shelf,
    monkeypatch: pytest.MonkeyPatch,
    in_use: bool,
    cores: int,
    options: dict[str, Any],
    workers: int,
) -> None:
    given: list[int] = []

    def pipeline(core: Any, **chosen: Any) -> Any:
        given.append(chosen["workers"])
        return native(core, **chosen)

    native = _core.Pipeline
    monkeypatch.setattr(_core, "Pipeline", pipeline)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: in_use)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    shelf.autosave(x=np.zeros(3), pipeline=options).close()
    assert given == [workers]


def on_host(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}


@pytest.mark.gpu
@pytest.mark.parametrize("fused", [False, True])
def test_a_training_on_a_device(reopen: OpenShelf, fused: bool) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if not _cuda.usable():
        pytest.skip("this build cannot use the CUDA device")
    where = {"device": "cuda"}
    model = net().to(**where)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    state = {"model": model, "optimizer": optimizer}
    with reopen(keep=2, in_flight=2) as shelf:
        auto = shelf.autosave(**state, rng=ts.RNG(), pipeline={"check_one_in": 1})
        train(model, optimizer, **where)
        auto.step(1)
        auto.wait()
        allocated = torch.cuda.memory_allocated()
        for step in range(2, 12):
            busy = torch.randn(2048, 2048, **where)
            for _ in range(20):  # work that is queued when step() is called
                busy = busy @ busy / 2048
            train(model, optimizer, **where)
            commit = auto.step(step)
            assert commit is not None
            assert "released" in commit.times
            before = on_host(model.state_dict())
            del busy
            auto.wait()
            loaded = shelf.load()
            assert alike(dict(loaded["model"]), before)
            kept = loaded["optimizer"]["state"][0]
            assert np.array_equal(
                kept["exp_avg"], optimizer.state[model[0].weight]["exp_avg"].cpu()
            )
        assert torch.cuda.memory_allocated() <= allocated
        auto.close()
