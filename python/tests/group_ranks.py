"""Ranks of a group as threads of one process, each with a shelf of its own."""

import pathlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorshelf as ts

SECONDS = 60


class Ranks:
    """Starts a job of so many ranks, again and again, over the same shelves."""

    def __init__(self, folder: pathlib.Path, members: int) -> None:
        self.folder = folder
        self.members = members
        self.nodes: list[str] | None = None  # of each
        self._starts = 0

    def path(self, rank: int) -> pathlib.Path:
        return self.folder / f"run.{rank}.shelf"

    def run(self, body: Callable[["Rank"], Any], *, timeout: float = SECONDS) -> list[Any]:
        """What ``body`` returned on each rank, or raised."""
        from torch.distributed import HashStore

        self._starts += 1
        store = HashStore()
        found: list[Any] = [TimeoutError] * self.members

        def one(rank: int) -> None:
            node = None if self.nodes is None else self.nodes[rank]
            group = ts.Group(store, rank=rank, members=self.members, timeout=timeout, node=node)
            group._number = self._starts  # threads share a count that processes have each
            try:
                found[rank] = body(Rank(rank, self, group))
            except Exception as error:
                found[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.members)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), "a rank hangs"
        return found

    def shelves(self) -> list[tuple[int | None, float]]:
        """What each holds: step, and value."""
        found = []
        for rank in range(self.members):
            with ts.open(self.path(rank), "r") as shelf:
                found.append((shelf.step, float(shelf["values"].numpy()[0])))
        return found


class Rank:
    """One of them; its state is an array, which a step adds 1 to."""

    def __init__(self, rank: int, ranks: Ranks, group: ts.Group) -> None:
        self.rank = rank
        self.group = group
        self._path = ranks.path(rank)
        self.values = np.full(1000, float(rank))

    def open(self, **options: Any) -> ts.Shelf:
        return ts.open(self._path, size="64MiB", **{"in_flight": 2, **options})

    def autosave(self, shelf: ts.Shelf, **options: Any) -> ts.Autosave:
        return shelf.autosave(group=self.group, signals=(), values=self.values, **options)

    def step(self, auto: ts.Autosave, number: int) -> None:
        self.values += 1
        auto.step(number)


def trained(steps: int) -> Callable[[Rank], tuple[int, float]]:
    """A body: resumes, and goes so many steps further; where it began, and its value at the end."""

    def body(rank: Rank) -> tuple[int, float]:
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            first = auto.resume()
            for number in range(first + 1, first + steps + 1):
                rank.step(auto, number)
            auto.close()
        return first, float(rank.values[0])

    return body


class Kept(Ranks):
    """Their groups keep copies."""

    def __init__(self, folder: pathlib.Path, members: int) -> None:
        super().__init__(folder, members)
        self.copies = 1
        self.nodes: list[str] = [f"node {rank}" for rank in range(members)]
        self.sockets: list[int | None] = [None] * members
        self.more: dict[str, Any] = {}  # that a Group takes

    def run(self, body: Any, **options: Any) -> list[Any]:
        def with_copies(rank: Rank) -> Any:
            number = rank.group._number
            rank.group = ts.Group(
                rank.group._store,
                rank=rank.rank,
                members=self.members,
                timeout=rank.group.timeout,
                replicate=self.copies,
                node=self.nodes[rank.rank],
                socket=self.sockets[rank.rank],
                **self.more,
            )
            rank.group._number = number
            return body(rank)

        return super().run(with_copies, **options)

    def copy(self, owner: int, keeper: int) -> pathlib.Path:
        return self.folder / f"run.{keeper}.shelf.of-{owner}"


def steps(rank: Rank, count: int) -> tuple[int, float]:
    """Resumes and goes so many steps further: where it began, and its value then."""
    with rank.open() as shelf:
        auto = rank.autosave(shelf)
        begin = auto.resume()
        value = float(rank.values[0])
        for number in range(begin + 1, begin + count + 1):
            rank.step(auto, number)
        auto.wait()
        return begin, value


def telling(rank: Rank, count: int) -> tuple[list[tuple[int, ts.ShelfError]], int | None]:
    """So many steps of a new run: what each raised, and the last that was saved."""
    with rank.open() as shelf:
        auto = rank.autosave(shelf)
        auto.resume()
        told = []
        for number in range(1, count + 1):
            try:
                rank.step(auto, number)
                auto.wait()
            except ts.ShelfError as error:
                told.append((number, error))
        return told, shelf.step


def damage(path: pathlib.Path, value: np.ndarray) -> None:
    """Turns a bit of a tensor that has this value."""
    data = bytearray(path.read_bytes())
    at = data.find(value.tobytes())
    assert at > 0
    data[at] ^= 1
    path.write_bytes(data)


def keepers(ranks: Kept) -> list[tuple[int, ...]]:
    """Of each rank's part, by a start that saves nothing."""
    return ranks.run(lambda rank: (steps(rank, 0), rank.group.info().keepers)[1])


def dying(monkeypatch: Any, ranks: Kept, body: Any) -> None:
    """Every rank dies behind its vote on the second save."""
    from tensorshelf._group import member

    do = member.Member._do

    def not_done(self, save, todo):
        if save.part.number == 2:
            raise RuntimeError("the rank dies here")
        do(self, save, todo)

    with monkeypatch.context() as patched:
        patched.setattr(member.Member, "_do", not_done)
        ranks.run(body)


def same(ranks: Kept, owner: int, keeper: int) -> None:
    with ts.open(ranks.path(owner), "r") as own, ts.open(ranks.copy(owner, keeper), "r") as copy:
        assert own.step == copy.step
        assert sorted(own) == sorted(copy)
        for name in own:
            one, other = own[name].numpy(), copy[name].numpy()
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert bytes(one) == bytes(other)
