"""Rank 0's second thread: collects the votes of all ranks, and tells what is decided."""

import itertools
import logging
import struct

from tensorshelf import _core
from tensorshelf._group.wire import Wire, in_short

logger = logging.getLogger("tensorshelf")

BOX = "votes"
END = b""  # in place of a vote: nobody votes any more
_STEP = struct.Struct("<q")


def with_step(step: int, vote: _core.GroupMessage) -> bytes:
    """As it is posted: of whom the coordinator hears which step it saves."""
    return _STEP.pack(step) + vote.encode()


def decision_key(number: int) -> str:
    return f"decision/{number}"


def coordinate(wire: Wire, coordinator: _core.Coordinator) -> None:
    """Until END comes, or the store is gone."""
    steps: dict[int, tuple[int, int]] = {}  # by the number of an epoch: a rank, and its step
    try:
        for number in itertools.count(1):
            posted = wire.next_of(BOX, number)
            if posted == END:
                return
            _take(wire, coordinator, _checked(posted, steps), steps)
            wire.done_with(BOX, number)  # behind the decision: that is waited for
    except RuntimeError as error:  # torch's, of its store
        logger.debug("the group's coordinator ends: %s", in_short(error))


def _take(
    wire: Wire,
    coordinator: _core.Coordinator,
    vote: _core.GroupMessage,
    steps: dict[int, tuple[int, int]],
) -> None:
    before = coordinator.decided
    decision = coordinator.receive(vote)
    if decision is None or decision.epoch <= before:
        return  # undecided, or told already
    _, number = decision.epoch
    wire.put(decision_key(number), decision.encode())
    for epoch in [epoch for epoch in steps if epoch <= number]:
        del steps[epoch]
    if decision.kind == _core.GroupMessageKind.commit:
        wire.drop(decision_key(number - 1))  # all who voted have heard of that


def _checked(posted: bytes, steps: dict[int, tuple[int, int]]) -> _core.GroupMessage:
    """The vote; a no where it is of another step than others saved in that epoch."""
    (step,) = _STEP.unpack_from(posted)
    vote = _core.GroupMessage.decode(posted[_STEP.size :])
    if vote.kind != _core.GroupMessageKind.yes:
        return vote
    rank, others = steps.setdefault(vote.epoch[1], (vote.rank, step))
    if step == others:
        return vote
    cause = f"it saved step {step}, and rank {rank} step {others}: all ranks save the same steps"
    return _core.GroupMessage(_core.GroupMessageKind.no, vote.epoch, vote.rank, cause.encode())
