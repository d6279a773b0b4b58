"""Where tensors lie, compared by DLPack's interface and by what torch says of each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorshelf._state import memories
from tensorshelf._state.memories import Counted, Memories

torch = pytest.importorskip("torch")

HAS_DLPACK = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")  # from 2.10 on


class NoLayouts:
    """Of a torch that has no such interface."""

    def add(self, tensor: object) -> bool:
        return False


@pytest.fixture(params=["by DLPack", "by properties"], autouse=True)
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by properties":
        monkeypatch.setattr(memories._core, "TensorLayouts", NoLayouts)
    elif not HAS_DLPACK:
        pytest.skip("this torch has no DLPack interface in C")


def known(*tensors: Any) -> Memories:
    found = Memories()
    for tensor in tensors:
        assert found.add(tensor)
    return found


def holds(found: Memories, *tensors: Any) -> bool:
    return found.hold(list(tensors), Counted())


MATRIX = torch.arange(12.0).reshape(3, 4)

OTHERS: dict[str, Callable[[Any], Any]] = {
    "elsewhere": lambda x: x.clone(),
    "another shape": lambda x: x.view(4, 3),
    "fewer dimensions": lambda x: x.view(12),
    "a part": lambda x: x[:2],
    "strides": lambda x: x.as_strided((3, 4), (4, 0)),
    "another type of elements": lambda x: x.view(torch.int32),
    "another type": lambda x: torch.nn.Parameter(x),
    "negated": lambda x: torch._neg_view(x),
    "no memory": lambda x: x.to_sparse(),
    "on no device": lambda x: x.to("meta"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_not_as_it_was(other: str) -> None:
    ones = torch.ones(3)
    found = known(ones, MATRIX)
    assert holds(found, ones, MATRIX)
    assert holds(found, ones, MATRIX.detach())
    assert not holds(found, ones, OTHERS[other](MATRIX))


def test_as_many_as_there_were() -> None:
    ones = torch.ones(3)
    found = known(ones, MATRIX)
    assert not holds(found, ones)
    assert not holds(found, ones, MATRIX, MATRIX)
    assert not holds(found, MATRIX, ones)


def test_conjugates_are_told_apart() -> None:
    value = torch.ones(2, dtype=torch.complex64)
    found = known(MATRIX, value)
    assert holds(found, MATRIX, value)
    assert not holds(found, MATRIX, value.conj())
    assert not Memories().add(value.conj())


def test_elements_that_dlpack_has_no_name_for() -> None:
    """One such among others: all are compared as torch tells of them."""
    odd = torch.empty(4, dtype=torch.bits8)
    found = known(MATRIX, odd)
    assert holds(found, MATRIX, odd)
    assert not holds(found, MATRIX.clone(), odd)
    assert not holds(found, MATRIX, torch.empty(4, dtype=torch.bits8))


def test_without_dimensions_and_without_elements() -> None:
    scalar, empty = torch.tensor(1.0), torch.empty(0, 3)
    found = known(scalar, empty)
    assert holds(found, scalar, empty)
    assert not holds(found, scalar, torch.empty(0, 4))
    assert not holds(found, torch.tensor(1.0), empty)


def test_changes_of_some_are_counted() -> None:
    tensors = [torch.zeros(1) for _ in range(1200)]  # several parts of what is compared together
    found = known(*tensors)
    wanted = [tensors[at] for at in (3, 511, 512, 1199)]
    places = found.count_changes({each.data_ptr() for each in wanted})
    assert places == [each.data_ptr() for each in wanted]
    counted = Counted()
    assert found.hold([each.detach() for each in tensors], counted)
    assert counted.changed() == []
    tensors[4] += 1
    assert counted.changed() == []
    tensors[512] += 1
    tensors[1199].zero_()
    assert counted.changed() == [2, 3]
    again = Counted()
    assert found.hold(tensors, again)
    assert again.changed() == []


def test_what_has_no_count_is_not_as_it_was() -> None:
    with torch.inference_mode():
        value = torch.zeros(2)
    found = known(value)
    assert holds(found, value)
    found.count_changes({value.data_ptr()})
    assert not holds(found, value)


@pytest.mark.parametrize("by", ["by DLPack"], indirect=True)
def test_layouts_alone() -> None:
    layouts = memories._core.TensorLayouts()
    assert layouts.hold([], 0)
    assert not layouts.hold([], 1)
    assert not layouts.hold([MATRIX], 0)
    assert not layouts.add(np.ones(3))
    assert not layouts.add(None)
    assert not layouts.add(torch.ones(3).to_sparse())
    assert layouts.add(MATRIX)
    assert not layouts.add(object())
    assert layouts.hold([MATRIX], 0)
    assert not layouts.hold([MATRIX], 1)
    assert not layouts.hold([object()], 0)
