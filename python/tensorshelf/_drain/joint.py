"""What one object says of a version of a whole group: it is there, or the version is not.

    group/SEQUENCE-GENERATION-TOKEN         the newest has the highest
    rank-N/manifests/..., rank-N/chunks/... the part of rank N, as a version of one shelf

It names the manifest of each rank's part, and the checksum of that.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tensorshelf._drain.manifest import (
    Name,
    damaged,
    facts_in,
    facts_of,
    group_in,
    is_hash,
    name_of,
    number_in,
    sealed,
    unsealed,
)
from tensorshelf._group.part import Part

FOLDER = "group"

_FORMAT = "tensorshelf drain of a group"


class Named(NamedTuple):
    """The part of one rank."""

    name: Name  # of its manifest, in the rank's folder
    hash: str  # of the bytes of that
    nbytes: int  # of its tensors


@dataclass(frozen=True)
class Joint:
    """A version of all ranks, whole. What is of one shelf is of rank 0's."""

    shelf: str  # the id of the shelf
    version: int
    step: int | None
    time_ns: int  # when it was persisted, since 1970
    metric: float | None
    milestone: bool
    group: Part
    parts: list[Named]  # by ranks

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def encode(self) -> bytes:
        about = {
            **facts_of(self),
            "group": self.group.state(),
            "parts": [[str(part.name), part.hash, part.nbytes] for part in self.parts],
        }
        return sealed(_FORMAT, about)


def decode(data: bytes, where: str) -> Joint:
    """Raises CorruptError for what is damaged, FormatTooNew for what a later release wrote."""
    return unsealed(_FORMAT, data, where, lambda about: _joint(about, where))


def _joint(about: dict[str, Any], where: str) -> Joint:
    group = group_in(about["group"])
    parts = []
    for text, hash, nbytes in about["parts"]:
        name = name_of(text)
        if name is None or not is_hash(hash):
            raise damaged(where)
        parts.append(Named(name, hash, number_in(nbytes)))
    if len(parts) != group.members:
        raise damaged(where)
    return Joint(
        **facts_in(about),
        group=group,
        parts=parts,
    )
