"""Which version the drains of all ranks copy next, as votes and decisions carry it.

A vote says of the rank's drain that it is BUSY, or else a number, 1 or more; rank 0's number is
told with the decision where all gave one, and says NOT_DUE where nothing is to be drained.
"""

from typing import Protocol

BUSY = 0
NOT_DUE = -1


class Drains(Protocol):
    """What the group asks and tells a rank's drain. Any thread; none of it waits."""

    def begin(self) -> None:
        """All ranks have agreed on what they go on from."""

    def offer(self, number: int, step: int) -> int:
        """For the vote on that epoch. What is no BUSY holds until ``over``."""

    def agreed(self, floor: int) -> None:
        """All ranks copy the version that was just flipped to; what rank 0 had offered."""

    def over(self) -> None:
        """The epoch is decided, or never will be."""

    def lag(self, ranks: tuple[int, ...]) -> None:
        """On rank 0, of those that were BUSY."""


class NoDrain:
    """What a rank without a drain has in the place of one."""

    def begin(self) -> None: ...

    def offer(self, number: int, step: int) -> int:
        return BUSY

    def agreed(self, floor: int) -> None:
        """No rank has one."""

    def over(self) -> None: ...

    def lag(self, ranks: tuple[int, ...]) -> None: ...


class Offers:
    """What the votes of all ranks say. ``members``: ranks that vote together have one offer. For
    one thread.
    """

    def __init__(self, members: list[list[int]]) -> None:
        self._member_of = {rank: at for at, ranks in enumerate(members) for rank in ranks}
        self._members = members
        self._found: dict[int, dict[int, int]] = {}  # by the numbers of epochs, and by members

    def heard(self, number: int, rank: int, offer: int) -> None:
        """With a vote on that epoch."""
        if rank in self._member_of:
            self._found.setdefault(number, {})[self._member_of[rank]] = offer

    def of_all(self, number: int) -> int:
        """One for all of them: BUSY where one is, or was not heard."""
        found = self._found.get(number, {})
        if len(found) < len(self._members) or BUSY in found.values():
            return BUSY
        return NOT_DUE if NOT_DUE in found.values() else found[0]

    def busy(self, number: int) -> tuple[int, ...]:
        """The ranks that are."""
        found = self._found.get(number, {})
        lists = (self._members[at] for at, offer in found.items() if offer == BUSY)
        return tuple(sorted(rank for ranks in lists for rank in ranks))

    def decided(self, number: int) -> None:
        """That epoch, and those before."""
        for each in [each for each in self._found if each <= number]:
            del self._found[each]
