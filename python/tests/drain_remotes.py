"""Remotes for the tests of draining: one that crashes, loses power, fails or is stuck."""

import itertools
import threading
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

import tensorshelf as ts
from tensorshelf._drain import drainer, fetch, layout, place, rank_site, roll
from tensorshelf._drain.catalog import manifests_at
from tensorshelf._drain.manifest import CHUNKS, Manifest
from tensorshelf._drain.options import Drain
from tensorshelf._drain.site import Site
from tensorshelf._drain.stage import Spool
from tensorshelf.errors import IoError

Objects = dict[str, bytes]
PIECE = 4096  # bytes, of tests that call use()


class Crash(BaseException):
    """The process dies here."""


class Remote:
    """In memory. What was put or deleted is durable at settle(), and may be lost before.

    ``crash_at``: the change at which the process dies, before it is made; all later ones, too.
    ``fail_at``: changes that fail, and are not made. What was deleted before a settle() that fails
    may come back behind each later one.
    """

    def __init__(self, objects: Objects | None = None) -> None:
        self.durable: Objects = dict(objects or {})
        self.unsettled: list[tuple[str, bytes | None]] = []
        self.ghosts: Objects = {}  # deleted before a settle() that failed
        self.changes = 0
        self.puts: list[str] = []
        self.crash_at: int | None = None
        self.fail_at: set[int] = set()
        self.stuck: threading.Event | None = None  # puts wait for it
        self.waiting = threading.Event()  # one of them does
        self._lock = threading.RLock()  # for tests that act in the middle of a change

    def now(self) -> Objects:
        """What who asks finds."""
        return applied(self.durable, self.unsettled)

    def images(self) -> Iterator[Objects]:
        """What a crash may leave: of a process, and some that a power cut may."""
        for image in self._settled_images():
            yield image
            if self.ghosts:
                yield self.ghosts | image

    def _settled_images(self) -> Iterator[Objects]:
        yield self.now()
        yield dict(self.durable)
        for kept in range(len(self.unsettled)):
            yield applied(self.durable, self.unsettled[:kept])
            yield applied(self.durable, self.unsettled[kept:])
            yield applied(self.durable, [self.unsettled[kept]])
            yield applied(self.durable, self.unsettled[:kept] + self.unsettled[kept + 1 :])

    def _change(self) -> None:
        number, self.changes = self.changes, self.changes + 1
        if self.crash_at is not None and number >= self.crash_at:
            raise Crash
        if number in self.fail_at:
            raise IoError("the remote failed", "Try again.")

    def sizes(self, folder: str) -> dict[str, int]:
        start = f"{folder}/"
        there = self.now()
        return {p.removeprefix(start): len(b) for p, b in there.items() if p.startswith(start)}

    def folders(self) -> list[str]:
        return sorted({path.partition("/")[0] for path in self.now()})

    def read(self, path: str) -> bytes:
        try:
            return self.now()[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def put(self, path: str, data: bytes) -> None:
        if self.stuck is not None:
            self.waiting.set()
            self.stuck.wait()
        with self._lock:
            self._change()
            self.puts.append(path)
            self.unsettled.append((path, bytes(data)))

    def settle(self, below: str = "") -> None:
        """What is in that folder; what is in those of ranks is for them to settle."""
        with self._lock:
            if not self.unsettled:  # it changes nothing
                return
            gone = [path for path, data in self.unsettled if data is None and path in self.durable]
            try:
                self._change()
            except IoError:
                self.ghosts |= {path: self.durable[path] for path in gone}
                raise
            first = [self.is_settled(path, below) for path, _ in self.unsettled]
            pairs = list(zip(self.unsettled, first, strict=True))
            self.durable = applied(self.durable, [change for change, now in pairs if now])
            self.unsettled = [change for change, now in pairs if not now]

    def is_settled(self, path: str, below: str) -> bool:
        return path.startswith(below) if below else not path.startswith("rank-")

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._lock:
                self._change()
                self.unsettled.append((path, None))

    def tidy(self, folder: str) -> None:
        pass


class Below:
    """A folder of one."""

    def __init__(self, remote: Remote, folder: str) -> None:
        self._remote = remote
        self._start = f"{folder}/"

    def sizes(self, folder: str) -> dict[str, int]:
        return self._remote.sizes(self._start + folder)

    def folders(self) -> list[str]:
        return sorted({path.partition("/")[0] for path in self._remote.sizes(self._start[:-1])})

    def read(self, path: str) -> bytes:
        return self._remote.read(self._start + path)

    def put(self, path: str, data: bytes) -> None:
        self._remote.put(self._start + path, data)

    def settle(self) -> None:
        self._remote.settle(self._start)

    def delete(self, paths: Iterable[str]) -> None:
        self._remote.delete(self._start + path for path in paths)

    def tidy(self, folder: str) -> None:
        pass


def applied(objects: Objects, changes: Iterable[tuple[str, bytes | None]]) -> Objects:
    made = dict(objects)
    for path, data in changes:
        if data is None:
            made.pop(path, None)
        else:
            made[path] = data
    return made


def use(monkeypatch: pytest.MonkeyPatch, remote: Remote) -> None:
    """In place of whatever is asked for; pieces are small."""
    monkeypatch.setattr(layout, "CHUNK_BYTES", PIECE)
    for module in (place, rank_site, roll, fetch, drainer):
        monkeypatch.setattr(
            module, "open_remote", lambda _, below="": Below(remote, below) if below else remote
        )


def new_site(shelf: ts.Shelf, **options: object) -> Site:
    """Without a thread."""
    drain = Drain("nowhere", threads=1, **options)  # type: ignore[arg-type]
    made = Site(
        drain,
        shelf.info().shelf_id,
        wait=lambda nbytes: None,
        on_read=lambda nbytes: None,
        on_sent=lambda nbytes: None,
    )
    made.begin()
    return made


def copied(made: Site, shelf: ts.Shelf, folder: object, metric: float | None = None) -> Manifest:
    """The shelf's newest version."""
    spool = Spool(str(folder))
    try:
        staged = made.stage(shelf._core, shelf.version, spool)
        return made.put(staged, spool, metric)
    finally:
        spool.close()


def entries(objects: Objects) -> list[Manifest]:
    """The versions that lie there, the oldest first."""
    return [entry.manifest for entry in manifests_at(Remote(objects)).look()]


def unnamed(objects: Objects) -> set[str]:
    """Pieces that no version names."""
    named = {stored.path for made in entries(objects) for stored in made.stored}
    return {path for path in objects if path.startswith(f"{CHUNKS}/")} - named


def shortened(objects: Objects) -> Objects:
    """With the pieces that no version names cut short: a put was, and did not tell."""
    return objects | {path: objects[path][:-5] for path in unnamed(objects)}


def values_of(step: int) -> dict[str, np.ndarray]:
    """What the shelf of a test has at a step: of every size, some of it as it was before."""
    per_piece = PIECE // 8
    return {
        "large": np.full(5 * per_piece // 2, step, np.int64),  # three pieces
        "frozen": np.full(2 * per_piece, 7, np.int64),
        "small": np.full(3, step, np.int32),
        "empty": np.zeros((0, 3), np.float32),
        "half": np.concatenate([np.zeros(per_piece), np.full(per_piece, step)]),  # one changes
    }


def assign(shelf: ts.Shelf, step: int) -> None:
    shelf.update(values_of(step))
    shelf.persist(step)


def check_whole(shelf: ts.Shelf) -> int:
    """Returns its step."""
    assert shelf.step is not None
    expected = values_of(shelf.step)
    assert list(shelf) == sorted(expected)
    for name, values in expected.items():
        found = shelf[name].numpy()
        assert found.dtype == values.dtype
        assert np.array_equal(found, values), name
    assert shelf.verify()
    return shelf.step


def fresh_names(folder: object) -> Iterator[str]:
    return (f"{folder}/back-{number}.shelf" for number in itertools.count())
