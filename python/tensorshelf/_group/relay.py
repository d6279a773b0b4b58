"""What a relay does, a thread on the first rank of a node: its ranks have one vote above.

Decisions come into the box that its ranks post their votes to, so that one thread waits for both.
Votes go up in the name of the rank that said them: it is named where it was a no.
"""

from tensorshelf import _core
from tensorshelf._group.coordinate import checked, forget
from tensorshelf._group.drains import Offers
from tensorshelf._group.drift import Compared
from tensorshelf._group.posted import BOX, Posted, decision_key
from tensorshelf._group.wire import Wire

_VOTES = (_core.GroupMessageKind.yes, _core.GroupMessageKind.no)


class Relaying:
    """The relay of the node that these ranks are on. For one thread."""

    def __init__(self, wire: Wire, relay: _core.Relay, ranks: list[int]) -> None:
        self._wire = wire
        self._relay = relay
        self._ranks = ranks
        self._number_of = {rank: number for number, rank in enumerate(ranks)}
        self._steps: dict[int, tuple[int, int]] = {}  # as the coordinator has them
        self._compared = Compared([[rank] for rank in ranks])
        self._offers = Offers([[rank] for rank in ranks])
        self._every = 0  # as the coordinator has it
        self._sent = 0  # the last epoch's number of which it has a vote

    def take(self, packed: bytes) -> None:
        """A vote from below, or a decision from above."""
        posted = Posted.unpack(packed)
        if posted.message.kind not in _VOTES:
            self._down(posted.message, packed)
        elif posted.is_last:
            self._wire.post(BOX, packed)
        else:
            self._up(posted)

    def _up(self, posted: Posted) -> None:
        vote = self._compared.checked(checked(posted, self._steps), posted.alike)
        self._every = max(self._every, posted.every)
        self._offers.heard(posted.number, vote.rank, posted.drains)
        below = self._number_of.get(vote.rank, len(self._ranks))  # a number of nobody
        up, _ = self._relay.receive_vote(
            _core.GroupMessage(vote.kind, vote.epoch, below, vote.cause)
        )
        if up is None or up.epoch[1] <= self._sent:  # nothing is lost on the way
            return
        self._sent = up.epoch[1]
        named = _core.GroupMessage(up.kind, up.epoch, vote.rank, up.cause)
        drains = self._offers.of_all(up.epoch[1])
        above = Posted(named, posted.step, self._every, posted.alike, drains)
        self._wire.post(BOX, above.pack())

    def _down(self, decision: _core.GroupMessage, packed: bytes) -> None:
        self._relay.receive_decision(decision)
        _, number = decision.epoch
        self._wire.put_all([decision_key(number, rank) for rank in self._ranks], packed)
        forget(self._steps, number)
        self._compared.decided(number)
        self._offers.decided(number)
        self._every = 0
