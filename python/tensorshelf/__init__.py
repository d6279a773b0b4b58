"""Named tensors on persistent memory or NVMe, under one atomic version.

    import tensorshelf as ts

    with ts.open("run.shelf") as shelf:
        shelf.weights = weights        # created here, and a NumPy or torch array stays yours
        shelf.weights[3:5] = rows      # written in place
        shelf.persist(step=1)          # every assignment so far becomes durable, or none does

After a crash at any moment, opening the shelf gives the last version that ``persist`` returned
from, or the one in flight, whole. Importing this module needs NumPy only.
"""

from tensorshelf import errors
from tensorshelf._build import Build, build_info
from tensorshelf._commit import Commit
from tensorshelf._core import __version__
from tensorshelf._errors import (
    AbandonedError,
    BadArgument,
    BadName,
    ClosedError,
    CorruptError,
    ForkedError,
    FormatTooNew,
    IoError,
    LayoutError,
    LeasedError,
    NameTaken,
    NotAShelf,
    NotDaxError,
    ReadOnlyError,
    ShelfBusy,
    ShelfError,
    ShelfExists,
    ShelfFailed,
    ShelfFull,
    ShelfGone,
    ShelfNotFound,
    SpoiledError,
    StaleError,
    TierWarning,
    TransactionError,
    TruncatedError,
    UncommittedError,
    UnknownName,
    UnresolvedError,
    UnsupportedError,
)
from tensorshelf._info import (
    Damage,
    Info,
    Prepared,
    Promises,
    Recovery,
    VerifyReport,
    VersionDiff,
    VersionInfo,
)
from tensorshelf._open import BlockOptions, open
from tensorshelf._repair import Repair, repair
from tensorshelf._shelf import Shelf
from tensorshelf._tensor import Tensor
from tensorshelf._versions import RetainedTensor, RetainedVersion, Transaction
from tensorshelf._view import Committed

__all__ = [
    "AbandonedError",
    "BadArgument",
    "BadName",
    "BlockOptions",
    "Build",
    "ClosedError",
    "Commit",
    "Committed",
    "CorruptError",
    "Damage",
    "ForkedError",
    "FormatTooNew",
    "Info",
    "IoError",
    "LayoutError",
    "LeasedError",
    "NameTaken",
    "NotAShelf",
    "NotDaxError",
    "Prepared",
    "Promises",
    "ReadOnlyError",
    "Recovery",
    "Repair",
    "RetainedTensor",
    "RetainedVersion",
    "Shelf",
    "ShelfBusy",
    "ShelfError",
    "ShelfExists",
    "ShelfFailed",
    "ShelfFull",
    "ShelfGone",
    "ShelfNotFound",
    "SpoiledError",
    "StaleError",
    "Tensor",
    "TierWarning",
    "Transaction",
    "TransactionError",
    "TruncatedError",
    "UncommittedError",
    "UnknownName",
    "UnresolvedError",
    "UnsupportedError",
    "VerifyReport",
    "VersionDiff",
    "VersionInfo",
    "__version__",
    "build_info",
    "errors",
    "open",
    "repair",
]
