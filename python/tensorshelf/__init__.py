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
from tensorshelf._auto.autosave import Autosave
from tensorshelf._auto.batches import Batches
from tensorshelf._auto.joined import JoinedTraces, join_traces
from tensorshelf._auto.plan import Plan, plan
from tensorshelf._auto.rng import RNG
from tensorshelf._build import Build, build_info
from tensorshelf._commit import Commit
from tensorshelf._core import __version__
from tensorshelf._drain.drainer import Drainer
from tensorshelf._drain.fetch import drained, fetch
from tensorshelf._drain.info import Drained, DrainInfo
from tensorshelf._drain.options import Drain
from tensorshelf._group.group import Group, GroupInfo
from tensorshelf._group.merge import Merged, merge
from tensorshelf._group.places import open_part
from tensorshelf._group.view import MergedView, open_merged
from tensorshelf._info import (
    CompactReport,
    Damage,
    Info,
    MediumInfo,
    Prepared,
    Promises,
    Recovery,
    VerifyReport,
    VersionDiff,
    VersionInfo,
)
from tensorshelf._open import open
from tensorshelf._options import BlockOptions
from tensorshelf._repair import Repair, repair
from tensorshelf._scrub import Scrub, ScrubReport
from tensorshelf._shelf import Shelf
from tensorshelf._state.load_report import LoadReport
from tensorshelf._state.shards import Shard
from tensorshelf._tensor import Tensor
from tensorshelf._versions import PinnedVersion, RetainedTensor, RetainedVersion, Transaction
from tensorshelf._view import Committed
from tensorshelf.errors import *  # noqa: F403 - all of them, by their own list

__all__ = [
    "RNG",
    "Autosave",
    "Batches",
    "BlockOptions",
    "Build",
    "Commit",
    "Committed",
    "CompactReport",
    "Damage",
    "Drain",
    "DrainInfo",
    "Drained",
    "Drainer",
    "Group",
    "GroupInfo",
    "Info",
    "JoinedTraces",
    "LoadReport",
    "MediumInfo",
    "Merged",
    "MergedView",
    "PinnedVersion",
    "Plan",
    "Prepared",
    "Promises",
    "Recovery",
    "Repair",
    "RetainedTensor",
    "RetainedVersion",
    "Scrub",
    "ScrubReport",
    "Shard",
    "Shelf",
    "Tensor",
    "Transaction",
    "VerifyReport",
    "VersionDiff",
    "VersionInfo",
    "__version__",
    "build_info",
    "drained",
    "errors",
    "fetch",
    "join_traces",
    "merge",
    "open",
    "open_merged",
    "open_part",
    "plan",
    "repair",
]
__all__ += errors.__all__
