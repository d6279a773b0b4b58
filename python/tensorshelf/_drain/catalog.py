"""The versions that lie at a remote."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from tensorshelf._drain import manifest
from tensorshelf._drain.manifest import Manifest, Name
from tensorshelf._drain.remote import Remote
from tensorshelf._group.part import Part
from tensorshelf.errors import CorruptError

Epoch = tuple[str, int, int, int]  # job, members, generation, number

_RANK = re.compile(r"rank-(\d+)")


def rank_folder(rank: int) -> str:
    """Of the part of one rank of a group."""
    return f"rank-{rank}"


def ranks_at(remote: Remote) -> list[int]:
    """Those that a group has drained there."""
    return sorted(int(found[1]) for name in remote.folders() if (found := _RANK.fullmatch(name)))


class Entry(NamedTuple):
    """One version; the newest compares highest by its name."""

    name: Name
    manifest: Manifest


class Catalog:
    """Of one remote, kept from one look to the next: a manifest never changes. For one thread."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._known: dict[Name, Manifest] = {}
        self.damaged: set[Name] = set()

    def look(self) -> list[Entry]:
        """All whole ones, the oldest first. What somebody deletes meanwhile is left out."""
        names = names_at(self._remote)
        self.damaged = set()
        known: dict[Name, Manifest] = {}
        for name in names:
            found = self._known.get(name) or self._read(name)
            if found is not None:
                known[name] = found
        self._known = known
        return self.entries()

    def entries(self) -> list[Entry]:
        """Those that the last look found, and what was added since."""
        return [Entry(*item) for item in sorted(self._known.items())]

    def add(self, name: Name, made: Manifest) -> None:
        """One that was just put there."""
        self._known[name] = made

    def _read(self, name: Name) -> Manifest | None:
        try:
            return manifest.decode(self._remote.read(name.path), name.path)
        except FileNotFoundError:
            return None
        except CorruptError:
            self.damaged.add(name)
            return None


def names_at(remote: Remote) -> list[Name]:
    """Of all manifests, the oldest first."""
    return sorted(filter(None, map(manifest.name_of, remote.sizes(manifest.FOLDER))))


def epoch_of(part: Part) -> Epoch:
    """What all ranks have alike of one save."""
    return part.job, part.members, part.generation, part.number


def in_common(ranks: Iterable[list[Entry]]) -> set[Epoch]:
    """Of which all members of the group have their parts."""
    had: dict[Epoch, set[int]] = {}
    for entries in ranks:
        for entry in entries:
            if (part := entry.manifest.group) is not None:
                had.setdefault(epoch_of(part), set()).add(part.rank)
    return {epoch for epoch, by in had.items() if by == set(range(epoch[1]))}
