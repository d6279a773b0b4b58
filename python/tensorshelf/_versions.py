"""Versions that stay readable beside the newest, and transactions.

A version of the past is a mapping of names to read-only tensors. It holds nothing: the writer goes
on, and once the version is no longer retained, reading it raises StaleError.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tensorshelf import _core, _display, _names
from tensorshelf._assignments import Assignments
from tensorshelf._commit import Commit
from tensorshelf._core import RetainedVersion as NativeVersion
from tensorshelf._info import VersionInfo, version_from
from tensorshelf._named import Named
from tensorshelf._values import _dtypes
from tensorshelf._view import Readable, _set
from tensorshelf.errors import ReadOnlyError, ShelfError, TransactionError


class RetainedTensor(Readable, _core.RetainedTensor):
    """A tensor as a version has it, read-only: ``shelf.at(version)["x"]``.

    Reading it raises StaleError once the version is no longer retained; where another process
    writes the shelf, once that has written over what is read. What was read, and what was lent
    (``numpy(copy=False)``), stays.
    """

    __slots__ = ("_dtype_name", "_name", "_nbytes", "_of", "_ref", "_shape", "_shelf")

    _ref: _core.RetainedTensor
    _of: int

    def __init__(self, ref: _core.RetainedTensor, version: int, shelf: object) -> None:
        """``shelf`` stays open for it, unless it is closed."""
        _core.RetainedTensor.__init__(self, ref)
        self._attach(ref, ref._info())
        _set(self, "_of", version)
        _set(self, "_shelf", shelf)

    @property
    def version(self) -> int:
        """The version that wrote what this one has of the tensor."""
        return self._ref._info().version

    def __setitem__(self, index: Any, value: Any) -> None:
        self._refuse()

    def __delitem__(self, index: Any) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ReadOnlyError(
            f"{self.name!r} of version {self._of} cannot be assigned: it stays as it was",
            "Assign to the tensor of the shelf.",
        )

    def __repr__(self) -> str:
        layout = _dtypes.layout_text(self.dtype_name, self.shape)
        return (
            f"<RetainedTensor {self.name!r} {layout}{_display.value(self)}, of version {self._of}>"
        )

    def __reduce__(self) -> Any:
        raise TypeError(f"{self.name!r} is a handle and cannot be pickled; use .numpy(copy=True)")


class RetainedVersion(Named, Mapping[str, RetainedTensor]):
    """One version of a shelf, to be read; ``shelf.at(version)`` gives one.

    ``old["x"]`` and ``old.x`` are tensors, as those of the shelf. Everything here raises StaleError
    once the version is no longer retained. Where another process writes the shelf, reading does
    once that has written over what is read.
    """

    __slots__ = ("_core", "_path", "_shelf", "_version")

    _core: NativeVersion

    def __init__(self, core: NativeVersion, path: str, shelf: object = None) -> None:
        """``shelf`` stays open for it, unless it is closed."""
        self._core = core
        self._path = path
        self._shelf = shelf
        self._version: int = core.info()["version"]

    def info(self) -> VersionInfo:
        """Its number, step, time, and how much was assigned for it."""
        return version_from(self._core.info())

    @property
    def version(self) -> int:
        """Its number."""
        return self._version

    @property
    def step(self) -> int | None:
        """The step that it was persisted with."""
        return self.info().step

    def __getitem__(self, name: str) -> RetainedTensor:
        """The handle of a tensor. Raises UnknownName, a KeyError, with the nearest name."""
        ref = self._core.find(_names.checked(name))
        if ref is None:
            _names.unknown(name, self)
        return RetainedTensor(ref, self._version, self._shelf)

    def __getattr__(self, name: str) -> RetainedTensor:
        if name.startswith("_"):
            raise AttributeError(f"'RetainedVersion' object has no attribute '{name}'")
        ref = self._core.find(name) if _names.is_text(name) else None
        if ref is None:
            _names.unknown(name, self, attribute=True)
        return RetainedTensor(ref, self._version, self._shelf)

    def __setitem__(self, name: str, value: Any) -> None:
        raise ReadOnlyError(
            f"version {self._version} of {self._path} cannot be changed",
            f"Assign to the shelf, or go back to it: shelf.rollback({self._version}).",
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in RetainedVersion.__slots__:
            _set(self, name, value)
        else:
            self[name] = value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *filter(str.isidentifier, self._known_names())})

    def __repr__(self) -> str:
        try:
            step = "" if self.step is None else f" (step {self.step})"
            count = len(self)
        except ShelfError as error:
            text = _display.in_words(error)
            return f"<{type(self).__name__} {self._version} of '{self._path}': {text}>"
        tensors = f"{count} tensor{'' if count == 1 else 's'}"
        return f"<{type(self).__name__} {self._version}{step} of '{self._path}', {tensors}>"

    def _ipython_key_completions_(self) -> list[str]:
        """What IPython offers after ``old["``."""
        return self._known_names()

    def _known_names(self) -> list[str]:
        try:
            return list(self)
        except ShelfError:
            return []

    def __reduce__(self) -> Any:
        raise TypeError(
            f"version {self._version} of {self._path} cannot be pickled. Give workers the path, or "
            'a shelf opened with mode="r", and let them call at().'
        )


class PinnedVersion(RetainedVersion):
    """A version that stays as it is until it is let go; ``shelf.pin()`` gives one.

    It is let go at the end of ``with shelf.pin() as held:``, by ``release()``, when the shelf is
    closed, when nothing refers to it any more, and with the process. What ``numpy(copy=False)``
    lends of it stays beyond that, and keeps the version as it is.
    """

    __slots__ = ("__weakref__", "_pin")

    _pin: _core.VersionPin | None

    def __init__(self, pin: _core.VersionPin, core: _core.RetainedVersion, path: str) -> None:
        _set(self, "_pin", pin)
        super().__init__(core, path)

    def release(self) -> None:
        """Lets the version go: its writer may use its slots from then on. Twice is allowed."""
        _set(self, "_pin", None)

    def __enter__(self) -> "PinnedVersion":
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Transaction(_core.TransactionBlock):
    """Several changes as one version, or none: ``with shelf.transaction() as t:``."""

    __slots__ = ("_check_step",)

    def __init__(
        self,
        shelf: _core.Shelf,
        assignments: Assignments,
        step: int | None,
        *,
        check_step: Callable[[int | None], int | None],
        before_commit: Callable[[], None],
    ) -> None:
        _core.TransactionBlock.__init__(
            self,
            shelf=shelf,
            session=assignments.session,
            before_commit=before_commit,
        )
        self._check_step = check_step
        self._step = check_step(step)

    @property
    def step(self) -> int | None:
        """The number to be stored with the version; may be set until the block ends."""
        return self._step

    @step.setter
    def step(self, step: int | None) -> None:
        number = self._check_step(step)
        if self._ended:
            raise TransactionError(
                f"step={step!r} comes too late: the block has ended", "Set it within the block."
            )
        self._step = number

    @property
    def commit(self) -> Commit | None:
        """What was committed; None before the block has ended, and where it was discarded."""
        return None if self._commit is None else Commit(self._commit)

    def __repr__(self) -> str:
        if self._commit is not None:
            return f"<Transaction of version {self._commit.version}>"
        return "<Transaction, ended without a version>" if self._ended else "<Transaction>"
