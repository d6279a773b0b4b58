"""A point of a start that all ranks come to before any goes on, or else none does."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tensorshelf._group.link import LinkLost
from tensorshelf._group.wire import Wire, in_short, of_store
from tensorshelf.errors import GroupError, LayoutError, ShelfError, UnresolvedError

_SLACK = 10.0  # seconds that who waits for rank 0 gives it to find out who is missing
_MOMENT = 5.0  # seconds that ranks have to say what broke, where another one has failed already
_LOADED = "what other ranks have loaded"

Unlike = Callable[[str, str], str | None]  # of what rank 0 and another one brought
SumUp = Callable[[list[str]], str]  # of what all brought, in the order of their ranks


class Verdict(NamedTuple):
    """What rank 0 tells all; the greater of two kinds tells more."""

    kind: int
    rank: int = 0  # that is meant, where one is
    what: str = ""
    remedy: str = ""


_GOOD, _LOST, _MISSING, _UNLIKE, _FAILED = range(5)


class Stages(NamedTuple):
    """Those of one rank."""

    wire: Wire
    rank: int
    members: int
    seconds: float

    def come(
        self,
        name: str,
        brought: str = "",
        unlike: Unlike = lambda *_: None,
        sum_up: SumUp = lambda _: "",
    ) -> str:
        """Waits for all, and returns what ``sum_up`` makes of what they brought, on rank 0. Raises
        GroupError where one of them has failed, LayoutError where ``unlike`` tells what one has
        brought otherwise, and UnresolvedError where one did not come, or the store is gone.
        """
        with of_store(_LOADED):
            self._put(name, {"brought": brought})
            if self.rank == 0:
                self._judge(name, unlike, sum_up)
        return self._go_on(name, None)

    @contextlib.contextmanager
    def all_come(self, name: str) -> Iterator[None]:
        """Around what each does before it comes: where one raises, all do."""
        try:
            yield
        except BaseException as error:
            self.fail(name, error, waits=False)
            raise
        self.come(name)

    def fail(self, name: str, error: BaseException, *, waits: bool = True) -> None:
        """In place of coming. Returns where the error is the one to raise: a link that broke tells
        less than what the others say, which it ``waits`` for.
        """
        lost = waits and isinstance(error, LinkLost)
        kind = _LOST if lost else _FAILED
        with (
            contextlib.nullcontext() if lost else contextlib.suppress(UnresolvedError),
            of_store(_LOADED),
        ):
            self._put(name, {"error": [kind, self.rank, *_fields(error)]})
            if self.rank == 0:
                self._judge(name, lambda *_: None, lambda _: "")
        if lost:
            self._go_on(name, error)

    def _put(self, name: str, said: dict[str, Any]) -> None:
        self.wire.put(_key(name, self.rank), json.dumps(said).encode())

    def _go_on(self, name: str, own: BaseException | None) -> str:
        try:
            data = self.wire.take(_verdict(name), seconds=self.seconds + _SLACK)
        except (RuntimeError, TimeoutError) as error:
            raise UnresolvedError(
                f"rank 0 did not say within {self.seconds:g} s whether all have come so far: "
                f"{in_short(error)}",
                "Look for what became of it. Group(timeout=) says how long to wait.",
            ) from (own or error)
        kind, rank, what, remedy = Verdict(*json.loads(data))
        if kind == _MISSING:
            raise UnresolvedError(what, remedy) from own
        if kind == _UNLIKE:
            raise LayoutError(what, remedy)
        if kind != _GOOD and rank != self.rank:
            told = GroupError(
                f"nothing is resumed on any rank: rank {rank} could not: {what}", remedy
            )
            told.rank = rank
            raise told from own
        return what if kind == _GOOD else ""

    def _judge(self, name: str, unlike: Unlike, sum_up: SumUp) -> None:
        """On rank 0, which tells all."""
        verdict = Verdict(_GOOD)
        until = time.monotonic() + self.seconds
        own: str | None = None
        brought = []
        for rank in range(self.members):
            found = self._of(name, rank, until)
            if isinstance(found, str):
                brought.append(found)
                own = found if own is None else own
                differs = unlike(own, found)
                if differs is None:
                    continue
                remedy = "Were they saved by one and the same program?"
                found = Verdict(_UNLIKE, rank, f"rank {rank} {differs}", remedy)
            verdict = max(verdict, found, key=lambda each: each.kind)
            if verdict.kind >= _UNLIKE:
                break
            until = min(until, time.monotonic() + _MOMENT)
        if verdict.kind == _GOOD:
            verdict = Verdict(_GOOD, 0, sum_up(brought))
        self.wire.put(_verdict(name), json.dumps(verdict).encode())

    def _of(self, name: str, rank: int, until: float) -> str | Verdict:
        """What it brought, or why it did not."""
        try:
            data = self.wire.take(_key(name, rank), seconds=until - time.monotonic())
        except (RuntimeError, TimeoutError):
            return self._missing(name)
        said = json.loads(data)
        return Verdict(*said["error"]) if "error" in said else str(said["brought"])

    def _missing(self, name: str) -> Verdict:
        ranks = range(self.members)
        missing = [str(rank) for rank in ranks if not self.wire.has(_key(name, rank))]
        return Verdict(
            _MISSING,
            0,
            f"{len(missing)} of {self.members} ranks did not load in time what all resume: "
            f"{', '.join(missing[:5])}",
            "Look for what became of them, and start the job anew. Group(timeout=) says how long "
            "to wait.",
        )


def _key(name: str, rank: int) -> str:
    return f"{name}/{rank}"


def _verdict(name: str) -> str:
    return f"{name}/all"


def _fields(error: BaseException) -> tuple[str, str]:
    if isinstance(error, ShelfError):
        return error.what, error.remedy
    return repr(error), "See what that rank raised, and start the job anew."
