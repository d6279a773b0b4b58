"""What all ranks tell rank 0, and what it makes of that: how ranks agree when they start."""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorshelf import errors
from tensorshelf._group.wire import Wire, in_short, of_store
from tensorshelf.errors import ShelfError, UnresolvedError

_ANSWER = "answer"
TELL_AFTER = 10.0  # seconds that something waits for other ranks
SLACK = 10.0  # seconds that who waits for rank 0 gives it to find out who is missing
_SHOWN = 5  # ranks
_SAID = "what ranks had told each other"


class Council(NamedTuple):
    """One of them, as a rank sees it. What is told goes through JSON: tuples come as lists."""

    wire: Wire  # with keys that nothing else has
    rank: int
    members: int
    seconds: float  # that ranks wait for each other
    where: str  # this rank is: the others do not know that
    asks: str  # what ranks are to say, as in "what they hold"
    finds: str  # what rank 0 does, as in "what all go on from"
    by: str  # what all ranks call

    def answer(self, say: Callable[[], Any], decide: Callable[[list[Any]], Any]) -> Any:
        """What ``decide`` made, on rank 0, of what all said, by ranks. Blocks until all came.

        Raises the same on all ranks: what one of them or ``decide`` raised, UnresolvedError where
        one did not come. What is none of the shelf's is raised where it was, and UnresolvedError on
        the other ranks.
        """
        own: ShelfError | None = None
        try:
            said = {"said": say()}
        except ShelfError as error:
            own = error
            said = self._failed(error)
        except BaseException as error:  # whatever it is, of a signal's handler too: all wait
            self._tell(error, *([_ANSWER] if self.rank == 0 else []), key_of(self.rank))
            raise
        self._put(key_of(self.rank), json.dumps(said).encode())
        if self.rank == 0:
            self._decide(decide)
        try:
            told = json.loads(self.wire.take(_ANSWER, seconds=self.seconds + SLACK))
        except (RuntimeError, TimeoutError) as error:
            raise UnresolvedError(
                f"rank 0 did not say within {self.seconds:g} s {self.finds}: {in_short(error)}",
                "Look for what became of it. Group(timeout=) says how long to wait.",
            ) from error
        if own is not None:
            raise own
        if "error" in told:
            raise error_of(told["error"])
        return told["answer"]

    def _put(self, key: str, said: bytes) -> None:
        with of_store(_SAID):
            self.wire.put(key, said)

    def _tell(self, error: BaseException, *keys: str) -> None:
        with contextlib.suppress(UnresolvedError):  # the store may be what is gone
            for key in keys:
                self._put(key, json.dumps(self._failed(error)).encode())

    def _failed(self, error: BaseException) -> dict[str, Any]:
        code, what, *rest = fields_of(error)
        return {"error": [code, f"{self.where}: {what}", *rest]}

    def _decide(self, decide: Callable[[list[Any]], Any]) -> None:
        try:
            made = {"answer": decide(self._heard())}
        except ShelfError as error:
            made = {"error": fields_of(error)}
        except BaseException as error:
            self._tell(error, _ANSWER)
            raise
        self._put(_ANSWER, json.dumps(made).encode())

    def _heard(self) -> list[Any]:
        heard = []
        end = time.monotonic() + self.seconds  # for all: those that have come wait no longer
        for rank in range(self.members):
            left = max(end - time.monotonic(), 0.0)
            try:
                told = json.loads(self.wire.take(key_of(rank), seconds=left))
            except (RuntimeError, TimeoutError) as error:
                ranks = range(self.members)
                with of_store(_SAID):
                    missing = [each for each in ranks if not self.wire.has(key_of(each))]
                raise UnresolvedError(
                    f"within {self.seconds:g} s {len(missing)} of {self.members} ranks did not say "
                    f"{self.asks}: {names_of(missing)}",
                    f"All ranks call {self.by}. Group(timeout=) says how long to wait.",
                ) from error
            if "error" in told:
                raise error_of(told["error"], before=f"rank {rank}, ")
            heard.append(told["said"])
        return heard


def names_of(ranks: list[int]) -> str:
    """The first of them."""
    return ", ".join(map(str, ranks[:_SHOWN]))


def key_of(rank: int) -> str:
    """Where a rank says it."""
    return f"said/{rank}"


def fields_of(error: BaseException) -> list[Any]:
    """For ``error_of`` on another rank. What is none of the shelf's is UnresolvedError there."""
    if not isinstance(error, ShelfError):
        error = UnresolvedError(
            f"{type(error).__name__}: {error}", "Mend what it names, and start the job anew."
        )
    number = error.errno if isinstance(error, OSError) else None
    return [error.code, error.what, error.remedy, number or 0]


def error_of(found: list[Any], *, before: str = "") -> ShelfError:
    """``before`` is put in front of what it says."""
    code, what, remedy, number = found
    return errors.from_core(code, before + what, remedy, number)
