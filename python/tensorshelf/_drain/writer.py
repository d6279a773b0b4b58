"""The names that one job gives to what it commits at a place, and that no other job does."""

import secrets
from collections.abc import Iterable

from tensorshelf._drain.catalog import names_at
from tensorshelf._drain.manifest import Name
from tensorshelf._drain.remote import Remote
from tensorshelf.errors import ShelfBusy


class Writer:
    """The names that one job gives in one folder. For one thread."""

    def __init__(self, remote: Remote, folder: str, shown: str) -> None:
        self._remote = remote
        self._folder = folder
        self._shown = shown  # the place, as errors name it
        self._token = secrets.token_hex(8)
        self._generation: int | None = None

    def begin(self, known: Iterable[Name]) -> None:
        """Behind what lies there; once."""
        if self._generation is None:
            self._generation = 1 + max((name.generation for name in known), default=0)

    def next_name(self) -> Name:
        """Raises ShelfBusy where another job has begun to drain there."""
        names = names_at(self._remote, self._folder)
        assert self._generation is not None
        mine = (self._generation, self._token)
        if any((name.generation, name.token) > mine for name in names):
            raise ShelfBusy(
                f"another job drains to {self._shown}, and has begun later",
                "Give each job a place of its own. This one drains no more.",
            )
        sequence = 1 + max((name.sequence for name in names), default=0)
        return Name(sequence, self._generation, self._token)
