"""What one object says of a version that lies at a remote. It is there, or the version is not.

    manifests/SEQUENCE-GENERATION-TOKEN     the newest has the highest; see names below
    chunks/AB/ABCDEF...[.zlib|.zstd]        a piece, by the SHA-256 of its bytes before compression

A manifest is one line of JSON, and one with the SHA-256 of the first.

    sequence    counts the versions of a remote
    generation  counts the jobs that drained to it, one after the other
    token       random, of one of these jobs, so that two never write one name
"""

import contextlib
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from tensorshelf import _core
from tensorshelf._drain import codec
from tensorshelf._drain.layout import Part, Piece, Tensor, covers, size_of
from tensorshelf._group.part import Part as GroupPart
from tensorshelf._group.part import part_of_state
from tensorshelf._numbers import LARGEST
from tensorshelf._values._dtypes import carrier, is_known
from tensorshelf.errors import CorruptError, FormatTooNew

FOLDER = "manifests"
CHUNKS = "chunks"

_FACTS = ("shelf", "version", "step", "time_ns", "metric", "milestone")
_FORMAT = "tensorshelf drain"
_VERSION = 1
_NAME = re.compile(r"(\d{12})-(\d{6})-([0-9a-f]{16})")
_HASH = re.compile(r"[0-9a-f]{64}")
# What reading JSON raises where it says something else than was written, deeper or larger.
_NOT_AS_WRITTEN = (
    *(KeyError, TypeError, ValueError, AttributeError),
    *(OverflowError, RecursionError),
)
_T = TypeVar("_T")


class Name(NamedTuple):
    """The name of a manifest; the newest compares highest."""

    sequence: int
    generation: int
    token: str

    def __str__(self) -> str:
        return f"{self.sequence:012d}-{self.generation:06d}-{self.token}"

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self}"


def name_of(text: str) -> Name | None:
    """None for what is no name of a manifest."""
    found = _NAME.fullmatch(text)
    return None if found is None else Name(int(found[1]), int(found[2]), found[3])


class Stored(NamedTuple):
    """A piece at a remote."""

    hash: str  # of its bytes
    suffix: str  # how they are stored
    nbytes: int  # as stored

    @property
    def path(self) -> str:
        return f"{CHUNKS}/{chunk_name(self.hash, self.suffix)}"


def chunk_name(hash: str, suffix: str) -> str:
    """Within CHUNKS."""
    return f"{hash[:2]}/{hash}{suffix}"


def hash_of(data: Any) -> str:
    """The SHA-256 of a piece, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def is_hash(text: str) -> bool:
    """Whether it may be what ``hash_of`` gives."""
    return _HASH.fullmatch(text) is not None


@dataclass(frozen=True)
class Manifest:
    """A version, whole."""

    shelf: str  # the id of the shelf
    version: int
    step: int | None
    time_ns: int  # when it was persisted, since 1970
    metric: float | None
    milestone: bool
    group: GroupPart | None
    tensors: list[Tensor]
    pieces: list[Piece]
    stored: list[Stored]  # of each piece

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def encode(self) -> bytes:
        about = {
            **facts_of(self),
            "group": None if self.group is None else self.group.state(),
            "tensors": self.tensors,
            "pieces": [[*at, piece] for at, piece in zip(self.stored, self.pieces, strict=True)],
        }
        return sealed(_FORMAT, about)


def decode(data: bytes, where: str) -> Manifest:
    """Raises CorruptError for what is damaged, FormatTooNew for what a later release wrote."""
    return unsealed(_FORMAT, data, where, lambda about: _manifest(about, where))


def sealed(format: str, about: dict[str, Any]) -> bytes:
    """An object that says so, with its checksum."""
    about = {"format": format, "format_version": _VERSION, **about}
    line = json.dumps(about, separators=(",", ":")).encode()
    return b"%s\n%s\n" % (line, hash_of(line).encode())


def unsealed(format: str, data: bytes, where: str, made: Callable[[dict[str, Any]], _T]) -> _T:
    """What is made of what such an object says. Raises as ``decode``."""
    line, _, rest = data.partition(b"\n")
    if rest != hash_of(line).encode() + b"\n":
        raise damaged(where)
    try:
        about = json.loads(line)
        if about["format"] != format:
            raise damaged(where)
        if number_in(about["format_version"]) > _VERSION:
            raise FormatTooNew(
                f"{where} was written by a later tensorshelf", "Use that, or a later one."
            )
        return made(about)
    except FormatTooNew:
        raise
    except _NOT_AS_WRITTEN as error:
        raise damaged(where) from error


def _manifest(about: dict[str, Any], where: str) -> Manifest:
    tensors = list(itertools.starmap(_tensor_in, about["tensors"]))
    stored = [
        Stored(hash, suffix, number_in(nbytes)) for hash, suffix, nbytes, _ in about["pieces"]
    ]
    pieces = [tuple(Part(*map(number_in, part)) for part in parts) for *_, parts in about["pieces"]]
    if (
        len({tensor.name for tensor in tensors}) < len(tensors)
        or not covers(tensors, pieces)
        or not all(map(_may_be, stored, pieces))
    ):
        raise damaged(where)
    return Manifest(
        **facts_in(about),
        group=None if about["group"] is None else group_in(about["group"]),
        tensors=tensors,
        pieces=pieces,
        stored=stored,
    )


def _tensor_in(name: Any, dtype: Any, shape: Any, nbytes: Any, written: Any) -> Tensor:
    """One that a shelf can have. Raises ValueError and the like for another."""
    made = Tensor(
        text_in(name),
        text_in(dtype),
        tuple(map(number_in, shape)),
        number_in(nbytes),
        number_in(written),
    )
    if (
        not 0 < len(made.name.encode()) <= _core.MOST_NAME_BYTES
        or "\0" in made.name
        or len(made.shape) > _core.MOST_DIMS
        or not is_known(made.dtype)
        or math.prod(made.shape) * carrier(made.dtype).itemsize != made.nbytes
    ):
        raise ValueError(f"{made} is no tensor")
    return made


def _may_be(stored: Stored, piece: Piece) -> bool:
    """Whether a piece can be stored so: what is compressed is smaller."""
    if not is_hash(stored.hash) or stored.suffix not in codec.SUFFIXES:
        return False
    if stored.suffix == codec.PLAIN:
        return stored.nbytes == size_of(piece)
    return 0 < stored.nbytes < size_of(piece)


def number_in(found: Any) -> int:
    """Out of JSON, as the store counts: whole, 0 or more. Raises ValueError for another."""
    if type(found) is not int or not 0 <= found <= LARGEST:
        raise ValueError("no number of that kind")
    return found


def text_in(found: Any) -> str:
    """Out of JSON. Raises ValueError for what is none."""
    if not isinstance(found, str):
        raise ValueError("no text")
    return found


def group_in(found: Any) -> GroupPart:
    """Out of JSON. Raises ValueError, or CorruptError, for what is no part of a group."""
    part = part_of_state(found)
    if part.rank >= number_in(part.members) or max(part.epoch) > LARGEST:
        raise ValueError(f"{part} is no part")
    return part


def facts_of(made: Any) -> dict[str, Any]:
    """What objects say of a version, be it of a shelf or of a group: for JSON."""
    return {name: getattr(made, name) for name in _FACTS}


def facts_in(about: dict[str, Any]) -> dict[str, Any]:
    """Out of JSON. A metric that no other can be compared with is None."""
    step, metric, milestone = about["step"], about["metric"], about["milestone"]
    if not isinstance(milestone, bool):
        raise ValueError("neither true nor false")
    return {
        "shelf": text_in(about["shelf"]),
        "version": number_in(about["version"]),
        "step": None if step is None else number_in(step),
        "time_ns": number_in(about["time_ns"]),
        "metric": None if metric is None or not math.isfinite(metric) else float(metric),
        "milestone": milestone,
    }


def unpacked(data: bytes, stored: Stored, piece: Piece) -> bytes:
    """The bytes of a piece, as its object has them. Raises CorruptError where they are others."""
    if len(data) == stored.nbytes:
        with contextlib.suppress(CorruptError):
            made = codec.decode(data, stored.suffix, size_of(piece))
            if len(made) == size_of(piece) and hash_of(made) == stored.hash:
                return made
    raise CorruptError(
        f"{stored.path} is damaged: its bytes are not those that were drained",
        "Fetch another version, by its step; tensorshelf.drained() lists them.",
    )


def damaged(where: str) -> CorruptError:
    """For who reads it to raise."""
    return CorruptError(f"{where} is damaged", "Fetch another version, by its step.")
