"""Drives of a set rate: loop devices over files, throttled by the kernel for a group of processes.

Needs root, loop devices, and the block controller of cgroups, version 1 (blkio) or 2 (io). What it
makes it takes away again.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_BYTES = 3 << 30  # of a drive; sparse
_TRIAL_SECONDS = 0.75  # of writing, which shows whether a drive is throttled


class CannotThrottle(Exception):
    """Says what is missing."""


@dataclass(frozen=True)
class Drives:
    folders: list[Path]  # a file system on each
    devices: list[str]  # as the kernel numbers them
    rate: float  # bytes a second that each was set to
    cgroup: Path  # whose processes are throttled
    rates: list[float]  # bytes a second that dd wrote to each, past the page cache

    def join(self) -> None:
        """This process, with all its threads, is throttled from now on."""
        (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))

    def written(self) -> int:
        """Bytes, to all of them."""
        stats = (Path("/sys/dev/block", each, "stat").read_text().split() for each in self.devices)
        return sum(int(stat[6]) * 512 for stat in stats)


@contextlib.contextmanager
def throttled(where: Path, count: int, rate: float) -> Iterator[Drives]:
    """So many, over files in that folder. Raises CannotThrottle."""
    if os.geteuid() != 0:
        raise CannotThrottle("loop devices and cgroups are root's, and this is another user")
    with contextlib.ExitStack() as stack:
        try:
            made = [stack.enter_context(_drive(where / f"drive.{n}")) for n in range(count)]
            devices = [device for device, _ in made]
            cgroup = stack.enter_context(_cgroup(devices, rate))
            folders = [folder for _, folder in made]
            drives = Drives(folders, devices, rate, cgroup, [])
            rates = [_rate(drives, folder) for folder in folders]
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", None) or str(error)
            raise CannotThrottle(f"loop devices or cgroups do not work here: {told}") from error
        slow = [found for found in rates if not 0.5 * rate < found < 1.3 * rate]
        if slow:
            raise CannotThrottle(
                f"a drive was set to {rate / 1e6:.0f} MB/s, and writes {slow[0] / 1e6:.0f}"
            )
        yield Drives(folders, devices, rate, cgroup, rates)


@contextlib.contextmanager
def _drive(image: Path) -> Iterator[tuple[str, Path]]:
    with contextlib.ExitStack() as stack:
        image.touch()
        stack.callback(image.unlink)
        os.truncate(image, _BYTES)
        loop = _said("losetup", "--find", "--show", "--direct-io=on", str(image))
        stack.callback(_said, "losetup", "--detach", loop)
        _said("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", loop)
        folder = image.with_suffix(f"{image.suffix}.mounted")
        folder.mkdir()
        stack.callback(folder.rmdir)
        _said("mount", loop, str(folder))
        stack.callback(_said, "umount", str(folder))
        yield Path("/sys/block", Path(loop).name, "dev").read_text().strip(), folder


@contextlib.contextmanager
def _cgroup(devices: list[str], rate: float) -> Iterator[Path]:
    """Limits are written one by one: the kernel takes a device a time."""
    parent, file, limit = _controller()
    cgroup = parent / f"tensorshelf-{os.getpid()}"
    cgroup.mkdir()
    try:
        for device in devices:
            (cgroup / file).write_text(limit.format(device=device, rate=int(rate)))
        yield cgroup
    finally:
        for process in (cgroup / "cgroup.procs").read_text().split():
            (parent / "cgroup.procs").write_text(process)
        cgroup.rmdir()


def _controller() -> tuple[Path, str, str]:
    """The folder of all groups, the file of a limit, and what is written there."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup" and "blkio" in options.split(","):
            return Path(folder), "blkio.throttle.write_bps_device", "{device} {rate}"
        if kind == "cgroup2":
            control = Path(folder, "cgroup.subtree_control")
            if "io" in Path(folder, "cgroup.controllers").read_text().split():
                control.write_text("+io")
                return Path(folder), "io.max", "{device} wbps={rate}"
    raise CannotThrottle("no cgroup here has the block controller (blkio, or io)")


def _rate(drives: Drives, folder: Path) -> float:
    """As a process of the group writes, past the page cache."""
    path, block = folder / "tried", 1 << 20
    count = int(drives.rate * _TRIAL_SECONDS / block)
    to = [f"of={path}", f"bs={block}", f"count={count}", "oflag=direct"]
    begin = time.perf_counter()
    _said("dd", "if=/dev/zero", *to, preexec_fn=drives.join)
    seconds = time.perf_counter() - begin
    path.unlink()
    return count * block / seconds


def _said(*command: str, preexec_fn: Callable[[], None] | None = None) -> str:
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, preexec_fn=preexec_fn
    )
    return done.stdout.strip()
