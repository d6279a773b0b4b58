"""The room of a shelf: what is free, made ahead, and given back."""

import math

from tensorshelf._info import CompactReport
from tensorshelf._mapping import TensorMapping
from tensorshelf._numbers import seconds_of
from tensorshelf._size import parse_size


class Roomy(TensorMapping):
    """What a shelf says of the room that it has, on all its media together, and does about it."""

    __slots__: tuple[str, ...] = ()

    @property
    def free(self) -> int:
        """Bytes there is room for without growing.

        A tensor takes 1 + keep + in_flight times its own size: twice, unless more was asked for.
        """
        return self._core.free_bytes

    def reserve(self, size: int | str) -> None:
        """Makes room ahead for tensors of ``size`` together: bytes, or text such as "10GiB".

        With all their slots, 1 + keep + in_flight times that: so the file grows once, now, and not
        during a run. ``free`` tells. Kept from the next ``persist()`` on. Raises ShelfFull where it
        does not fit: then nothing changed, but that some of several media may have grown.
        """
        self._assignments.refuse_within_edit("reserve()")
        self._core.reserve(parse_size(size))

    def compact(self, *, patience: float | None = 30.0) -> CompactReport:
        """Makes the file as small as what is in it, while it is used: after much was deleted.

        What lies far back moves to where there is room in front. Other threads go on meanwhile, and
        what they assign moves with their own commits; the rest is copied, and checked on the way.
        Handles, views and ``versions`` stay right. What a view, ``pin()`` or ``snapshot()`` holds
        stays where it is, and so do damaged tensors (``damaged``) and those that fit in no hole in
        front of them. A device or a pool keeps its size, and has its free room in one piece.

        Where nothing is uncommitted it makes versions of its own, with the same step. They take the
        place of those that ``keep`` had until then, and ``rollback()`` leads no further back. Else
        it waits for whoever has to ``persist()``, for ``patience`` seconds at most; None: for ever.
        Then it raises UncommittedError, and what was moved stays moved: ``persist()`` or
        ``discard()``, and call it again. For what is held it waits as ``persist()`` does. Beside a
        trainer that never rests between two saves some may stay behind.

        Raises BadArgument, ReadOnlyError, UnresolvedError, TransactionError within a transaction of
        this thread, and what ``persist()`` raises.
        """
        seconds = seconds_of(patience, "patience")
        self._assignments.refuse_within_edit("compact()")
        self._assignments.refuse_within_transaction("compact()")
        return CompactReport(**self._core.compact(math.inf if seconds is None else seconds))
