"""What is known of the assignments to one opened shelf: how many, and which edits are under way.

Shared by the shelf and all handles of its tensors. Tensors are told apart by their ids, which they
keep whatever they are called.
"""

import threading
import weakref
from typing import NamedTuple

from tensorshelf import _core
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import ReadOnlyError, TransactionError, UnsupportedError


class Edit(NamedTuple):
    """An ``edit()`` that was begun."""

    values: "weakref.ref[Array]"
    thread: int
    name: str  # of the tensor, when it was begun

    def is_under_way(self) -> bool:
        values = self.values()
        return values is not None and values.flags.writeable  # read-only once its block is left


class Assignments:
    """Those of one opened shelf, for as long as it or a handle lives. For any thread."""

    __slots__ = ("_shelf", "edits", "session", "writable")

    def __init__(self, shelf: _core.Shelf, *, writable: bool) -> None:
        self._shelf = shelf
        self.session = _core.Session()  # counts them
        self.edits: dict[int, Edit] = self.session.edits  # by the ids of their tensors
        self.writable = writable

    def refuse_read_only(self) -> None:
        """Raises before anything is said of a value that could not be assigned anyhow."""
        if not self.writable:
            self._shelf.reserve(0)  # which it refuses; where it does not, nothing changes

    def refuse_within_edit(self, what: str) -> None:
        """An edit in another thread is that thread's own, and comes with a later version."""
        for edit in list(self.edits.values()) if self.edits else ():
            if edit.is_under_way() and edit.thread == threading.get_ident():
                raise UnsupportedError(
                    f"{what} within the edit() of {edit.name!r} would leave its changes out",
                    "Leave the block first.",
                )

    def refuse_within_transaction(self, what: str) -> None:
        """Before anything is assigned that a commit of its own was to end."""
        if self.session.in_transaction():
            raise TransactionError(
                f"{what} would commit, and is called within a transaction of this thread",
                "Assign tensors within the block, which commits at its end; or call it outside.",
            )

    def refuse_overtaken(self, tensor: int, name: str, seen: int) -> None:
        """Raises where a handle, assigned by name, would give another value than it named.

        In ``shelf.a, shelf.b = shelf.b, shelf.a`` both handles are looked up first, and the second
        assignment would read what the first has written.
        """
        if self.session.assigned_since(tensor, seen):
            raise UnsupportedError(
                f"{name!r} was assigned after this handle of it was looked up (or discarded, "
                "or rolled back), and the value from before is gone: a handle is not a copy",
                f"To keep a value, take shelf[{name!r}].numpy() before the assignment. "
                f"For the present one, assign shelf[{name!r}]. What was assigned before "
                "this line stays assigned: discard() goes back to what was persisted.",
            )

    def refuse_edit(self, tensor: int, name: str) -> None:
        """Raises where no edit() of the tensor can begin: read-only, or one is under way."""
        if not self.writable:
            raise ReadOnlyError(
                f"{name!r} cannot be edited: the shelf is open for reading only",
                'Open it with mode="r+", or take .numpy(copy=True).',
            )
        found = self.edits.get(tensor)
        if found is not None and found.is_under_way():
            raise UnsupportedError(
                f"{name!r} is being edited already, and one of the edits would be lost",
                "Leave the first edit() before the next.",
            )

    def begin_edit(self, tensor: int, name: str, values: Array) -> None:
        """Within an assignment to the tensor, so that no other comes in between."""
        self.edits[tensor] = Edit(weakref.ref(values), threading.get_ident(), name)

    def finish_edit(self, tensor: int, name: str, values: Array) -> None:
        """Within the assignment that writes it back. Raises where another came in between."""
        last = self.edits.get(tensor)
        if last is None or last.values() is not values:
            raise UnsupportedError(
                f"{name!r} was assigned during its edit(), which is discarded",
                "Change the array that edit() gave, or assign after the block.",
            )
        del self.edits[tensor]

    def end_edit(self, tensor: int) -> None:
        """Lets an edit that is under way find out that the tensor has been assigned since."""
        if self.edits:
            self.edits.pop(tensor, None)
