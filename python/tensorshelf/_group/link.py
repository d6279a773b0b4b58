"""Bytes from one rank to another, over a pair of gloo's that is our own."""

import datetime
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tensorshelf import _core
from tensorshelf._group.wire import Store, in_short
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import CorruptError, UnresolvedError

FRAME_BYTES = 8 << 20  # two of them lie in memory at each end

_OWNER, _KEEPER = range(2)
_SUM_BYTES = np.dtype(np.uint64).itemsize


class LinkLost(UnresolvedError):
    """The other end is gone, or too slow: what comes next is not known to be what was sent."""


class Link:
    """One end of it. Both are made at about the same time: each waits for the other. For one
    thread. Raises LinkLost where the other end is gone, or too slow for ``seconds``.

    A frame is on its way while the next one is filled, or the one before is used.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        keeps: bool,
        seconds: float,
        most: float | None = None,
        frame_bytes: int = FRAME_BYTES,
    ) -> None:
        import torch

        distributed: Any = torch.distributed
        end = _KEEPER if keeps else _OWNER
        self._other = _OWNER if keeps else _KEEPER
        self._rooms = [torch.empty(frame_bytes, dtype=torch.uint8) for _ in range(2)]
        self._sending: Any = None
        self._most = most  # bytes a second
        self._free_at = 0.0
        self._sum = 0
        own = distributed.PrefixStore(name, store)
        timeout = datetime.timedelta(seconds=seconds)
        try:
            self._pair = distributed.ProcessGroupGloo(own, end, 2, timeout)
        except RuntimeError as error:
            raise _gone(error) from error

    @property
    def frame(self) -> Array:
        """What is sent next, to be filled."""
        room: Array = self._rooms[0].numpy()
        return room

    def send(self, nbytes: int) -> None:
        """So many bytes of ``frame``, which is another one then."""
        self._sum = _core.checksum(self.frame[:nbytes], self._sum)
        self._wait_for_rate(nbytes)
        self.wait_sent()
        self._sending = self._begun(self._pair.send, self._rooms[0], nbytes)
        self._rooms.reverse()

    def send_sum(self, *, right: bool, wait: bool = True) -> None:
        """Sends the sum of all that was sent; a wrong one, where that was not what was meant."""
        self.frame[:_SUM_BYTES].view(np.uint64)[0] = self._sum ^ (0 if right else 1)
        self.send(_SUM_BYTES)
        if wait:
            self.wait_sent()
        self._sum = 0

    def receive(self, sizes: Iterable[int]) -> Iterator[Array]:
        """Frames, as they were sent; each may be used until the next one is asked for."""
        coming: tuple[Any, Any, int] | None = None
        for nbytes in sizes:
            room = self._rooms[0]
            self._rooms.reverse()
            begun = self._begun(self._pair.recv, room, nbytes)
            if coming is not None:
                yield self._come(*coming)
            coming = begun, room, nbytes
        if coming is not None:
            yield self._come(*coming)

    def check_sum(self) -> None:
        """Raises CorruptError where something came otherwise than it was sent."""
        total = self._sum
        (frame,) = self.receive([_SUM_BYTES])
        self._sum = 0
        if int(frame.view(np.uint64)[0]) != total:
            raise CorruptError(
                "what another rank sent did not come as it was sent",
                "The next save sends it again. Where it stays so, look for the network's faults.",
            )

    def _come(self, begun: Any, room: Any, nbytes: int) -> Array:
        _wait(begun)
        frame: Array = room.numpy()[:nbytes]
        self._sum = _core.checksum(frame, self._sum)
        return frame

    def wait_sent(self) -> None:
        """Until the other end has it."""
        sending, self._sending = self._sending, None
        if sending is not None:
            _wait(sending)

    def _begun(self, call: Any, room: Any, nbytes: int) -> Any:
        try:
            return call([room[:nbytes]], self._other, 0)
        except RuntimeError as error:
            raise _gone(error) from error

    def _wait_for_rate(self, nbytes: int) -> None:
        if self._most is None:
            return
        now = time.monotonic()
        time.sleep(max(0.0, self._free_at - now))
        self._free_at = max(now, self._free_at) + nbytes / self._most


def _wait(begun: Any) -> None:
    try:
        begun.wait()
    except RuntimeError as error:
        raise _gone(error) from error


def _gone(error: RuntimeError) -> LinkLost:
    return LinkLost(
        f"the rank at the other end does not take or give what it should: {in_short(error)}",
        "Look for what became of it, and start the job anew. Group(timeout=) says how long to "
        "wait for it.",
    )


class Links:
    """Makes those of one start of a group. ``own``: the store's connection is theirs alone while
    they are made, and they need no further one.
    """

    def __init__(
        self, store: Store, prefix: str, *, seconds: float, most: float | None, own: bool = False
    ) -> None:
        self._store = store
        self._own = own
        self._prefix = prefix
        self._seconds = seconds
        self._most = most

    def made(self, name: str, *, keeps: bool, frame_bytes: int = FRAME_BYTES) -> Link:
        """One end; ``keeps`` says which."""
        return Link(
            self._store if self._own else self._store.clone(),
            f"{self._prefix}{name}",
            keeps=keeps,
            seconds=self._seconds,
            most=self._most,
            frame_bytes=frame_bytes,
        )
