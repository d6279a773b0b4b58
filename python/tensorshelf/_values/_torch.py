"""torch tensors in and out, importing torch only where the user already has, or asks for it."""

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from tensorshelf._values import _cuda, _dtypes, _memory
from tensorshelf._values._cuda import DeviceMemory, DeviceSource
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import LayoutError, UnsupportedError

if TYPE_CHECKING:
    import torch

BLOCK_BYTES = 8 << 20


def is_tensor(value: object) -> "TypeGuard[torch.Tensor]":
    """True for a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_on_device(value: Any) -> bool:
    """True for a torch tensor on a CUDA device."""
    return is_tensor(value) and bool(value.is_cuda)


def has_method(name: str) -> bool:
    """True for what a torch tensor has, where somebody uses torch."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch.Tensor, name)


def memory_of(value: Any) -> tuple[str, Array] | None:
    """The memory of a plain CPU tensor as NumPy has it, in place, for the short way in.

    With the element type's name where NumPy has no such type, else an empty one. None for all that
    is more than plain: other devices and layouts, subclasses, lazy conjugations.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    tensor = value.detach() if value.requires_grad else value
    carried = _carried().get(tensor.dtype)
    try:
        if carried is not None:
            return carried[0], tensor.view(carried[1]).numpy()
        return "", tensor.numpy()
    except (TypeError, RuntimeError):
        return None


def device_memory_of(value: Any) -> DeviceMemory | None:
    """The memory of a plain CUDA tensor, as its device's current stream leaves it. None for all
    others, for what is scattered too widely, and where this build cannot read from a device.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    return _device_memory(value)


def _device_memory(tensor: "torch.Tensor") -> DeviceMemory | None:
    if not tensor.is_cuda or not tensor.numel() or _lazy(tensor):
        return None
    import torch

    if torch.version.cuda is None or not _cuda.usable():  # ROCm calls its devices cuda, too
        return None
    axes = axes_of(tensor)
    if axes is None:
        return None
    return DeviceMemory(
        address=tensor.data_ptr(),
        nbytes=tensor.numel() * tensor.element_size(),
        stream=current_stream(tensor.device.index),
        device=tensor.device.index,
        axes=axes,
    )


def axes_of(tensor: "torch.Tensor") -> _cuda.Axes | None:
    """See ``_cuda.axes_of``."""
    if tensor.is_contiguous():
        return ()
    width = tensor.element_size()
    return _cuda.axes_of(tuple(tensor.shape), tuple(n * width for n in tensor.stride()), width)


def current_stream(device: int) -> int:
    """The handle of a CUDA device's current stream."""
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)


@functools.cache
def _carried() -> "dict[torch.dtype, tuple[str, torch.dtype]]":
    """The element types that NumPy lacks, with ones of the same width that it has."""
    import torch

    names = [n for n in _dtypes.carried_names() if hasattr(torch, n) and n != "complex32"]
    widths = {1: torch.uint8, 2: torch.int16}
    return {getattr(torch, n): (n, widths[_dtypes.carrier(n).itemsize]) for n in names}


def source(tensor: "torch.Tensor") -> "TorchSource | DeviceSource":
    """The Source of a tensor: straight from a GPU where it can be, else by way of ``.cpu()``."""
    found = TorchSource(tensor)
    return found.on_device() or found


class TorchSource:
    """A strided torch tensor on any device that can copy to the CPU; autograd is left out."""

    weak = False
    conversion = "value.to(torch.{})"

    def __init__(self, tensor: "torch.Tensor") -> None:
        if tensor.is_nested:
            raise LayoutError(
                "a nested tensor has no shape of its own", "Store what it is made of: its unbind()."
            )
        if str(tensor.layout) != "torch.strided" or tensor.is_quantized:
            raise LayoutError(
                f"a {tensor.layout} {tensor.dtype} tensor cannot be stored",
                "Convert it first, with .to_dense() or .dequantize().",
            )
        if tensor.device.type == "meta":
            raise LayoutError("a tensor on the meta device has no values", "Materialise it first.")
        self.name = _dtypes.name_of(tensor.dtype)
        self.shape: tuple[int, ...] = tuple(tensor.shape)
        self._tensor = tensor.detach()

    def on_device(self) -> "DeviceSource | None":
        """The same value as memory of a CUDA device, where it is that."""
        memory = _device_memory(self._tensor)
        if memory is None:
            return None
        dtype = _dtypes.carrier(self.name)
        found = DeviceSource(dtype, self.name, self.shape, memory, self._tensor)
        found.conversion = self.conversion
        return found

    def array(self) -> Array:
        if not self._tensor.numel():
            return np.empty(self.shape, _dtypes.carrier(self.name))
        flat = _host_bytes(self._tensor)
        return flat.view(_dtypes.carrier(self.name)).reshape(self.shape)

    def contiguous_bytes(self) -> Iterator[Array]:
        if not self._tensor.numel():
            yield np.empty(0, np.uint8)
            return
        for block in _blocks(self._tensor):
            yield _host_bytes(block)


def _blocks(tensor: "torch.Tensor") -> "Iterator[torch.Tensor]":
    """Consecutive parts in C order; the whole where it already lies so in host memory."""
    import torch

    lies_so = tensor.device.type == "cpu" and tensor.is_contiguous() and not _lazy(tensor)
    size_bytes = tensor.numel() * tensor.element_size()
    if lies_so or size_bytes <= BLOCK_BYTES or tensor.dim() == 0:
        yield tensor
        return
    row_bytes = size_bytes // tensor.shape[0]
    if row_bytes > BLOCK_BYTES:
        for row in tensor.unbind(0):
            yield from _blocks(row)
        return
    yield from torch.split(tensor, BLOCK_BYTES // row_bytes)


def _lazy(tensor: "torch.Tensor") -> bool:
    """True while a conjugation or negation is only noted, not done."""
    return tensor.is_conj() or tensor.is_neg()


def _host_bytes(tensor: "torch.Tensor") -> Array:
    """The bytes of a non-empty tensor as flat uint8; in place for a contiguous CPU tensor."""
    import torch

    resolved = tensor.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    # A single element counts as contiguous whatever its stride; view() looks at the stride.
    flat: Array = resolved.as_strided(resolved.shape, (1,)).view(torch.uint8).numpy()
    return flat


def may_be_cast(element: str, dtype: "torch.dtype") -> bool:
    """Whether torch's own arithmetic would write such elements into a tensor of that dtype. Masks
    were once of uint8, and are of bool.
    """
    import torch

    own = dtype_of(element)
    return torch.can_cast(own, dtype) or (own, dtype) == (torch.uint8, torch.bool)


def dtype_of(name: str) -> "torch.dtype":
    required()
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UnsupportedError(f"torch {torch.__version__} has no {name}", "Use a later torch.")
    return found


def required() -> Any:
    """torch. Raises UnsupportedError where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError("torch is not installed", "Run: pip install torch.") from error
    return torch


def new_tensor(name: str, shape: tuple[int, ...], fill: Callable[[Array], None]) -> "torch.Tensor":
    """A CPU tensor of this layout whose bytes ``fill`` has written into a flat uint8 array."""
    required()
    import torch

    dtype = dtype_of(name)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    count = int(np.prod(shape, dtype=np.int64)) * _dtypes.carrier(name).itemsize
    if count < _memory.ALIGNED_BYTES:
        flat = torch.empty(count, dtype=torch.uint8)
        fill(flat.numpy())
    else:
        memory = _memory.empty_bytes(count)
        fill(memory)
        flat = torch.from_numpy(memory)
    return flat.view(dtype).reshape(shape)


def over_bytes(name: str, shape: tuple[int, ...], lend: Callable[[], Array]) -> "torch.Tensor":
    """A tensor over leased bytes, given by ``lend`` as flat uint8; see ``Tensor.torch``.

    They are asked for last, and kept in no variable: a traceback would pin the slot.
    """
    required()
    import torch

    dtype = dtype_of(name)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    with _quiet():
        return torch.frombuffer(lend(), dtype=dtype).reshape(shape)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences torch's remark that it cannot keep the buffer read-only: the caller was told."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
