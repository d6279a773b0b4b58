"""A mapping of names to tensors: creating, assigning, replacing and removing them, by either face,
``shelf["x"]`` and ``shelf.x``.
"""

import os
from abc import abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from tensorshelf import _names
from tensorshelf._assignments import Assignments
from tensorshelf._core import Shelf as NativeShelf
from tensorshelf._core import TensorRef
from tensorshelf._info import Info
from tensorshelf._named import Named
from tensorshelf._numbers import row_count, shape_lengths
from tensorshelf._placing import Placing, Where
from tensorshelf._tensor import Tensor
from tensorshelf._values import _dtypes, _torch, _write
from tensorshelf._values._dtypes import Array
from tensorshelf._values._sources import Source, named_source
from tensorshelf.errors import BadArgument, LayoutError, ShelfError


class TensorMapping(Named, MutableMapping[str, Tensor]):
    """The tensors of a shelf by name. Attributes that its heir, ``Shelf``, has are no tensors."""

    __slots__: tuple[str, ...] = ()

    _assignments: Assignments
    _core: NativeShelf

    def create(
        self,
        name: str,
        shape: int | Sequence[int],
        dtype: Any = "float32",
        *,
        on: Where | None = None,
    ) -> Tensor:
        """A new tensor of zeros; its slots, and room for every later persist(), are reserved now.

        ``dtype`` is a NumPy or torch dtype or a name such as "bfloat16". ``on``: the media on which
        it is to lie, as in ``open(place=)``, whatever that says. Raises ShelfFull, NameTaken,
        BadName, BadArgument or LayoutError.
        """
        element = _dtypes.name_of(dtype)
        lengths = shape_lengths(shape)
        media = [] if on is None else Placing(None, self.info().media).numbers(on)
        return self._handle(self._core.create(_names.checked(name), element, lengths, media))

    def replace(self, name: str, value: Any) -> Tensor:
        """Gives the name a new layout and value; the old tensor stays durable until persist().

        Handles of the old tensor stop working. Takes effect whole or not at all: a value that has
        to be converted, or fetched from a device, is that before, in memory of its own. Raises
        UnknownName, ShelfFull or LayoutError.
        """
        _refuse_overtaken(value)
        _names.checked(name)
        self._assignments.refuse_read_only()
        source = named_source(name, value)
        before = self._found(name)
        whole = _write.whole_bytes(source)
        self._core.replace(name, source.name, list(source.shape), whole, self._assignments.session)
        self._assignments.session.forget(before._id)
        return self[name]

    def rename(self, name: str, new_name: str) -> None:
        """Gives a tensor another name, from the next version on; no data is written.

        Handles stay with it, and older versions have it under its old name. Raises UnknownName,
        NameTaken or BadName, and nothing changed.
        """
        self._assignments.refuse_within_edit("rename()")
        if _names.checked(name) not in self:
            _names.unknown(name, self)
        self._core.rename(name, _names.checked(new_name))

    def resize(self, name: str, rows: int) -> Tensor:
        """Gives a tensor another number of rows: old ones keep their value, new ones are zeros.

        It is a new tensor under the name, and old handles stop working; with as many rows as
        before nothing changes. What stays is read, checked and written anew, into slots of the new
        size; the old slots are free when no version that can be read has them. Raises UnknownName,
        LayoutError, ShelfFull, SpoiledError, or CorruptError where what is to stay is damaged, and
        nothing changed.
        """
        self._assignments.refuse_within_edit("resize()")
        before = self._found(name)
        return self._in_its_place(before, self._core.resize(name, row_count(rows)))

    def move(self, name: str, on: Where) -> Tensor:
        """Moves a tensor to other media, named as in ``open(place=)``.

        It is read, checked and written there, while assignments of other threads wait, and lies
        there from the next version on; ``discard()`` takes it back. It is a new tensor under the
        name, and old handles stop working; ``autosave()`` goes on. Where it lies there already, as
        ``create()`` would place it, nothing changes. Raises UnknownName, BadArgument, ShelfFull,
        SpoiledError or CorruptError, and nothing changed.
        """
        self._assignments.refuse_within_edit("move()")
        before = self._found(name)
        numbers = Placing(None, self.info().media).numbers(on)
        return self._in_its_place(before, self._core.move(name, numbers))

    def remove_medium(self, medium: int | str | os.PathLike[str]) -> None:
        """Removes a medium beside the first, from the next version on.

        Its tensors are moved, as by ``move()``, to where ``create()`` would put them without it.
        Keep the file until no version that can be read has tensors there: by default until
        ``persist()`` has returned; with ``keep=`` until so many more have. ``also=`` adds it again.
        Raises BadArgument, also where it has a mirror, which is to be removed first; ShelfFull,
        SpoiledError or CorruptError. Then it stays, and what was moved stays moved.
        """
        self._assignments.refuse_within_edit("remove_medium()")
        numbers = Placing(None, self.info().media).numbers(medium)
        if len(numbers) != 1:
            raise BadArgument(f"{medium!r} is no single medium", "Remove one at a time.")
        self._core.remove_medium(numbers[0])

    # ---- by item, as any mapping

    def __getitem__(self, name: str) -> Tensor:
        """The handle of a tensor. Raises UnknownName, a KeyError, with the nearest name."""
        ref = self._core.find(_names.checked(name))
        if ref is None:
            _names.unknown(name, self)
        return self._handle(ref)

    def __setitem__(self, name: str, value: Any) -> None:
        """Creates the tensor, or writes into it where dtype and shape are the same.

        Raises LayoutError where they differ: ``replace`` is for that.
        """
        _refuse_overtaken(value)
        ref = self._core.find(_names.checked(name))
        if ref is None:
            self._assignments.refuse_read_only()
            self._add(name, named_source(name, value))
            return
        plain = ("", value) if type(value) is np.ndarray else _torch.memory_of(value)
        known = self._assignments
        if plain is not None and ref._assign_array(plain[1], known.session, plain[0]):
            return
        known.refuse_read_only()
        tensor = self._handle(ref)
        if not tensor.is_same(value):  # shelf.x += 1 ends in shelf.x = shelf.x
            tensor._put(named_source(name, value))

    def __delitem__(self, name: str) -> None:
        """Removes the tensor, from the next version on. Raises UnknownName."""
        ref = self._found(name)
        self._core.erase(name)
        self._assignments.session.forget(ref._id)

    def _found(self, name: str) -> TensorRef:
        ref = self._core.find(_names.checked(name))
        if ref is None:
            _names.unknown(name, self)
        return ref

    def _in_its_place(self, before: TensorRef, ref: TensorRef) -> Tensor:
        """Under the same name; it may be the same."""
        if ref._id != before._id:
            self._assignments.session.forget(before._id)
        return self._handle(ref)

    def update(self, other: Any = (), /, **values: Any) -> None:
        """Assigns each item of a mapping or of pairs, as ``shelf[name] = value`` does.

        Values that cannot be stored at all raise LayoutError before any is assigned. Where one
        does not fit its tensor, those before it stay assigned, as the error's note says: nothing is
        durable yet.
        """
        if not isinstance(other, Mapping) and hasattr(other, "state_dict"):
            raise LayoutError(
                f"update() takes a mapping or pairs, not a model ({type(other).__name__})",
                "Give it the state: shelf.update(model.state_dict()).",
            )
        items = dict(other, **values)
        if items:
            self._assignments.refuse_read_only()
        for name, value in items.items():
            if _torch.memory_of(value) is None:  # else it can be stored, whatever it holds
                named_source(name, value)
        for done, (name, value) in enumerate(items.items()):
            try:
                self[name] = value
            except ShelfError as error:
                if done:
                    error.add_note(
                        f"update() had assigned {done} of {len(items)} before {name!r}: persist() "
                        "would make them durable, discard() drops them, with all else since the "
                        "last persist()."
                    )
                raise

    def setdefault(self, name: str, default: Any = None) -> Tensor:
        """The tensor of that name; where there is none, it is created from ``default``."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        """Removes a tensor and returns its value, as a NumPy array."""
        if name not in self and default:
            return default[0]
        value: Array = self[name].numpy(copy=True)
        del self[name]
        return value

    def popitem(self) -> Any:
        """Removes the first tensor and returns its name and value, as a NumPy array."""
        for name in self:
            return name, self.pop(name)
        raise KeyError("popitem(): the shelf is empty")

    def clear(self) -> None:
        """Removes every tensor, from the next version on."""
        for name in self:
            del self[name]

    # ---- by attribute

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_"):
            raise AttributeError(f"'Shelf' object has no attribute '{name}'")
        ref = self._core.find(name) if _names.is_text(name) else None
        if ref is None:
            _names.unknown(name, self, attribute=True)
        return self._handle(ref)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).__slots__:
            object.__setattr__(self, name, value)
        elif name.startswith("_") or hasattr(type(self), name):
            _names.reserved(name)
        else:
            self[name] = value

    def __delattr__(self, name: str) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            _names.reserved(name)
        if name not in self:
            _names.unknown(name, self, attribute=True)
        del self[name]

    # ---- in a prompt

    def __dir__(self) -> list[str]:
        names = [] if self._core.closed else [name for name in self if name.isidentifier()]
        return sorted({*super().__dir__(), *names})

    def _ipython_key_completions_(self) -> list[str]:
        """What IPython offers after ``shelf["``."""
        return [] if self._core.closed else list(self)

    # ---- inner

    @abstractmethod
    def info(self) -> Info:
        """What the shelf is."""

    @abstractmethod
    def _handle(self, ref: TensorRef) -> Tensor:
        """What a user has of one tensor; it keeps the shelf open."""

    def _add(self, name: str, source: Source) -> None:
        """Creates a tensor with this value, or leaves the shelf as it was."""
        shape = list(source.shape)
        with self._core.create_with(self._assignments.session, name, source.name, shape) as into:
            _write.write_straight(into, source)


def _refuse_overtaken(value: Any) -> None:
    if isinstance(value, Tensor):
        value._refuse_overtaken()
