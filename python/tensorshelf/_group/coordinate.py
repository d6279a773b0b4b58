"""What the coordinator does, a thread on rank 0: it collects votes, and tells what is decided."""

import struct

from tensorshelf import _core
from tensorshelf._group.drains import BUSY, Drains, NoDrain, Offers
from tensorshelf._group.drift import Compared
from tensorshelf._group.wire import Wire

BOX = "votes"
END = b""  # in place of a vote: nobody votes any more
LEAVES = -1  # in place of a step: this no is the rank's last vote, and what it ended was the last
_BESIDE = struct.Struct("<qqQq")  # the step, the interval, a hash, what drains offer
_NO_STEP = 0  # of a decision


def with_step(
    step: int, message: _core.GroupMessage, every: int = 0, alike: int = 0, drains: int = BUSY
) -> bytes:
    """As it is posted: of whom the coordinator hears which step it saves, at which interval it
    would, a hash of what all hold alike (drift.py), and what its drain offers (drains.py); of a
    decision the interval from then on (schedule.py), and what all drains offered. 0: it says
    nothing of that.
    """
    return _BESIDE.pack(step, every, alike, drains) + message.encode()


def message_of(posted: bytes) -> _core.GroupMessage:
    return _core.GroupMessage.decode(posted[_BESIDE.size :])


def step_of(posted: bytes) -> int:
    step, *_ = _BESIDE.unpack_from(posted)
    return int(step)


def every_of(posted: bytes) -> int:
    _, every, *_ = _BESIDE.unpack_from(posted)
    return int(every)


def alike_of(posted: bytes) -> int:
    _, _, alike, _ = _BESIDE.unpack_from(posted)
    return int(alike)


def drains_of(posted: bytes) -> int:
    *_, drains = _BESIDE.unpack_from(posted)
    return int(drains)


def is_last(posted: bytes) -> bool:
    """Whether a rank leaves, or has left: nothing is saved any more."""
    return step_of(posted) == LEAVES


def decision_key(number: int, rank: int) -> str:
    """Each rank has a copy, and takes it away."""
    return f"decision/{number}/{rank}"


def relay_box(first: int) -> str:
    """Of the relay that this rank has."""
    return f"{BOX}/of-{first}"


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

    def take(self, posted: bytes) -> None:
        """A vote."""
        vote = self._compared.checked(checked(posted, self._steps), alike_of(posted))
        self._every = max(self._every, every_of(posted))  # of whom a save costs most
        self._offers.heard(vote.epoch[1], vote.rank, drains_of(posted))
        before = self._coordinator.decided
        if is_last(posted):
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
            self._tell(_core.GroupMessage(kind, epoch, vote.rank, cause), last=is_last(posted))

    def _tell(self, decision: _core.GroupMessage, *, last: bool) -> None:
        _, number = decision.epoch
        commits = decision.kind == _core.GroupMessageKind.commit
        drains = max(self._offers.of_all(number), BUSY) if commits else BUSY
        posted = with_step(LEAVES if last else _NO_STEP, decision, self._every, drains=drains)
        self._every = 0
        if commits:
            self._drains.lag(self._offers.busy(number))
        for ranks in self._members:  # relays first: they have more to do with it
            if len(ranks) > 1:
                self._wire.post(relay_box(ranks[0]), posted)
        alone = [ranks[0] for ranks in self._members if len(ranks) == 1]
        if alone:
            self._wire.put_all([decision_key(number, rank) for rank in alone], posted)
        forget(self._steps, number)
        self._compared.decided(number)
        self._offers.decided(number)


def _to_the_next(left: _core.GroupMessage, decided: tuple[int, int]) -> _core.GroupMessage:
    """Its no, to the epoch that is not decided."""
    generation, number = decided
    return _core.GroupMessage(left.kind, (generation, number + 1), left.rank, left.cause)


def checked(posted: bytes, steps: dict[int, tuple[int, int]]) -> _core.GroupMessage:
    """The vote; a no where it is of another step than others saved in that epoch."""
    step, vote = step_of(posted), message_of(posted)
    if vote.kind != _core.GroupMessageKind.yes:
        return vote
    rank, others = steps.setdefault(vote.epoch[1], (vote.rank, step))
    if step == others:
        return vote
    cause = f"it saved step {step}, and rank {rank} step {others}: all ranks save the same steps"
    return _core.GroupMessage(_core.GroupMessageKind.no, vote.epoch, vote.rank, cause.encode())


def forget(steps: dict[int, tuple[int, int]], number: int) -> None:
    """Of epochs up to this one."""
    for epoch in [epoch for epoch in steps if epoch <= number]:
        del steps[epoch]
