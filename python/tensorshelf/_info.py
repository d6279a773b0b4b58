"""What a shelf tells about itself, as values."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from tensorshelf._size import format_size


@dataclass(frozen=True)
class Promises:
    """What the medium guarantees, found by probing it."""

    medium: str  # its name, as "pmem"
    detail: str  # "FS-DAX file, MAP_SYNC"; "file, O_DIRECT, io_uring"
    survives: str  # "power loss", "process crash" or "nothing"
    mapped: bool  # reads are leases of the slots themselves
    needs_flush: bool  # stores rest in the CPU's cache until flushed
    volatile_cache: bool  # the device may hold writes until a barrier
    one_machine: bool  # none but this one reaches it: the lock keeps every other writer out
    atomic_bytes: int  # the most that lands all or nothing at power loss
    notes: tuple[str, ...]  # each fallback taken, and what to change for more
    remarks: tuple[str, ...] = ()  # on the hardware: no fallback, and nothing to warn of


@dataclass(frozen=True)
class MediumInfo:
    """One of the media that a shelf lies on."""

    number: int  # as tensors are placed by; 0: the shelf's own
    path: str
    medium_id: str
    capacity_bytes: int  # how much of it is the shelf's
    free_bytes: int  # 0 where nothing may be written
    retired: bool  # it was removed, and older versions may have tensors there
    absent: bool  # it is missing, and the other of a medium and its mirror serves
    mirrors: int | None  # the number of the medium that it mirrors
    promises: Promises


@dataclass(frozen=True)
class Prepared:
    """A version that is durable, and neither committed nor abandoned yet."""

    version: int  # that it becomes
    step: int | None
    id: bytes  # what prepare() was given
    data_bytes: int  # of tensors that were assigned for it


@dataclass(frozen=True)
class Recovery:
    """What opening found."""

    version: int
    step: int | None
    interrupted: bool  # an attempt beyond this version was left incomplete
    degraded: bool  # the newest version was damaged; this older one was verified whole
    salvaged: bool  # degraded, and not verified: tensors may be damaged
    lost: tuple[int, ...]  # newer versions, which may have been acknowledged
    dropped: tuple[int, ...]  # older ones that were retained, and cannot be loaded
    prepared: Prepared | None  # a version beyond this one, which waits for resolve()
    repaired_copies: int  # second copies of metadata written anew
    notes: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Info:
    """A shelf at one moment, shown as a table."""

    path: str
    shelf_id: str
    version: int
    step: int | None
    incarnation: int  # counts openings for writing, its creation too
    tensors: int
    tensor_bytes: int
    capacity_bytes: int
    free_bytes: int
    keep: int  # versions that stay readable beside the newest
    in_flight: int  # versions that may be on their way at once
    placement: str  # of tensors that are made from now on: "whole" or "by_chunk"
    writable: bool
    created: bool  # this opening made it: there was none, or it was replaced
    promises: Promises  # of the first medium; "survives" is what the weakest of all does
    media: tuple[MediumInfo, ...]  # by number; the first is the shelf's own
    recovery: Recovery

    def __repr__(self) -> str:
        promises = self.promises
        rows = [
            ("path", self.path),
            ("version", f"{self.version} (step {self.step})"),
            ("tensors", f"{self.tensors}, {format_size(self.tensor_bytes)}"),
            ("room", _room(self, self.writable)),
            ("versions", f"keep={self.keep}, in_flight={self.in_flight}"),
            ("opened", _opened(self)),
            *_waiting(self),
            ("medium", f"{promises.medium}: {promises.detail}"),
            *(_medium(each, self.writable) for each in self.media[1:]),
            ("survives", survives(promises)),
            *(("note", note) for note in _notes(self)),
        ]
        return "\n".join(f"{label:<9} {text}" for label, text in rows)


def _room(of: Info | MediumInfo, writable: bool) -> str:
    """What of it is free, its writer alone knows."""
    size = format_size(of.capacity_bytes)
    return f"{format_size(of.free_bytes)} of {size} free" if writable else size


def _medium(medium: MediumInfo, writable: bool) -> tuple[str, str]:
    promises = medium.promises
    room = _room(medium, writable)
    if medium.mirrors is not None:
        room = f"mirrors medium {medium.mirrors}"
    room += ", removed" if medium.retired else ""
    room += ", missing" if medium.absent else ""
    return f"medium {medium.number}", f"{medium.path}: {promises.medium}, {promises.detail}, {room}"


def _notes(info: Info) -> Iterator[str]:
    yield from _said(info.promises)
    for medium in info.media[1:]:
        yield from (f"medium {medium.number}: {note}" for note in _said(medium.promises))
    yield from info.recovery.notes


def _said(promises: Promises) -> tuple[str, ...]:
    return (*promises.notes, *promises.remarks)


def _opened(info: Info) -> str:
    if info.created:
        return "for writing, and made anew"
    return "for writing" if info.writable else "for reading"


def _waiting(info: Info) -> list[tuple[str, str]]:
    prepared = info.recovery.prepared
    if prepared is None or prepared.version <= info.version:
        return []
    text = f"version {prepared.version} (step {prepared.step}), id {prepared.id!r}, when opened"
    return [("prepared", text)]


def survives(promises: Promises) -> str:
    """What a version survives, in words."""
    if promises.volatile_cache and promises.survives == "power loss":
        return "power loss, if the drive honours flushes"
    return promises.survives


@dataclass(frozen=True, repr=False)
class VersionInfo:
    """A version that can be read; ``shelf.versions`` lists them."""

    version: int
    step: int | None
    time: datetime.datetime | None  # when it was persisted, in UTC by its writer's clock
    data_bytes: int  # of tensors that were assigned for it

    def __repr__(self) -> str:
        step = "" if self.step is None else f" (step {self.step})"
        time = "" if self.time is None else f", {self.time:%Y-%m-%d %H:%M:%S} UTC"
        return f"<VersionInfo {self.version}{step}{time}, {format_size(self.data_bytes)} assigned>"


@dataclass(frozen=True)
class VersionDiff:
    """What one version has otherwise than another; true where anything."""

    # All three are sorted. A tensor that was replaced, resized or moved is in ``created`` and in
    # ``erased``; one that was renamed is in ``created`` by its new name, in ``erased`` by its old.
    created: list[str]
    erased: list[str]
    changed: dict[str, list[int]]  # chunks of 1 MiB, by index

    def __bool__(self) -> bool:
        return bool(self.created or self.erased or self.changed)


@dataclass(frozen=True, repr=False)
class CompactReport:
    """What ``shelf.compact()`` did."""

    version: int  # the newest by then
    bytes_before: int  # how much of its media was the shelf's
    bytes_after: int
    bytes_moved: int  # of slots, which lie elsewhere now
    bytes_copied: int  # of values that nobody assigned: read, checked and written anew
    damaged: list[str]  # tensors that stay where they are: verify() tells of what
    # False: somebody held a version that reaches further, or a mirror could not be made shorter.
    # The room is free, and those files keep their length until it is called again. (A mirror's is
    # then cut in this opening, or where more is to be cut.)
    files_cut: bool

    def __repr__(self) -> str:
        before, after, moved, copied = map(
            format_size, (self.bytes_before, self.bytes_after, self.bytes_moved, self.bytes_copied)
        )
        damaged = f", damaged: {', '.join(map(repr, self.damaged))}" if self.damaged else ""
        uncut = (
            "" if self.files_cut else ", not all files cut: a version or a mirror was in the way"
        )
        return (
            f"<CompactReport version {self.version}, {after} of {before}, "
            f"{moved} moved, {copied} copied{damaged}{uncut}>"
        )


@dataclass(frozen=True)
class Damage:
    """One chunk whose checksum fails."""

    tensor: str
    version: int  # that last wrote it
    slot: int
    chunk: int
    offset: int  # in the file or device, in bytes
    nbytes: int
    medium: int = 0  # on which that is: a number of ``info().media``
    # Older versions whose own value of this chunk is sound, whether it is the same or another.
    intact_in: tuple[int, ...] = ()
    # Another slot, or the mirror of its medium, has the very bytes: verify(repair=True) can restore
    # them.
    healable: bool = False
    healed: bool = False  # verify(repair=True) restored it
    in_mirror: bool = False  # the chunk is sound; damaged is what the mirror of its medium has


@dataclass(frozen=True)
class VerifyReport:
    """What ``shelf.verify()`` found; true when every byte is as it was written, or is so again."""

    version: int
    tensors: int
    chunks: int
    nbytes: int
    damage: tuple[Damage, ...]
    healed_as: int | None = None  # the version that verify(repair=True) made, if it restored any

    @property
    def left(self) -> tuple[Damage, ...]:
        """What is damaged still."""
        return tuple(found for found in self.damage if not found.healed)

    @property
    def ok(self) -> bool:
        """True when nothing is damaged any more."""
        return not self.left

    def __bool__(self) -> bool:
        return self.ok


def info_from(found: dict[str, Any]) -> Info:
    """Info of the native module's dict."""
    promises = promises_from(found["promises"])
    media = tuple(
        MediumInfo(**{**each, "promises": promises_from(each["promises"])})
        for each in found["media"]
    )
    kept = {name: tuple(found["recovery"][name]) for name in ("lost", "dropped", "notes")}
    prepared = prepared_from(found["recovery"]["prepared"])
    recovery = Recovery(**{**found["recovery"], **kept, "prepared": prepared})
    return Info(**{**found, "promises": promises, "media": media, "recovery": recovery})


def promises_from(found: dict[str, Any]) -> Promises:
    """Promises of the native module's dict."""
    said = {name: tuple(found[name]) for name in ("notes", "remarks")}
    return Promises(**{**found, **said})


def prepared_from(found: dict[str, Any] | None) -> Prepared | None:
    """Prepared of the native module's dict; None where nothing is."""
    return None if found is None else Prepared(**found)


def version_from(found: dict[str, Any]) -> VersionInfo:
    """VersionInfo of the native module's dict."""
    seconds = found["time_ns"] / 1e9
    time = datetime.datetime.fromtimestamp(seconds, datetime.UTC) if seconds else None
    return VersionInfo(found["version"], found["step"], time, found["data_bytes"])


def report_from(found: dict[str, Any]) -> VerifyReport:
    """VerifyReport of the native module's dict."""
    return VerifyReport(**{**found, "damage": damage_from(found["damage"])})


def damage_from(found: list[dict[str, Any]]) -> tuple[Damage, ...]:
    """Damage of the native module's dicts."""
    told = [{f.name: d[f.name] for f in fields(Damage)} for d in found]
    return tuple(Damage(**{**each, "intact_in": tuple(each["intact_in"])}) for each in told)
