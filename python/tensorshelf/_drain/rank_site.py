"""The place of one rank, and what of it is a version of the whole group.

Each rank puts its part as a shelf alone puts a version. Rank 0 then looks whether all have put
theirs, and puts one object that names them all (joint.py): with it the version is there. So ranks
send each other nothing, and one that is stuck, or gone, leaves the version before.

Versions are named in the order of their epochs. What a rank has put that none names is deleted when
none will: something newer is named, or it is older than what rank 0 may name still.
"""

import logging
import os
from collections.abc import Callable

from tensorshelf import _core
from tensorshelf._drain import joint
from tensorshelf._drain.catalog import Entry, Epoch, epoch_of, joints_at, rank_folder
from tensorshelf._drain.joint import Joint
from tensorshelf._drain.manifest import Manifest, Name
from tensorshelf._drain.options import Drain
from tensorshelf._drain.place import Place
from tensorshelf._drain.remote import open_remote
from tensorshelf._drain.retain import is_milestone, last_of, rule_of, split, split_parts
from tensorshelf._drain.roll import Roll
from tensorshelf._drain.stage import Spool, Staged
from tensorshelf._drain.writer import Writer
from tensorshelf.errors import UnsupportedError

logger = logging.getLogger("tensorshelf")


class RankSite:
    """For one thread."""

    def __init__(
        self,
        drain: Drain,
        shelf_id: str,
        rank: int,
        members: int,
        *,
        wait: Callable[[int], None],
        on_read: Callable[[int], None],
        on_sent: Callable[[int], None],
    ) -> None:
        remote = os.fspath(drain.remote)
        self._rank = rank
        self._rule = rule_of(drain, shelf_id)
        self._place = Place(drain, rank_folder(rank), wait=wait, on_read=on_read, on_sent=on_sent)
        self._top = open_remote(remote)
        self._joints = joints_at(self._top)
        self._wait = wait
        self._names: _Names | None = None
        if rank == 0:
            self._names = _Names(Roll(remote, members), Writer(self._top, joint.FOLDER, remote))
        self.pending: Entry[Manifest] | None = None  # the part that was put last, and none names
        self._overtaken: Entry[Manifest] | None = None  # the one before, where none named it yet
        self.floor = 0  # the number of the oldest epoch that may be named still, as was told

    def begin(self) -> Manifest | None:
        """Looks what lies there; rank 0 names what all had put when the job ended. Returns this
        rank's part of the newest version.
        """
        parts = self._place.begin()
        joints = self._look_at_joints()
        if self._joints.damaged:
            logger.warning(
                "drain: %d objects of group/ are damaged, and count for nothing",
                len(self._joints.damaged),
            )
        if self._names is not None:
            self._names.writer.begin([*(each.name for each in joints), *self._joints.damaged])
            for part in self._not_named(parts):
                self.pending = part
                self.look()
        own = [part for part in self._not_named(parts) if part.manifest.shelf == self._rule.shelf]
        self.pending = own[-1] if own else None
        last = self._last_named()
        return None if last is None else last.manifest

    @property
    def is_ready(self) -> bool:
        """Whether ``ready`` has nothing to ask."""
        return self._place.knows_pieces

    def ready(self) -> None:
        """Asks what ``stage`` needs to know, so that it asks the remote nothing."""
        self._place.look_for_pieces()

    def stage(self, core: _core.Shelf, version: int, spool: Spool) -> Staged:
        """Reads a version of the shelf. Raises StaleError where it is retained no more."""
        staged = self._place.stage(core, version, spool)
        if staged.group is None:
            raise UnsupportedError(
                f"version {version} of the shelf was saved by no group",
                "It is drained as a part of the next one that the group saves.",
            )
        return staged

    def put(self, staged: Staged, spool: Spool, metric: float | None) -> None:
        """This rank's part."""
        if self.pending is not None:
            self._overtaken = self.pending
        self.pending = self._place.put(staged, spool, metric=metric, milestone=False)

    def is_pending(self, version: int, time_ns: int) -> bool:
        """Whether the part of that version of the shelf is there, and waits for others'."""
        made = None if self.pending is None else self.pending.manifest
        return made is not None and (made.version, made.time_ns) == (version, time_ns)

    def look(self) -> tuple[list[Manifest], tuple[int, ...]]:
        """Whether what is pending is a version by now, which rank 0 makes it where all have put
        theirs. This rank's parts that are, the oldest first; and on rank 0 the ranks that lack.
        """
        if self.pending is None:
            return [], ()
        lacking: tuple[int, ...] = ()
        if self._names is not None:
            lacking = self._name(self._names, self.pending)
        else:
            self._look_at_joints()
        there = self._epochs()
        made = [
            part.manifest
            for part in (self._overtaken, self.pending)
            if part is not None and _epoch(part) in there
        ]
        if made:
            self._overtaken = None
        if _epoch(self.pending) in there:
            self.pending = None
        return made, lacking

    def _look_at_joints(self) -> list[Entry[Joint]]:
        """What is found there is durable, and so is what is not found: rank 0 may have changed it
        a moment ago, and by what lies there parts are deleted, and versions told.
        """
        found = self._joints.look()
        self._top.settle()  # what was seen, as said above
        return found

    def _name(self, names: "_Names", part: Entry[Manifest]) -> tuple[int, ...]:
        """The ranks that lack; none: the version is there."""
        made, group = part.manifest, part.manifest.group
        assert group is not None
        found = names.roll.call(epoch_of(group))
        parts = [each for each in found if each is not None]
        if len(parts) < len(found):
            return tuple(rank for rank, each in enumerate(found) if each is None)
        before = last_of(self._rule._replace(shelf=made.shelf), self._joints.look())
        whole = Joint(
            shelf=made.shelf,
            version=made.version,
            step=made.step,
            time_ns=made.time_ns,
            metric=made.metric,
            milestone=made.milestone or is_milestone(self._rule, before, made.step),
            group=group,
            parts=parts,
        )
        name = names.writer.next_name()
        self._wait(0)  # who was given up commits nothing
        self._top.put(f"{joint.FOLDER}/{name}", whole.encode())
        self._top.settle()  # before it is told
        self._joints.add(name, whole)
        return ()

    def pieces_of(self, rank: int) -> int:
        """On rank 0: how many pieces of a rank are there."""
        return 0 if self._names is None else self._names.roll.pieces_of(rank)

    def collect(self) -> bool:
        """Deletes what need not stay: on rank 0 versions, and everywhere parts of none. False where
        rank 0 has versions to delete still: what they name goes behind them.
        """
        joints = self._look_at_joints()
        if self._joints.damaged:
            return True  # what they name is not known
        shelf = joints[-1].manifest.shelf if joints else ""
        kept, going = split(self._rule._replace(shelf=shelf), joints)
        if self._names is not None:
            self._top.delete(f"{joint.FOLDER}/{entry.name}" for entry in going)
            self._top.settle()  # before a part goes that they name
            joints, going = kept, []
        parts = self._place.catalog.look()
        group = next((e.manifest.group for e in reversed(parts) if e.manifest.group), None)
        job = "" if group is None else group.job
        self._place.collect(*split_parts(job, parts, self._named_by(joints), self.floor))
        return not going

    def failed(self) -> None:
        """What lies there is asked anew."""
        self._place.failed()
        if self._names is not None:
            self._names.roll.forget()

    def _epochs(self) -> set[Epoch]:
        """The epochs of the versions that are known to be there."""
        return {epoch_of(entry.manifest.group) for entry in self._joints.entries()}

    def _named_by(self, joints: list[Entry[Joint]]) -> set[Name]:
        """The names that these versions give to this rank's parts."""
        parts = [entry.manifest.parts for entry in joints]
        return {each[self._rank].name for each in parts if self._rank < len(each)}

    def _last_named(self) -> Entry[Manifest] | None:
        named = self._named_by(self._joints.entries())
        found = [entry for entry in self._place.catalog.entries() if entry.name in named]
        return found[-1] if found else None

    def _not_named(self, parts: list[Entry[Manifest]]) -> list[Entry[Manifest]]:
        """That may be named yet."""
        last, there = self._last_named(), self._epochs()
        newer = [part for part in parts if last is None or part.name > last.name]
        return [part for part in newer if _epoch(part) is not None and _epoch(part) not in there]


def _epoch(part: Entry[Manifest]) -> Epoch | None:
    group = part.manifest.group
    return None if group is None else epoch_of(group)


class _Names:
    """What rank 0 names versions by."""

    def __init__(self, roll: Roll, writer: Writer) -> None:
        self.roll = roll
        self.writer = writer
