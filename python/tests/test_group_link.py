"""The bytes of copies on their way: frames, how long they are waited for, and the rate."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Kept, steps  # noqa: E402

from tensorshelf._group import link, ring  # noqa: E402


class Pair:
    """In place of gloo's: takes what is sent when that is waited for."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def send(self, views: Any, other: int, tag: int) -> Any:
        return SimpleNamespace(wait=lambda: self.taken.append(bytes(views[0].numpy())))


def made_link(monkeypatch, most: float | None = None) -> tuple[link.Link, Pair, list[Any]]:
    pair, given = Pair(), []

    def group(*args):
        given.extend(args)
        return pair

    monkeypatch.setattr(torch.distributed, "ProcessGroupGloo", group)
    store = torch.distributed.HashStore()
    links = link.Links(store, "prefix/", seconds=3.0, most=most)
    return links.made("link/0/1", keeps=False), pair, given


def test_a_frame_is_filled_when_what_was_in_it_is_sent(monkeypatch):
    one, pair, _ = made_link(monkeypatch)
    for number in range(1, 6):
        one.frame[:4] = number
        one.send(4)
    one.send_sum(right=True)
    assert pair.taken[:-1] == [bytes([number] * 4) for number in range(1, 6)]
    assert len(pair.taken) == 6


def test_a_link_waits_as_long_as_the_group(monkeypatch):
    *_, given = made_link(monkeypatch)
    assert given[3].total_seconds() == 3.0


def test_the_rate_is_kept_behind_an_idle_time_too(monkeypatch):
    now = [1000.0]
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(link, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    one, *_ = made_link(monkeypatch, most=100.0)
    for _ in range(3):
        one.send(100)
    now[0] += 500.0
    for _ in range(3):
        one.send(100)
    assert slept == [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]


def test_the_rate_that_a_group_was_given_is_that_of_its_links(tmp_path, monkeypatch):
    three = Kept(tmp_path, 3)
    three.more = {"replica_rate": "100GB"}
    rates = []
    wait = link.Link._wait_for_rate

    def noted(self, nbytes):
        rates.append(self._most)
        wait(self, nbytes)

    monkeypatch.setattr(link.Link, "_wait_for_rate", noted)
    three.run(lambda rank: steps(rank, 1))
    assert set(rates) == {100e9}


@pytest.mark.parametrize(
    ("call", "at"),
    [
        (lambda ends: next(ends.receive([8])), 1),
        (lambda ends: ends.check_sum(), 1),
        (lambda ends: ends.send(8), 0),
    ],
    ids=["receive", "check", "send"],
)
def test_a_broken_link_of_a_ring_names_who_is_at_its_end(call: Any, at: int) -> None:
    """Of three ranks, of whom the last sends to the first."""

    def broke(*_: Any, **__: Any) -> Any:
        raise link.LinkLost("it broke", "Start the job anew.")

    def breaks(*_: Any, **__: Any) -> Any:
        broke()
        yield

    end = SimpleNamespace(receive=breaks, check_sum=broke, send=broke, frame=None)
    links: Any = SimpleNamespace(made=lambda *_, **__: end)
    with pytest.raises(link.LinkLost, match=f"rank {at}: it broke"):
        call(ring.Neighbours(links, 2, 3, 8))
