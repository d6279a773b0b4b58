"""What a rank makes of a keeper of its copy that answers with an error, or not at all."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import copies, council, stream  # noqa: E402
from tensorshelf._group.wire import Wire  # noqa: E402

PAIR = copies.Pair(0, 1)
NOTHING = stream.Contents(True, [], [])


class Fetching:
    """The native half of a shelf that is to have what a copy is."""

    version = 7

    def discard(self, session: object) -> None:
        pass


def asked(seconds: float = 20.0) -> tuple[copies.Copy, Wire]:
    wire = Wire(torch.distributed.HashStore(), "")
    link = SimpleNamespace(
        frame=np.empty(1000, np.uint8), send=lambda _: None, send_sum=lambda **_: None
    )
    links: Any = SimpleNamespace(made=lambda *_, **__: link)
    return copies.Copy(PAIR, wire, seconds, links, "there"), wire


def put(copy: copies.Copy) -> None:
    copy._exchange({"do": "put"}, lambda link: None, NOTHING)


def fetch(copy: copies.Copy) -> None:
    shelf: Any = SimpleNamespace(_core=Fetching(), _assignments=SimpleNamespace(session=None))
    copy.fetch(shelf)


def refuses(wire: Wire, number: int, error: ts.ShelfError) -> None:
    said = json.dumps({"error": council.fields_of(error)}).encode()
    wire.put(PAIR.answer(number), said)


@pytest.mark.parametrize("ask", [put, fetch])
def test_a_keeper_that_does_not_answer_is_asked_no_more(ask: Callable[..., None]) -> None:
    """What it says later would be taken for an answer to what is asked next."""
    copy, wire = asked(seconds=0.01)
    with pytest.raises(ts.UnresolvedError, match=r"rank 1 \(there\), which keeps .* not answer"):
        ask(copy)
    wire.put(PAIR.answer(2), b"{}")
    with pytest.raises(ts.UnresolvedError, match="does not answer"):
        put(copy)


@pytest.mark.parametrize("ask", [put, fetch])
@pytest.mark.parametrize("lost", [RuntimeError("Connection reset by peer"), TimeoutError()])
def test_a_store_that_fails_is_told_with_the_keeper(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[..., None], lost: Exception
) -> None:
    copy, wire = asked()

    def take(*_: object, **__: object) -> bytes:
        raise lost

    with monkeypatch.context() as patched:
        patched.setattr(wire, "take", take)
        with pytest.raises(ts.UnresolvedError, match="does not answer"):
            ask(copy)
    with pytest.raises(ts.UnresolvedError, match="does not answer"):
        put(copy)


@pytest.mark.parametrize("ask", [put, fetch])
def test_what_a_keeper_refuses_is_told_as_it_is(ask: Callable[..., None]) -> None:
    """And what is asked next it may do."""
    copy, wire = asked()
    refuses(wire, 1, ts.StaleError("version 3 is gone", "Use a newer one."))
    with pytest.raises(ts.StaleError, match=r"rank 1 \(there\): version 3 is gone"):
        ask(copy)
    wire.put(PAIR.answer(2), b"{}")
    put(copy)


def test_ctrl_c_while_a_part_is_had_back_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    copy, wire = asked()

    def take(*_: object, **__: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(wire, "take", take)
    with pytest.raises(KeyboardInterrupt):
        fetch(copy)
