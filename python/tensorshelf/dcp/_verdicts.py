"""Whether what a rank has prepared is committed: the coordinator's shelf alone says so.

A prepared part is committed where the newest version of the coordinator's shelf names its id, and
abandoned where that version, being another, does not. Where nobody can tell, it stays prepared.
"""

from collections.abc import Iterable

from tensorshelf._open import open as open_shelf
from tensorshelf._options import BlockOptions
from tensorshelf._shelf import Shelf
from tensorshelf.dcp import _record
from tensorshelf.dcp._shares import Word, coordinator_of
from tensorshelf.errors import CorruptError, ShelfError, UnresolvedError


def words_for(shelf: Shelf, ranks: Iterable[int]) -> list[Word]:
    """What the coordinator's shelf, as it is committed, says to ranks."""
    head = _record.find(shelf)
    shares = {} if head is None else head.shares
    identity = shelf.info().shelf_id
    return [Word(identity, shares[rank].id if rank in shares else None) for rank in ranks]


def word_read(path: str, rank: int, tier: str | None, block: BlockOptions | None) -> Word:
    """The same, read by the rank itself.

    Within a save it is as good as what comes with the plan: the coordinator had opened its shelf
    for writing before it sent any plan, so that what is read is durable, and it flips nothing
    before all have written.
    """
    with open_shelf(path, "r", tier=tier or "auto", block=block) as shelf:
        return words_for(shelf, [rank])[0]


def settle(shelf: Shelf, word: Word) -> None:
    """Ends what a rank has prepared, as the coordinator says.

    Raises UnresolvedError where another shelf than this coordinator's has to say it.
    """
    waiting = shelf.prepared
    if waiting is None:
        return
    if coordinator_of(waiting.id) != word.coordinator:
        raise stranger(shelf, f"the coordinator's shelf is {word.coordinator}")
    if waiting.id == word.committed:
        commit(shelf)
    else:
        shelf.resolve("abandon")


def commit(shelf: Shelf) -> None:
    """Commits what is prepared. Raises CorruptError where it is damaged meanwhile."""
    try:
        shelf.resolve("commit")
    except CorruptError as error:
        error.add_note(
            f"Its group has committed it, and cannot load it any more. "
            f"ts.open({shelf.info().path!r}).resolve('abandon') gives it up, so that saves go on."
        )
        raise


def refuse_prepared(shelf: Shelf) -> None:
    """For a coordinator, who prepares nothing: whoever did has to end it."""
    if shelf.prepared is not None:
        raise stranger(shelf, "a coordinator's shelf waits for nobody")


def refuse_part(shelf: Shelf) -> None:
    """For a coordinator: a shelf that holds another rank's part is not its own."""
    head = _record.find(shelf)
    if head is not None and not head.shares:
        raise not_coordinators(shelf.info().path)


def not_coordinators(path: str) -> CorruptError:
    """The error for a shelf in rank 0's place that has another rank's part of a save."""
    return CorruptError(
        f"{path} holds the part of another rank than 0, whose shelf belongs there",
        "Put the shelves back under the names that they had.",
    )


def stranger(shelf: Shelf, why: str) -> UnresolvedError:
    """The error for a prepared version whose decision cannot be had here."""
    waiting = shelf.prepared
    assert waiting is not None
    of = coordinator_of(waiting.id)
    whose = f"of a DCP save that shelf {of} coordinates" if of else "of no DCP save"
    return UnresolvedError(
        f"version {waiting.version} of {shelf.info().path} is prepared as part {waiting.id!r}, "
        f"{whose}, and {why}",
        "Where it was committed there, ts.open(path).resolve('commit'), else 'abandon'; or give "
        "another path, where this group has no shelves yet",
    )


def unreadable(shelf: Shelf, path: str, error: ShelfError) -> UnresolvedError:
    """The error for a rank that was told nothing and cannot look either."""
    waiting = shelf.prepared
    assert waiting is not None
    return UnresolvedError(
        f"version {waiting.version} of {shelf.info().path} is prepared, and whether its group "
        "committed it is not known: the planner gave a plan that it had kept, and the shelf of "
        f"rank 0 cannot be read from here ({path}: {error.what})",
        "Make that path readable from every rank, or use a planner without enable_plan_caching",
    )
