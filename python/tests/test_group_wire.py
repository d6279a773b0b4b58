"""What carries a group's messages: over a store with queues, and over one without."""

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch.distributed is not there", allow_module_level=True)

from tensorshelf._group.wire import Wire  # noqa: E402


def tcp_store(*, libuv: bool = True) -> Any:
    return torch.distributed.TCPStore(
        "127.0.0.1", 0, 1, True, wait_for_workers=False, use_libuv=libuv
    )


def prefix_store() -> Any:
    return torch.distributed.PrefixStore("a job's/", tcp_store())


def tcp_store_without_queues() -> Any:
    return tcp_store(libuv=False)


STORES = [tcp_store, prefix_store, tcp_store_without_queues, torch.distributed.HashStore]


@pytest.mark.parametrize("make", STORES)
def test_a_box_gives_what_was_posted_in_order_to_who_waits(make: Any) -> None:
    store = make()
    taker, one, other = (Wire(store, "of/") for _ in range(3))
    found: list[bytes] = []
    thread = threading.Thread(
        target=lambda: found.extend(taker.next_of("box", number) for number in (1, 2, 3, 4))
    )
    thread.start()
    for wire, said in ((one, b"a"), (other, b"\0\xff"), (one, b""), (other, b"z")):
        wire.post("box", said)
    thread.join(60)
    assert found == [b"a", b"\0\xff", b"", b"z"]


@pytest.mark.parametrize("make", STORES)
def test_boxes_are_apart_and_leave_nothing_behind(make: Any) -> None:
    store = make()
    wire, elsewhere = Wire(store, "of/"), Wire(store, "from/")
    before = None
    for number in range(1, 4):
        for where, box in ((wire, "one"), (wire, "two"), (elsewhere, "one")):
            where.post(box, f"{box} {number}".encode())
        for where, box in ((elsewhere, "one"), (wire, "two"), (wire, "one")):
            assert where.next_of(box, number) == f"{box} {number}".encode()
            where.done_with(box, number)
        assert before in (None, store.num_keys())
        before = store.num_keys()


@pytest.mark.parametrize("make", STORES)
def test_one_call_puts_the_same_under_many_keys(make: Any) -> None:
    store = make()  # who lets it go ends it
    wire = Wire(store, "of/")
    wire.put_all([f"key/{rank}" for rank in range(3)], b"\xff\0")
    assert [wire.take(f"key/{rank}") for rank in range(3)] == [b"\xff\0"] * 3
    wire.drop("key/1")
    assert [wire.has(f"key/{rank}") for rank in range(3)] == [True, False, True]


@pytest.mark.parametrize("make", STORES)
def test_a_vote_is_one_message_where_the_store_has_queues(make: Any) -> None:
    """Beside a trainer in pure Python each call waits 5 ms for the GIL."""
    store = make()
    wire = Wire(store, "of/")
    has = make in (tcp_store, prefix_store)
    wire.post("box", b"a")
    assert wire.has("box/1") is not has
    assert wire.next_of("box", 1) == b"a"


@pytest.mark.parametrize("make", [tcp_store, prefix_store])
def test_nothing_that_holds_the_gil_is_asked_of_a_store(
    monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    """A store whose host is stopped would stop the trainer, and all that hears signals."""

    def held(*_: object) -> int:
        raise AssertionError("torch 2.13 holds the GIL in it")

    store = make()
    wire = Wire(store, "of/")
    monkeypatch.setattr(type(wire._queues), "queue_len", held)
    wire.post("box", b"a")
    assert wire.next_of("box", 1) == b"a"
