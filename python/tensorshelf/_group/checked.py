"""What a group, and what reads its shelves, is given: checked before anything is done.

What cannot be is BadArgument, whatever its type: else a wrong one of a single rank would be met
later, where the other ranks wait for it.
"""

import numbers
import operator
import os
from collections.abc import Iterable
from typing import Any

from tensorshelf._group.wire import Store
from tensorshelf._options import encoded_path
from tensorshelf.errors import BadArgument

_LONGEST = 10**7  # seconds
_ASKED = tuple(name for name in vars(Store) if not name.startswith("_"))  # of a store


def check_store(store: Any) -> Store:
    """One of torch.distributed's, or what has all that is asked of one."""
    lacks = [name for name in _ASKED if not callable(getattr(store, name, None))]
    if lacks:
        raise BadArgument(
            f"store={store!r} is no store of torch.distributed: it has no {lacks[0]}()",
            "Use one, such as TCPStore; or none, for the ranks of torch.distributed.",
        )
    found: Store = store
    return found


def rank_of(rank: Any, members: Any) -> tuple[int, int]:
    """Both, as numbers."""
    remedy = "Ranks count from 0 to members - 1."
    count = _whole(members)
    if count is None:
        raise BadArgument(f"members={members!r} is no number of ranks", remedy)
    found = _whole(rank)
    if found is None or not 0 <= found < count:
        raise BadArgument(f"rank={rank!r} of members={members!r} is none of them", remedy)
    return found, count


def copies_of(replicate: Any, members: int) -> int:
    """How many there are to be of each part."""
    count = _whole(replicate)
    if count is None or count < 0:
        raise BadArgument(f"replicate={replicate!r} is no number of copies", "Use 0 or more.")
    if count >= members:
        raise BadArgument(
            f"replicate={count} copies need as many other ranks, and there are {members - 1}",
            "Use less.",
        )
    return count


def socket_of(socket: Any) -> int | None:
    """Its number within a node."""
    if socket is None:
        return None
    number = _whole(socket)
    if number is None or number < 0:
        raise BadArgument(f"socket={socket!r} is no number of one", "Use 0 or more, or None.")
    return number


def seconds_of(timeout: Any) -> float:
    """That ranks wait for each other."""
    is_number = isinstance(timeout, numbers.Real) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= _LONGEST:
        raise BadArgument(
            f"timeout={timeout!r} is no time to wait",
            f"Give seconds above 0, and {_LONGEST:,} at most.",
        )
    return float(timeout)


def name_of(what: str, given: Any) -> str | None:
    """The name of what ranks have in common, such as a node; None where none was given."""
    if given is not None and not isinstance(given, str):
        raise BadArgument(
            f"{what}={given!r} is no name", f"Use a str, such as {what}={str(given)!r}, or None."
        )
    return given


def _whole(given: Any) -> int | None:
    """An int, of NumPy's too; None for what is none."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None


def path_of(what: str, given: Any) -> str:
    """With its home directory, where it begins with one."""
    try:
        os.fspath(given)
    except TypeError:
        raise BadArgument(
            f"{what}={given!r} is not a path", "Use a str or a pathlib.Path."
        ) from None
    return os.fsdecode(encoded_path(given))


def check_paths(paths: Any) -> None:
    """Raises BadArgument for what cannot be the paths of the shelves of all ranks."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise BadArgument(
            f"{paths!r} is one path", "Give a list of the paths of all ranks, as glob.glob() does."
        )
    if not isinstance(paths, Iterable):
        raise BadArgument(
            f"paths={paths!r} are not paths", "Give a list of the paths of all ranks."
        )
