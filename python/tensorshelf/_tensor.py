"""The handle of one tensor: reads see own writes, writes go through it, persist() is the shelf's.

A handle is not an array, and not a value: it names a tensor, and reads what that holds at the time.
A pointer into a slot would go stale at the next persist(), so values come out as copies, or as
read-only leases where asked for, and go in by assignment.
"""

import contextlib
import types
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from tensorshelf import _core, _display
from tensorshelf._assignments import Assignments
from tensorshelf._commit import Commit
from tensorshelf._info import Prepared
from tensorshelf._values import _dtypes, _index, _write
from tensorshelf._values._dtypes import Array
from tensorshelf._values._sources import Source, matches, named, named_source
from tensorshelf._view import Committed, Readable, _plain, _set
from tensorshelf.errors import LayoutError, ShelfError

_ALL = slice(None)


class Home(Protocol):
    """What a handle, which keeps its shelf open, asks of it."""

    def persist(self, step: int | None = None, *, wait: bool = True) -> Commit: ...

    @property
    def prepared(self) -> Prepared | None: ...


class EditBlock(contextlib.AbstractContextManager[Array]):
    """What ``edit()`` gives, for ``with``; nothing is read before that."""

    __slots__ = ("_block", "_name")

    def __init__(self, name: str, block: contextlib.AbstractContextManager[Array]) -> None:
        self._name = name
        self._block = block

    def __enter__(self) -> Array:
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> bool | None:
        return self._block.__exit__(kind, error, traceback)

    def __repr__(self) -> str:
        return f"<edit() of {self._name!r}: {self._usage()}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'EditBlock' object has no attribute '{name}'")
        raise AttributeError(f"edit() gives no array outside 'with': {self._usage()}")

    def __getitem__(self, index: Any) -> Any:
        raise TypeError(f"edit() gives no array outside 'with': {self._usage()}")

    def __setitem__(self, index: Any, value: Any) -> None:
        self[index]  # which raises

    def _usage(self) -> str:
        return f"use it as `with shelf[{self._name!r}].edit() as array:`"


class Tensor(Readable, _core.TensorRef):
    """A named tensor of a shelf; ``shelf.name`` or ``shelf["name"]`` gives one.

    Reading (indexing, ``numpy()``, ``torch()``, arithmetic, ``memoryview``) gives the value with
    all assignments so far; ``committed`` gives the durable one. Writing (``x[...] = v``,
    ``x[3:5] = v``, ``x += 1``, ``copy_``, ``fill_``, ``edit``) takes effect at once for readers
    here and becomes durable, with everything else, at the shelf's next ``persist()``.

    A handle is live: ``old = shelf.x`` keeps no value; ``old = shelf.x.numpy()`` does. So
    ``shelf.y = old`` raises UnsupportedError where ``x`` was assigned after ``old`` was looked up,
    by this thread and not through ``old``.
    """

    __slots__ = (
        "_assignments",
        "_dtype_name",
        "_name",
        "_nbytes",
        "_ref",
        "_seen",
        "_shape",
        "_shelf",
    )

    _assignments: Assignments
    _ref: _core.TensorRef
    _seen: int  # of them, so many does this handle know of
    _shelf: Home

    def __init__(self, shelf: Home, assignments: Assignments, ref: _core.TensorRef) -> None:
        _core.TensorRef.__init__(self, ref)
        self._attach(ref, ref._info())
        _set(self, "_shelf", shelf)
        _set(self, "_assignments", assignments)
        _set(self, "_seen", assignments.session.assignments)

    # ---- state

    @property
    def name(self) -> str:
        """The name that it has in the shelf now."""
        return self._ref._name_now

    @property
    def version(self) -> int:
        """The committed version that last wrote this tensor; 0 before the first."""
        return self._ref._info().version

    @property
    def dirty(self) -> bool:
        """True when it was assigned since the last persist()."""
        return self._ref._info().dirty

    @property
    def media(self) -> tuple[int, ...]:
        """On which of ``info().media`` it lies, by their numbers; on several in stripes."""
        return tuple(self._ref._info().media)

    @property
    def committed(self) -> Committed:
        """The durable value, read-only. Reading it raises UnknownName if there is none yet."""
        return Committed(self._ref, self._ref._info())

    def persist(self, step: int | None = None, *, wait: bool = True) -> Commit:
        """The same as ``shelf.persist()``: one version for the whole shelf, not for this alone."""
        return self._shelf.persist(step, wait=wait)

    # ---- writing

    def _is_all(self, index: Any) -> bool:
        return type(index) is slice and index == _ALL and len(self._shape) > 0

    def __setitem__(self, index: Any, value: Any) -> None:
        """Assigns to a part as NumPy does, casting by its rule "same_kind".

        An index that names one run of bytes writes exactly that run; another slice reads and
        writes the bytes it spans; lists, arrays and masks go over the whole tensor. Raises
        LayoutError where the value does not fit, LeasedError while a live view pins the slot.
        Takes effect whole or not at all. What fails half-way leaves the tensor as it was; or, where
        it had been assigned since the last persist(), spoiled: SpoiledError, until it is assigned
        whole or discarded.
        """
        if (
            type(value) is np.ndarray
            and (index is Ellipsis or self._is_all(index))
            and (seen := self._ref._assign_array(value, self._assignments.session))
        ):
            _set(self, "_seen", seen)
            return
        self._assignments.refuse_read_only()
        found = _index.resolve(index, self.shape, self.itemsize)
        source = named_source(self.name, value)
        with self._writing() as into:
            self._note_assignment()
            try:
                if found is not None:
                    _write.write_region(into, found[0], self.dtype_name, source)
                else:
                    values = self._copied()
                    _write.write_scattered(into, values, _plain(index), self.dtype_name, source)
            except LayoutError as error:
                raise named(self.name, error) from error

    def __delitem__(self, index: Any) -> None:
        raise LayoutError(
            f"elements of {self.name!r} cannot be deleted: a tensor's shape is fixed",
            f"For a new layout: shelf.replace({self.name!r}, value).",
        )

    def copy_(self, src: Any, non_blocking: bool = False) -> "Tensor":
        """Assigns the whole tensor, as torch's ``copy_``; ``src`` may be reused on return.

        ``non_blocking`` is accepted for torch's sake and changes nothing.
        """
        if not self.is_same(src):
            self[...] = src
        return self

    def fill_(self, value: Any) -> "Tensor":
        """Assigns one number to every element."""
        self._assignments.refuse_read_only()
        source = named_source(self.name, value)
        if source.shape:
            raise LayoutError(
                f"{self.name!r}: fill_ takes a number, got shape {source.shape}", "Use copy_()."
            )
        self[...] = value
        return self

    def edit(self) -> EditBlock:
        """Gives a writable array of the current value; what changed is written back at the end.

        Only 1 MiB chunks that differ are written. When the block raises, the edit is discarded
        and nothing is written. The array is read-only after the block, so that late changes are
        not lost silently. A tensor has one edit at a time. Where it is assigned within the block,
        that assignment stays, and the edit is discarded with UnsupportedError. Change the array,
        ``with x.edit() as w: w *= 2``; ``w = w * 2`` makes another one, which is not written.
        """
        return EditBlock(self.name, self._editing())

    @contextlib.contextmanager
    def _editing(self) -> Iterator[Array]:
        values = self._begin_edit()
        try:
            yield values
            with self._writing() as into:
                _set(self, "_seen", self._assignments.session.assignments)
                self._assignments.finish_edit(self._ref._id, self.name, values)
                _write.write_changed(into, values)
        finally:
            values.flags.writeable = False

    # ---- used by the package

    def is_same(self, other: object) -> bool:
        """True for a handle of this very tensor in this very shelf."""
        return isinstance(other, Tensor) and self._ref._is(other._ref)

    def _assign(self, value: Array) -> None:
        self[...] = value

    def _put(self, source: Source) -> None:
        """Assigns the whole from a value of the same layout, or a Python number or list."""
        if not matches(source, self.dtype_name, self.shape):
            mine = _dtypes.layout_text(self.dtype_name, self.shape)
            theirs = _dtypes.layout_text(source.name, source.shape)
            remedy = f"For a new layout: shelf.replace({self.name!r}, value)."
            if _write.fits(source, self.dtype_name, self.shape):
                verbs = (
                    *(["cast"] if source.name != self.dtype_name else []),
                    *(["broadcast"] if source.shape != self.shape else []),
                )
                remedy += f" To {' and '.join(verbs)}: shelf[{self.name!r}][...] = value."
            raise LayoutError(f"{self.name!r} is {mine}, got {theirs}", remedy)
        with self._writing() as into:
            self._note_assignment()
            whole = _index.whole(self.shape, self.itemsize)
            _write.write_region(into, whole, self.dtype_name, source)

    def _begin_edit(self) -> Array:
        self._assignments.refuse_edit(self._ref._id, self.name)
        with _core.Assignment(self._ref, None):  # no other comes in between
            self._assignments.refuse_edit(self._ref._id, self.name)
            values = self.numpy(copy=True)
            self._assignments.begin_edit(self._ref._id, self.name, values)
        return values

    def _refuse_overtaken(self) -> None:
        self._assignments.refuse_overtaken(self._ref._id, self.name, self._seen)

    def _note_assignment(self) -> None:
        _set(self, "_seen", self._assignments.session.assignments)
        self._assignments.end_edit(self._ref._id)

    def _writing(self) -> _core.Assignment:
        return _core.Assignment(self._ref, self._assignments.session)

    def __repr__(self) -> str:
        layout = _dtypes.layout_text(self.dtype_name, self.shape)
        try:
            info = self._ref._info()
        except ShelfError as error:
            return f"<Tensor {self.name!r} {layout}, {_display.in_words(error)}>"
        prepared = bool(info.pending) and self._shelf.prepared is not None
        state = _display.state(info, prepared=prepared)
        return f"<Tensor {self.name!r} {layout}{_display.value(self)}, {state}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self.name!r} is a handle and cannot be pickled; use .numpy(copy=True)")
