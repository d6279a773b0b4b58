"""The versions that lie at a remote."""

import re
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from tensorshelf._drain import joint, manifest
from tensorshelf._drain.joint import Joint
from tensorshelf._drain.manifest import Manifest, Name
from tensorshelf._drain.remote import Remote
from tensorshelf._group.part import Part
from tensorshelf.errors import CorruptError

Epoch = tuple[str, int, int, int]  # job, members, generation, number

_RANK = re.compile(r"rank-(\d+)")


class Version(Protocol):
    """What an object says of one, be it of a shelf or of a whole group."""

    @property
    def shelf(self) -> str: ...

    @property
    def step(self) -> int | None: ...

    @property
    def metric(self) -> float | None: ...

    @property
    def milestone(self) -> bool: ...


_V = TypeVar("_V", bound=Version)


def rank_folder(rank: int) -> str:
    """The folder that has the parts of one rank of a group."""
    return f"rank-{rank}"


def ranks_at(remote: Remote) -> list[int]:
    """Those that a group has drained there."""
    return sorted(int(found[1]) for name in remote.folders() if (found := _RANK.fullmatch(name)))


class Entry(NamedTuple, Generic[_V]):
    """One version; the newest compares highest by its name."""

    name: Name
    manifest: _V


class Catalog(Generic[_V]):
    """The versions in one folder of a remote, kept from one look to the next: what lies there never
    changes. For one thread.
    """

    def __init__(self, remote: Remote, folder: str, decode: Callable[[bytes, str], _V]) -> None:
        self._remote = remote
        self._folder = folder
        self._decode = decode
        self._known: dict[Name, _V] = {}
        self.damaged: set[Name] = set()

    def look(self) -> list[Entry[_V]]:
        """All whole ones, the oldest first. What somebody deletes meanwhile is left out."""
        names = names_at(self._remote, self._folder)
        self.damaged = set()
        known: dict[Name, _V] = {}
        for name in names:
            found = self._known.get(name) or self._read(name)
            if found is not None:
                known[name] = found
        self._known = known
        return self.entries()

    def entries(self) -> list[Entry[_V]]:
        """Those that the last look found, and what was added since."""
        return [Entry(*item) for item in sorted(self._known.items())]

    def add(self, name: Name, made: _V) -> None:
        """One that was just put there."""
        self._known[name] = made

    def _read(self, name: Name) -> _V | None:
        path = f"{self._folder}/{name}"
        try:
            return self._decode(self._remote.read(path), path)
        except FileNotFoundError:
            return None
        except CorruptError:
            self.damaged.add(name)
            return None


def manifests_at(remote: Remote) -> Catalog[Manifest]:
    """The catalog of versions of one shelf."""
    return Catalog(remote, manifest.FOLDER, manifest.decode)


def joints_at(remote: Remote) -> Catalog[Joint]:
    """The catalog of versions of a group."""
    return Catalog(remote, joint.FOLDER, joint.decode)


def names_at(remote: Remote, folder: str) -> list[Name]:
    """The names of all versions there, the oldest first."""
    return sorted(filter(None, map(manifest.name_of, remote.sizes(folder))))


def epoch_of(part: Part) -> Epoch:
    """What all ranks have alike of one save."""
    return part.job, part.members, part.generation, part.number


def in_common(ranks: Iterable[list[Entry[Manifest]]]) -> set[Epoch]:
    """The epochs of which all members of the group have their parts."""
    had: dict[Epoch, set[int]] = {}
    for entries in ranks:
        for entry in entries:
            if (part := entry.manifest.group) is not None:
                had.setdefault(epoch_of(part), set()).add(part.rank)
    return {epoch for epoch, by in had.items() if len(by) == epoch[1]}  # ranks are below that
