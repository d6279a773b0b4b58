"""open(): from what a user writes to what the store takes."""

import copyreg
import errno
import logging
import math
import os
import stat
import warnings
from collections.abc import Iterable
from typing import Any

from tensorshelf import _core, _exit, _opening
from tensorshelf._group.part import part_of_mark
from tensorshelf._info import Info
from tensorshelf._media import Also, Mirror, Without, further_media
from tensorshelf._numbers import seconds_of
from tensorshelf._opening import Opening
from tensorshelf._options import BlockOptions, choice, encoded_path, new_options, switch
from tensorshelf._placing import Placing, Rules
from tensorshelf._progress import Report, reporter
from tensorshelf._shelf import Shelf
from tensorshelf._spelling import spelled
from tensorshelf.errors import ShelfBusy, ShelfNotFound, TierWarning

logger = logging.getLogger("tensorshelf")

_MODES = {
    "r": _core.Mode.read,
    "r+": _core.Mode.update,
    "a": _core.Mode.append,
    "w": _core.Mode.replace,
    "x": _core.Mode.create,
}
_VERIFY = {
    "none": _core.Verify.never,
    "load": _core.Verify.on_load,
    "open": _core.Verify.on_open,
}
_ON_PIN = {"wait": _core.OnPin.wait, "outrun": _core.OnPin.outrun}
_warned: set[str] = set()


@spelled
def open(
    path: str | os.PathLike[str],
    mode: str = "a",
    *,
    size: int | str | None = None,
    tier: str = "auto",
    verify: str = "load",
    progress: Report | bool | None = None,
    block: BlockOptions | None = None,
    keep: int | None = None,
    in_flight: int | None = None,
    placement: str | None = None,
    threads: int | None = None,
    keep_unchanged: bool = False,
    heal: bool = False,
    salvage: bool = False,
    on_pin: str = "wait",
    pin_timeout: float | None = 60.0,
    also: Also = (),
    place: Rules | None = None,
    mirror: Mirror | None = None,
    without: Without = (),
) -> Shelf:
    """Opens, or creates, the shelf at a path: a file, a device, or a pool of libpmemobj.

    path      "~" and "~name" in front are home directories
    mode      "a"   opened, or created where there is none (the default) or a file of 0 bytes
              "r"   read only, takes no lock     "r+"  must exist
              "w"   a new one, in place of any   "x"   a new one, an error if there is one
    size      cap on a file's growth: bytes, or text such as "1GiB" or "500 MB"; no cap by default
    tier      "auto", or "pmem" or "block" to insist on a medium; "pool" makes the file a pool of
              libpmemobj, of ``size`` for good. A pool, and a pool set file (poolset(5)) whose parts
              become one, are found by "auto". A pool is open once at a time, with mode "r" too,
              which needs permission to write to it, and writes nothing.
    verify    when tensor checksums are checked: "load", when it is read (the default; on a mapped
              medium by a writer once, and not what it wrote itself); "open", all of them now;
              "none". Metadata is always checked.
    progress  for verify="open": True for a bar, or a function of (done, total) in bytes
    block     tuning of the block medium
    keep      versions that stay readable beside the newest: ``versions``, ``at()``, ``rollback()``
    in_flight versions that may be on their way at once, with ``persist(wait=False)``
              A tensor takes 1 + keep + in_flight times its size, for good. A new shelf has keep=0
              and in_flight=1 where nothing is said; a later opening may divide the same sum anew.
    placement of tensors that are made from now on: "by_chunk", where an update writes what it
              changes and no more, or "whole", where it copies the rest of a tensor as well, so
              that ``numpy(copy=False)`` can lend it. Default: "whole" where the medium is mapped.
    threads   how many, at most, copy one assignment, 1 to 64, where nothing is converted for it;
              each has 8 MiB at least, so below 16 MiB it is one. They end before the assignment
              does. Default: as many as the process may use CPUs, two at most (more were not
              measured). Of no effect with mode="r".
    keep_unchanged
              True: chunks of 1 MiB that are assigned the bytes which they have are hashed and not
              written, so that frozen weights cost a pass over memory; what did change is hashed
              twice. Holds for whole chunks that are assigned without a conversion. Bytes with the
              same XXH3-64 count as the same. ``stats()`` counts it: "bytes_unchanged".
    heal      True: a damaged chunk is read from another slot of its tensor, where one has the bytes
              with the right checksum, in place of raising CorruptError; with mode="r" too. (From
              the mirror of its medium, where there is one, it is read in any case.) Nothing
              is written: ``verify(repair=True)`` restores it. ``stats()`` counts it:
              "chunks_healed". Not for what ``numpy(copy=False)`` shows in place, nor for what
              verify="open" finds, nor for ``move()``, ``resize()`` and ``snapshot()``, nor for a
              chunk of which a part is assigned. An assignment may take the slot that has the sound
              bytes: repair before it.
    salvage   True, with mode="r": where damage keeps the shelf from opening, opens the newest
              version whose metadata is whole. What of it is damaged raises CorruptError when read;
              ``info().recovery`` says what is lost. See ``repair()`` for how to write again.
    on_pin    what a writer does where it needs a slot of a version that a reader elsewhere holds
              (``pin()``): "wait" for that reader, or "outrun" it: the reader then gets StaleError
    pin_timeout
              seconds after which PinnedError, which names the reader, ends the wait; None: never.
              With "wait" that of an assignment or ``persist()``, and of ``open()`` where a reader
              holds a version that is not retained any more; with "outrun" that of ``open()`` while
              a reader has what ``numpy(copy=False)`` gave of a version that it holds.

    also      media beside the one at ``path``: a path, or several, of files and devices; seven at
              most. Those that the shelf has already are found beside it, or where they were last;
              give them where they lie elsewhere. One that does not exist, or is empty, is made and
              added; tensors of 1 MiB and more lie on it from then on (see ``place``). The shelf
              survives what its weakest medium does, and needs all: one that is missing, another
              shelf's or an older copy is refused by name. What was added, or lies elsewhere now,
              is noted with the next version.
    place     on which media new tensors lie. Default: those below 1 MiB at ``path``, larger ones in
              stripes over all media that are not mapped; where all are mapped, on the second. A
              size, as "8MiB", is another limit. A dict has patterns of names, as {"opt.*":
              "/nvme/run.part"}, of which the first that matches holds; a function gets (name,
              nbytes). Both give the path of a medium, its number in ``info().media``, "stripe", a
              list of media to stripe over, or None for the default. Not stored: tensors stay where
              they were made. ``create(on=)`` says it for one.
    mirror    a path: a medium that mirrors the one at ``path``, byte for byte. Or, as {1: path},
              which of ``info().media`` it mirrors (0: the one at ``path``). Made, added, found and
              refused as those of ``also``; what there is is copied to a new one at once, and the
              next version names it. A version counts as committed when both have it. What is
              damaged on the medium is read from the mirror; ``verify()`` reads both, and
              ``verify(repair=True)`` mends either. With mode="r" one of the two is enough: where
              the medium at ``path`` is lost, its mirror is read in its place, and ``snapshot()``
              makes a whole shelf of it.
    without   numbers of mirrors that a writer gives up where they are missing: the next version
              has them no more. Without it MediumMissing says which one is missing.

    Opening is recovering: it gives the last version that persist() returned from, or the one that
    was in flight, and logs which, or that the shelf is new (logger "tensorshelf"; see also
    ``info().created``). Mode "w" destroys what was there at once,
    before anything is persisted. What ``size``, ``threads`` and ``keep_unchanged`` say holds for
    this opening; it is not stored.
    A file of 0 bytes becomes a shelf by replacing it, logged as a warning: what another program
    that has it open still writes to it is lost.
    Where the medium does less than it could, a TierWarning says once what to change.

    Raises ShelfNotFound, ShelfExists, NotAShelf, TruncatedError, FormatTooNew, ShelfBusy,
    CorruptError, MediumMissing, ReadOnlyError, NotDaxError, UnsupportedError, PinnedError,
    ShelfFull, BadArgument or IoError; with mode "r" StaleError where the writer is always faster.
    """
    native_mode = choice("mode", mode, _MODES)
    options = new_options(size, tier, block, keep, in_flight, placement, threads)
    native_path = _local(encoded_path(path))
    options.verify = choice("verify", verify, _VERIFY)
    options.keep_unchanged = switch("keep_unchanged", keep_unchanged)
    options.heal = switch("heal", heal)
    options.salvage = switch("salvage", salvage)
    options.on_pin = choice("on_pin", on_pin, _ON_PIN)
    seconds = seconds_of(pin_timeout, "pin_timeout")
    options.pin_timeout = math.inf if seconds is None else seconds
    further = further_media(also, mirror, without)
    placing = Placing(place)
    further.tell(options, None if place is None else placing)
    was_empty = mode == "a" and _is_empty_file(native_path)
    core = _opened(native_path, native_mode, options, progress)
    if was_empty:  # of our own making or not: nothing could be lost, but a step may be missed
        logger.warning("%s was a file of 0 bytes; it is a new shelf now", os.fsdecode(native_path))
    opening = Opening(
        path=os.fsdecode(os.path.abspath(native_path)),
        tier=tier,
        verify=verify,
        block=block,
        heal=options.heal,
        salvage=options.salvage,
        further=further,
        caller=_opening.caller(),
        file=_opening.file_id(native_path),
    )
    shelf = Shelf(core, opening)
    info = shelf.info()
    placing.media = info.media
    _log_recovery(info, further.absent())
    if info.created and not was_empty:  # a typo in the path starts anew, and in silence otherwise
        logger.info("created %s", info.path)
    for medium in info.media:
        _warn_of_fallbacks(medium.promises.notes, f"{medium.path}: " if medium.number else "")
    return shelf


def _local(path: bytes) -> bytes:
    """Raises ShelfNotFound for a URL, unless there is a folder of that name."""
    if b"://" in path and not os.path.exists(os.path.dirname(path)):
        raise ShelfNotFound(
            f"{os.fsdecode(path)} is a URL, and a shelf lies in a file or on a device of this "
            "machine",
            "tensorshelf.Drain(url) copies versions there, and fetch() makes a shelf of one.",
        )
    return path


def _opened(
    path: bytes, mode: _core.Mode, options: _core.OpenOptions, progress: Report | bool | None
) -> _core.Shelf:
    try:
        with reporter(progress, "verifying") as report:
            return _core.Shelf.open(path=path, mode=mode, options=options, progress=report)
    except ShelfBusy as error:
        if error.errno == errno.EDEADLK:
            raise held_here(path, error) from None
        raise


def reduced(shelf: Shelf) -> tuple[Any, ...]:
    """Open for reading, a shelf is pickled as its path, and opens itself where it arrives.

    It finds the newest version there is by then.
    """
    return reopened, (shelf._opening_for_another(),)


copyreg.pickle(Shelf, reduced)


def reopened(opening: Opening) -> Shelf:
    """A shelf that was pickled, open for reading in this process."""
    verify = "load" if opening.verify == "open" else opening.verify  # not all in each worker
    return open(
        opening.path,
        "r",
        tier=opening.tier,
        verify=verify,
        block=opening.block,
        heal=opening.heal,
        salvage=opening.salvage,
        also=opening.further.also,
        mirror=dict(opening.further.mirror),
    )


def _is_empty_file(path: bytes) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def held_here(path: bytes, error: ShelfBusy) -> ShelfBusy:
    """The error for a path that this process holds: by an open Shelf, or what is left of one.

    The native half cannot tell which; here all open shelves are known. Of another file, as that of
    a medium, and of what no mode shares, it has said all there is.
    """
    if not str(error).startswith(f"{os.fsdecode(path)} is still open for writing"):
        return error
    file = _opening.file_id(path)
    for shelf in _exit.open_shelves():
        if not shelf.closed and shelf._assignments.writable and shelf._opening.file == file:
            held, name = shelf._opening, os.fsdecode(os.path.abspath(path))
            other = "" if name == held.path else f" as {held.path}"
            what = (
                f"{os.fsdecode(path)} is open for writing here already, by another Shelf object: "
                f"{held.caller} opened it{other}"
            )
            return ShelfBusy(what, 'Use that one, close it, or use mode="r".', errno.EDEADLK)
    return ShelfBusy(
        f"{os.fsdecode(path)} was closed here, but a view of one of its tensors, from "
        "numpy(copy=False) or torch(copy=False), or a process that was forked meanwhile, such as a "
        "loader's worker, is alive and keeps the file locked",
        'Delete the view (del array), or take numpy(); end the workers; mode="r" needs no lock.',
        errno.EDEADLK,
    )


def _log_recovery(info: Info, absent: Iterable[str] = ()) -> None:
    for what in absent:  # for reading alone, which needs one of a medium and its mirror
        logger.warning("%s: its %s is not there", info.path, what)
    found = info.recovery
    step = "" if found.step is None else f" (step {found.step})"
    if found.salvaged:
        logger.warning("%s: salvaged version %d%s", info.path, found.version, step)
    elif found.degraded and found.version == 0:
        logger.warning(
            "%s: all versions are damaged, and it is as empty as it began; keep a copy of the file "
            "before you assign anything",
            info.path,
        )
    elif found.degraded:
        logger.warning(
            "%s: recovered version %d%s; a newer one was damaged", info.path, found.version, step
        )
    elif found.interrupted:
        logger.info(
            "%s: recovered version %d%s; version %d was incomplete",
            info.path,
            found.version,
            step,
            found.version + 1,
        )
    if found.prepared is not None and part_of_mark(found.prepared.id) is not None:
        logger.info(
            "%s: version %d is prepared, and resume() of its group decides on it",
            info.path,
            found.prepared.version,
        )
    elif found.prepared is not None:
        logger.warning(
            "%s: version %d, prepared as %r, waits for resolve()",
            info.path,
            found.prepared.version,
            found.prepared.id,
        )
    for note in found.notes:
        logger.info("%s: %s", info.path, note)


def _warn_of_fallbacks(notes: tuple[str, ...], whose: str = "") -> None:
    for note in notes:
        if note not in _warned:
            _warned.add(note)
            _, level = _opening.outside()
            warnings.warn(whose + note, TierWarning, stacklevel=level)
