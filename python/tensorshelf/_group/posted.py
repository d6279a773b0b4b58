"""What ranks, relays and the coordinator post to each other, and where."""

import struct
from typing import NamedTuple

from tensorshelf import _core
from tensorshelf._group.drains import BUSY

BOX = "votes"
END = b""  # in place of what is posted: nobody votes any more
LEAVES = -1  # in place of a step: this no is the rank's last vote, and what it ended was the last
NO_STEP = 0  # of a decision
_BESIDE = struct.Struct("<qqQq")  # all but the message, in their order below


class Posted(NamedTuple):
    """A message of the protocol, and what goes beside it: of a vote what that rank would, of a
    decision what holds for all. 0: it says nothing of that.
    """

    message: _core.GroupMessage
    step: int = NO_STEP  # that is saved
    every: int = 0  # the interval between saves (schedule.py)
    alike: int = 0  # a hash of what all hold alike (drift.py)
    drains: int = BUSY  # what drains offer (drains.py)

    def pack(self) -> bytes:
        return _BESIDE.pack(self.step, self.every, self.alike, self.drains) + self.message.encode()

    @classmethod
    def unpack(cls, packed: bytes) -> "Posted":
        beside = _BESIDE.unpack_from(packed)
        return cls(_core.GroupMessage.decode(packed[_BESIDE.size :]), *beside)

    @property
    def number(self) -> int:
        """The number of the epoch."""
        _, number = self.message.epoch
        return number

    @property
    def is_last(self) -> bool:
        """Whether a rank leaves, or has left: nothing is saved any more."""
        return self.step == LEAVES


def decision_key(number: int, rank: int) -> str:
    """Each rank has a copy, and takes it away."""
    return f"decision/{number}/{rank}"


def relay_box(first: int) -> str:
    """The box of the relay that this rank has."""
    return f"{BOX}/of-{first}"
