"""What this build of tensorshelf was given, and what it lacks for want of it."""

from dataclasses import dataclass

from tensorshelf import _core


@dataclass(frozen=True)
class Build:
    """``tensorshelf.build_info()``; printing it shows a table."""

    version: str
    libpmem2: bool  # persistent memory, and files on tmpfs, are mapped
    liburing: bool  # files and drives are written through io_uring
    cuda: bool  # tensors on a GPU go straight into the shelf
    lacks: tuple[str, ...]  # a sentence for each that is missing: what works otherwise

    def cuda_devices(self) -> int:
        """CUDA devices that this process can use. Asks the driver, and so initialises it."""
        return int(_core.cuda_support()["devices"])

    def __str__(self) -> str:
        rows = [
            ("version", self.version),
            ("libpmem2", _yes(self.libpmem2)),
            ("liburing", _yes(self.liburing)),
            ("cuda", _yes(self.cuda)),
            *(("note", note) for note in self.lacks),
        ]
        return "\n".join(f"{label:<9} {text}" for label, text in rows)


def _yes(has: bool) -> str:
    return "yes" if has else "no"


def build_info() -> Build:
    """The options that the native half was built with. Which medium a shelf has: shelf.info()."""
    found = _core.build_info()
    return Build(**{**found, "version": _core.__version__, "lacks": tuple(found["lacks"])})
