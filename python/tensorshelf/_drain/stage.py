"""A version is pinned, read and let go: what a remote does meanwhile holds up nobody.

What was written since the last one goes to a spool, a file without a name in a local directory,
which ends with the process. The pin lasts as long as the reading, which asks the local medium
alone; hashing, too, comes behind it.
"""

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from tensorshelf import _core
from tensorshelf._drain.layout import Piece, Tensor, pieces_of, size_of
from tensorshelf._drain.side_by_side import for_each
from tensorshelf._group.part import KEY, Part, part_of_state
from tensorshelf._state.paths import RECORD
from tensorshelf._versions import RetainedVersion
from tensorshelf.errors import CorruptError, IoError, UnknownName


class Staged(NamedTuple):
    """A version, read."""

    shelf: str
    version: int
    step: int | None
    time_ns: int
    group: Part | None
    tensors: list[Tensor]
    ids: list[int]  # of these, in their shelf
    pieces: list[Piece]
    hashes: list[str | None]  # of each piece; None where it is not known yet
    spooled: dict[int, tuple[int, int]]  # offset and bytes, by the index of such a piece

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


Written = tuple[tuple[int, int], ...]  # the ids of a piece's tensors, and who wrote them last


class Hashes:
    """The hashes of pieces, by the versions that wrote their tensors: what is known is not read
    again.

    A version number means one thing within one opening of a shelf, and so do these. A tensor keeps
    its id where its name becomes another's.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Written, Piece], str] = {}

    def find(self, written: list[tuple[int, int]], piece: Piece) -> str | None:
        return self._known.get(_key(written, piece))

    def keep(self, staged: Staged) -> None:
        """Those of one version, in place of all others."""
        written = written_by(staged.ids, staged.tensors)
        keys = (_key(written, piece) for piece in staged.pieces)
        pairs = zip(keys, staged.hashes, strict=True)
        self._known = {key: hash for key, hash in pairs if hash is not None}


def written_by(ids: list[int], tensors: list[Tensor]) -> list[tuple[int, int]]:
    """What tells the values of tensors apart: which these are, and who wrote them last."""
    return [(id, tensor.written) for id, tensor in zip(ids, tensors, strict=True)]


def _key(written: list[tuple[int, int]], piece: Piece) -> tuple[Written, Piece]:
    by = tuple(written[part.tensor] for part in piece)
    return by, tuple(part._replace(tensor=0) for part in piece)


class Spool:
    """Bytes that wait to be sent. Any thread."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        with self._told():
            self._file: IO[bytes] = tempfile.TemporaryFile(  # noqa: SIM115 - close() ends it
                prefix="tensorshelf-", dir=folder, buffering=0
            )
        self._lock = threading.Lock()
        self._end = 0

    def add(self, data: Any) -> tuple[int, int]:
        """Where it lies."""
        nbytes = len(data)
        with self._lock:
            offset, self._end = self._end, self._end + nbytes
        view, at = memoryview(data), offset
        with self._told():
            while view.nbytes:
                done = os.pwrite(self._file.fileno(), view, at)
                view, at = view[done:], at + done
        return offset, nbytes

    def read(self, offset: int, nbytes: int) -> bytes:
        with self._told():
            data = os.pread(self._file.fileno(), nbytes, offset)
        if len(data) != nbytes:  # what was cut short would be drained as if it were the tensor's
            raise IoError(
                f"the spool in {self._folder} gave {len(data)} bytes of {nbytes}",
                "Name another local directory: Drain(spool=...).",
            )
        return data

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            number = error.errno or 0
            raise IoError(
                f"the spool in {self._folder} failed: {os.strerror(number)}",
                "Name a local directory with room for one version: Drain(spool=...).",
                number,
            ) from error

    def close(self) -> None:
        self._file.close()


def stage(
    core: _core.Shelf,
    version: int,
    *,
    known: Hashes,
    lies_there: Callable[[str, int], bool],
    in_group: bool,
    spool: Spool,
    threads: int,
    moved: Callable[[int], None],
) -> Staged:
    """Reads one version. ``moved`` is told of bytes that were read.

    Raises StaleError where it is retained no more, CorruptError for what fails its checksum.
    """
    pin = core.pin(version, copies=True)
    try:
        at = core.at(version)
        tensors, ids = _tensors(at)
        written = written_by(ids, tensors)
        pieces = list(pieces_of(tensors))
        refs = [at.find(tensor.name) for tensor in tensors]
        hashes: list[str | None] = [None] * len(pieces)
        spooled: dict[int, tuple[int, int]] = {}

        def read(index: int) -> None:
            piece = pieces[index]
            before = known.find(written, piece)
            if before is not None and lies_there(before, size_of(piece)):
                hashes[index] = before
                return
            data = np.empty(size_of(piece), np.uint8)
            at_byte = 0
            for part in piece:
                ref = refs[part.tensor]
                assert ref is not None
                ref._read_into(data[at_byte : at_byte + part.nbytes], part.offset)
                at_byte += part.nbytes
            spooled[index] = spool.add(data)
            moved(data.nbytes)

        for_each(range(len(pieces)), read, threads=threads)
        about = at.info()
        return Staged(
            shelf=core.info()["shelf_id"],
            version=version,
            step=about["step"],
            time_ns=about["time_ns"],
            group=_group_of(at) if in_group else None,
            tensors=tensors,
            ids=ids,
            pieces=pieces,
            hashes=hashes,
            spooled=spooled,
        )
    finally:
        del pin


def _tensors(at: _core.RetainedVersion) -> tuple[list[Tensor], list[int]]:
    found, ids = [], []
    for name in at.names():
        ref = at.find(name)
        assert ref is not None
        info = ref._info()
        found.append(Tensor(name, info.dtype, info.shape, info.nbytes, info.version))
        ids.append(info.id)
    return found, ids


def _group_of(at: _core.RetainedVersion) -> Part | None:
    """Whose part of which epoch it is, where a group saved it."""
    if at.find(RECORD) is None:
        return None
    try:
        return part_of_state(RetainedVersion(at, "").load(KEY)[KEY])
    except (UnknownName, CorruptError):  # nothing of that name, or something of a user's
        return None
