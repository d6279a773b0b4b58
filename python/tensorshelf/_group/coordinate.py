"""Rank 0's second thread: collects the votes of all ranks, and tells what is decided."""

import itertools
import logging
import struct

from tensorshelf import _core
from tensorshelf._group.wire import Wire, in_short
from tensorshelf.errors import ShelfError

logger = logging.getLogger("tensorshelf")

BOX = "votes"
END = b""  # in place of a vote: nobody votes any more
LEAVES = -1  # in place of a step: this no is the rank's last vote
_STEP = struct.Struct("<q")


def with_step(step: int, vote: _core.GroupMessage) -> bytes:
    """As it is posted: of whom the coordinator hears which step it saves."""
    return _STEP.pack(step) + vote.encode()


def decision_key(number: int, rank: int) -> str:
    """Each rank has a copy, and takes it away."""
    return f"decision/{number}/{rank}"


def coordinate(wire: Wire, coordinator: _core.Coordinator, members: int) -> None:
    """Until END comes, or the store is gone."""
    steps: dict[int, tuple[int, int]] = {}  # by the number of an epoch: a rank, and its step
    left: _core.GroupMessage | None = None  # what the first rank that left said
    try:
        for number in itertools.count(1):
            posted = wire.next_of(BOX, number)
            if posted == END:
                return
            vote = _checked(posted, steps)
            if left is None and _STEP.unpack_from(posted)[0] == LEAVES:
                left = vote
            if left is not None and (vote is left or vote.epoch > coordinator.decided):
                vote = _again(left, coordinator.decided)
            _take(wire, coordinator, members, vote, steps)
            wire.done_with(BOX, number)  # behind the decision: that is waited for
    except RuntimeError as error:  # torch's, of its store
        logger.debug("the group's coordinator ends: %s", in_short(error))
    except ShelfError as error:  # a vote that is none
        logger.error("the group's coordinator ends, and no save is decided any more: %s", error)


def _take(
    wire: Wire,
    coordinator: _core.Coordinator,
    members: int,
    vote: _core.GroupMessage,
    steps: dict[int, tuple[int, int]],
) -> None:
    before = coordinator.decided
    decision = coordinator.receive(vote)
    if decision is None or decision.epoch <= before:
        return  # undecided, or told already
    _, number = decision.epoch
    for rank in range(members):
        wire.put(decision_key(number, rank), decision.encode())
    for epoch in [epoch for epoch in steps if epoch <= number]:
        del steps[epoch]


def _again(left: _core.GroupMessage, decided: tuple[int, int]) -> _core.GroupMessage:
    """Its no to the epoch that is not decided."""
    generation, number = decided
    epoch = generation, number + 1
    return _core.GroupMessage(_core.GroupMessageKind.no, epoch, left.rank, left.cause)


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
