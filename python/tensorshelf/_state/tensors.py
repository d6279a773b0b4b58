"""Leaves of a state that are tensors: which of them are one, and which share memory.

Their nodes: checked.py.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorshelf._state.paths import Path, TensorNames
from tensorshelf._state.plain import Node, dtype_from
from tensorshelf._values import _dtypes, _memory, _torch
from tensorshelf._values._dtypes import Array
from tensorshelf._values._sources import Source, source_of
from tensorshelf.errors import CorruptError, LayoutError

if TYPE_CHECKING:
    import torch

_ALIGNED = 16  # what begins within a memory begins at a multiple of it, and so has any type's


def is_tensor(value: object) -> bool:
    """True for what lies in the shelf as a tensor: a torch tensor or a NumPy array."""
    return isinstance(value, np.ndarray) or _torch.is_tensor(value)


def is_of_bytes(dtype: "np.dtype[Any]") -> bool:
    """Whether a shelf has no such elements but as bytes: text, times, and bytes themselves. The
    types of ml_dtypes have their kind, and are numbers.
    """
    return dtype.kind in "SUMm" or (dtype.type is np.void and dtype.names is None)


class Leaf(NamedTuple):
    """A tensor of a state, with the node that is filled in when all are known."""

    value: Any  # without autograd, and with every conjugation done
    identity: Any  # alike for two that are one
    path: Path | None
    node: list[Any]


class Tensors:
    """Those of one state, in the order in which they are met."""

    def __init__(self) -> None:
        self._leaves: list[Leaf] = []
        self._kept: list[Any] = []

    def add(self, value: Any, path: Path | None) -> Node:
        """Its node. Raises LayoutError for what cannot be stored."""
        _checked(value)
        identity = _identity(value)
        self._kept.append(value)  # so that no other takes its memory, and its identity
        if _torch.is_tensor(value):
            value = value.detach().resolve_conj().resolve_neg()
        self._leaves.append(Leaf(value, identity, path, []))
        return self._leaves[-1].node

    def placed(self) -> dict[str, Any]:
        """Fills the nodes, and gives what is to be assigned under which name."""
        names = TensorNames()
        values: dict[str, Any] = {}
        kept = list(_tied(self._leaves))
        shared = dict(_shared([leaf for leaf in kept if _torch.is_tensor(leaf.value)]))
        homes: dict[int, str] = {}
        for leaf in kept:
            memory = shared.get(id(leaf))
            if memory is not None:
                if id(memory) not in homes:
                    homes[id(memory)] = names.name(leaf.path)
                    values[homes[id(memory)]] = memory.bytes()
                offset = _begin(leaf.value) - memory.begin
                leaf.node[:] = _node(leaf, [homes[id(memory)], offset])
            elif leaf.value.ndim == 0 and not _torch.is_on_device(leaf.value):
                leaf.node[:] = _node(leaf, bytes_of(leaf.value))
            else:
                name = names.name(leaf.path)
                values[name] = as_stored(leaf.value)
                leaf.node[:] = _node(leaf, name)
        return values


def _checked(value: Any) -> None:
    """Raises LayoutError for an array or a tensor that has no bytes to store."""
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            source_of(value)
        if type(value) is not np.ndarray:
            raise LayoutError(
                f"a {type(value).__name__} is more than an array", "Store np.asarray(value)."
            )
        if value.size and not value.itemsize:
            raise LayoutError(
                f"an array of {value.dtype} has elements of no bytes",
                "Leave it out, or store its shape.",
            )
        if not is_of_bytes(value.dtype):
            source_of(value)
        return
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise LayoutError(
            f"a {type(value).__name__} is more than a torch.Tensor",
            "Run one forward first, which gives it its shape."
            if torch.nn.parameter.is_lazy(value)
            else "Store what it is made of.",
        )
    if _torch.memory_of(value) is None:
        source_of(value)


# ---- one tensor under two paths


def _identity(value: Any) -> Any:
    """The same elements of the same memory."""
    if isinstance(value, np.ndarray):
        if not value.size:
            return id(value)
        return "numpy", value.ctypes.data, value.shape, value.strides, value.dtype
    if not value.numel():
        return id(value)
    lazy = value.is_conj(), value.is_neg()
    return value.device, value.data_ptr(), tuple(value.shape), value.stride(), value.dtype, lazy


def _tied(leaves: Iterable[Leaf]) -> Iterator[Leaf]:
    """Those that are met for the first time; the nodes of the others are filled."""
    known: dict[Any, int] = {}
    for leaf in leaves:
        if leaf.identity in known:
            leaf.node[:] = ["tie", known[leaf.identity]]
        else:
            known[leaf.identity] = len(known)
            yield leaf


# ---- memory that several show


class Shown(NamedTuple):
    """A stretch of a storage, in bytes, that more than one tensor shows, or one more than once."""

    storage: Any
    begin: int
    end: int

    def bytes(self) -> "torch.Tensor":
        import torch

        flat = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        return flat.set_(self.storage, self.begin, (self.end - self.begin,), (1,))


def _begin(value: "torch.Tensor") -> int:
    return int(value.storage_offset()) * value.element_size()


def _end(value: "torch.Tensor") -> int:
    last = sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    return _begin(value) + (last + 1) * value.element_size()


def overlaps_itself(value: "torch.Tensor") -> bool:
    """Whether two of its elements may be one, as those of expand() are."""
    reach = 1
    for step, length in sorted(zip(value.stride(), value.shape, strict=True)):
        if length == 1:
            continue
        if step < reach:
            return True
        reach = step * (length - 1) + reach
    return False


def _shared(leaves: "list[Leaf]") -> Iterator[tuple[int, Shown]]:
    """For each leaf whose memory another one shows too, its id and that memory."""
    by_storage: dict[tuple[Any, int], list[Leaf]] = {}
    for leaf in leaves:
        if leaf.value.numel():
            storage = leaf.value.untyped_storage()
            by_storage.setdefault((leaf.value.device, storage.data_ptr()), []).append(leaf)
    for some in by_storage.values():
        if len(some) == 1 and not overlaps_itself(some[0].value):
            continue
        some.sort(key=lambda leaf: _begin(leaf.value))
        group, end = [some[0]], _end(some[0].value)
        for leaf in some[1:]:
            if _begin(leaf.value) >= end:
                yield from _group(group, end)
                group = []
            group.append(leaf)
            end = max(end, _end(leaf.value))
        yield from _group(group, end)


def _group(leaves: list[Leaf], end: int) -> Iterator[tuple[int, Shown]]:
    if len(leaves) == 1 and not overlaps_itself(leaves[0].value):
        return
    begin = _begin(leaves[0].value) // _ALIGNED * _ALIGNED
    shown = Shown(leaves[0].value.untyped_storage(), begin, end)
    for leaf in leaves:
        yield id(leaf), shown


# ---- nodes and bytes


def _element(value: Any) -> str:
    if isinstance(value, np.ndarray) and is_of_bytes(value.dtype):
        return str(value.dtype.str)
    return _dtypes.name_of(value.dtype)


def _strides(value: Any) -> list[int] | None:
    if isinstance(value, np.ndarray):
        in_c_order = value.flags.c_contiguous or not value.flags.f_contiguous
        return None if in_c_order else [step // value.itemsize for step in value.strides]
    return None if value.is_contiguous() else list(value.stride())


def _node(leaf: Leaf, place: Any) -> Node:
    library = "numpy" if isinstance(leaf.value, np.ndarray) else "torch"
    shape = list(map(int, leaf.value.shape))
    return ["tensor", library, _element(leaf.value), shape, place, _strides(leaf.value)]


def as_stored(value: Any) -> Any:
    """What the shelf takes: text and times as their bytes, with an axis more."""
    if isinstance(value, np.ndarray) and is_of_bytes(value.dtype):
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return flat.reshape(*value.shape, -1) if value.size else flat
    return value


def bytes_of(value: Any) -> bytes:
    """In C order, on the host."""
    if isinstance(value, np.ndarray):
        return (value if is_of_bytes(value.dtype) else _dtypes.to_native(value)).tobytes()
    plain = _torch.memory_of(value)
    if plain is not None:
        return plain[1].tobytes()
    source: Source = source_of(value)
    return b"".join(part.tobytes() for part in source.contiguous_bytes())


class Tensor(NamedTuple):
    """What a node says of a tensor."""

    library: str
    element: str
    shape: tuple[int, ...]
    place: Any
    strides: list[int] | None

    @classmethod
    def of(cls, node: Node) -> "Tensor":
        _, library, element, shape, place, strides = node
        return cls(library, element, tuple(shape), place, strides)

    @property
    def itemsize(self) -> int:
        known = _dtypes.is_known(self.element)
        return (_dtypes.carrier if known else dtype_from)(self.element).itemsize

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize

    @property
    def layout(self) -> str:
        return _dtypes.layout_text(self.element, self.shape)


def may_be_cast(element: str, dtype: Any) -> bool:
    """Whether a tensor of that dtype, NumPy's or torch's, takes such elements without being cut
    short to another kind of number.
    """
    if not isinstance(dtype, np.dtype):
        return _torch.may_be_cast(element, dtype)
    try:
        return bool(np.can_cast(dtype_from(element), dtype, "same_kind"))
    except (LayoutError, TypeError):  # of torch alone: converting tells
        return True


def new(tensor: Tensor, fill: Callable[[Array], None]) -> Any:
    """A tensor of its layout, whose bytes in C order ``fill`` writes into a flat uint8 array."""
    if tensor.library == "torch":
        made = _torch.new_tensor(tensor.element, tensor.shape, fill)
        return made if tensor.strides is None else strided(made, tensor.strides)
    dtype = dtype_from(tensor.element)
    array = _memory.empty(tensor.shape, dtype)
    if array.size:
        fill(array.reshape(-1).view(np.uint8))
    return array if tensor.strides is None else np.asfortranarray(array)


def empty(tensor: Tensor) -> Any:
    """A tensor of its element type and shape in C order, with nothing written in it."""
    if tensor.library == "numpy":
        return np.empty(tensor.shape, dtype_from(tensor.element))
    import torch

    return torch.empty(tensor.shape, dtype=_torch.dtype_of(tensor.element))


def strided(tensor: "torch.Tensor", strides: list[int]) -> "torch.Tensor":
    """A copy with these strides."""
    import torch

    try:
        made = torch.empty_strided(tuple(tensor.shape), tuple(strides), dtype=tensor.dtype)
        return made.copy_(tensor)
    except RuntimeError as error:  # elements that lie in one place, or too far from each other
        raise CorruptError(
            f"a tensor of {list(tensor.shape)} cannot have the strides {strides}",
            "The saved state is not whole. Save it again, or roll back to a version that has it.",
        ) from error


def in_c_order(shape: tuple[int, ...]) -> list[int]:
    """The strides of torch, where none is 0."""
    strides = [1]
    for length in shape[:0:-1]:
        strides.append(strides[-1] * max(length, 1))
    return strides[::-1][: len(shape)]


def part_of(memory: "torch.Tensor", tensor: Tensor, offset: int) -> "torch.Tensor":
    """What shows memory that others show too. Raises CorruptError where it reaches beyond it, for
    torch would make the memory longer.
    """
    import torch

    dtype, width = _torch.dtype_of(tensor.element), tensor.itemsize
    strides = in_c_order(tensor.shape) if tensor.strides is None else tensor.strides
    last = sum((n - 1) * step for n, step in zip(tensor.shape, strides, strict=True))
    if 0 not in tensor.shape and offset + (last + 1) * width > memory.nbytes:
        raise CorruptError(
            f"a part of {tensor.layout} reaches beyond the {memory.nbytes} bytes of {tensor.place}",
            "The saved state is not whole. Save it again, or roll back to a version that has it.",
        )
    flat = torch.empty(0, dtype=dtype)
    return flat.set_(memory.untyped_storage(), offset // width, tensor.shape, tuple(strides))
