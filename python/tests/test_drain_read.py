"""What is read of a shelf to be drained, and what counts as lying at a remote already."""

import itertools
import os
import pathlib
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from drain_remotes import (
    PIECE,
    Remote,
    assign,
    check_whole,
    copied,
    entries,
    new_site,
    shortened,
    unnamed,
    use,
)
from drain_run import Run, fetched
from support import check

import tensorshelf as ts
from tensorshelf._drain import place, roll, upload
from tensorshelf._drain.catalog import epoch_of, names_at
from tensorshelf._drain.manifest import CHUNKS, FOLDER, Manifest
from tensorshelf._drain.stage import Spool
from tensorshelf._group.part import Part

pytest.importorskip("msgpack")
pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def test_a_version_stays_while_it_is_read(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it is overtaken by as many as there are slots for."""
    use(monkeypatch, Remote())
    with ts.open(tmpfs / "run.shelf", in_flight=2) as shelf:
        assign(shelf, 1)
        made = new_site(shelf)
        overtaken: list[int] = []

        def overtake(nbytes: int) -> None:
            if not overtaken:
                for step in (2, 3):
                    assign(shelf, step)
                    overtaken.append(step)

        made._place._on_read = overtake
        spool = Spool(str(tmpfs))
        staged = made.stage(shelf._core, 1, spool)
        assert overtaken == [2, 3]
        assert made.put(staged, spool, None).step == 1
        ts.fetch("nowhere", tmpfs / "back.shelf")
    with ts.open(tmpfs / "back.shelf", "r") as back:
        assert check_whole(back) == 1


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("compress", [None, "zlib"])
def test_what_a_cut_put_left_is_sent_again(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, cut: bool, compress: Any
) -> None:
    """And what is whole is not, though no version names it."""
    first = Remote()
    use(monkeypatch, first)
    with ts.open(tmpfs / "run.shelf") as shelf:
        assign(shelf, 1)
        copied(new_site(shelf, compress=compress), shelf, tmpfs)
        pieces = {p: b for p, b in first.now().items() if p.startswith(CHUNKS)}
        second = Remote(shortened(pieces) if cut else pieces)
        use(monkeypatch, second)
        copied(new_site(shelf, compress=compress), shelf, tmpfs)
        assert len(second.puts) == (1 + len(pieces) if cut else 1)  # the manifest, at least
        ts.fetch("nowhere", tmpfs / "back.shelf")


def test_a_piece_that_is_named_and_cut_is_sent_again(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "run.shelf") as shelf:
        assign(shelf, 1)
        stored = copied(new_site(shelf, compress="zlib"), shelf, tmpfs).stored
        remote.settle()
        for each in stored:
            remote.durable[each.path] = remote.durable[each.path][: each.nbytes // 2]
        shelf.persist()
        copied(new_site(shelf, compress="zlib"), shelf, tmpfs)
        ts.fetch("nowhere", tmpfs / "back.shelf")


def test_a_piece_that_was_swept_is_not_taken_for_there(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it lay there, whole, when the remote was asked."""
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "run.shelf") as shelf:
        assign(shelf, 1)
        copied(new_site(shelf, compress="zlib"), shelf, tmpfs)
        for path in [path for path in remote.now() if path.startswith(FOLDER)]:
            remote.delete([path])
        assign(shelf, 2)
        made = new_site(shelf, compress="zlib")
        copied(made, shelf, tmpfs)
        made.collect()  # what of step 1 nobody names
        assign(shelf, 1)
        copied(made, shelf, tmpfs)
        ts.fetch("nowhere", tmpfs / "back.shelf")


def test_behind_a_failure_it_looks_what_lies_there(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remote may have lost it: it was mounted anew, say."""
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "run.shelf") as shelf:
        assign(shelf, 1)
        made = new_site(shelf)
        copied(made, shelf, tmpfs)
        shelf.persist(2)
        remote.fail_at = {remote.changes}
        with pytest.raises(ts.errors.IoError):
            copied(made, shelf, tmpfs)
        made.failed()
        remote.durable.clear()
        copied(made, shelf, tmpfs)
        ts.fetch("nowhere", tmpfs / "back.shelf")


def test_a_piece_that_could_not_be_put_is_not_taken_for_there(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor before the remote is asked anew."""
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "run.shelf") as shelf:
        assign(shelf, 1)
        made = new_site(shelf)
        for _ in range(2):
            remote.fail_at = {remote.changes + 1}
            with pytest.raises(ts.errors.IoError):
                copied(made, shelf, tmpfs)
        copied(made, shelf, tmpfs)
        ts.fetch("nowhere", tmpfs / "back.shelf")


def test_equal_pieces_of_a_version_are_sent_once(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the second comes while the first is on its way."""
    remote, number, another = Remote(), itertools.count(), threading.Event()
    use(monkeypatch, remote)
    put = remote.put

    def late(path: str, data: bytes) -> None:
        if next(number) == 0:
            assert another.wait(60)
        else:
            another.set()
        put(path, data)

    monkeypatch.setattr(remote, "put", late)
    with ts.open(tmpfs / "run.shelf") as shelf:
        shelf.x = np.repeat([1, 1, 2], PIECE // 8)
        shelf.persist()
        spool = Spool(str(tmpfs))
        staged = new_site(shelf).stage(shelf._core, 1, spool)
        done: dict[str, Any] = {"wait": lambda nbytes: None, "moved": lambda nbytes: None}
        upload.send(remote, staged, spool, upload.Pieces(remote), suffix="", threads=2, **done)
        spool.close()
    assert len(staged.spooled) == 3
    assert len(remote.puts) == len(set(remote.puts)) == 2


def test_a_spool_that_was_cut_short_is_told(tmp_path: pathlib.Path) -> None:
    spool = Spool(str(tmp_path))
    at = spool.add(b"12345")
    os.ftruncate(spool._file.fileno(), 3)
    with pytest.raises(ts.errors.IoError, match="gave 3 bytes of 5") as error:
        spool.read(*at)
    check(error, ts.errors.IoError, "io_error", OSError)
    spool.close()


def test_nothing_is_committed_that_names_what_is_not_known_to_be_there(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote()
    use(monkeypatch, remote)
    sends = place.send

    def loses(remote: Any, staged: Any, spool: Any, pieces: Any, **options: Any) -> None:
        sends(remote, staged, spool, pieces, **options)
        pieces._stored.popitem()

    monkeypatch.setattr(place, "send", loses)
    with ts.open(tmpfs / "run.shelf") as shelf:
        assign(shelf, 1)
        made = new_site(shelf)
        with pytest.raises(ts.errors.IoError, match="nowhere has no piece") as error:
            copied(made, shelf, tmpfs)
        check(error, ts.errors.IoError, "io_error", OSError)
        assert not entries(remote.now())
        monkeypatch.setattr(place, "send", sends)
        made.failed()
        copied(made, shelf, tmpfs)
        ts.fetch("nowhere", tmpfs / "back.shelf")


def test_a_shelf_that_was_put_back_is_drained_from_there(
    tmpfs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Its versions have numbers that lie at the remote already, of another history."""
    path = tmpfs / "run.shelf"
    with ts.open(path) as shelf:
        Run(shelf, ts.Drain(tmp_path / "remote")).step(1)
    copy = path.read_bytes()
    with ts.open(path) as shelf:
        run = Run(shelf, ts.Drain(tmp_path / "remote"))
        run.step(2)
        run.step(3)
    path.write_bytes(copy)
    with ts.open(path) as shelf:
        run = Run(shelf, ts.Drain(tmp_path / "remote"))
        assert run.drain.wait()
        assert run.drain.info().step == 1
        run.step(12)
        run.step(13)
        assert run.drain.info().version == 3
        assert fetched(tmp_path / "remote", tmp_path / "back.shelf") == 13


def test_a_version_of_another_history_is_drained_though_its_number_lies_there(
    tmpfs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = tmpfs / "run.shelf"
    with ts.open(path) as shelf:
        Run(shelf, ts.Drain(tmp_path / "remote")).step(1)
    copy = path.read_bytes()
    with ts.open(path) as shelf:
        Run(shelf, ts.Drain(tmp_path / "remote")).step(2)
    path.write_bytes(copy)
    with ts.open(path) as shelf:
        shelf["values"][:] = 12
        shelf.persist(12)  # version 2 once more, and nobody drains it
        run = Run(shelf, ts.Drain(tmp_path / "remote"))
        assert run.drain.wait()
        assert (run.drain.info().version, run.drain.info().step) == (2, 12)
        assert fetched(tmp_path / "remote", tmp_path / "back.shelf") == 12


@pytest.mark.parametrize("compress", [None, "zlib"])
def test_what_was_deleted_is_sent_again_when_it_comes_back(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, compress: Any
) -> None:
    use(monkeypatch, Remote())
    with ts.open(tmpfs / "run.shelf") as shelf:
        made = new_site(shelf, compress=compress)
        for step in (1, 2, 1):
            assign(shelf, step)
            copied(made, shelf, tmpfs)
            made.collect()
        ts.fetch("nowhere", tmpfs / "back.shelf")
    with ts.open(tmpfs / "back.shelf", "r") as back:
        assert check_whole(back) == 1


def copied_and_damaged(
    remote: Remote, shelf: ts.Shelf, folder: pathlib.Path
) -> tuple[str, list[Any]]:
    """Drains a version, and damages its manifest: where that lies, and what it names."""
    assign(shelf, 1)
    return damaged_at(remote, copied(new_site(shelf), shelf, folder))


def damaged_at(remote: Remote, made: Manifest) -> tuple[str, list[Any]]:
    """Damages the only manifest that is there."""
    stored = list(made.stored)
    remote.settle()
    (path,) = [path for path in remote.durable if path.startswith(FOLDER)]
    remote.durable[path] += b"x"
    return path, stored


def test_when_a_damaged_manifest_is_gone_what_it_named_goes(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "run.shelf") as shelf:
        name, _ = copied_and_damaged(remote, shelf, tmpfs)
        assign(shelf, 2)
        made = new_site(shelf)  # finds it damaged
        del remote.durable[name]
        copied(made, shelf, tmpfs)
        made.collect()
        assert unnamed(remote.now()) == set()


def test_a_job_is_behind_that_of_a_damaged_manifest(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it might find there that another had begun later, and drain no more."""
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "run.shelf") as shelf:
        copied_and_damaged(remote, shelf, tmpfs)
        assign(shelf, 2)
        copied(new_site(shelf), shelf, tmpfs)
    assert [name.generation for name in names_at(remote, FOLDER)] == [1, 2]


def test_beside_a_damaged_manifest_nothing_is_swept(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be whole again when somebody mends it."""
    first = Remote()
    use(monkeypatch, first)
    with ts.open(tmpfs / "run.shelf") as shelf:
        damaged, stored = copied_and_damaged(first, shelf, tmpfs)
        assign(shelf, 2)
        made = new_site(shelf)
        copied(made, shelf, tmpfs)
        made.collect()
        assert {each.path for each in stored} <= first.now().keys()
        first.settle()
        del first.durable[damaged]
        assign(shelf, 3)
        copied(made, shelf, tmpfs)
        made.collect()  # by the same job
        assert unnamed(first.now()) == set()


def test_pieces_that_a_damaged_manifest_names_stay_when_another_goes(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own bytes may be all that is bad, and be mended from a copy."""
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "run.shelf") as shelf:
        shelf.a, shelf.b = np.full(1000, 1), np.full(1000, 1)
        shelf.persist()
        _, stored = damaged_at(remote, copied(new_site(shelf), shelf, tmpfs))
        shelf.b[:] = 2  # what a has is of both versions
        shelf.persist()
        made = new_site(shelf, keep=1)
        copied(made, shelf, tmpfs)
        shelf.a[:] = shelf.b[:] = 3
        shelf.persist()
        copied(made, shelf, tmpfs)
        made.collect()
        assert [entry.version for entry in entries(remote.now())] == [3]
        assert {each.path for each in stored} <= remote.now().keys()


def test_a_part_that_could_not_be_read_once_is_read_again(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be on its way there still, where puts are not all at once."""
    remote, calls = Remote(), []
    use(monkeypatch, remote)
    part = Part("job", 0, 1, 1, 5)
    with ts.open(tmpfs / "run.shelf") as shelf:
        assign(shelf, 1)
        copied(new_site(shelf), shelf, tmpfs)

    def decode(data: bytes, path: str) -> Any:
        calls.append(path)
        if len(calls) == 1:
            raise ts.CorruptError("half of it is there", "Wait.")
        return SimpleNamespace(group=part, nbytes=8)

    monkeypatch.setattr(roll.manifest, "decode", decode)
    made = roll.Roll("nowhere", 1)
    made._ranks[0].remote = remote
    epoch = epoch_of(part)
    assert made.call(epoch) == [None]
    assert made.call(epoch) != [None]
    made.forget()
    assert made.call(epoch) != [None]
    assert len(calls) == 3
