"""What ranks do next is called, by those that are there now: its keys are no other thing's.

A launcher may start a job anew over one and the same store, a rank may have been interrupted in the
midst of a start, and what each counts by itself differs then. So rank 0 makes a name each time, and
tells it to whoever says hello by a word that nobody said before:

    rank 0                                   another rank
                                             hello/BY/RANK: a word, in place of an older one
    welcome/WORD: the name
                                             here/WORD
    all: when each rank's newest word is     waits for that
      here; and which words are older ones
"""

import contextlib
import json
import logging
import secrets
import time
from typing import NamedTuple

from tensorshelf._group import council
from tensorshelf._group.council import SLACK, error_of, fields_of, names_of
from tensorshelf._group.wire import Wire, of_store
from tensorshelf.errors import UnresolvedError

logger = logging.getLogger("tensorshelf")

_FIRST_NAP, _LONGEST_NAP = 0.0005, 0.02  # seconds
_NAME = "what ranks say to each other"


class Naming(NamedTuple):
    """One call that is to be named, as a rank sees it."""

    wire: Wire
    rank: int
    members: int
    seconds: float  # that ranks wait for each other
    by: str  # what all ranks call

    def name(self) -> str:
        """The same on all ranks, and no other call's. Blocks until all have come.

        Raises UnresolvedError, on all that came, where one did not within that time.
        """
        if self.members == 1:
            return secrets.token_hex(8)
        with of_store(_NAME):
            return self._given() if self.rank == 0 else self._told()

    # ---- rank 0

    def _given(self) -> str:
        name = secrets.token_hex(8)
        words: dict[int, str] = {}  # the newest of each rank
        older: list[str] = []
        try:
            self._await_all(name, words, older)
        except BaseException as error:
            with contextlib.suppress(RuntimeError):  # the store may be what is gone
                self._tell_all(name, fields_of(error), older)
            raise
        self._tell_all(name, None, older)
        for word in [*words.values(), *older]:
            self.wire.drop(_welcome(word))
            self.wire.drop(_here(name, word))
        return name

    def _tell_all(self, name: str, failed: list[object] | None, older: list[str]) -> None:
        self.wire.put(_all(name), json.dumps({"failed": failed, "older": older}).encode())

    def _await_all(self, name: str, words: dict[int, str], older: list[str]) -> None:
        missing = ranks = list(range(1, self.members))
        begin, nap, told = time.monotonic(), _FIRST_NAP, False
        while missing:
            for rank in missing:
                self._welcome_anew(name, rank, words, older)
            missing = [rank for rank in missing if not self._is_here(name, words.get(rank))]
            if not missing:  # who was here may have been interrupted, and have come again
                missing = [r for r in ranks if self._welcome_anew(name, r, words, older)]
            waited = time.monotonic() - begin
            if missing and waited > self.seconds:
                raise self._lack(missing, self.seconds)
            if missing and waited > council.TELL_AFTER and not told:
                told = True
                logger.warning("group: waiting: %s", self._lack(missing, waited))
            if missing:
                time.sleep(nap)
                nap = min(2 * nap, _LONGEST_NAP)

    def _lack(self, missing: list[int], seconds: float) -> UnresolvedError:
        return UnresolvedError(
            f"within {seconds:.3g} s {len(missing)} of {self.members} ranks did not come: "
            f"{names_of(missing)}",
            f"All ranks call {self.by}. Group(timeout=) says how long to wait: {self.seconds:g} s.",
        )

    def _welcome_anew(self, name: str, rank: int, words: dict[int, str], older: list[str]) -> bool:
        """Whether it said another word than before. What an older start said is answered, too."""
        if not self.wire.has(self._hello(rank)):
            return False
        word = self.wire.take(self._hello(rank)).decode()  # which nobody takes away
        before = words.get(rank)
        if word == before:
            return False
        if before is not None:
            older.append(before)
        words[rank] = word
        self.wire.put(_welcome(word), name.encode())
        return True

    def _is_here(self, name: str, word: str | None) -> bool:
        return word is not None and self.wire.has(_here(name, word))

    # ---- another rank

    def _told(self) -> str:
        word, seconds = secrets.token_hex(8), self.seconds + SLACK
        self.wire.put(self._hello(self.rank), word.encode())
        try:
            name = self.wire.take(_welcome(word), seconds=seconds).decode()
            self.wire.put(_here(name, word), b"")
            told = json.loads(self.wire.take(_all(name), seconds=seconds))
        except TimeoutError as error:
            raise UnresolvedError(
                f"rank 0 did not say within {self.seconds:g} s that all ranks had come",
                f"All ranks call {self.by}, and are started anew together, not one alone. "
                "Group(timeout=) says how long to wait.",
            ) from error
        if told["failed"] is not None:
            raise error_of(told["failed"])
        if word in told["older"]:
            raise UnresolvedError(
                f"another process came as rank {self.rank}, behind this one",
                "Each rank is one process: end the others, and start the job anew.",
            )
        return name

    def _hello(self, rank: int) -> str:
        return f"hello/{self.by}/{rank}"


def _welcome(word: str) -> str:
    return f"welcome/{word}"


def _here(name: str, word: str) -> str:
    return f"{name}/here/{word}"


def _all(name: str) -> str:
    return f"{name}/all"
