"""What a handle of a tensor tells of it without reading: name, shape, dtype, sizes."""

from typing import Any

from tensorshelf._core import TensorInfo
from tensorshelf._values import _dtypes
from tensorshelf._values._dtypes import DType, StandInDType

_set = object.__setattr__


class Layout:
    """Fixed for the life of the handle, which has no other attributes."""

    __slots__ = ()  # those below are its heirs': two bases cannot both have some

    _name: str
    _dtype_name: str
    _shape: tuple[int, ...]
    _nbytes: int

    def _describe(self, layout: TensorInfo) -> None:
        _set(self, "_name", layout.name)
        _set(self, "_dtype_name", layout.dtype)
        _set(self, "_shape", layout.shape)
        _set(self, "_nbytes", layout.nbytes)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses: the value would stay in this handle, which nobody will see again."""
        raise AttributeError(
            f"{name!r} of {self.name!r} cannot be set: a handle has no attributes of its own. "
            f"Assign the tensor's value with shelf[{self.name!r}][...] = value."
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name!r} of {self.name!r} cannot be deleted")

    @property
    def name(self) -> str:
        """The tensor's name in the shelf."""
        return self._name

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self._shape

    @property
    def dtype_name(self) -> str:
        """The element type in the shelf's words: "float32", "bfloat16", "float8_e4m3fn", ..."""
        return self._dtype_name

    @property
    def dtype(self) -> DType | StandInDType:
        """The NumPy dtype; of ml_dtypes for bfloat16 and float8, a stand-in where it is missing.

        complex32, which NumPy lacks, is a structure of two float16, ``real`` and ``imag``.
        """
        return _dtypes.shown(self.dtype_name)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.nbytes // self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _dtypes.carrier(self.dtype_name).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self._nbytes
