"""A merged state as a file of safetensors: its tensors alone, by their names.

A tensor that lies in no tensor of the shelf of its own, as one without dimensions, is named by its
path in the state. What is tied is stored once.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tensorshelf._appearing import appearing, sync
from tensorshelf._state import tensors
from tensorshelf._state.nodes import is_mapping, key_of, pairs
from tensorshelf._state.paths import Path, dotted, free_name
from tensorshelf._state.plain import Node
from tensorshelf._values import _dtypes, _torch
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import IoError, LayoutError, ShelfError, UnsupportedError

SUFFIX = ".safetensors"

_ELEMENTS = frozenset(
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64"
    " complex64 float8_e4m3fn float8_e5m2".split()
)
_HOLDERS = {"list", "tuple"}


class Named(NamedTuple):
    """What becomes of a state in a file."""

    tensors: dict[str, tensors.Tensor]
    left_out: tuple[str, ...]  # paths of what is no tensor


def named(tree: Node) -> Named:
    """Raises LayoutError for element types that safetensors has not."""
    found: list[tuple[Path | None, tensors.Tensor]] = []
    left_out: list[str] = []
    for path, node in _leaves(tree, None):
        if isinstance(node, list) and node and node[0] == "tensor":
            found.append((path, tensors.Tensor.of(node)))
        elif not isinstance(node, list) or not node or node[0] != "tie":
            left_out.append(dotted(path))
    taken = {tensor.place for _, tensor in found if isinstance(tensor.place, str)}
    by_name = {}
    for path, tensor in found:
        lies = isinstance(tensor.place, str)
        name = tensor.place if lies else free_name(dotted(path) or "state", taken)
        if tensor.element not in _ELEMENTS:
            raise LayoutError(
                f"{name!r} is {tensor.element}, which safetensors has not",
                "Merge to a shelf, whose path ends otherwise, or convert it before it is saved.",
            )
        by_name[name] = tensor
    return Named(by_name, tuple(left_out))


def _leaves(node: Node, path: Path | None) -> Iterator[tuple[Path | None, Node]]:
    if is_mapping(node):
        for key, part in pairs(node):
            yield from _leaves(part, Path(path, key_of(key)))
    elif isinstance(node, list) and node and node[0] in _HOLDERS:
        for index, part in enumerate(node[1:]):
            yield from _leaves(part, Path(path, index))
    elif isinstance(node, list) and node and node[0] == "by_name":
        yield from _leaves(node[1], path)
    elif isinstance(node, list) and node and node[0] == "part":
        yield path, node[3]
    else:
        yield path, node


def require() -> None:
    """Raises UnsupportedError without the package, before anything is read."""
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            "safetensors is not installed",
            "Run: pip install safetensors; or merge to a shelf, whose path ends otherwise.",
        ) from error


def write(
    path: str,
    wanted: dict[str, tensors.Tensor],
    values: Iterable[tuple[str, Any]],
    step: int | None,
) -> None:
    """Writes ``values``, tensors by the names of their places. Needs the memory for all of them.
    The file is there whole or not at all, and durable.
    """
    held = {name: _bytes(value) for name, value in values}
    arrays = {name: _array(tensor, held) for name, tensor in wanted.items()}
    metadata = {"format": "pt"} | ({} if step is None else {"step": str(step)})
    try:
        with appearing(path) as beside:
            _save(wanted, arrays, beside, metadata)
            sync(beside)  # whole before it has its name
    except (OSError, _error_of_safetensors()) as error:
        if isinstance(error, ShelfError):
            raise
        raise _failed(path, error) from error


def _error_of_safetensors() -> type[Exception]:
    """What it raises for a file that cannot be written, and for all else."""
    from safetensors import SafetensorError

    return SafetensorError


def _failed(path: str, error: Exception) -> IoError:
    why, errno = str(error), 0
    if isinstance(error, OSError):
        why, errno = error.strerror or why, error.errno or 0
    return IoError(
        f"{path} cannot be written: {why}",
        "See whether its folder is there, may be written, and has room.",
        errno,
    )


def _bytes(value: Any) -> Array:
    """Flat uint8, in C order: in place, or read from a shelf."""
    if isinstance(value, np.ndarray):
        return _dtypes.to_native(np.ascontiguousarray(value)).reshape(-1).view(np.uint8)
    if _torch.is_tensor(value):
        plain = _torch.memory_of(value)
        assert plain is not None  # made here
        return plain[1].reshape(-1).view(np.uint8)
    into = np.empty(value.nbytes, np.uint8)
    if into.size:
        value._read(into, 0)
    return into


def _array(tensor: tensors.Tensor, held: dict[str, Array]) -> Array:
    """The tensor, of a type of NumPy that carries its bytes."""
    place = tensor.place
    if isinstance(place, list):
        torch = _torch.required()
        shown = tensors.part_of(torch.from_numpy(held[place[0]]), tensor, place[1])
        data = np.frombuffer(tensors.bytes_of(shown), np.uint8)
    else:
        data = np.frombuffer(place, np.uint8) if isinstance(place, bytes) else held[place]
    return data.view(_dtypes.carrier(tensor.element)).reshape(tensor.shape)


def _save(
    wanted: dict[str, tensors.Tensor], arrays: dict[str, Array], path: str, metadata: dict[str, str]
) -> None:
    """By torch where an element type is none of NumPy's. Its mode is that of any new file: the
    library makes it for its owner alone.
    """
    with open(path, "xb") as made_as_others_are:
        mode = os.fstat(made_as_others_are.fileno()).st_mode
    _save_to(path, wanted, arrays, metadata)
    os.chmod(path, stat.S_IMODE(mode))


def _save_to(
    path: str, wanted: dict[str, tensors.Tensor], arrays: dict[str, Array], metadata: dict[str, str]
) -> None:
    if all(_dtypes.is_native(tensor.element) for tensor in wanted.values()):
        import safetensors.numpy

        safetensors.numpy.save_file(arrays, path, metadata)
        return
    torch = _torch.required()
    import safetensors.torch

    made = {}
    for name, array in arrays.items():
        made[name] = torch.from_numpy(array.copy() if not array.flags.writeable else array)
        made[name] = made[name].view(_torch.dtype_of(wanted[name].element))
    safetensors.torch.save_file(made, path, metadata)
