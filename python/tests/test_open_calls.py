"""What open(), repair() and snapshot() ask of the store, for each thing that a user may say."""

import contextlib
import importlib
import os
import pathlib
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place

import tensorshelf as ts
from tensorshelf import _core, _opening

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

BLOCK = {"buffer_bytes": 2 << 20, "queue_depth": 16, "io_uring": True, "direct": True}
PLAIN: dict[str, Any] = {
    "mode": _core.Mode.append,
    "tier": "auto",
    "verify": _core.Verify.on_load,
    "salvage": False,
    "max_size_bytes": 0,
    "keep": None,
    "in_flight": None,
    "placement": None,
    "threads": 0,
    "keep_unchanged": False,
    "heal": False,
    **BLOCK,
}


class Asked(Exception):
    """Ends a call of the store's with what it was asked."""


def asked(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    def ask(*given: Any, **named: Any) -> None:
        raise Asked({**dict(enumerate(given)), **named})

    monkeypatch.setattr(owner, name, ask)


def told(options: Any) -> dict[str, Any]:
    """Of OpenOptions, by name."""
    found = {k: getattr(options, k) for k in PLAIN if k not in BLOCK and k != "mode"}
    return {**found, **{k: getattr(options.block, k) for k in BLOCK}}


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"mode": "r"}, {"mode": _core.Mode.read}),
    ({"mode": "r+"}, {"mode": _core.Mode.update}),
    ({"mode": "a"}, {"mode": _core.Mode.append}),
    ({"mode": "w"}, {"mode": _core.Mode.replace}),
    ({"mode": "x"}, {"mode": _core.Mode.create}),
    ({"tier": "pmem"}, {"tier": "pmem"}),
    ({"tier": "block"}, {"tier": "block"}),
    ({"tier": "auto"}, {"tier": "auto"}),
    ({"verify": "none"}, {"verify": _core.Verify.never}),
    ({"verify": "load"}, {"verify": _core.Verify.on_load}),
    ({"verify": "open"}, {"verify": _core.Verify.on_open}),
    ({"salvage": True}, {"salvage": True}),
    ({"salvage": np.True_}, {"salvage": True}),
    ({"size": "64MiB"}, {"max_size_bytes": 64 << 20}),
    ({"size": 12_345}, {"max_size_bytes": 12_345}),
    ({"keep": 0}, {"keep": 0}),
    ({"keep": 14}, {"keep": 14}),
    ({"in_flight": 1}, {"in_flight": 1}),
    ({"in_flight": 15}, {"in_flight": 15}),
    ({"keep": 3, "in_flight": 2}, {"keep": 3, "in_flight": 2}),
    ({"placement": "whole"}, {"placement": _core.Placement.whole}),
    ({"placement": "by_chunk"}, {"placement": _core.Placement.by_chunk}),
    ({"threads": None}, {}),
    ({"threads": 1}, {"threads": 1}),
    ({"keep_unchanged": True}, {"keep_unchanged": True}),
    ({"heal": True}, {"heal": True}),
    ({"threads": np.int8(64)}, {"threads": 64}),
    ({"block": ts.BlockOptions()}, {}),
    ({"block": ts.BlockOptions(buffer="3MiB")}, {"buffer_bytes": 3 << 20}),
    ({"block": ts.BlockOptions(buffer=1 << 20)}, {"buffer_bytes": 1 << 20}),
    ({"block": ts.BlockOptions(queue_depth=1)}, {"queue_depth": 1}),
    ({"block": ts.BlockOptions(queue_depth=1024)}, {"queue_depth": 1024}),
    ({"block": ts.BlockOptions(io_uring=False)}, {"io_uring": False}),
    ({"block": ts.BlockOptions(direct=False)}, {"direct": False}),
]


@pytest.mark.parametrize(("said", "meant"), CASES, ids=lambda value: str(value)[:60])
def test_open_asks_for_what_was_said(
    disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch, said: Any, meant: dict[str, Any]
) -> None:
    monkeypatch.setenv("HOME", str(disk))
    asked(monkeypatch, _core.Shelf, "open")
    for path in ("~/run.shelf", disk / "run.shelf"):
        with pytest.raises(Asked) as caught:
            ts.open(path, **said)
        (found,) = caught.value.args
        assert set(found) == {"path", "mode", "options", "progress"}
        assert (found["path"], found["progress"]) == (str(disk / "run.shelf").encode(), None)
        wanted = {**PLAIN, **meant}
        assert {"mode": found["mode"], **told(found["options"])} == wanted


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"mode": "rw"}, "mode='rw' is unknown"),
        ({"mode": ["r"]}, "mode=['r'] is unknown"),
        ({"tier": "tape"}, "tier='tape' is unknown"),
        ({"verify": True}, "verify=True is unknown"),
        ({"placement": "here"}, "placement='here' is unknown"),
        ({"keep": -1}, "keep=-1 is out of range"),
        ({"keep": 15}, "keep=15 is out of range"),
        ({"keep": "1"}, "keep='1' is not a number"),
        ({"in_flight": 0}, "in_flight=0 is out of range"),
        ({"in_flight": 16}, "in_flight=16 is out of range"),
        ({"threads": 0}, "threads=0 is out of range"),
        ({"threads": 65}, "threads=65 is out of range"),
        ({"threads": -1}, "threads=-1 is out of range"),
        ({"threads": True}, "threads=True is not a number"),
        ({"threads": 1.0}, "threads=1.0 is not a number"),
        ({"size": 0}, "size=0 is out of range"),
        ({"block": ts.BlockOptions(buffer=0)}, "buffer=0 is out of range"),
        ({"block": ts.BlockOptions(buffer="2M")}, "buffer='2M' is ambiguous"),
        ({"block": ts.BlockOptions(queue_depth=0)}, "queue_depth=0 is out of range"),
        ({"block": True}, "block=True is not a BlockOptions"),
    ],
    ids=str,
)
def test_open_asks_for_nothing_else(
    disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch, said: Any, word: str
) -> None:
    asked(monkeypatch, _core.Shelf, "open")
    with pytest.raises(ts.BadArgument) as caught:
        ts.open(disk / "run.shelf", **said)
    assert caught.value.what.startswith(word)
    assert not list(disk.iterdir())


def test_repair_asks_for_what_was_said(disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, _core, "repair")
    for said, tier, changes in (
        ({}, "auto", {}),
        ({"tier": "pmem"}, "pmem", {}),
        ({"block": ts.BlockOptions(direct=False)}, "auto", {"direct": False}),
    ):
        with pytest.raises(Asked) as caught:
            ts.repair(disk / "run.shelf", **said)  # type: ignore[arg-type]
        (found,) = caught.value.args
        assert set(found) == {"path", "options", "progress"}
        assert (found["path"], found["progress"]) == (str(disk / "run.shelf").encode(), None)
        assert found["options"].tier == tier
        assert {k: getattr(found["options"].block, k) for k in BLOCK} == {**BLOCK, **changes}


def test_snapshot_asks_for_what_was_said(
    disk: pathlib.Path, reopen: OpenShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = reopen()
    asked(monkeypatch, _core.Shelf, "snapshot")
    for said, version, changes in (
        ({}, None, {}),
        ({"version": 0}, 0, {}),
        ({"version": 7}, 7, {}),
        ({"keep": 0, "in_flight": 3}, None, {"keep": 0, "in_flight": 3}),
        ({"tier": "block"}, None, {"tier": "block"}),
    ):
        with pytest.raises(Asked) as caught:
            shelf.snapshot(disk / "copy.shelf", **said)  # type: ignore[arg-type]
        (found,) = caught.value.args
        _, path, options, number, report = found.values()
        assert (path, number, report) == (str(disk / "copy.shelf").encode(), version, None)
        wanted = {k: v for k, v in {**PLAIN, **changes}.items() if k != "mode"}
        assert told(options) == wanted


def test_what_a_bar_is_named(
    reopen: OpenShelf, place: Place, disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = reopen()
    shelf.x = np.ones(1000)
    shelf.persist()
    shelf.close()
    seen: list[tuple[Any, str]] = []

    @contextlib.contextmanager
    def reporter(progress: Any, label: str) -> Iterator[None]:
        seen.append((progress, label))
        yield None

    for name in ("_open", "_repair", "_shelf", "_versioned"):
        module = importlib.import_module(f"tensorshelf.{name}")
        monkeypatch.setattr(module, "reporter", reporter)
    path, tier = place
    ts.repair(path, tier=tier, progress=True)
    with ts.open(path, tier=tier, verify="open", progress=True) as shelf:
        shelf.verify(progress=True)
        shelf.snapshot(disk / "copy.shelf", progress=True)
        shelf.verify()
    assert seen == [
        (True, "verifying"),
        (True, "verifying"),
        (True, "verifying"),
        (True, "copying"),
        (None, "verifying"),
    ]


# ---- where it was opened


@pytest.mark.parametrize(
    ("verify", "salvage"), [("none", False), ("load", False), ("open", False), ("load", True)]
)
def test_a_pickled_shelf_asks_for_what_it_was_opened_with(
    reopen: OpenShelf, place: Place, monkeypatch: pytest.MonkeyPatch, verify: str, salvage: bool
) -> None:
    shelf = reopen()
    shelf.persist()
    block = ts.BlockOptions(queue_depth=3, direct=False)
    shelf = reopen(mode="r", verify=verify, salvage=salvage, block=block)
    assert shelf._opening.file == _opening.file_id(place[0])
    pickled = pickle.dumps(shelf)
    asked(monkeypatch, _core.Shelf, "open")
    with pytest.raises(Asked) as caught:
        pickle.loads(pickled)
    (found,) = caught.value.args
    assert (found["path"], found["progress"]) == (str(place[0]).encode(), None)
    assert {"mode": found["mode"], **told(found["options"])} == {
        **PLAIN,
        "mode": _core.Mode.read,
        "tier": "block" if place[1] == "block" else "auto",
        "verify": _core.Verify.never if verify == "none" else _core.Verify.on_load,
        "salvage": salvage,
        "queue_depth": 3,
        "direct": False,
    }


def test_a_file_is_told_by_what_it_is(disk: pathlib.Path) -> None:
    path = disk / "a"
    path.write_bytes(b"x")
    (disk / "link").symlink_to(path)
    (disk / "b").write_bytes(b"x")
    found = path.stat()
    assert _opening.file_id(path.as_posix()) == (found.st_dev, found.st_ino)
    assert _opening.file_id(str(disk / "link").encode()) == (found.st_dev, found.st_ino)
    assert _opening.file_id(str(disk / "b")) != _opening.file_id(str(path))
    assert _opening.file_id(str(disk / "none")) is None
    null = pathlib.Path("/dev/null").stat()
    assert _opening.file_id("/dev/null") == (null.st_rdev, 0)


def test_a_snapshot_goes_where_its_path_led_when_it_began(
    reopen: OpenShelf, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = reopen()
    shelf.x = np.ones(3 << 18)
    shelf.persist()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    shelf.snapshot("copy.shelf", progress=lambda *_: os.chdir(tmp_path / "elsewhere"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.shelf", "elsewhere"]
    assert not list((tmp_path / "elsewhere").iterdir())
