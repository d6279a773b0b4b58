"""What reports, lines, log records and errors say, word by word, made of facts that are given."""

import dataclasses
import datetime
import errno
import importlib
import logging
import types
from typing import Any

import pytest

import tensorshelf as ts
from tensorshelf import _display, _info, _open, _repair

PROMISES = {
    "medium": "pmem",
    "detail": "FS-DAX file",
    "survives": "power loss",
    "mapped": True,
    "needs_flush": False,
    "volatile_cache": False,
    "one_machine": True,
    "atomic_bytes": 8,
    "notes": ["of the medium"],
    "remarks": ["of its drive"],
}
RECOVERY = {
    "version": 5,
    "step": 50,
    "interrupted": False,
    "degraded": False,
    "salvaged": False,
    "lost": [6, 7],
    "dropped": [3],
    "prepared": None,
    "repaired_copies": 4,
    "notes": ["of the opening"],
}
INFO = {
    "path": "/a/b.shelf",
    "shelf_id": "ab" * 16,
    "version": 5,
    "step": 50,
    "incarnation": 9,
    "tensors": 2,
    "tensor_bytes": 3 << 10,
    "capacity_bytes": 64 << 20,
    "free_bytes": 5 << 20,
    "keep": 2,
    "in_flight": 3,
    "placement": "whole",
    "writable": True,
    "created": False,
    "promises": PROMISES,
    "media": (),
    "recovery": RECOVERY,
}
MEDIUM = {
    "number": 1,
    "path": "/drive/b.part",
    "medium_id": "cd" * 16,
    "capacity_bytes": 8 << 20,
    "free_bytes": 2 << 20,
    "retired": False,
    "absent": False,
    "mirrors": None,
    "promises": {**PROMISES, "medium": "block", "detail": "file, O_DIRECT"},
}
PREPARED = {"version": 6, "step": 60, "id": b"job 5", "data_bytes": 70}


def info(**changes: Any) -> ts.Info:
    recovery = {k: v for k, v in changes.items() if k in RECOVERY and k not in ("version", "step")}
    others = {k: v for k, v in changes.items() if k not in recovery}
    return _info.info_from({**INFO, **others, "recovery": {**RECOVERY, **recovery}})


# ---- from the native half's words to values


def test_every_fact_has_its_own_name() -> None:
    found = info()
    assert dataclasses.asdict(found) == {
        **INFO,
        "promises": {**PROMISES, "notes": ("of the medium",), "remarks": ("of its drive",)},
        "recovery": {
            **RECOVERY,
            "lost": (6, 7),
            "dropped": (3,),
            "notes": ("of the opening",),
        },
    }
    found = info(prepared=PREPARED)
    assert found.recovery.prepared == ts.Prepared(version=6, step=60, id=b"job 5", data_bytes=70)
    assert _info.prepared_from(None) is None


def test_versions_and_their_times() -> None:
    for step in (None, 0, 7):
        given = {"version": 3, "step": step, "time_ns": 1_700_000_000_250_000_000, "data_bytes": 9}
        time = datetime.datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=datetime.UTC)
        found = _info.version_from(given)
        assert found == ts.VersionInfo(version=3, step=step, time=time, data_bytes=9)
        assert found.time is not None
        assert found.time.utcoffset() == datetime.timedelta(0)
        said = "" if step is None else f" (step {step})"
        assert repr(found) == f"<VersionInfo 3{said}, 2023-11-14 22:13:20 UTC, 9 B assigned>"
        assert _info.version_from({**given, "time_ns": 0}).time is None


HOLDS: list[dict[str, Any]] = [
    {"intact_in": [], "healable": False, "healed": False, "in_mirror": False},
    {"intact_in": [1, 2], "healable": True, "healed": False, "in_mirror": False},
    {"intact_in": [2], "healable": True, "healed": True, "in_mirror": True},
]
DAMAGE = [
    {"tensor": name, "version": 2, "slot": 1, "chunk": chunk, "offset": 4096, "nbytes": 77}
    | {"medium": 1, **holds}
    for (name, chunk), holds in zip((("b", 3), ("a", 0), ("b", 4)), HOLDS, strict=True)
]
FOUND = (
    ts.Damage("b", 2, 1, 3, 4096, 77, 1),
    ts.Damage("a", 2, 1, 0, 4096, 77, 1, (1, 2), healable=True),
    ts.Damage("b", 2, 1, 4, 4096, 77, 1, (2,), healable=True, healed=True, in_mirror=True),
)


def test_damage_is_told_chunk_by_chunk() -> None:
    given: dict[str, Any] = {"version": 4, "tensors": 3, "chunks": 5, "nbytes": 6, "damage": DAMAGE}
    given["healed_as"] = 5
    report = _info.report_from(given)
    assert report == ts.VerifyReport(4, 3, 5, 6, damage=FOUND, healed_as=5)
    assert report.left == FOUND[:2]
    assert not report
    assert _info.report_from({**given, "damage": DAMAGE[2:]})
    assert _info.report_from({**given, "damage": []})
    given = {"repaired": True, "version": 4, "step": 0, "lost": [5], "notes": ["n"]}
    done = _repair._repair_from({**given, "damage": DAMAGE})
    assert done == ts.Repair(
        repaired=True, version=4, step=0, lost=(5,), damage=FOUND, notes=("n",)
    )
    assert done.damaged == ("b", "a")


@pytest.mark.parametrize("step", [None, 0, 3])
def test_a_commit_tells_what_it_was(step: int | None) -> None:
    given: Any = types.SimpleNamespace(
        version=4, step=step, data_bytes=100, metadata_bytes=24_576, seconds=0.0123456
    )
    landed: Any = types.SimpleNamespace(
        staged=lambda: True, done=lambda: True, wait=lambda: given, times=dict
    )
    commit = ts.Commit(landed)
    assert (commit.version, commit.step, commit.nbytes) == (4, step, 100)
    assert (commit.metadata_nbytes, commit.seconds) == (24_576, 0.0123456)
    assert (commit.done(), commit.wait()) == (True, commit)
    assert repr(commit) == f"Commit(version=4, step={step}, nbytes=100, seconds=0.012346)"


# ---- lines


def test_info_as_a_table() -> None:
    assert (
        str(info()).split("\n")
        == repr(info()).split("\n")
        == [
            "path      /a/b.shelf",
            "version   5 (step 50)",
            "tensors   2, 3.0 KiB",
            "room      5.0 MiB of 64.0 MiB free",
            "versions  keep=2, in_flight=3",
            "opened    for writing",
            "medium    pmem: FS-DAX file",
            "survives  power loss",
            "note      of the medium",
            "note      of its drive",
            "note      of the opening",
        ]
    )
    for changes, line in (
        ({"created": True}, "opened    for writing, and made anew"),
        ({"writable": False}, "opened    for reading"),
        ({"writable": False}, "room      64.0 MiB"),
        ({"step": None}, "version   5 (step None)"),
        (
            {"prepared": PREPARED},
            "prepared  version 6 (step 60), id b'job 5', when opened",
        ),
    ):
        assert line in str(info(**changes)).split("\n")
    assert "prepared" not in str(info(prepared=PREPARED, version=6))
    found = info(media=[{**MEDIUM, "number": 0}, MEDIUM])
    assert str(found).split("\n")[7] == (
        "medium 1  /drive/b.part: block, file, O_DIRECT, 2.0 MiB of 8.0 MiB free"
    )
    assert found.media[1].promises.medium == "block"


@pytest.mark.parametrize(
    ("changes", "prepared", "text"),
    [
        ({}, False, "version 5 (step 50), 2 tensors, 3.0 KiB, pmem"),
        ({"step": 0}, False, "version 5 (step 0), 2 tensors, 3.0 KiB, pmem"),
        ({"step": None}, False, "version 5, 2 tensors, 3.0 KiB, pmem"),
        ({"tensors": 1}, False, "version 5 (step 50), 1 tensor, 3.0 KiB, pmem"),
        ({"tensors": 0}, False, "version 5 (step 50), 0 tensors, 3.0 KiB, pmem"),
        ({"writable": False}, False, "version 5 (step 50), 2 tensors, 3.0 KiB, pmem, read-only"),
        ({}, True, "version 5 (step 50), version 6 prepared, 2 tensors, 3.0 KiB, pmem"),
    ],
)
def test_a_shelf_in_one_line(changes: dict[str, Any], prepared: bool, text: str) -> None:
    waits = ts.Prepared(**PREPARED) if prepared else None  # type: ignore[arg-type]
    assert _display.line(info(**changes), waits) == f"Shelf '/a/b.shelf': {text}"


def test_what_cannot_be_asked_says_why() -> None:
    assert _display.in_words(ts.ClosedError("long", "words")) == "closed"
    assert _display.in_words(ts.ForkedError("long")) == "belongs to the parent of this process"
    assert _display.in_words(ts.StaleError("it went", "open again")) == "it went"


# ---- the log


@pytest.mark.parametrize(
    ("changes", "records"),
    [
        ({"notes": []}, []),
        ({"notes": ["a", "b"]}, [("INFO", "a"), ("INFO", "b")]),
        (
            {"notes": [], "interrupted": True},
            [("INFO", "recovered version 5 (step 50); version 6 was incomplete")],
        ),
        (
            {"notes": ["why"], "degraded": True, "interrupted": True},
            [
                ("WARNING", "recovered version 5 (step 50); a newer one was damaged"),
                ("INFO", "why"),
            ],
        ),
        (
            {"notes": [], "degraded": True, "salvaged": True},
            [("WARNING", "salvaged version 5 (step 50)")],
        ),
        (
            {"notes": ["n"], "interrupted": True, "prepared": PREPARED},
            [
                ("INFO", "recovered version 5 (step 50); version 6 was incomplete"),
                ("WARNING", "version 6, prepared as b'job 5', waits for resolve()"),
                ("INFO", "n"),
            ],
        ),
    ],
    ids=str,
)
def test_what_opening_logs(
    changes: dict[str, Any],
    records: list[tuple[str, str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for step, said in ((50, " (step 50)"), (0, " (step 0)"), (None, "")):
        caplog.clear()
        found = info(**changes)
        found = dataclasses.replace(found, recovery=dataclasses.replace(found.recovery, step=step))
        with caplog.at_level(logging.DEBUG, "tensorshelf"):
            _open._log_recovery(found)
        assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
            ("tensorshelf", level, f"/a/b.shelf: {text.replace(' (step 50)', said)}")
            for level, text in records
        ]


def test_a_shelf_that_was_emptied_by_damage_says_so(caplog: pytest.LogCaptureFixture) -> None:
    found = info(degraded=True, notes=[])
    found = dataclasses.replace(found, recovery=dataclasses.replace(found.recovery, version=0))
    _open._log_recovery(found)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "all versions are damaged, and it is as empty as it began" in record.getMessage()


# ---- errors: what programs match on never changes

ERRORS: dict[str, tuple[str, tuple[type, ...], int]] = {
    "ShelfNotFound": ("shelf_not_found", (FileNotFoundError,), errno.ENOENT),
    "ShelfExists": ("shelf_exists", (FileExistsError,), errno.EEXIST),
    "NotAShelf": ("not_a_shelf", (ValueError,), 0),
    "CorruptError": ("corrupt", (), 0),
    "TruncatedError": ("shelf_truncated", (ts.CorruptError,), 0),
    "FormatTooNew": ("newer_format", (ValueError,), 0),
    "ShelfBusy": ("shelf_busy", (BlockingIOError,), errno.EAGAIN),
    "ShelfFull": ("shelf_full", (OSError,), errno.ENOSPC),
    "LayoutError": ("layout_mismatch", (ValueError, TypeError), 0),
    "UnknownName": ("unknown_name", (KeyError,), 0),
    "UnknownAttribute": ("unknown_name", (ts.UnknownName, AttributeError), 0),
    "BadName": ("bad_name", (ValueError,), 0),
    "NameTaken": ("name_taken", (ValueError,), 0),
    "BadArgument": ("bad_argument", (ValueError, TypeError), 0),
    "ReadOnlyError": ("read_only", (PermissionError,), errno.EACCES),
    "ClosedError": ("shelf_closed", (ValueError,), 0),
    "LeasedError": ("slot_leased", (BufferError,), 0),
    "ForkedError": ("used_after_fork", (RuntimeError,), 0),
    "NotDaxError": ("not_dax", (OSError,), errno.EOPNOTSUPP),
    "UnsupportedError": ("unsupported", (RuntimeError,), 0),
    "ShelfGone": ("shelf_gone", (FileNotFoundError,), errno.ENOENT),
    "UncommittedError": ("uncommitted_changes", (RuntimeError,), 0),
    "UnresolvedError": ("unresolved", (RuntimeError,), 0),
    "AbandonedError": ("abandoned", (RuntimeError,), 0),
    "TransactionError": ("in_transaction", (RuntimeError,), 0),
    "SpoiledError": ("tensor_spoiled", (RuntimeError,), 0),
    "GroupError": ("group_aborted", (RuntimeError,), 0),
    "TornSave": ("torn_save", (RuntimeError,), 0),
    "StaleError": ("version_overwritten", (RuntimeError,), 0),
    "PinnedError": ("version_pinned", (TimeoutError,), 0),
    "MediumMissing": ("medium_missing", (FileNotFoundError,), errno.ENOENT),
    "IoError": ("io_error", (OSError,), errno.EIO),
    "ShelfFailed": ("shelf_failed", (RuntimeError,), 0),
    "NotStorable": ("not_storable", (TypeError,), 0),
    "KeyMismatch": ("key_mismatch", (KeyError,), 0),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_what_they_were(name: str) -> None:
    code, bases, number = ERRORS[name]
    kind = getattr(ts, name)
    assert kind.__bases__ == (
        *([] if issubclass(bases[0] if bases else int, ts.ShelfError) else [ts.ShelfError]),
        *bases,
    )
    assert (kind.code, kind.default_errno) == (code, number)
    if name != "UnknownAttribute":  # Python's alone: the store knows one code for both
        assert type(ts.errors.from_core(code, "it failed", "wait", 0)) is kind
    error = kind("it failed", "wait")
    assert (error.what, error.remedy, str(error)) == ("it failed", "Wait.", "it failed. Wait.")
    if issubclass(kind, OSError):
        assert error.errno == (number or None)
        assert kind("it failed", "", errno.EPERM).errno == errno.EPERM
    else:
        assert not hasattr(kind("it failed", "", errno.EPERM), "errno")


def test_there_are_no_other_errors() -> None:
    listed = {*ERRORS, "ShelfError", "TierWarning"}
    assert set(ts.errors.__all__) == listed
    assert set(ts.errors.BY_CODE) == {code for code, _, _ in ERRORS.values()}
    assert issubclass(ts.TierWarning, UserWarning)
    assert (ts.ShelfError.code, ts.ShelfError("a").remedy) == ("shelf_error", "")


@pytest.mark.parametrize(
    ("remedy", "text"),
    [
        ("wait", "Wait."),
        ("wait, then go on", "Wait, then go on."),
        ("persist() again", "persist() again."),
        ("shelf.discard() first!", "shelf.discard() first!"),
        ("Wait.", "Wait."),
        ("is it?", "Is it?"),
        ("x_y is it", "x_y is it."),
        ("", ""),
    ],
)
def test_a_remedy_is_a_sentence_and_code_stays_code(remedy: str, text: str) -> None:
    assert ts.IoError("it failed", remedy).remedy == text


@pytest.mark.parametrize("module", ["_info", "_opening", "_options", "_build", "_repair"])
def test_what_is_told_is_a_value(module: str) -> None:
    told = vars(importlib.import_module(f"tensorshelf.{module}")).values()
    kinds = [kind for kind in told if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    assert kinds
    for kind in kinds:
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]
