"""How ranks agree when they start, where the store that carries it goes."""

import datetime
import errno
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import council, wire  # noqa: E402
from tensorshelf._group.council import Council  # noqa: E402
from tensorshelf._group.wire import Wire  # noqa: E402


class GoneStore:
    """One of torch's whose host is gone from the call of that name on."""

    def __init__(self, lost: str) -> None:
        self._store = torch.distributed.HashStore()
        self._lost, self._is_gone = lost, False

    def clone(self) -> "GoneStore":
        return self

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._store.set_timeout(timeout)

    def __getattr__(self, name: str) -> Any:
        self._is_gone = self._is_gone or name == self._lost
        if self._is_gone:
            raise torch.distributed.DistNetworkError("failed to recv")
        return getattr(self._store, name)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("lost", ["set", "check"])
def test_a_store_that_goes_is_told(rank: int, lost: str) -> None:
    council = Council(
        Wire(GoneStore(lost), ""), rank, 2, 0.2, "here", "what they hold", "what all do", "resume()"
    )
    with pytest.raises(ts.UnresolvedError, match="failed to recv"):
        council.answer(lambda: 1, sum)


@pytest.mark.parametrize(
    ("rank", "seconds", "said"),
    [
        (0, 3.0, "within 3 s 1 of 2 ranks did not say it: 1"),
        (1, 13.0, "rank 0 did not say within 3 s what all do"),  # which takes as long to find out
    ],
)
def test_who_does_not_come_is_waited_for_as_long_as_the_group_says(
    monkeypatch: pytest.MonkeyPatch, rank: int, seconds: float, said: str
) -> None:
    now = [1000.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(wire, "time", clock)
    monkeypatch.setattr(council, "time", clock)
    meeting = Council(
        *(Wire(torch.distributed.HashStore(), ""), rank, 2, 3.0),
        *("here", "it", "what all do", "resume()"),
    )
    with pytest.raises(ts.UnresolvedError, match=said):
        meeting.answer(lambda: 1, sum)
    assert now[0] == pytest.approx(1000 + seconds, rel=0, abs=0.1)


def test_ranks_that_come_one_after_the_other_have_one_time_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others wait for rank 0 as long, and no longer."""
    now, store = [1000.0], torch.distributed.HashStore()
    late = Wire(store, "")

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 1002.5:
            late.put("said/1", b'{"said": 1}')

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(wire, "time", clock)
    monkeypatch.setattr(council, "time", clock)
    meeting = Council(Wire(store, ""), 0, 3, 3.0, "here", "it", "what all do", "resume()")
    with pytest.raises(ts.UnresolvedError, match="within 3 s 1 of 3 ranks did not say it: 2"):
        meeting.answer(lambda: 1, sum)
    assert now[0] == pytest.approx(1003.0, rel=0, abs=0.1)


def agree(body: Callable[[int], tuple[Any, Any]]) -> list[Any]:
    """What two ranks were answered, or raised; the body says what each says and decides."""
    store = torch.distributed.HashStore()
    found: list[Any] = [None, None]

    def one(rank: int) -> None:
        wire = Wire(store, "")
        council = Council(wire, rank, 2, 20.0, f"at {rank}", "what they hold", "it", "resume()")
        say, decide = body(rank)
        try:
            found[rank] = council.answer(say, decide)
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_what_a_rank_meets_is_told_to_all_whatever_it_is() -> None:
    def fails() -> int:
        raise PermissionError(13, "Permission denied", "copies")

    found = agree(lambda rank: (fails if rank == 1 else lambda: 1, sum))
    assert isinstance(found[1], PermissionError)
    assert isinstance(found[0], ts.UnresolvedError)
    assert "rank 1, at 1: PermissionError: [Errno 13] Permission denied: 'copies'" in str(found[0])


def test_what_rank_0_meets_is_told_to_all_whatever_it_is() -> None:
    def fails(said: list[Any]) -> int:
        raise ValueError(f"{said} is odd")

    own, others = agree(lambda rank: (lambda: rank, fails))
    assert isinstance(own, ValueError)
    assert isinstance(others, ts.UnresolvedError)
    assert "at 0: ValueError: [0, 1] is odd" in str(others)


def test_an_error_of_the_system_has_its_number_on_all_ranks() -> None:
    def full(*_: object) -> int:
        raise ts.IoError("the drive is full", "Make room.", errno.ENOSPC)

    for found in (
        agree(lambda rank: (full if rank == 1 else lambda: 1, sum)),
        agree(lambda rank: (lambda: 1, full)),
    ):
        for error in found:
            assert type(error) is ts.IoError
            assert error.errno == errno.ENOSPC


@pytest.mark.parametrize("stops", [0, 1])
def test_what_a_signal_raises_is_raised_at_once(stops: int) -> None:
    class Stopped(Exception):
        pass

    def stopped() -> int:
        raise Stopped

    found = agree(lambda rank: (stopped if rank == stops else lambda: 1, sum))
    assert isinstance(found[stops], Stopped)
    assert isinstance(found[1 - stops], ts.UnresolvedError)
    assert f"at {stops}: Stopped" in str(found[1 - stops])


@pytest.mark.parametrize("stops", [0, 1])
def test_who_exits_tells_the_others(stops: int) -> None:
    def exits() -> int:
        raise SystemExit(3)

    found = agree(lambda rank: (exits if rank == stops else lambda: 1, sum))
    assert isinstance(found[stops], SystemExit)
    assert isinstance(found[1 - stops], ts.UnresolvedError)
    assert f"at {stops}: SystemExit: 3" in str(found[1 - stops])


def test_who_exits_as_it_decides_tells_the_others() -> None:
    def exits(said: list[Any]) -> int:
        raise SystemExit(3)

    found = agree(lambda rank: (lambda: rank, exits))
    assert isinstance(found[0], SystemExit)
    assert isinstance(found[1], ts.UnresolvedError)
