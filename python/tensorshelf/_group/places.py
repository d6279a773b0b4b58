"""Shelves of a group found by what they hold: for ranks whose numbers a launcher gives anew."""

import contextlib
import inspect
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from tensorshelf import _core
from tensorshelf._group.checked import path_of
from tensorshelf._group.council import Council
from tensorshelf._group.group import Group, check_group
from tensorshelf._group.offer import parts_of
from tensorshelf._group.part import Part
from tensorshelf._group.placing import Seen, Sight, Taken, placed
from tensorshelf._group.wire import Wire
from tensorshelf._open import open as open_shelf
from tensorshelf._options import encoded_path, new_options
from tensorshelf._shelf import Shelf
from tensorshelf.errors import BadArgument, ShelfError

_FIELD = "{part}"
_OPTIONS = inspect.signature(open_shelf).parameters.keys() - {"path", "mode"}


def open_part(path: str | os.PathLike[str], group: Group, **options: Any) -> Shelf:
    """Opens the shelf of the part that this rank is to go on with; ``group.rank`` says which.

        group = ts.Group(store, rank=rank, members=members, replicate=1)
        shelf = ts.open_part("/nvme/run.{part}.shelf", group, size="4GiB", in_flight=2)
        auto = shelf.autosave(group=group, model=model, optimizer=optimizer)

    ``path`` has "{part}" in the file's name, once. Each rank looks there for shelves of the group
    on its own node, whatever numbers a launcher gave the ranks this time, and all tell each other:
    each takes a part whose newest shelf lies on its node. A part that lies nowhere goes to a rank
    that is left over, which makes a new shelf; ``resume()`` has it back from its copy.
    ``group.rank`` is the number of the part from then on, and what data and generators are to go
    by. ``options`` are those of ``open()``, but for the mode.

    Every rank calls it, before ``autosave()``, and waits for all others; nothing is locked before.
    Raises the same on all ranks: BadArgument where shelves are of different jobs or of another
    number of ranks, or a file lies in the way of a new shelf, ShelfNotFound where a part without
    copies lies where no rank is left, and UnresolvedError where a rank did not come. What opening
    raises, it raises on that rank alone.
    """
    check_group(group)
    _check_options(options)
    given = os.path.abspath(path_of("path", path))
    folder, name = os.path.split(given)
    if given.count(_FIELD) != 1 or _FIELD not in name:
        raise BadArgument(
            f"{given} has no place for a part's number in its file name, or several",
            f'Give one, as in "run.{_FIELD}.shelf".',
        )
    group._refuse_second_places()
    place = _agreed(group, group._meet("open_part()"), folder, name)
    group._has_places = True
    group.rank = place.part
    found = place.path or os.path.join(folder, name.replace(_FIELD, str(place.part)))
    return open_shelf(found, "a", **options)


def _check_options(options: dict[str, Any]) -> None:
    """Before anything is told to other ranks: they would wait for this one."""
    if "mode" in options:
        raise BadArgument("open_part() opens what is there, or makes it", "Leave out mode=.")
    for unknown in options.keys() - _OPTIONS:
        raise BadArgument(
            f"{unknown}= is no option of open()", f"There are {', '.join(sorted(_OPTIONS))}."
        )


def _agreed(group: Group, wire: Wire, folder: str, name: str) -> Taken:
    council = Council(
        wire,
        group.rank,
        group.members,
        group.timeout,
        where=f"{folder} on {group._node}",
        asks="what they see",
        finds="who opens what",
        by="open_part()",
    )
    told = council.answer(
        lambda: Sight(group._node, list(_seen(folder, name))),
        lambda said: placed(
            [_sight(*each) for each in said], has_copies=group._replicas.replicate > 0
        ),
    )
    places = [Taken(*place) for place in told]
    group._is_numbered_anew = any(place.part != rank for rank, place in enumerate(places))
    return places[group.rank]


def _seen(folder: str, name: str) -> Iterator[Seen]:
    before, after = map(re.escape, name.split(_FIELD))
    pattern = re.compile(f"{before}(0|[1-9][0-9]*){after}")
    where = pathlib.Path(folder)
    for path in sorted(where.iterdir()) if where.is_dir() else ():
        found = pattern.fullmatch(path.name)
        if found:
            yield _looked_at(str(path), int(found[1]))


def _looked_at(path: str, number: int) -> Seen:
    """Takes no lock. A file of 0 bytes is no shelf yet."""
    try:
        if os.path.getsize(path) == 0:
            return Seen(path, number, [])
        options = new_options(None, "auto", None, None, None, None)
        core = _core.Shelf.open(
            path=encoded_path(path), mode=_core.Mode.read, options=options, progress=None
        )
        with contextlib.closing(core):
            return Seen(path, number, parts_of(core, path))
    except (ShelfError, OSError) as error:
        return Seen(path, number, [], str(error))


def _sight(node: str, files: list[Any]) -> Sight:
    """Out of JSON."""
    return Sight(node, [_decoded(*file) for file in files])


def _decoded(path: str, number: int, parts: list[list[Any]], unread: str | None) -> Seen:
    return Seen(path, number, [Part(*part) for part in parts], unread)
