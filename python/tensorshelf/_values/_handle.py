"""A shelf's handle, as far as those need it that take values from it or assign them to it."""

from typing import Protocol, TypeGuard

from tensorshelf._values._dtypes import Array


class Handle(Protocol):
    """A Tensor, a Committed or a RetainedTensor (_view.Readable), as values are read from it."""

    name: str
    dtype_name: str
    shape: tuple[int, ...]

    def numpy(self, *, copy: bool | None = None) -> Array: ...

    def _copied(self) -> Array: ...

    def _assign(self, value: Array) -> None: ...


def is_handle(value: object) -> TypeGuard[Handle]:
    """True for a tensor of a shelf."""
    return getattr(type(value), "_is_shelf_handle", False)
