"""What a rank has from a start of its group until it leaves: made when all ranks have agreed."""

import contextlib
import logging
from typing import NamedTuple, Protocol

from tensorshelf import _core
from tensorshelf._group.drains import Drains
from tensorshelf._group.drive import drive_of
from tensorshelf._group.exchange import Exchange
from tensorshelf._group.group import Group
from tensorshelf._group.member import Member, MemberShelf
from tensorshelf._group.moments import Moments
from tensorshelf._group.replicas import Replicas
from tensorshelf._group.routes import Routes
from tensorshelf._group.stage import Stages
from tensorshelf._group.start import Agreed, Rank, StartShelf, agree_on_start
from tensorshelf._group.station import Station
from tensorshelf._group.wire import TrainersWire
from tensorshelf._group.writers import Site
from tensorshelf._info import Info
from tensorshelf._state.flatten import Flat

logger = logging.getLogger("tensorshelf")

MOMENT = 1.0  # seconds


class GroupShelf(MemberShelf, StartShelf, Protocol):
    """What is asked of a rank's shelf."""

    def info(self) -> Info: ...

    def _prepare(self, flat: Flat, *, step: int, id: bytes) -> None: ...


class Started(NamedTuple):
    """The parts of one start; all are there, or none."""

    wire: TrainersWire
    exchange: Exchange
    replicas: Replicas
    station: Station
    member: Member
    moments: Moments

    def held_by(self) -> tuple[int, ...]:
        """The ranks whose copies of this rank's part are of the newest epoch."""
        epoch, _ = self.member.committed
        copies = self.replicas.copies if epoch else ()
        return tuple(copy.pair.keeper for copy in copies if copy.epoch == epoch)

    def awaited(self) -> tuple[int, ...] | None:
        """Who has not voted yet on what is under way; None where others are to know that."""
        ranks = self.station.awaited.ranks()
        return ranks if ranks is None or self.member.undecided() else ()


class Left(NamedTuple):
    """What a start came to, once this rank has left."""

    settled: bool = True  # others have decided on all that this rank saved
    committed: tuple[int, int | None] = (0, None)  # the epoch, and its step
    held_by: tuple[int, ...] = ()
    keeps: tuple[int, ...] = ()


def start(
    shelf: GroupShelf, group: Group, drain: str | None, drains: Drains
) -> tuple[Started, Agreed]:
    """Agrees with all ranks on what they go on from. ``drain``: what is drained how, in words.

    Raises what ``agree_on_start()`` does. Where this rank fails, the others hear why.
    """
    wire = group._meet("resume()")  # where a rank does not come, this is no start
    replicas = Replicas(group.rank, shelf._path, group._replicas)
    exchange = Exchange(wire, group.rank, group.members, group.timeout)
    station: Station | None = None
    member: Member | None = None
    try:
        agreed = agree_on_start(shelf, replicas.open, wire, _who_starts(group, shelf, drain))
        with Stages(wire, group.rank, group.members, group.timeout).all_come("begun"):
            replicas.begin(agreed, wire, group._store, group.timeout)
        replicas.have_back(shelf, agreed)
        last = agreed.generation, agreed.number
        moments = Moments(group.rank, group._node, (agreed.job, agreed.generation))
        station = Station(group.rank, Routes(agreed.nodes), last, wire.for_a_thread, drains)
        member = Member(
            shelf,
            wire.for_a_thread(),
            last=last,
            copies=replicas.copies,
            box=station.box,
            nodes=agreed.nodes,
            moments=moments,
            drains=drains,
        )
        drains.begin()
        _tell(group, agreed)
        return Started(wire, exchange, replicas, station, member, moments), agreed
    except BaseException as error:
        exchange.refused(error)
        with contextlib.suppress(RuntimeError, TimeoutError):  # torch's, of its store
            if member is not None:
                member.close(MOMENT, wire)
            if station is not None:
                station.end(wire)
        with contextlib.suppress(RuntimeError):  # likewise: what failed is what is told
            replicas.close(wire, 0.0, settled=False)
        raise


def _who_starts(group: Group, shelf: GroupShelf, drain: str | None) -> Rank:
    return Rank(
        rank=group.rank,
        members=group.members,
        site=_site(group, shelf),
        replicate=group._replicas.replicate,
        timeout=group.timeout,
        partition=group.partition,
        drain=drain,
    )


def _site(group: Group, shelf: GroupShelf) -> Site:
    """As far as it says who writes."""
    if not group.partition:
        return Site(group._node, rack=group._rack)
    number = _core.own_socket() if group._socket is None else group._socket
    drive = None if shelf.info().promises.mapped else drive_of(shelf._path)
    return Site(group._node, number, drive, group._rack)


def _tell(group: Group, agreed: Agreed) -> None:
    if group.partition and group.rank == 0:
        logger.info("group: what all hold alike is saved by ranks %s", agreed.writers)
        if group.members > 1 and group._replicas.replicate == 0:
            logger.warning(
                "group: each shelf has the only copy of its piece of what all ranks hold alike: "
                "where one is lost, all of the state is. Group(replicate=1) keeps a copy."
            )
    logger.info(
        "group: rank %d of %d goes on from epoch %d", group.rank, group.members, agreed.number
    )
