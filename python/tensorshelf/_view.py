"""Reading a tensor: indexing, arrays, torch tensors, arithmetic. Shared by all of its values.

A Tensor reads the value that the shelf's own writes have given it; a Committed reads the durable
one, and a RetainedTensor that of an older version. Bytes are read where an index needs them and no
further. What is read is a copy, read-only where a write to it would be lost. Only ``copy=False``
lends the slot itself, and so pins it: a program that does not ask for that does the same on every
medium.
"""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tensorshelf._core import Lease, TensorInfo, TensorRef
from tensorshelf._layout import Layout
from tensorshelf._part import Part
from tensorshelf._values import _dtypes, _index, _memory, _torch, _ufunc
from tensorshelf._values._cuda import Axes, DeviceMemory
from tensorshelf._values._dtypes import Array, DType
from tensorshelf.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

_set = object.__setattr__

RUN_BYTES = 256 << 10  # what can be copied in the time that one more read takes


class Ref(Protocol):
    """What is needed here of the native half's tensors."""

    def _read_into(self, target: Array, offset: int = 0) -> None: ...

    def _read_to_device(
        self, *, address: int, nbytes: int, offset: int, stream: int, device: int, axes: Axes
    ) -> None: ...

    def _lease(self) -> Lease: ...


class Readable(Layout, NDArrayOperatorsMixin):
    """What can be read of a tensor."""

    __slots__ = ()  # those below are its heirs': two bases cannot both have some

    _is_shelf_handle: ClassVar[bool] = True

    _ref: Ref

    def _attach(self, ref: Ref, layout: TensorInfo) -> None:
        _set(self, "_ref", ref)
        self._describe(layout)

    # ---- values

    def numpy(self, *, copy: bool | None = None) -> Array:
        """The value as a NumPy array of this shape and dtype.

        copy=None   a read-only copy; what is assigned later does not change it.
        copy=True   a writable copy, yours: changing it does not change the shelf.
        copy=False  a read-only view of the slot itself (a lease), without a copy. While it lives, a
                    write that needs the slot raises LeasedError. UnsupportedError where there is
                    none: the medium is not mapped, the shelf is open for reading and does not hold
                    the version (``pin()``), the tensor is placed by chunk, or was assigned in part
                    since persist() and lies in two slots.

        bfloat16 and float8 need ml_dtypes (UnsupportedError without it).
        """
        dtype = _dtypes.needed(self.dtype_name)
        if copy is False:
            self._check_dims()
            return np.asarray(self._lent("numpy")).view(dtype)
        return _sealed(self._copied().view(dtype), writable=copy)

    def torch(self, *, copy: bool | None = True) -> "torch.Tensor":
        """The value as a CPU torch tensor of this shape and dtype, bfloat16 and float8 included.

        copy=True   a copy, yours to train on. CHANGING IT, as with ``add_``, DOES NOT CHANGE THE
                    SHELF: assign the result. It is not read-only, as what NumPy gets is, because
                    torch has no such tensors, and because models are restored from it.
        copy=None   the same.
        copy=False  a view of the slot itself (a lease), as with ``numpy(copy=False)``. Only read
                    it: WRITING TO IT ends the process.
        """
        if copy is False:
            return _torch.over_bytes(self.dtype_name, self.shape, self._lent_bytes)
        return _torch.new_tensor(self.dtype_name, self.shape, lambda flat: self._read(flat, 0))

    def item(self) -> Any:
        """The only element, as a Python number."""
        if self.size != 1:
            raise ValueError(f"{self.name!r} has {self.size} elements; item() takes exactly one")
        value = np.empty((), self._carrier)
        self._read(value.reshape(-1).view(np.uint8), 0)
        number = self._public(value).item()
        return complex(*number) if self.dtype_name == "complex32" else number

    def __getitem__(self, index: Any) -> Any:
        """A read-only copy of the indexed part; a scalar where integers index every axis.

        Read-only, because a write to it (``x[0][1] = 9``) would be lost: write through the handle
        (``x[0, 1] = 9``, ``x[0] += 1``), or change a ``.copy()`` of your own.

        Basic indices read the bytes between the first and the last element, lists and masks of
        the first axis the rows that they name; others go over the whole tensor. Raises IndexError
        as NumPy does.
        """
        found = _index.resolve(index, self.shape, self.itemsize)
        if found is None:
            values = self._public(self._picked(_plain(index)))
            return _sealed(values).view(Part) if isinstance(values, np.ndarray) else values
        region, scalar = found
        values = _sealed(self._public(self._gather(region)))
        return values[()] if scalar else values.view(Part)

    def __len__(self) -> int:
        """Length of the first axis."""
        if not self.shape:
            raise TypeError("len() of a tensor without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Read-only copies of the rows; ``row += 1`` raises, for no write to the tensor follows."""
        rows = (self[i] for i in range(len(self)))
        return (row.view(np.ndarray) if isinstance(row, Part) else row for row in rows)

    def __contains__(self, value: object) -> bool:
        """Whether an element equals the value, whatever the number of axes."""
        return value in self.numpy()

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.item())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.item(), digits)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else format(str(self), spec)

    def __getattr__(self, name: str) -> Any:
        text = f"'{type(self).__name__}' object has no attribute '{name}'"
        if name.startswith("_"):
            pass
        elif hasattr(np.ndarray, name):
            text += f"; a handle is not an array: take .numpy().{name} or .torch()"
        elif name.endswith("_") and _torch.has_method(name) and hasattr(type(self), "fill_"):
            text += (
                "; a handle is not a torch tensor: change it by +=, .fill_(), .copy_() or [...] ="
            )
        elif _torch.has_method(name):  # what torch.nn.Parameter(handle) asks for, among others
            text += f"; a handle is not a torch tensor: take .torch(), a copy, for .torch().{name}"
        raise AttributeError(text)

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.shape or _dtypes.kind(self.dtype_name) not in "ui":
            raise TypeError(f"only an integer tensor without axes is an index, not {self.name!r}")
        return int(self.item())

    # ---- protocols

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        try:
            mine = dtype is None or dtype == _dtypes.needed(self.dtype_name)
            if copy is False and not mine:
                raise ValueError(f"{self.name!r} is {self.dtype_name}: {dtype} needs a copy")
            array = self.numpy(copy=copy)
        except UnsupportedError as error:
            if copy is False:  # NumPy's protocol asks for this one
                raise ValueError(str(error)) from error
            raise
        return array if mine else _sealed(array.astype(dtype), writable=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _ufunc.apply(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not all(issubclass(kind, (np.ndarray, Readable)) for kind in types):
            return NotImplemented
        return _ufunc.call(func, args, kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Lets a torch tensor take its values from a handle: ``copy_`` and item assignment.

        Refuses the rest: what a function writes to would be a copy, and the change be lost. With a
        TypeError, so that ``tensor + handle`` goes on to the handle, which refuses it, too.
        """
        called = getattr(func, "__name__", str(func))
        if called in ("copy_", "__setitem__") and args and not isinstance(args[0], Readable):
            values = [item.torch() if isinstance(item, Readable) else item for item in args]
            named = {
                k: v.torch() if isinstance(v, Readable) else v for k, v in (kwargs or {}).items()
            }
            return func(*values, **named)
        raise TypeError(
            f"torch's {called}() takes tensors, not a shelf's handle. "
            f"Give it the value: shelf[{_handle_name(args, kwargs)!r}].torch()."
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Exports a private copy: consumers may write to what they are given, a lease forbids it.

        ``copy=False`` lends the slot to consumers that understand read-only (DLPack 1.0 with
        NumPy 2.1 or later), else raises BufferError.
        """
        if stream is not None:
            raise BufferError("a shelf's bytes are in host memory: stream must be None")
        if dl_device not in (None, (1, 0)):
            raise BufferError("a shelf's bytes are in host memory: dl_device must be (1, 0)")
        if copy is False:
            return self._lend_dlpack(max_version)
        try:
            if _dtypes.is_native(self.dtype_name):
                return self.numpy(copy=True).__dlpack__()
            return self.torch().__dlpack__()
        except UnsupportedError as error:
            raise BufferError(f"{self.dtype_name} is exported through torch: {error}") from error

    # ---- bytes

    @property
    def _carrier(self) -> DType:
        return _dtypes.carrier(self.dtype_name)

    def _read(self, flat: Array, offset: int) -> None:
        self._ref._read_into(flat, offset)

    def _read_onto(self, memory: DeviceMemory, offset: int) -> None:
        self._ref._read_to_device(**memory.where(offset))

    def _read_box(self, box: _index.Box, flat: Array) -> None:
        """A box of a tensor of that shape, whose bytes in C order these are."""
        box.read(self._read, flat)

    def _lease_now(self) -> Lease:
        return self._ref._lease()

    def _lent(self, method: str) -> Lease:
        """A lease of the slot. Callers keep it in no variable that a traceback would hold."""
        lease = self._lease_now()
        if self.nbytes and not lease.in_place:
            raise UnsupportedError(
                f"the bytes of {self.name!r} cannot be lent: the medium is not mapped, the shelf "
                "is open for reading and does not hold the version (pin()), its writer outruns "
                'who holds one (on_pin="outrun"), or the tensor is placed by chunk or assigned in '
                "part since persist()",
                f"Use {method}() or {method}(copy=True).",
            )
        return lease

    def _lent_bytes(self) -> Array:
        """The leased bytes as flat uint8, whatever the number of axes."""
        if not self.nbytes:
            return np.empty(0, np.uint8)
        flat: Array = np.frombuffer(self._lent("torch"), np.uint8)  # type: ignore[call-overload]
        return flat

    def _lend_dlpack(self, max_version: tuple[int, int] | None) -> Any:
        if max_version is None or max_version < (1, 0):
            raise BufferError("the consumer does not understand read-only memory: allow a copy")
        named = {"max_version": max_version, "copy": False}
        try:
            return self.numpy(copy=False).__dlpack__(**named)  # type: ignore[arg-type]
        except TypeError:
            raise BufferError("this NumPy cannot export read-only memory: allow a copy") from None

    def _check_dims(self) -> None:
        _dtypes.check_dims(repr(self.name), len(self.shape))

    def _copied(self) -> Array:
        """A writable carrier array, a copy."""
        self._check_dims()
        values = _memory.empty(self.shape, self._carrier)
        self._read(values.reshape(-1).view(np.uint8), 0)
        return values

    def _picked(self, index: Any) -> Any:
        """What an advanced index gives, from its rows alone where those are few."""
        rows = _index.rows(index, self.shape[0]) if self.nbytes and self.shape else None
        if rows is None:
            return self._copied()[index]
        runs = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
        if len(runs) * RUN_BYTES > self.nbytes:
            return self._copied()[rows]
        row_bytes = self.nbytes // self.shape[0]
        values = np.empty((len(rows), *self.shape[1:]), self._carrier)
        flat = values.reshape(-1).view(np.uint8)
        for begin, end in itertools.pairwise(runs) if len(rows) else ():
            self._read(flat[begin * row_bytes : end * row_bytes], int(rows[begin]) * row_bytes)
        return values

    def _public(self, values: Any) -> Any:
        return values.view(_dtypes.needed(self.dtype_name))

    def _gather(self, region: _index.Region) -> Array:
        """A carrier array of the region's shape, copied."""
        _dtypes.check_dims(f"a part of {self.name!r}", len(region.shape))
        values = _memory.empty(region.shape, self._carrier)
        _index.gather(self._read, region, values)
        return values


def _handle_name(*arguments: Any) -> str:
    """Name of the first handle among the arguments of a call."""
    waiting = list(arguments)
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, Readable):
            return item.name
        if isinstance(item, (list, tuple)):
            waiting[:0] = item
        elif isinstance(item, dict):
            waiting[:0] = item.values()
    return "x"


def _plain(index: Any) -> Any:
    """The index with handles in it replaced by their values."""
    if isinstance(index, tuple):
        return tuple(_plain(item) for item in index)
    return index.numpy() if isinstance(index, Readable) else index


def _sealed(values: Array, *, writable: bool | None = False) -> Array:
    values.flags.writeable = bool(writable)
    return values


class Committed(Readable):
    """The durable value of a tensor, as of the shelf's version: ``tensor.committed``.

    Raises UnknownName where the tensor has never been persisted.
    """

    __slots__ = ("_dtype_name", "_name", "_nbytes", "_ref", "_shape")

    _ref: TensorRef

    def __init__(self, ref: TensorRef, layout: TensorInfo) -> None:
        self._attach(ref, layout)

    def _read(self, flat: Array, offset: int) -> None:
        self._ref._read_committed_into(flat, offset)

    def _read_onto(self, memory: DeviceMemory, offset: int) -> None:
        self._ref._read_committed_to_device(**memory.where(offset))

    def _lease_now(self) -> Lease:
        return self._ref._lease_committed()

    def __repr__(self) -> str:
        return f"<Committed {self.name!r} {_dtypes.layout_text(self.dtype_name, self.shape)}>"
