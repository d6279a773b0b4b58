"""What the coordinator does, a thread on rank 0: it collects votes, and tells what is decided."""

from tensorshelf import _core
from tensorshelf._group.drains import BUSY, Drains, NoDrain, Offers
from tensorshelf._group.drift import Compared
from tensorshelf._group.posted import LEAVES, NO_STEP, Posted, decision_key, relay_box
from tensorshelf._group.wire import Wire


class Coordination:
    """``members``: ranks by themselves, and those that vote by a relay, which the first has. For
    one thread.
    """

    def __init__(
        self,
        wire: Wire,
        coordinator: _core.Coordinator,
        members: list[list[int]],
        drains: Drains | None = None,
    ) -> None:
        self._wire = wire
        self._coordinator = coordinator
        self._members = members
        self._member_of = {rank: at for at, ranks in enumerate(members) for rank in ranks}
        self._steps: dict[int, tuple[int, int]] = {}  # by an epoch's number: a rank, and its step
        self._compared = Compared(members)
        self._drains = drains or NoDrain()  # rank 0's own
        self._offers = Offers(members)
        self._every = 0  # the largest that a vote said, since the last decision
        self._one_left = False

    def take(self, packed: bytes) -> None:
        """A vote."""
        posted = Posted.unpack(packed)
        vote = self._compared.checked(checked(posted, self._steps), posted.alike)
        self._every = max(self._every, posted.every)  # of whom a save costs most
        self._offers.heard(posted.number, vote.rank, posted.drains)
        before = self._coordinator.decided
        if posted.is_last:
            if self._one_left:
                return
            self._one_left = True
            vote = _to_the_next(vote, before)
        member = self._member_of.get(vote.rank, len(self._members))  # a number of nobody
        decision = self._coordinator.receive(
            _core.GroupMessage(vote.kind, vote.epoch, member, vote.cause)
        )
        if decision is not None and decision.epoch > before:  # else it was told already
            kind, epoch, cause = decision.kind, decision.epoch, decision.cause
            self._tell(_core.GroupMessage(kind, epoch, vote.rank, cause), last=posted.is_last)

    def _tell(self, decision: _core.GroupMessage, *, last: bool) -> None:
        _, number = decision.epoch
        commits = decision.kind == _core.GroupMessageKind.commit
        drains = max(self._offers.of_all(number), BUSY) if commits else BUSY
        step = LEAVES if last else NO_STEP
        packed = Posted(decision, step, self._every, drains=drains).pack()
        self._every = 0
        if commits:
            self._drains.lag(self._offers.busy(number))
        for ranks in self._members:  # relays first: they have more to do with it
            if len(ranks) > 1:
                self._wire.post(relay_box(ranks[0]), packed)
        alone = [ranks[0] for ranks in self._members if len(ranks) == 1]
        if alone:
            self._wire.put_all([decision_key(number, rank) for rank in alone], packed)
        forget(self._steps, number)
        self._compared.decided(number)
        self._offers.decided(number)


def _to_the_next(left: _core.GroupMessage, decided: tuple[int, int]) -> _core.GroupMessage:
    """Its no, to the epoch that is not decided."""
    generation, number = decided
    return _core.GroupMessage(left.kind, (generation, number + 1), left.rank, left.cause)


def checked(posted: Posted, steps: dict[int, tuple[int, int]]) -> _core.GroupMessage:
    """The vote; a no where it is of another step than others saved in that epoch."""
    vote, step = posted.message, posted.step
    if vote.kind != _core.GroupMessageKind.yes:
        return vote
    rank, others = steps.setdefault(posted.number, (vote.rank, step))
    if step == others:
        return vote
    cause = f"it saved step {step}, and rank {rank} step {others}: all ranks save the same steps"
    return _core.GroupMessage(_core.GroupMessageKind.no, vote.epoch, vote.rank, cause.encode())


def forget(steps: dict[int, tuple[int, int]], number: int) -> None:
    """Forgets the steps of epochs up to this one."""
    for epoch in [epoch for epoch in steps if epoch <= number]:
        del steps[epoch]
