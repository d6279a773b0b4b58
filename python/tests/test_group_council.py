"""How ranks agree when they start, where the store that carries it goes."""

import datetime
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tensorshelf as ts  # noqa: E402
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
@pytest.mark.parametrize("lost", ["add", "set", "check"])
def test_a_store_that_goes_is_told(rank: int, lost: str) -> None:
    council = Council(
        Wire(GoneStore(lost), ""), rank, 2, 0.2, "here", "what they hold", "what all do", "resume()"
    )
    with pytest.raises(ts.UnresolvedError, match="failed to recv"):
        council.answer(lambda: 1, sum)
