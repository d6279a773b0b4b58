"""Who starts, as a group was made and a shelf lies; and what is told of what all go on from."""

import logging
from typing import Protocol

from tensorshelf import _core
from tensorshelf._group.drive import drive_of
from tensorshelf._group.group import Group
from tensorshelf._group.start import Agreed, Rank, StartShelf
from tensorshelf._group.writers import Site
from tensorshelf._info import Info

logger = logging.getLogger("tensorshelf")


class StartedShelf(StartShelf, Protocol):
    """What is asked of a rank's shelf."""

    def info(self) -> Info: ...


def who_starts(group: Group, shelf: StartedShelf, drain: str | None) -> Rank:
    return Rank(
        rank=group.rank,
        members=group.members,
        site=_site(group, shelf),
        replicate=group._replicas.replicate,
        timeout=group.timeout,
        partition=group.partition,
        drain=drain,
    )


def _site(group: Group, shelf: StartedShelf) -> Site:
    """As far as it says who writes."""
    if not group.partition:
        return Site(group._node, rack=group._rack)
    number = _core.own_socket() if group._socket is None else group._socket
    drive = None if shelf.info().promises.mapped else drive_of(shelf._path)
    return Site(group._node, number, drive, group._rack)


def tell_start(group: Group, agreed: Agreed) -> None:
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
