"""Copies of this rank's part with other ranks, so that a shelf that is lost can be had back.

A copy is a shelf: it has the tensors that the part has, and what is prepared here is prepared there
with the same mark before this rank votes. So whoever starts the job next decides on it as on the
rank's own shelf (I14), and goes on from it where that is lost.

The owner of a part asks, over the group's store: put, commit or abandon, renew, fetch, bye.
The keeper (kept.py) answers what moves bytes, which go over a link.
"""

import contextlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tensorshelf import _core
from tensorshelf._assignments import Assignments
from tensorshelf._group import stream
from tensorshelf._group.council import error_of
from tensorshelf._group.link import Link, LinkLost, Links
from tensorshelf._group.part import Part
from tensorshelf._group.wire import Wire, in_short
from tensorshelf.errors import CorruptError, ShelfError, StaleError, UnresolvedError

SENT = "/sent"  # behind the key of an answer: of what was sent behind that


class CopiedShelf(Protocol):
    """What is asked of a rank's own shelf."""

    _assignments: Assignments
    _core: _core.Shelf


class Pair(NamedTuple):
    """Whose part, and who keeps a copy of it."""

    owner: int
    keeper: int

    def box(self) -> str:
        return f"asked/{self.owner}/{self.keeper}"

    def answer(self, number: int) -> str:
        return f"answer/{self.owner}/{self.keeper}/{number}"

    def link(self) -> str:
        return f"link/{self.owner}/{self.keeper}"


class Copy:
    """The copy of this rank's part with one keeper, on that node. For one thread at a time."""

    def __init__(self, pair: Pair, wire: Wire, seconds: float, links: Links, node: str) -> None:
        self.pair = pair
        self._keeper = f"rank {pair.keeper} ({node})"
        self._wire = wire
        self._seconds = seconds
        self._links = links
        self._link: Link | None = None
        self._asked = 0
        self._lost: ShelfError | None = None
        self.holds: int | None = None  # the version of this rank's shelf that it has
        self.epoch: int | None = None  # that it has committed, as far as is known

    def put(self, shelf: _core.Shelf, part: Part, step: int) -> int:
        """What this rank has prepared is prepared there, too. Returns how many bytes were sent;
        raises what kept it from being so.
        """
        prepared = shelf.prepared()
        assert prepared is not None
        version: int = prepared["version"]
        contents = self._contents(shelf, version)
        self._exchange(
            {"do": "put", "mark": part.mark().decode(), "step": step},
            lambda link: stream.send(link, shelf.at(version), contents),
            contents,
        )
        return contents.nbytes()

    def renew(self, shelf: _core.Shelf, epoch: int, stopped: Callable[[], bool]) -> int:
        """Makes the copy what the shelf is, which is of that epoch. Returns how many bytes were
        sent; raises what kept it from being so, and the copy is what it was.
        """
        version = shelf.version
        contents = stream.all_of(shelf.at(version))
        self._exchange(
            {"do": "renew", "step": shelf.step},
            lambda link: stream.send(link, shelf.at(version), contents, stopped),
            contents,
        )
        self.holds, self.epoch = version, epoch
        return contents.nbytes()

    def decided(self, part: Part, version: int | None) -> None:
        """What was put of the part is committed, with that number here; None: it is dropped."""
        decision = "abandon" if version is None else "commit"
        self._ask({"do": decision, "mark": part.mark().decode()})
        if version is not None:
            self.holds, self.epoch = version, part.number

    def fetch(self, shelf: CopiedShelf) -> None:
        """Makes the shelf what the copy is, by a version of its own. Raises what kept it from that,
        and nothing has changed.
        """
        core, session = shelf._core, shelf._assignments.session
        try:
            self._ask({"do": "fetch"})
            answer = self._answer()
            contents = stream.told(self._linked())
            damaged: CorruptError | None = None
            try:
                stream.receive(self._linked(), core, session, contents)
            except CorruptError as error:
                damaged = error
            self._answer(SENT)  # raises what the keeper met: that is why
            if damaged is not None:
                raise damaged
            core.persist(session, answer["step"])
        except BaseException as error:
            try:
                core.discard(session)
            except ShelfError as second:
                error.add_note(f"What came of the copy stays assigned: {second}")
            if isinstance(error, ShelfError) and not isinstance(error, LinkLost):
                raise
            if not isinstance(error, (RuntimeError, TimeoutError)):
                raise
            # As in _exchange: what is on its way would be taken for what comes next.
            self._lost = self._told(error)
            raise self._lost from error
        self.holds = core.version

    def bye(self) -> None:
        """Asks no more."""
        self._ask({"do": "bye"})

    def _contents(self, shelf: _core.Shelf, version: int) -> stream.Contents:
        if self.holds is not None:
            with contextlib.suppress(StaleError):  # something was committed beside the group
                return stream.changes(shelf, self.holds, version)
        return stream.all_of(shelf.at(version))

    def _exchange(self, asked: dict[str, Any], send: Any, contents: stream.Contents) -> None:
        if self._lost is not None:
            raise self._lost
        try:
            self._ask(asked)
            stream.tell(self._linked(), contents)
            send(self._linked())
            self._answer()
        except Exception as error:
            self.holds = None  # nobody knows what it has: the next is sent whole
            if isinstance(error, ShelfError) and not isinstance(error, LinkLost):
                raise
            # What is on its way, and was not taken, would be taken for what comes next.
            self._lost = self._told(error)
            raise self._lost from error

    def _ask(self, asked: dict[str, Any]) -> None:
        self._asked += 1
        self._wire.post(self.pair.box(), json.dumps(asked | {"number": self._asked}).encode())

    def _answer(self, to: str = "") -> dict[str, Any]:
        key = self.pair.answer(self._asked) + to
        answer: dict[str, Any] = json.loads(self._wire.take(key, seconds=self._seconds))
        self._wire.drop(key)
        if "error" in answer:
            raise error_of(answer["error"], before=f"{self._keeper}: ")
        return answer

    def _linked(self) -> Link:
        if self._link is None:
            self._link = self._links.made(self.pair.link(), keeps=False)
        return self._link

    def _told(self, error: Exception) -> ShelfError:
        return UnresolvedError(
            f"{self._keeper}, which keeps a copy of the part of rank {self.pair.owner}, "
            f"does not answer: {in_short(error)}",
            "Start the job anew: it goes on from the version before.",
        )
