"""Which ranks save pieces of what all hold alike: from where each runs and saves, without I/O.

``partition=True`` is for the most drives and the least contention. One writer fills a drive, for
that takes its data from memory by itself; a second one of the same socket would share that socket's
memory and way to the drive, and only cut the pieces smaller. So of each drive the lowest rank of
each socket writes. Where the medium is mapped it is CPUs that move the bytes, and every rank does.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from tensorshelf import _core
from tensorshelf.errors import BadArgument

Choice = bool | str | int  # what ``Group(partition=)`` takes

_SETS = tuple(_core.WriterSet.__members__)


class Site(NamedTuple):
    """Where a rank runs, and saves. Names are only compared."""

    node: str
    socket: int | None = None  # of the node; ranks of which that is not known count as on one
    drive: str | None = None  # of the node; None where CPUs move the bytes
    rack: str | None = None  # None: not known


def check_choice(choice: Choice, members: int) -> None:
    """Raises BadArgument for what chooses no writers of so many ranks."""
    if isinstance(choice, bool) or (isinstance(choice, str) and choice in _SETS):
        return
    if not isinstance(choice, int):
        names = ", ".join(f'"{name}"' for name in _SETS)
        raise BadArgument(
            f"partition={choice!r} chooses no writers",
            f"Use True or False, {names}, or how many ranks are to write.",
        )
    if not 0 < choice <= members:
        raise BadArgument(
            f"partition={choice} is no number of writers among {members} ranks",
            f"Use 1 to {members}, or False for none: each rank saves all that it has then.",
        )


def chosen(choice: Choice, sites: Sequence[Site]) -> list[int]:
    """The ranks that write, rising: with any writers rank 0 is one. ``sites`` are of all ranks."""
    if choice is False:
        return []
    nodes: list[Hashable] = [site.node for site in sites]
    which: _core.WriterSet | int = _core.WriterSet.per_socket
    if choice is True:  # each drive is as a node of its own
        nodes = [
            rank if site.drive is None else (site.node, site.drive)
            for rank, site in enumerate(sites)
        ]
    else:
        which = choice if isinstance(choice, int) else _core.WriterSet.__members__[choice]
    sockets = [(node, site.socket) for node, site in zip(nodes, sites, strict=True)]
    places = zip(_numbered(nodes), _numbered(sockets), strict=True)
    return _core.choose_writers(list(places), which)


def _numbered(names: Iterable[Hashable]) -> list[int]:
    """In the order in which they come first."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]
