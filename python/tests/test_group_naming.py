"""What a start of a job is called: by all ranks that are there, and no older start."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import council, naming  # noqa: E402
from tensorshelf._group.naming import Naming  # noqa: E402
from tensorshelf._group.wire import Wire  # noqa: E402

HELLO_1 = "a/hello/resume()/1"


def asks(store: Any, rank: int, members: int, seconds: float = 20.0) -> Callable[[], Any]:
    """A rank that begins to ask for the name; what is returned waits for it, or what it raised."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(Naming(Wire(store, "a/"), rank, members, seconds, "resume()").name())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()

    def wait() -> Any:
        thread.join(60)
        return found[0]

    return wait


def test_all_ranks_have_one_name_and_each_start_another() -> None:
    store = torch.distributed.HashStore()
    names = []
    for _ in range(3):
        waits = [asks(store, rank, 3) for rank in range(3)]
        (name,) = {wait() for wait in waits}
        names.append(name)
    assert len(set(names)) == 3
    assert all(isinstance(name, str) for name in names)


def test_a_name_leaves_one_word() -> None:
    store = torch.distributed.HashStore()
    left = []
    for _ in range(3):
        for wait in [asks(store, rank, 3) for rank in range(3)]:
            wait()
        left.append(store.num_keys() - 2)  # of two ranks, what each said last
    assert left == [1, 2, 3]  # to all, of whom nobody knows who is the last to hear it


def test_who_was_here_and_was_interrupted_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 waits for another one still, and knows nothing of that."""
    store = torch.distributed.HashStore()
    waits = [asks(store, 0, 3)]
    monkeypatch.setattr(naming, "SLACK", -19.8)
    found = asks(store, 1, 3)()
    assert "rank 0 did not say within 20 s that all ranks had come" in str(found)
    monkeypatch.undo()
    waits += [asks(store, rank, 3) for rank in (1, 2)]
    assert len({wait() for wait in waits}) == 1
    assert isinstance(waits[0](), str)


def test_of_two_processes_of_one_rank_the_first_is_told() -> None:
    store = torch.distributed.HashStore()
    waits = [asks(store, rank, 3) for rank in (0, 1)]
    word = store.get(HELLO_1)
    store.wait([f"a/welcome/{word.decode()}"])
    second = asks(store, 1, 3)
    end = time.monotonic() + 60
    while store.get(HELLO_1) == word:
        assert time.monotonic() < end
    waits.append(asks(store, 2, 3))
    assert waits[0]() == second() == waits[2]()
    assert "another process came as rank 1" in str(waits[1]())


def test_what_is_called_otherwise_is_another_thing() -> None:
    store = torch.distributed.HashStore()
    first = asks(store, 1, 2)
    found = []
    for by in ("load_into()", "resume()"):
        try:
            found.append(Naming(Wire(store, "a/"), 0, 2, 0.2, by).name())
        except ts.UnresolvedError as error:
            found.append(str(error))
    assert "All ranks call load_into()" in found[0]
    assert first() == found[1]


def test_what_a_rank_said_before_it_was_started_anew_is_no_hello() -> None:
    store = torch.distributed.HashStore()
    store.set(HELLO_1, b"of an older start")
    first = asks(store, 0, 2)
    store.wait(["a/welcome/of an older start"])
    second = asks(store, 1, 2)
    assert second() == first()


def test_who_was_welcomed_and_is_gone_is_waited_for() -> None:
    """It may have been killed between the two, and is started anew."""
    store = torch.distributed.HashStore()
    store.set(HELLO_1, b"of an older start")
    found = asks(store, 0, 2, 0.2)()
    assert isinstance(found, ts.UnresolvedError)
    assert "within 0.2 s 1 of 2 ranks did not come: 1" in str(found)
    assert "All ranks call resume()" in str(found)


def test_a_long_wait_for_others_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: a job of which one rank forgot to call it hangs in silence else, for minutes."""
    monkeypatch.setattr(council, "TELL_AFTER", 0.1)
    asks(torch.distributed.HashStore(), 0, 2, 0.5)()
    (text,) = [each.getMessage() for each in caplog.records]
    assert text.startswith("group: waiting: within 0.1")
    assert "1 of 2 ranks did not come: 1. All ranks call resume()" in text
    assert "how long to wait: 0.5 s" in text


def test_who_comes_hears_who_does_not() -> None:
    store = torch.distributed.HashStore()
    waits = [asks(store, rank, 4, 0.5) for rank in (0, 2)]
    for wait in waits:
        found = wait()
        assert isinstance(found, ts.UnresolvedError)
        assert "2 of 4 ranks did not come: 1, 3" in str(found)


def test_who_is_started_anew_alone_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "SLACK", 0.1)
    found = asks(torch.distributed.HashStore(), 1, 2, 0.1)()
    assert isinstance(found, ts.UnresolvedError)
    assert "rank 0 did not say within 0.1 s that all ranks had come" in str(found)
    assert "not one alone" in str(found)


def test_ctrl_c_at_rank_0_is_told_to_who_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    store = torch.distributed.HashStore()
    waits = [asks(store, rank, 3) for rank in (1, 2)]
    store.wait([HELLO_1, "a/hello/resume()/2"])
    is_here = Naming._is_here

    def stops(self: Naming, name: str, word: str | None) -> bool:
        if is_here(self, name, word):
            raise KeyboardInterrupt
        return False

    with monkeypatch.context() as patched:
        patched.setattr(Naming, "_is_here", stops)
        assert isinstance(asks(store, 0, 3)(), KeyboardInterrupt)
    for wait in waits:
        assert isinstance(wait(), ts.UnresolvedError)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("call", ["set", "check"])
def test_a_store_that_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch, rank: int, call: str
) -> None:
    def gone(*_: object) -> None:
        raise RuntimeError("Connection reset by peer")

    store = torch.distributed.HashStore()
    store.set(HELLO_1, b"of an older start")
    monkeypatch.setattr(torch.distributed.HashStore, call, gone)
    found = asks(store, rank, 2)()
    assert isinstance(found, ts.UnresolvedError)
    assert "what ranks say to each other: Connection reset by peer" in str(found)
