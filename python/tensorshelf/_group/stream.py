"""A version of a shelf, or what it changed, from the shelf of one rank into that of another.

What is to come is said first (Contents): over the link, for of many tensors that is longer than a
message of a store may be. The bytes follow in frames, cut as both ends compute from that, each of
them read and checked where it lies, and a checksum of all.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorshelf import _core
from tensorshelf._group.link import FRAME_BYTES, Link, LinkLost
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import CorruptError, ShelfError

_LENGTH_BYTES = 8
_SAID_BYTES = FRAME_BYTES  # of what is to come, in a frame
_CHUNK = _core.CHUNK_BYTES  # a checksum is of one: none is cut, for it would be checked twice


class SentTensor(NamedTuple):
    """What is sent of a tensor."""

    name: str
    dtype: str
    shape: list[int]
    runs: list[tuple[int, int]]  # offset and length, in bytes


class Contents(NamedTuple):
    """What is sent, and what goes."""

    whole: bool  # what is not among the tensors goes, too
    erased: list[str]
    tensors: list[SentTensor]

    def nbytes(self) -> int:
        return sum(length for tensor in self.tensors for _, length in tensor.runs)


def tell(link: Link, contents: Contents) -> None:
    """What is sent next."""
    said = np.frombuffer(json.dumps(contents).encode(), np.uint8)
    link.frame[:_LENGTH_BYTES].view(np.uint64)[0] = len(said)
    link.send(_LENGTH_BYTES)
    for begin in range(0, len(said), _SAID_BYTES):
        piece = said[begin : begin + _SAID_BYTES]
        link.frame[: len(piece)] = piece
        link.send(len(piece))
    link.send_sum(right=True, wait=False)


def told(link: Link) -> Contents:
    """What ``tell`` said. Raises LinkLost where it did not come so: what follows is not known."""
    (length,) = (int(frame.view(np.uint64)[0]) for frame in link.receive([_LENGTH_BYTES]))
    sizes = [min(_SAID_BYTES, length - begin) for begin in range(0, length, _SAID_BYTES)]
    said = b"".join(frame.tobytes() for frame in link.receive(sizes))
    try:
        link.check_sum()
    except CorruptError as error:
        raise LinkLost(error.what, "Start the job anew.") from error
    whole, erased, tensors = json.loads(said)
    return Contents(whole, erased, [SentTensor(*tensor) for tensor in tensors])


class Version(Protocol):
    """A version of a shelf: at() of the native module gives one."""

    def names(self) -> list[str]: ...

    def find(self, name: str) -> _core.RetainedTensor | None: ...


def all_of(version: Version) -> Contents:
    """The whole of it."""
    return Contents(True, [], [_tensor(version, name) for name in version.names()])


def changes(core: _core.Shelf, before: int, after: int) -> Contents:
    """What makes ``after`` of ``before``. Raises StaleError where one of them cannot be read."""
    diff, version = core.diff(before, after), core.at(after)
    made = [_tensor(version, name) for name in diff["created"]]
    changed = [_tensor(version, name, chunks) for name, chunks in diff["changed"].items()]
    erased = set(diff["erased"]).difference(diff["created"])
    return Contents(False, sorted(erased), made + changed)


def _tensor(version: Version, name: str, chunks: list[int] | None = None) -> SentTensor:
    found = version.find(name)
    assert found is not None
    info = found._info()
    runs = [(0, info.nbytes)] if info.nbytes else []
    if chunks is not None:
        runs = list(_runs(chunks, info.nbytes))
    return SentTensor(name, info.dtype, list(info.shape), runs)


def _runs(chunks: list[int], nbytes: int) -> Iterator[tuple[int, int]]:
    """Runs of bytes, one for chunks side by side: where each begins, and how long it is."""
    begin = end = -1
    for chunk in sorted(chunks):
        if chunk * _CHUNK != end:
            if begin >= 0:
                yield begin, end - begin
            begin = chunk * _CHUNK
        end = min((chunk + 1) * _CHUNK, nbytes)
    if begin >= 0:
        yield begin, end - begin


class _Stretch(NamedTuple):
    tensor: int  # among those of the contents
    offset: int
    nbytes: int


def _frames(contents: Contents) -> Iterator[list[_Stretch]]:
    frame: list[_Stretch] = []
    room = FRAME_BYTES
    for number, tensor in enumerate(contents.tensors):
        for begin, length in tensor.runs:
            offset, left = begin, length
            while left:
                nbytes = left if left <= room else room - room % _CHUNK
                if nbytes:
                    frame.append(_Stretch(number, offset, nbytes))
                    offset, left, room = offset + nbytes, left - nbytes, room - nbytes
                else:
                    yield frame
                    frame, room = [], FRAME_BYTES
    if frame:
        yield frame


def send(
    link: Link,
    version: Version,
    contents: Contents,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """The bytes of it. Raises what reading them did, and the other end hears of that: it gets as
    many as it waits for, and a checksum of others. Raises LinkLost where it is stopped.
    """
    found: list[_core.RetainedTensor] = []
    for tensor in contents.tensors:
        one = version.find(tensor.name)
        assert one is not None
        found.append(one)
    damaged: ShelfError | None = None
    for frame in _frames(contents):
        if stopped():
            raise LinkLost("this rank leaves its group", "Start the job anew.")
        at, values = 0, link.frame
        for piece in frame:
            room = values[at : at + piece.nbytes]
            at += piece.nbytes
            try:
                if damaged is None:
                    found[piece.tensor]._read_into(room, piece.offset)
            except ShelfError as error:
                damaged = error
        link.send(at)
    link.send_sum(right=damaged is None)
    if damaged is not None:
        raise damaged


def receive(link: Link, shelf: _core.Shelf, session: _core.Session, contents: Contents) -> None:
    """Assigns them, and persists nothing. Where it raises what the shelf refused, all has come that
    was sent; where CorruptError, what was assigned is to be discarded.
    """
    pieces = _Stretches(link, contents)
    try:
        names = {tensor.name for tensor in contents.tensors}
        gone = set(shelf.names()).difference(names) if contents.whole else contents.erased
        for name in sorted(gone):
            shelf.erase(name)
        for number, tensor in enumerate(contents.tensors):
            with _assignment(shelf, session, tensor) as assignment:
                for offset, values in pieces.of(number):
                    assignment._write(values, offset)
    except BaseException:
        pieces.drop()
        with contextlib.suppress(ShelfError):
            link.check_sum()
        raise
    link.check_sum()


class _Stretches:
    """As they come, in their order."""

    def __init__(self, link: Link, contents: Contents) -> None:
        self._coming = _received(link, contents)
        self._next = next(self._coming, None)

    def of(self, tensor: int) -> Iterator[tuple[int, Array]]:
        while self._next is not None and self._next[0].tensor == tensor:
            piece, values = self._next
            yield piece.offset, values
            self._next = next(self._coming, None)

    def drop(self) -> None:
        """All that is to come still: it is sent, whatever became of it here."""
        while self._next is not None:
            self._next = next(self._coming, None)


def _received(link: Link, contents: Contents) -> Iterator[tuple[_Stretch, Array]]:
    sizes = (sum(piece.nbytes for piece in frame) for frame in _frames(contents))
    for frame, values in zip(_frames(contents), link.receive(sizes), strict=True):
        at = 0
        for piece in frame:
            yield piece, values[at : at + piece.nbytes]
            at += piece.nbytes


def _assignment(shelf: _core.Shelf, session: _core.Session, tensor: SentTensor) -> Any:
    there = shelf.find(tensor.name)
    if there is None:
        return shelf.create_with(session, tensor.name, tensor.dtype, tensor.shape)
    info = there._info()
    if (info.dtype, list(info.shape)) != (tensor.dtype, tensor.shape):
        shelf.erase(tensor.name)
        return _assignment(shelf, session, tensor)
    return _core.Assignment(there, session)
