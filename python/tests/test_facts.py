"""What reports, lines and errors state: each fact by itself."""

import dataclasses
import errno
import logging
import os
import pathlib
import pickle
import types
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check

import tensorshelf as ts
from tensorshelf import _display, _exit
from tensorshelf._size import parse_size

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


# ---- reports


@pytest.mark.parametrize(
    ("created", "erased", "changed", "differs"),
    [
        ([], [], {}, False),
        (["a"], [], {}, True),
        ([], ["a"], {}, True),
        ([], [], {"a": [0]}, True),
    ],
)
def test_a_difference_is_true_for_any_of_three(
    created: list[str], erased: list[str], changed: dict[str, list[int]], differs: bool
) -> None:
    assert bool(ts.VersionDiff(created, erased, changed)) is differs


def test_what_a_repair_says() -> None:
    damage = [ts.Damage(name, 1, 0, chunk, 4096, 10) for name, chunk in (("w", 0), ("w", 1))]
    damage += [ts.Damage("b", 1, 0, 0, 0, 10), ts.Damage("m", 1, 0, 0, 0, 10, in_mirror=True)]
    found = ts.Repair(True, 5, 4, (6, 7), tuple(damage), ("why",))
    assert found.damaged == ("w", "b")  # of m the shelf's own bytes are sound
    assert str(found).split("\n") == [
        "repaired  yes",
        "version   5 (step 4)",
        "lost      version 6, version 7",
        "damaged   'w', 'b'",
        "note      why",
    ]
    assert str(ts.Repair(False, 5, None, (), (), ())).split("\n") == [
        "repaired  no, there was no need",
        "version   5 (step None)",
        "lost      no version",
        "damaged   no tensor",
    ]


def test_a_report_of_damage_is_false() -> None:
    report = ts.VerifyReport(1, 1, 1, 10, ())
    assert (bool(report), report.ok) == (True, True)
    report = dataclasses.replace(report, damage=(ts.Damage("w", 1, 0, 0, 0, 10),))
    assert (bool(report), report.ok) == (False, False)


def test_what_survives_is_a_drives_word_on_drives_alone(shelf: ts.Shelf) -> None:
    info = shelf.info()
    for cache, survives, text in [
        (True, "power loss", "power loss, if the drive honours flushes"),
        (False, "power loss", "power loss"),
        (True, "process crash", "process crash"),
        (False, "nothing", "nothing"),
    ]:
        promises = dataclasses.replace(info.promises, volatile_cache=cache, survives=survives)
        lines = str(dataclasses.replace(info, promises=promises)).split("\n")
        assert f"survives  {text}" in lines


def test_info_shows_what_opening_found(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.x = [1.0]
    shelf.persist(1)
    shelf.prepare(2, id=b"run 7")
    assert "prepared" not in str(shelf.info())  # when it was opened, nothing was
    shelf = reopen(mode="r+")
    line = "prepared  version 2 (step 2), id b'run 7', when opened"
    assert line in str(shelf.info()).split("\n")
    assert "opened    for writing" in str(shelf.info()).split("\n")
    shelf.resolve("commit")
    assert line not in str(shelf.info()).split("\n")
    assert "opened    for reading" in str(reopen(mode="r").info()).split("\n")


def test_what_the_build_says() -> None:
    found = ts.build_info()
    assert found.version == ts.__version__
    assert list(found.libraries) == ["libpmem2", "libpmemobj", "liburing", "hwloc", "cuda"]
    assert found.cuda_devices() >= 0
    words = {True: "yes", False: "no"}
    assert str(found).split("\n") == [
        f"version   {found.version}",
        *(f"{name:<9} {words[there]}" for name, there in found.libraries.items()),
        *(f"note      {note}" for note in found.lacks),
    ]


# ---- lines


@pytest.mark.parametrize(
    ("version", "pending", "dirty", "spoiled", "prepared", "text"),
    [
        (0, 0, False, False, False, "not persisted"),
        (3, 0, False, False, False, "version 3"),
        (3, 4, False, False, False, "version 4, on its way"),
        (3, 4, True, False, False, "version 4, on its way, dirty"),
        (3, 4, False, False, True, "version 4, prepared"),
        (3, 0, True, True, True, "version 3, dirty, spoiled"),
    ],
)
def test_whose_a_value_is(
    version: int, pending: int, dirty: bool, spoiled: bool, prepared: bool, text: str
) -> None:
    info: Any = types.SimpleNamespace(
        version=version, pending=pending, dirty=dirty, spoiled=spoiled, media=[0]
    )
    assert _display.state(info, prepared=prepared) == text


def test_lines_of_shelves_and_versions(reopen: OpenShelf, place: Place) -> None:
    shelf = reopen(keep=1)
    medium = shelf.info().promises.medium
    assert repr(shelf) == f"<Shelf '{place[0]}': version 0, 0 tensors, 0 B, {medium}>"
    shelf.six, shelf.seven = np.arange(6), np.arange(7)
    assert "int64[6] [0, 1, 2, 3, 4, 5], not" in repr(shelf.six)
    assert "int64[7], not" in repr(shelf.seven)
    shelf.persist()
    assert repr(shelf.at(1)) == f"<RetainedVersion 1 of '{place[0]}', 2 tensors>"
    del shelf.six
    shelf.prepare(3)
    text = f"<Shelf '{place[0]}': version 1, version 2 prepared, 1 tensor, 56 B, {medium}>"
    assert repr(shelf) == text
    shelf.resolve("commit")
    reader = reopen(mode="r")
    text = f"<Shelf '{place[0]}': version 2 (step 3), 1 tensor, 56 B, {medium}, read-only>"
    assert repr(reader) == text
    assert repr(reader.at(2)) == f"<RetainedVersion 2 (step 3) of '{place[0]}', 1 tensor>"


def test_the_rows_of_a_table(shelf: ts.Shelf) -> None:
    shelf.w = np.zeros((4, 3), np.float32)
    shelf.persist(1)
    shelf.v = True
    shelf.persist(2)
    shelf.v = False
    shelf.new = [1]
    rows = [
        row.replace("</td>", "").split("<td>")[1:] for row in shelf._repr_html_().split("</tr>")
    ]
    assert rows[1:4] == [
        ["new", "int64", "[1]", "8 B", "-", "dirty"],
        ["v", "bool", "[]", "1 B", "2", "dirty"],
        ["w", "float32", "[4, 3]", "48 B", "1", ""],
    ]
    assert "more" not in shelf._repr_html_()


def test_the_last_row_of_a_full_table(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_display, "TABLE_ROWS", 2)
    shelf.update(a=1, b=2)
    assert "more" not in shelf._repr_html_()
    shelf.c = 3
    assert "and 1 more" in shelf._repr_html_()


def test_a_closed_shelf_can_be_looked_through(shelf: ts.Shelf) -> None:
    shelf.x = [1]
    shelf.persist()
    shelf.close()
    assert "persist" in dir(shelf)
    assert "x" not in dir(shelf)


# ---- errors


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (ts.ShelfNotFound, errno.ENOENT),
        (ts.ShelfExists, errno.EEXIST),
        (ts.ShelfBusy, errno.EWOULDBLOCK),
        (ts.ShelfFull, errno.ENOSPC),
        (ts.ReadOnlyError, errno.EACCES),
        (ts.NotDaxError, errno.EOPNOTSUPP),
        (ts.ShelfGone, errno.ENOENT),
        (ts.IoError, errno.EIO),
    ],
)
def test_errno_is_the_systems_or_the_kinds(kind: type[ts.ShelfError], number: int) -> None:
    made = ts.errors.from_core(kind.code, "it failed", "", 0)
    assert (type(made), made.errno) == (kind, number)  # type: ignore[attr-defined]
    made = ts.errors.from_core(kind.code, "it failed", "", errno.EPERM)
    assert made.errno == errno.EPERM  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(made)).what == "it failed"


def test_an_error_of_a_later_store_is_an_error_all_the_same() -> None:
    made = ts.errors.from_core("of_a_later_version", "it failed", "wait", 5)
    assert (type(made), made.what, made.remedy) == (ts.ShelfError, "it failed", "Wait.")
    assert not hasattr(made, "errno")


@pytest.mark.parametrize(
    ("what", "remedy", "text"),
    [
        ("it failed", "", "it failed"),
        ("it failed", "wait", "it failed. Wait."),
        ("did it fail?", "wait now!", "did it fail? Wait now!"),
        ("it failed!", "is it?", "it failed! Is it?"),
        ("it failed.", "wait", "it failed. Wait."),
    ],
)
def test_one_stop_between_sentences(what: str, remedy: str, text: str) -> None:
    assert str(ts.UnknownName(what, remedy)) == str(ts.IoError(what, remedy)) == text


@pytest.mark.parametrize("unit", ["k", "M", "g", "T", "p"])
def test_a_unit_of_two_meanings_is_not_guessed(unit: str) -> None:
    with pytest.raises(ts.BadArgument, match="ambiguous") as caught:
        parse_size(f"1.5{unit}")
    for number, power in ((1024, f"1.5{unit.upper()}iB"), (1000, f"1.5{unit.upper()}B")):
        assert f'"{power}" (powers of {number})' in caught.value.remedy
        at = "kmgtp".index(unit.lower()) + 1
        assert parse_size(power) == number**at * 3 // 2


@pytest.mark.parametrize(
    "options",
    [
        {"keep": np.True_},
        {"in_flight": True},
        {"in_flight": np.True_},
        {"size": np.True_},
        {"block": ts.BlockOptions(queue_depth=True)},
        {"block": ts.BlockOptions(queue_depth=1025)},
        {"block": ts.BlockOptions(queue_depth=-1)},
        {"block": ts.BlockOptions(queue_depth=2.0)},  # type: ignore[arg-type]
        {"block": {"queue_depth": 2}},
    ],
    ids=str,
)
def test_what_is_no_number_of_anything(disk: pathlib.Path, options: dict[str, Any]) -> None:
    with pytest.raises(ts.BadArgument) as caught:
        ts.open(disk / "x.shelf", tier="block", **options)
    check(caught, ts.BadArgument, "bad_argument", ValueError, TypeError)
    assert not list(disk.iterdir())


def test_numbers_of_numpy_are_numbers(reopen: OpenShelf) -> None:
    shelf = reopen(keep=np.int64(2), in_flight=np.uint8(3), size=np.int32(64 << 20))
    assert (shelf.info().keep, shelf.info().in_flight) == (2, 3)
    assert shelf.persist(np.uint64(2**63 - 1)).step == 2**63 - 1
    assert shelf.persist(np.int8(0)).step == 0
    assert shelf.at(np.int64(1)).step == 2**63 - 1
    for bad in (2**63, np.uint64(2**63), -1, np.int8(-1)):
        with pytest.raises(ts.BadArgument, match="out of range"):
            shelf.persist(bad)
        with pytest.raises(ts.BadArgument, match="out of range"):
            shelf.at(bad)
    for bad in (True, np.False_):
        for use in (shelf.persist, shelf.at, shelf.rollback, shelf.diff, shelf.prepare):
            with pytest.raises(ts.BadArgument, match="is not a number"):
                use(bad)
    assert shelf.version == 2


# ---- who holds it


def test_the_error_names_the_line_that_opened_it(disk: pathlib.Path) -> None:
    path = disk / "run.shelf"
    (disk / "other").symlink_to(path)
    with ts.open(path, tier="block"), ts.open(path, "r", tier="block"):
        line = test_the_error_names_the_line_that_opened_it.__code__.co_firstlineno + 3
        where = f"{os.path.basename(__file__)}, line {line} opened it"
        for call in (lambda: ts.open(path, tier="block"), lambda: ts.repair(path, tier="block")):
            with pytest.raises(ts.ShelfBusy) as caught:
                call()
            error = check(caught, ts.ShelfBusy, "shelf_busy", BlockingIOError)
            assert isinstance(error, OSError)
            assert error.errno == errno.EDEADLK
            assert error.what.endswith(where)
        with pytest.raises(ts.ShelfBusy, match=f"{where} as {path}"):
            ts.open(disk / "other", tier="block")


def test_a_view_of_a_closed_shelf_holds_it_whoever_refers_to_that(tmpfs: pathlib.Path) -> None:
    path = tmpfs / "run.shelf"
    with ts.open(path) as shelf:
        shelf.x = [1.0]
        shelf.persist()
        view = shelf.x.numpy(copy=False)
    with ts.open(path, "r"):
        for call in (lambda: ts.open(path), lambda: ts.repair(path)):
            with pytest.raises(ts.ShelfBusy, match="was closed here, but a view") as caught:
                call()
            assert caught.value.errno == errno.EDEADLK
    assert shelf.closed
    assert view[0] == 1


def test_the_open_shelves_are_those_of_this_process(shelf: ts.Shelf) -> None:
    assert shelf in _exit.open_shelves()
    pid = shelf._pid
    object.__setattr__(shelf, "_pid", pid + 1)
    assert shelf not in _exit.open_shelves()
    object.__setattr__(shelf, "_pid", pid)


# ---- the log


def test_what_waits_is_logged_when_a_shelf_is_opened(
    reopen: OpenShelf, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = reopen()
    shelf.x = [1.0]
    shelf.persist()
    shelf.prepare(2, id=b"run 7")
    shelf.close()
    caplog.clear()
    shelf = reopen()
    waits = f"{place[0]}: version 2, prepared as b'run 7', waits for resolve()"
    records = [record for record in caplog.records if "waits for" in record.getMessage()]
    assert [record.getMessage() for record in records] == [waits]
    assert records[0].levelno == logging.WARNING
    shelf.resolve("abandon")
    caplog.clear()
    reopen()
    assert not caplog.records
