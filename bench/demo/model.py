"""What a model is to the demo: a pure function from one state to the next.

advance(state, step) uses nothing but its arguments and the data, so a state that was saved whole
is all that a resumed run needs. Random choices are drawn from (seed, purpose), never from a
generator that lives across steps. Models run on one thread, which fixes the order of sums: that
makes "bit-identical" a fair demand.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Array: TypeAlias = "NDArray[Any] | torch.Tensor"
State: TypeAlias = Mapping[str, Array]


class Model(Protocol):
    name: str
    steps: int
    curve_title: str
    pictured: str  # name of the array whose rows are drawn as digits
    caption: str

    def start(self) -> State:
        """Return the state before the first iteration."""
        ...

    def advance(self, state: State, step: int) -> State:
        """Return the state after iteration number `step`, counted from 0."""
        ...
