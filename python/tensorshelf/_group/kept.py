"""Copies of other ranks' parts that this rank keeps: shelves of their own, beside its shelf."""

import contextlib
import itertools
import json
import logging
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tensorshelf import _core
from tensorshelf._assignments import Assignments
from tensorshelf._group import stream
from tensorshelf._group.copies import SENT, Pair
from tensorshelf._group.council import fields_of
from tensorshelf._group.link import Link, LinkLost, Links
from tensorshelf._group.wire import Wire, in_short
from tensorshelf._options import encoded_path, new_options
from tensorshelf.errors import BadArgument, ShelfError, UnresolvedError

logger = logging.getLogger("tensorshelf")

_END = b""  # in place of what is asked
_MOMENT = 1.0  # seconds


class KeptShelf:
    """One of them, opened, or made."""

    def __init__(self, path: str) -> None:
        self.path = path
        options = new_options(None, "auto", None, None, None, None)  # as it was made
        self.core = _core.Shelf.open(
            path=encoded_path(path), mode=_core.Mode.append, options=options, progress=None
        )
        self.session = Assignments(self.core, writable=True).session

    def resolve(self, decision: str) -> None:
        """ "commit" or "abandon"."""
        self.core.resolve(self.session, decision == "commit")

    def discard(self) -> None:
        """What was assigned and is in no version; behind an error, which tells more."""
        try:
            self.core.discard(self.session)
        except ShelfError as error:
            logger.error("group: %s keeps a part of what came: %s", self.path, error)


def kept_path(of: str, folder: str | None, owner: int) -> str:
    """The path of the copy beside a rank's own shelf. Raises BadArgument beside a device."""
    if folder is None and os.path.exists(of) and not os.path.isfile(of):
        raise BadArgument(
            f"{of} is no file, and a copy of another rank's part cannot lie beside it",
            "Group(replicas=) says in which folder they lie.",
        )
    return str(_folder(of, folder) / _name(of, owner))


def kept_beside(of: str, folder: str | None) -> dict[int, str]:
    """Those that are there, by their owners."""
    where, begin = _folder(of, folder), _name(of, "")
    found = {}
    for path in sorted(where.iterdir()) if where.is_dir() else ():
        owner = path.name.removeprefix(begin)
        if path.name.startswith(begin) and owner.isascii() and owner.isdecimal():
            found[int(owner)] = str(path)
    return found


def _folder(of: str, folder: str | None) -> pathlib.Path:
    return pathlib.Path(of).parent if folder is None else pathlib.Path(folder)


def _name(of: str, owner: int | str) -> str:
    return f"{pathlib.Path(of).name}.of-{owner}"


class Keeper:
    """A thread that keeps a copy of another rank's part, as that asks for it."""

    def __init__(self, pair: Pair, shelf: KeptShelf, wire: Wire, links: Links) -> None:
        self.pair = pair
        self._shelf = shelf
        self._wire = wire
        self._links = links
        self._link: Link | None = None
        self._undone: tuple[str, bytes] | None = None  # a decision that failed, and on what
        self._thread = threading.Thread(target=self._run, name="tensorshelf-keeper", daemon=True)

    def start(self) -> None:
        """Once whoever closes it has it: a signal may come behind this."""
        self._thread.start()

    def close(self, wire: Wire, seconds: float) -> None:
        """When the owner asks no more, or after so long."""
        if self._thread.ident is None:
            self._shelf.core.close()
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            wire.post(self.pair.box(), _END)
            self._thread.join(_MOMENT)

    def _run(self) -> None:
        try:
            for number in itertools.count(1):
                asked = self._wire.next_of(self.pair.box(), number)
                if asked == _END or not self._take(json.loads(asked)):
                    return
                self._wire.done_with(self.pair.box(), number)
        except (RuntimeError, LinkLost) as error:  # torch's, of its store; the owner is gone
            logger.debug("group: a copy of rank %d ends: %s", self.pair.owner, in_short(error))
        finally:
            try:
                self._shelf.core.close()
            except ShelfError as error:
                logger.error("group: %s: %s", self._shelf.path, error)

    def _take(self, asked: dict[str, Any]) -> bool:
        """False where that was the last."""
        match asked["do"]:
            case "put":
                self._answer(asked, self._put)
            case "renew":
                self._answer(asked, self._renew)
            case "fetch":
                self._answer(asked, self._fetch)
            case "commit" | "abandon" as decision:
                self._decide(decision, asked["mark"].encode())
            case _:
                return False
        return True

    def _answer(self, asked: dict[str, Any], do: Callable[[dict[str, Any]], None]) -> None:
        try:
            do(asked)
        except LinkLost:
            raise
        except ShelfError as error:
            self._tell(asked, {"error": fields_of(error)})
        except Exception as error:  # nobody would hear of it: who asked waits for an answer
            told = UnresolvedError(f"keeping a copy failed: {error!r}", "Start the job anew.")
            self._tell(asked, {"error": fields_of(told)})
            raise

    def _tell(self, asked: dict[str, Any], answer: dict[str, Any], to: str = "") -> None:
        self._wire.put(self.pair.answer(asked["number"]) + to, json.dumps(answer).encode())

    def _decide(self, decision: str, mark: bytes) -> None:
        """On what was put with that mark. Where the medium does not commit it, it is tried again
        before anything else is put, and else the next start does.
        """
        prepared = self._shelf.core.prepared()
        if prepared is None or prepared["id"] != mark:
            return
        try:
            self._shelf.resolve(decision)
        except ShelfError as error:
            self._undone = decision, mark
            logger.error("group: %s: %s", self._shelf.path, error)

    def _put(self, asked: dict[str, Any]) -> None:
        shelf = self._shelf
        if self._undone is not None:
            undone, self._undone = self._undone, None
            self._decide(*undone)
        with self._received():
            shelf.core.prepare(shelf.session, asked["step"], asked["mark"].encode())
        self._tell(asked, {})

    def _renew(self, asked: dict[str, Any]) -> None:
        """What comes was committed by all: it is a version here when it has come."""
        with self._received():
            self._shelf.core.persist(self._shelf.session, asked["step"])
        self._tell(asked, {})

    @contextlib.contextmanager
    def _received(self) -> Iterator[None]:
        """All that is sent is assigned; and dropped, where that or what follows raises."""
        shelf, contents = self._shelf, stream.told(self._linked())
        try:
            stream.receive(self._linked(), shelf.core, shelf.session, contents)
            yield
        except BaseException:
            shelf.discard()
            raise

    def _fetch(self, asked: dict[str, Any]) -> None:
        core = self._shelf.core
        version = core.at(core.version)
        contents = stream.all_of(version)
        self._tell(asked, {"step": core.step})
        try:
            stream.tell(self._linked(), contents)
            stream.send(self._linked(), version, contents)
        except LinkLost:
            raise
        except ShelfError as error:
            self._tell(asked, {"error": fields_of(error)}, SENT)
        else:
            self._tell(asked, {}, SENT)

    def _linked(self) -> Link:
        if self._link is None:
            self._link = self._links.made(self.pair.link(), keeps=True)
        return self._link
