"""What this build of tensorshelf was given, and what it lacks for want of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tensorshelf import _core


@dataclass(frozen=True)
class Build:
    """``tensorshelf.build_info()``; printing it shows a table."""

    version: str
    # Whether each is there: libpmem2 maps persistent memory and files on tmpfs, libpmemobj opens
    # pools, liburing writes to files and drives, hwloc knows the sockets of ranks, cuda brings
    # tensors on a GPU straight into the shelf.
    libraries: Mapping[str, bool]
    lacks: tuple[str, ...]  # a sentence for each that is missing: what works otherwise

    def cuda_devices(self) -> int:
        """CUDA devices that this process can use. Asks the driver, and so initialises it."""
        return int(_core.cuda_support()["devices"])

    def __str__(self) -> str:
        rows = [
            ("version", self.version),
            *((name, "yes" if there else "no") for name, there in self.libraries.items()),
            *(("note", note) for note in self.lacks),
        ]
        return "\n".join(f"{label:<9} {text}" for label, text in rows)


def build_info() -> Build:
    """The options that the native half was built with. Which medium a shelf has: shelf.info()."""
    parts = _core.build_parts()
    return Build(
        version=_core.__version__,
        libraries={name: there for name, there, _ in parts},
        lacks=tuple(without for _, there, without in parts if not there),
    )
