"""Parts of tensors that are sharded over ranks: DTensors, as FSDP2 and tensor parallelism have, and
plain tensors of which a Shard says what they are a part of.

Its node: checked.py. Where a part goes back, it fills the same part of a tensor of the same shape.
"""

import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tensorshelf import _names
from tensorshelf._state.paths import LONGEST, RECORD
from tensorshelf._state.tensors import is_tensor
from tensorshelf._values import _dtypes
from tensorshelf.errors import BadArgument, BadName, LayoutError

if TYPE_CHECKING:
    import torch
    from torch.distributed.tensor import DTensor


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Shard:
    """A plain tensor as the part of a larger one that other ranks have the other parts of.

        w = ts.Shard(layer.weight, "layers.0.weight", global_shape=(1024, 512), offset=(256, 0))
        auto = shelf.autosave(group=ts.Group(), weights={"layers.0.weight": w})

    For a torch tensor or a NumPy array that is sharded by other means than a DTensor, as Megatron,
    ZeRO and expert parallelism do. It stands in a state in the place of the tensor, is saved as a
    part of the whole, and filled in place when it is loaded: from the same part, or from a tensor
    that was saved whole, as ``merge()`` makes it. ``load()`` gives the plain tensor.

    ``offset`` says at which index of the whole the tensor begins, in each dimension. Several ranks
    may have the same part: ``merge()`` takes that of the first of them.

    ``name`` is that of the whole: ``merge()`` puts together what has one name, wherever ranks have
    it in their states, and gives the whole tensor that name in the new shelf. In the shelf of a
    rank a part has the name of its place in the state, as all tensors. So ranks may have parts of
    different tensors, as pipeline stages and experts are: give each a key of its own, such as its
    name.

    What an optimizer keeps of such a tensor is plain to the shelf: it resumes on the same ranks,
    and ``merge()`` takes that of rank 0 alone. For the whole of it give besides an object whose
    ``state_dict()`` makes Shards of those tensors, each of a name of its own. They are stored once;
    its ``load_state_dict()`` is given plain tensors, whole ones out of a merged shelf.

    Raises LayoutError for what is no tensor, is a DTensor, has no dimensions, or does not lie
    within the whole, BadName for no name of a tensor, and BadArgument for what are no lengths.
    """

    tensor: Any
    name: str
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]

    def __init__(
        self, tensor: Any, name: str, global_shape: Sequence[int], offset: Sequence[int]
    ) -> None:
        put = object.__setattr__
        put(self, "name", _checked_name(name))
        put(self, "tensor", _checked_tensor(tensor, name))
        put(self, "global_shape", _lengths(global_shape, "global_shape", name))
        put(self, "offset", _lengths(offset, "offset", name))
        self._check_place()

    def _check_place(self) -> None:
        lengths = tuple(self.tensor.shape)
        for what, given in (("global_shape", self.global_shape), ("offset", self.offset)):
            if len(given) != len(lengths):
                raise LayoutError(
                    f"the tensor of {self.name!r} has {len(lengths)} dimensions, and "
                    f"{what}={given} has {len(given)}",
                    f"Give {what} a number for each dimension of the tensor.",
                )
        for axis, (begin, length, of) in enumerate(
            zip(self.offset, lengths, self.global_shape, strict=True)
        ):
            if begin + length > of:
                raise LayoutError(
                    f"{self.name!r} has {length} from {begin} on in dimension {axis}, and "
                    f"global_shape={self.global_shape} ends at {of}",
                    "Give the shape of the whole, and the index in it at which the tensor begins.",
                )

    def __repr__(self) -> str:
        layout = _dtypes.layout_text(
            str(self.tensor.dtype).removeprefix("torch."), tuple(self.tensor.shape)
        )
        return f"Shard({self.name!r}, {layout} from {self.offset} on of {self.global_shape})"


def _checked_name(name: object) -> str:
    text = _names.checked(name)
    if not text or text == RECORD or "\0" in text or len(text.encode()) > LONGEST:
        raise BadName(
            f"a Shard cannot have the name {text[:50]!r}",
            f"Use text of 1 to {LONGEST} bytes without NUL, and not {RECORD!r}.",
        )
    return text


def _checked_tensor(tensor: Any, name: str) -> Any:
    if not is_tensor(tensor):
        raise LayoutError(
            f"the Shard {name!r} is given a {type(tensor).__name__}, which is no tensor",
            "Give a torch tensor or a NumPy array.",
        )
    if is_dtensor(tensor):
        raise LayoutError(
            f"the Shard {name!r} is given a DTensor, which says itself what it is a part of",
            "Store the DTensor as it is.",
        )
    if not tensor.ndim:
        raise LayoutError(
            f"the tensor of {name!r} has no dimensions, and so no parts", "Store it as it is."
        )
    return tensor


def _lengths(given: Any, what: str, name: str) -> tuple[int, ...]:
    try:
        if any(isinstance(each, bool) for each in given):
            raise TypeError
        lengths = tuple(map(operator.index, given))
    except TypeError:
        raise BadArgument(
            f"{what}={given!r} of {name!r} is no tuple of whole numbers",
            "Give one for each dimension, such as (1024, 512).",
        ) from None
    if any(each < 0 for each in lengths):
        raise BadArgument(
            f"{what}={lengths} of {name!r} has a number below 0",
            "Count from the beginning of the whole, in elements.",
        )
    return lengths


class Part(NamedTuple):
    """What this rank has of a tensor."""

    shape: tuple[int, ...]  # of the whole
    offsets: tuple[int, ...]  # at which it begins in each dimension
    local: Any
    name: str | None = None  # of a Shard


def is_dtensor(value: object) -> "TypeGuard[DTensor]":
    """True for a DTensor; never imports it."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def is_sharded(value: object) -> "TypeGuard[DTensor | Shard]":
    """True for what is a part of a tensor."""
    return isinstance(value, Shard) or is_dtensor(value)


def local(value: Any) -> Any:
    """What this rank has of a sharded tensor; all else as it is."""
    if isinstance(value, Shard):
        return value.tensor
    return value._local_tensor if is_dtensor(value) else value


def place_of(value: "DTensor | Shard") -> tuple[object, ...]:
    """What of it is not its memory: equal where it is the same part of the same tensor."""
    if isinstance(value, Shard):
        return value.name, value.global_shape, value.offset
    return value.shape, value.placements


def name_of(node: "list[Any]") -> str | None:
    """That a part's node has."""
    return node[4] if len(node) > 4 else None


def part_of(value: "DTensor | Shard") -> Part:
    """Raises LayoutError for what is a summand of the whole, and no part of it."""
    if isinstance(value, Shard):
        return Part(value.global_shape, value.offset, value.tensor, value.name)
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if any(each.is_partial() for each in value.placements):
        raise LayoutError(
            "a DTensor with a Partial placement has no values before it is reduced",
            "Store value.redistribute(...) to what it is to be.",
        )
    _, offsets = compute_local_shape_and_global_offset(
        value.shape, value.device_mesh, value.placements
    )
    return Part(tuple(value.shape), tuple(map(int, offsets)), value._local_tensor)


def like(value: "DTensor", part: "torch.Tensor") -> "DTensor":
    """A tensor that is sharded as that one, with this as the part of this rank."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(  # type: ignore[no-untyped-call,no-any-return,unused-ignore]
        part,
        value.device_mesh,
        value.placements,
        run_check=False,
        shape=value.shape,
        stride=value.stride(),
    )


def fits(value: object, shape: list[int], offsets: list[int], length: tuple[int, ...]) -> bool:
    """Whether it is that part of a tensor of that shape, with these lengths of its own."""
    if not is_sharded(value):
        return False
    own = part_of(value)
    if list(own.shape) != shape or tuple(own.local.shape) != length:
        return False
    return list(own.offsets) == offsets or not own.local.numel()  # of nothing they say nothing
