"""Which tensors of a state the ranks of a data-parallel group hold alike, and which rank 0 gives.

Alike are the parameters of all models in the state, and what its optimizers keep of parameters. Not
alike are DTensors and Shards, with what is kept of them, parameters that DistributedDataParallel
was told to ignore, and what a ZeroRedundancyOptimizer keeps. Nothing is sent: that they are alike
is what data parallelism says, and drift.py looks whether it is so.

Buffers are those of rank 0 where DistributedDataParallel gives them to all ranks anyhow.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tensorshelf._state import objects, shards
from tensorshelf._values import _torch


class Alike(NamedTuple):
    """Where such tensors begin in memory."""

    all_ranks: frozenset[int]
    of_first: frozenset[int]  # rank 0's count, in the place of all ranks'


def alike(state: Any, sharded: frozenset[int], rank: int, members: int) -> Alike:
    """What of a state ranks hold alike, where what lies at ``sharded`` is a part of something."""
    modules = list(objects.modules(state))
    ignored = frozenset(_begins(_ignored(modules)))
    parameters = [p for module in modules for p in module.parameters()]
    kept = [
        tensor
        for optimizer in objects.optimizers(state)
        if not _shards_its_state(optimizer)
        for parameter, row in optimizer.state.items()
        if _is_whole(parameter, sharded | ignored) and isinstance(row, dict)
        for tensor in row.values()
    ]
    apart = sharded | ignored
    return Alike(
        frozenset(_begins([*parameters, *kept])) - apart,
        frozenset(_begins(_given_by_first(modules, rank, members))) - apart,
    )


def _begins(tensors: list[Any]) -> Iterator[int]:
    for tensor in tensors:
        if _torch.is_tensor(tensor) and not shards.is_sharded(tensor) and tensor.numel():
            yield tensor.data_ptr()


def _is_whole(parameter: Any, apart: frozenset[int]) -> bool:
    if not _torch.is_tensor(parameter) or shards.is_sharded(parameter):
        return False
    return not parameter.numel() or parameter.data_ptr() not in apart


def _shards_its_state(optimizer: Any) -> bool:
    return any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(optimizer).__mro__)


def _data_parallel(modules: list[Any]) -> Iterator[Any]:
    for module in modules:
        for part in module.modules():
            if any(kind.__name__ == "DistributedDataParallel" for kind in type(part).__mro__):
                yield part


def _ignored(modules: list[Any]) -> list[Any]:
    found = []
    for part in _data_parallel(modules):
        names = getattr(part, "parameters_to_ignore", ())
        both = (*part.module.named_parameters(), *part.module.named_buffers())
        found += [tensor for name, tensor in both if name in names]
    return found


def _given_by_first(modules: list[Any], rank: int, members: int) -> list[Any]:
    """Before each forward, where the group's ranks are those of DistributedDataParallel."""
    found = []
    for part in _data_parallel(modules):
        group = part.process_group
        if part.broadcast_buffers and (group.rank(), group.size()) == (rank, members):
            found += part.module.buffers()
    return found
