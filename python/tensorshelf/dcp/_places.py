"""Where the shelves of a group lie: one for each rank, by one pattern."""

import os

from tensorshelf._options import encoded_path
from tensorshelf.errors import BadArgument

_RANK = "{rank}"


class Places:
    """The paths of a group's shelves: ``run.shelf`` is ``run.0.shelf``, ``run.1.shelf``, ...

    ``{rank}`` in the path says where else the number stands.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fsdecode(os.path.abspath(encoded_path(path)))
        root, end = os.path.splitext(self.path)
        self._pattern = self.path if _RANK in self.path else f"{root}.{_RANK}{end}"

    def of(self, rank: int) -> str:
        """The shelf of one rank."""
        return self._pattern.replace(_RANK, str(rank))

    def check(self, checkpoint_id: str | os.PathLike[str] | None) -> None:
        """Raises BadArgument for the path of another group of shelves."""
        if checkpoint_id is None or Places(checkpoint_id).path == self.path:
            return
        raise BadArgument(
            f"checkpoint_id={os.fspath(checkpoint_id)!r} is not the shelves' path, {self.path!r}",
            "Leave it out: each save is the next version of the same shelves. For others make a "
            "ShelfWriter or ShelfReader of their own.",
        )


def is_path(checkpoint_id: object) -> bool:
    """Whether it can be a path of shelves: no URL."""
    if not isinstance(checkpoint_id, (str, os.PathLike)):
        return False
    return "://" not in os.fspath(checkpoint_id)
