"""What is copied behind step(): memory that nothing but an optimizer's step changes, each byte."""

from typing import Any

import pytest

import tensorshelf as ts
from tensorshelf._auto.gated import Gated, gated_in

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
nn = torch.nn


def lazy(shelf: ts.Shelf, **state: Any) -> set[str]:
    with shelf.autosave(**state) as auto:
        auto.step(1)
        assert auto._feed.sources is not None
        return set(auto._feed.sources.lazy)


def flat_model(*, padding: int = 0) -> tuple[Any, Any]:
    """Its parameters and buffers, and the memory that has them one behind the other."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4, affine=False))
    model[1].num_batches_tracked = None
    tensors = [*model.parameters(), *model.buffers()]
    flat = torch.zeros(sum(t.numel() + padding for t in tensors))
    at = 0
    for tensor in tensors:
        tensor.data = flat[at : at + tensor.numel()].view_as(tensor)
        at += tensor.numel() + padding
    return model, flat


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_memory_that_has_buffers_besides_is_copied_at_once(shelf: ts.Shelf) -> None:
    """It begins where a parameter does, which an optimizer steps, and forward changes the rest."""
    model, flat = flat_model()
    assert lazy(shelf, model=model, optimizer=sgd(model), flat=flat) == set()


def test_without_it_parameters_wait_for_the_gate(shelf: ts.Shelf) -> None:
    model, _ = flat_model()
    assert lazy(shelf, model=model, optimizer=sgd(model)) == {"model.0.weight"}


def test_memory_of_parameters_alone_waits_for_the_gate(shelf: ts.Shelf) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    flat = torch.zeros(40)
    at = 0
    for parameter in model.parameters():
        parameter.data = flat[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()
    found = lazy(shelf, model=model, optimizer=sgd(model), flat=flat)
    assert len(found) == 1  # they lie in the shelf as the whole


def test_an_array_of_more_than_a_parameter_is_copied_at_once(shelf: ts.Shelf) -> None:
    whole = torch.zeros(8)
    model = nn.Linear(2, 2, bias=False)
    model.weight.data = whole[:4].view(2, 2)
    assert "array" not in lazy(shelf, model=model, optimizer=sgd(model), array=whole.numpy())


def test_what_a_forward_changes_is_gated_nowhere() -> None:
    weight = nn.Parameter(torch.zeros(100, 4))
    rows = nn.Embedding(50, 4, max_norm=1.0)
    rows.weight.data = weight.data[50:]
    model = nn.Module()
    model.weight, model.rows = weight, rows
    gated = gated_in({"model": model, "optimizer": sgd(model)})
    assert not gated.has(rows.weight)
    assert not gated.has(weight)
    assert gated.has(weight[:50])
    assert not gated.has(weight[:51])


def test_what_lies_in_gaps_is_not_the_tensors() -> None:
    table = torch.zeros(6, 10)
    column, other = table[:, :4], table[:, 4:5]
    gated = Gated([column])
    assert gated.has(column)
    assert not gated.has(other)
    assert not gated.has(table)
    assert not gated.has(column[:, :3])


def test_one_that_shows_a_byte_twice_and_leaves_another_out_has_gaps() -> None:
    memory = torch.zeros(4)
    gated = Gated([memory.as_strided((2, 2), (0, 3))])
    assert not gated.has(memory)
    assert not gated.has(memory[1:2])


def test_each_byte_counts() -> None:
    memory = torch.zeros(100, dtype=torch.uint8)
    gated = Gated([memory[10:20], memory[20:30], memory[40:50], memory[0:0]], [memory[45:46]])
    inside = [(10, 20), (10, 30), (15, 25), (29, 30), (40, 45), (46, 50)]
    outside = [
        (9, 20),
        (10, 31),
        (30, 40),
        (29, 41),
        (40, 46),
        (45, 46),
        (45, 50),
        (50, 51),
        (0, 5),
    ]
    assert all(gated.has(memory[begin:end]) for begin, end in inside)
    assert not any(gated.has(memory[begin:end]) for begin, end in outside)
    assert not gated.has(memory[12:12])
    assert gated.has(memory[10:30].numpy())
    assert not gated.has(memory[10:31].numpy())
