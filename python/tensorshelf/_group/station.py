"""A rank's place on the way that votes go: whose it takes, and for whom it stays."""

import logging
from collections.abc import Callable

from tensorshelf import _core
from tensorshelf._group.awaited import Awaited
from tensorshelf._group.coordinate import Coordination
from tensorshelf._group.drains import Drains
from tensorshelf._group.posted import BOX, relay_box
from tensorshelf._group.relay import Relaying
from tensorshelf._group.routes import Routes
from tensorshelf._group.taker import Taker
from tensorshelf._group.wire import Wire

logger = logging.getLogger("tensorshelf")

LEFT = "left"
ALL_LEFT = "all left"


class Station:
    """A rank's place at one start. ``connect`` is called where it has a thread that takes votes."""

    def __init__(
        self,
        rank: int,
        routes: Routes,
        last: tuple[int, int],
        connect: Callable[[], Wire],
        drains: Drains,
    ) -> None:
        self._rank = rank
        self._relayed = routes.behind_relay(rank)
        self._members = len(routes.nodes)
        self.box = routes.box(rank)  # that its own votes go to
        self._taker: Taker | None = None
        self.awaited = Awaited(routes.nodes, [], None)
        if rank == 0:
            coordinator = _core.Coordinator(len(routes.members), last)
            wire = connect()
            coordination = Coordination(wire, coordinator, routes.members, drains)
            self._taker = Taker("coordinator", wire, BOX, coordination.take)
            self.awaited = Awaited(routes.nodes, routes.members, coordinator.awaited)
        elif self._relayed and self._relayed[0] == rank:
            ranks, wire = self._relayed, connect()
            relay = _core.Relay(len(ranks), routes.members.index(ranks), last)
            self._taker = Taker("relay", wire, relay_box(rank), Relaying(wire, relay, ranks).take)
            self.awaited = Awaited(routes.nodes, [[each] for each in ranks], relay.awaited)

    def leave(self, wire: Wire, seconds: float, *, keeps_store: bool) -> None:
        """Who takes the votes of others waits so long for them, and where the store may lie."""
        if self._relayed:
            first = self._relayed[0]
            self._part(wire, f" of {first}", len(self._relayed), self._rank == first, seconds)
            if self._rank == first:
                self.end(wire)
        self._part(wire, "", self._members, self._rank == 0 or keeps_store, seconds)

    def _part(self, wire: Wire, of: str, ranks: int, stays: bool, seconds: float) -> None:
        if wire.count(LEFT + of) == ranks:
            wire.put(ALL_LEFT + of, b"1")
        if stays:
            try:
                wire.take(ALL_LEFT + of, seconds=seconds)
            except TimeoutError as error:
                logger.info("group: rank %d left before others had: %s", self._rank, error)

    def end(self, wire: Wire) -> None:
        """Takes no more votes."""
        taker, self._taker = self._taker, None
        if taker is not None:
            taker.end(wire)
