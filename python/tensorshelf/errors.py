"""Every error of tensorshelf; each is also the builtin that a caller would expect to catch.

``code`` never changes, so match on it or on the class, never on the text. ``remedy`` says what to
do and is part of the text.
"""

import errno as _errno
import re
from collections.abc import Iterator
from typing import Any, ClassVar

__all__ = [
    "AbandonedError",
    "BadArgument",
    "BadName",
    "ClosedError",
    "CorruptError",
    "ForkedError",
    "FormatTooNew",
    "GroupError",
    "IoError",
    "KeyMismatch",
    "LayoutError",
    "LeasedError",
    "MediumMissing",
    "NameTaken",
    "NotAShelf",
    "NotDaxError",
    "NotStorable",
    "PinnedError",
    "ReadOnlyError",
    "ShelfBusy",
    "ShelfError",
    "ShelfExists",
    "ShelfFailed",
    "ShelfFull",
    "ShelfGone",
    "ShelfNotFound",
    "SpoiledError",
    "StaleError",
    "TierWarning",
    "TornSave",
    "TransactionError",
    "TruncatedError",
    "UncommittedError",
    "UnknownAttribute",
    "UnknownName",
    "UnresolvedError",
    "UnsupportedError",
]

_FIRST_WORD = re.compile(r"[a-z]+(?=[ ,;:]|\.( |$)|$)")


class ShelfError(Exception):
    """Base of all errors: ``what`` happened, a stable ``code`` and a ``remedy``."""

    code: ClassVar[str] = "shelf_error"
    default_errno: ClassVar[int] = 0

    what: str
    remedy: str

    def __init__(self, what: str, remedy: str = "", os_error: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = _sentence(remedy)
        number = os_error or self.default_errno
        if isinstance(self, OSError) and number:
            _set_errno(self, number)

    def __reduce__(self) -> Any:  # an errno is no attribute of those that have one
        number = self.errno if isinstance(self, OSError) else 0
        return type(self), (self.what, self.remedy, number or 0), self.__dict__

    def __str__(self) -> str:  # KeyError would quote its text, OSError would put errno before it
        if not self.remedy:
            return self.what
        stop = "" if self.what.endswith(("?", "!")) else "."
        return f"{self.what.rstrip('.')}{stop} {self.remedy}"


def _sentence(text: str) -> str:
    """Capital in front, unless it begins with code such as persist(), and a full stop.

    The native half does the same to its own (src/base/error.cpp).
    """
    first = _FIRST_WORD.match(text)
    if first is not None:
        text = text[0].upper() + text[1:]
    return text if not text or text[-1] in ".!?" else f"{text}."


def _set_errno(error: OSError, number: int) -> None:
    error.errno = number


class ShelfNotFound(ShelfError, FileNotFoundError):
    """No shelf at the path."""

    code = "shelf_not_found"
    default_errno = _errno.ENOENT


class ShelfExists(ShelfError, FileExistsError):
    """Mode ``x``, and there is a shelf at the path."""

    code = "shelf_exists"
    default_errno = _errno.EEXIST


class NotAShelf(ShelfError, ValueError):
    """The path holds something else, or zeros."""

    code = "not_a_shelf"


class CorruptError(ShelfError):
    """A checksum fails and no intact copy exists."""

    code = "corrupt"


class TruncatedError(CorruptError):
    """The file is shorter than the shelf's own record of it."""

    code = "shelf_truncated"


class FormatTooNew(ShelfError, ValueError):
    """Written by a later tensorshelf."""

    code = "newer_format"


class ShelfBusy(ShelfError, BlockingIOError):
    """Another process, or another handle here, has it open for writing."""

    code = "shelf_busy"
    default_errno = _errno.EWOULDBLOCK


class ShelfFull(ShelfError, OSError):
    """No room for a tensor's slots, which ``persist`` never lacks, or no version number left."""

    code = "shelf_full"
    default_errno = _errno.ENOSPC


class LayoutError(ShelfError, ValueError, TypeError):
    """The dtype, the shape or the kind of object is not what the tensor takes."""

    code = "layout_mismatch"


class UnknownName(ShelfError, KeyError):
    """No tensor of that name."""

    code = "unknown_name"


class UnknownAttribute(UnknownName, AttributeError):
    """The same, for ``shelf.name``."""


class BadName(ShelfError, ValueError):
    """Empty, too long, not UTF-8, or reserved."""

    code = "bad_name"


class NameTaken(ShelfError, ValueError):
    """``create``, and there is a tensor of that name."""

    code = "name_taken"


class BadArgument(ShelfError, ValueError, TypeError):
    """A size text, mode, tier, step or option that cannot be read."""

    code = "bad_argument"


class ReadOnlyError(ShelfError, PermissionError):
    """Opened with mode ``r``, or the file may not be written."""

    code = "read_only"
    default_errno = _errno.EACCES


class ClosedError(ShelfError, ValueError):
    """Used after ``close()``."""

    code = "shelf_closed"


class LeasedError(ShelfError, BufferError):
    """A live view pins the slot that the write needs."""

    code = "slot_leased"


class ForkedError(ShelfError, RuntimeError):
    """Used in a child of the process that opened it."""

    code = "used_after_fork"


class NotDaxError(ShelfError, OSError):
    """``tier="pmem"`` was asked for and the path is not persistent memory."""

    code = "not_dax"
    default_errno = _errno.EOPNOTSUPP


class UnsupportedError(ShelfError, RuntimeError):
    """This build, this shelf or this Python environment lacks it; the text names what."""

    code = "unsupported"


class ShelfGone(ShelfError, FileNotFoundError):
    """``persist``: the file was deleted, or another has its name now; nothing was committed.

    To save the last version: ``shelf.discard()``, ``new = open(elsewhere, "x")``,
    ``new.update(shelf)``, and ``new.persist(step=shelf.step)``.
    """

    code = "shelf_gone"
    default_errno = _errno.ENOENT


class UncommittedError(ShelfError, RuntimeError):
    """A rollback or a transaction over assignments not persisted yet, or a version on its way."""

    code = "uncommitted_changes"


class UnresolvedError(ShelfError, RuntimeError):
    """A version is prepared, and it is not decided whether it is committed: ``resolve`` it."""

    code = "unresolved"


class AbandonedError(ShelfError, RuntimeError):
    """What was assigned after a version that was abandoned is lost with it: ``discard``."""

    code = "abandoned"


class TransactionError(ShelfError, RuntimeError):
    """What a transaction does not allow the thread that began it: persist(), another one, ..."""

    code = "in_transaction"


class SpoiledError(ShelfError, RuntimeError):
    """An assignment failed half-way over one not persisted yet: assign it whole, or discard."""

    code = "tensor_spoiled"


class TornSave(ShelfError, RuntimeError):
    """A tensor changed while a save copied it: nothing was saved, the version before stands."""

    code = "torn_save"


class GroupError(ShelfError, RuntimeError):
    """A rank could not save its part, so none did: the version before stands on all of them."""

    code = "group_aborted"

    rank: int | None = None  # which one


class StaleError(ShelfError, RuntimeError):
    """The version being read is no longer retained: its writer has gone on."""

    code = "version_overwritten"


class PinnedError(ShelfError, TimeoutError):
    """A reader, or a pin of this very process, holds the version whose slot is needed."""

    code = "version_pinned"


class MediumMissing(ShelfError, FileNotFoundError):
    """A medium beside the first is not there, is another shelf's, or an older copy; or the first is
    an older copy.
    """

    code = "medium_missing"
    default_errno = _errno.ENOENT


class IoError(ShelfError, OSError):
    """The operating system failed a read, a write or a barrier."""

    code = "io_error"
    default_errno = _errno.EIO


class ShelfFailed(ShelfError, RuntimeError):
    """An earlier write or barrier failed: close and reopen; the committed version is intact."""

    code = "shelf_failed"


class NotStorable(ShelfError, TypeError):
    """``save``: a part of the state is nothing that can be stored without pickle."""

    code = "not_storable"


class KeyMismatch(ShelfError, KeyError):
    """``load_into``: the state has other keys than the one that was saved."""

    code = "key_mismatch"

    missing_keys: tuple[str, ...] = ()  # in the state that was given alone
    unexpected_keys: tuple[str, ...] = ()  # in the saved one alone


class TierWarning(UserWarning):
    """The medium does less than it could; the text says what to change for more."""


def _each(kind: type[ShelfError]) -> Iterator[type[ShelfError]]:
    for heir in kind.__subclasses__():
        yield heir
        yield from _each(heir)


BY_CODE = {kind.code: kind for kind in _each(ShelfError) if "code" in vars(kind)}


def from_core(code: str, what: str, remedy: str, os_error: int) -> ShelfError:
    """The Python error for one thrown by the store; called by the native module."""
    return BY_CODE.get(code, ShelfError)(what, remedy, os_error)
