"""What the start of a job is called, by the ranks that are there now, and none of an older one.

A launcher may start a job anew over one and the same store, and what it says of the start itself
differs from node to node (torchrun counts a node's own failures). So rank 0 makes a name, and tells
it to whoever says hello by a word that nobody said before.
"""

import contextlib
import json
import secrets
import time

from tensorshelf._group.council import SLACK, error_of, fields_of, names_of
from tensorshelf._group.wire import Wire, of_store
from tensorshelf.errors import UnresolvedError

_FIRST_NAP, _LONGEST_NAP = 0.0005, 0.02  # seconds
_NAME = "which start of the job this is"


def name_of_start(wire: Wire, rank: int, members: int, seconds: float, by: str) -> str:
    """The same on all ranks, and no other start's. Blocks until all have come: they call ``by``.

    Raises UnresolvedError, on all that came, where one did not within that time.
    """
    if members == 1:
        return secrets.token_hex(8)
    with of_store(_NAME):
        if rank == 0:
            return _given(wire, members, seconds, by)
        return _told(wire, rank, seconds, by)


def _given(wire: Wire, members: int, seconds: float, by: str) -> str:
    name = secrets.token_hex(8)
    try:
        _welcome(wire, name, members, seconds, by)
    except BaseException as error:
        with contextlib.suppress(RuntimeError):  # the store may be what is gone
            wire.put(f"{name}/all", json.dumps(fields_of(error)).encode())
        raise
    wire.put(f"{name}/all", b"null")
    return name


def _welcome(wire: Wire, name: str, members: int, seconds: float, by: str) -> None:
    """Whoever says hello, until all are here: what an older start said is said anew."""
    answered: dict[int, bytes] = {}
    missing = list(range(1, members))
    end, nap = time.monotonic() + seconds, _FIRST_NAP
    while missing := [rank for rank in missing if not _is_here(wire, name, rank, answered)]:
        if time.monotonic() > end:
            raise UnresolvedError(
                f"within {seconds:g} s {len(missing)} of {members} ranks did not come: "
                f"{names_of(missing)}",
                f"All ranks call {by}. Group(timeout=) says how long to wait.",
            )
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP)


def _is_here(wire: Wire, name: str, rank: int, answered: dict[int, bytes]) -> bool:
    here = f"{name}/here/{rank}"
    if rank in answered and wire.has(here):
        wire.drop(here)
        return True
    if wire.has(_hello(rank)):
        word = wire.take(_hello(rank))
        if answered.get(rank) != word:
            answered[rank] = word
            wire.put(_welcome_key(word), name.encode())
    return False


def _told(wire: Wire, rank: int, seconds: float, by: str) -> str:
    word = secrets.token_hex(8).encode()
    wire.put(_hello(rank), word)
    try:
        name = wire.take(_welcome_key(word), seconds=seconds + SLACK).decode()
        wire.drop(_welcome_key(word))
        wire.put(f"{name}/here/{rank}", b"")
        failed = json.loads(wire.take(f"{name}/all", seconds=seconds + SLACK))
        wire.drop(_hello(rank))  # not before: rank 0 looks for it, and waits for what it has found
    except TimeoutError as error:
        raise UnresolvedError(
            f"rank 0 did not come within {seconds:g} s",
            f"All ranks call {by}, and are started anew together, not one alone. Group(timeout=) "
            "says how long to wait.",
        ) from error
    if failed is not None:
        raise error_of(failed)
    return name


def _hello(rank: int) -> str:
    return f"hello/{rank}"


def _welcome_key(word: bytes) -> str:
    return f"welcome/{word.decode()}"
