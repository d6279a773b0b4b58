"""The storages that `./run bench dcp` compares, by the same few calls."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter

import tensorshelf.dcp


class DurableWriter(dcp.FileSystemWriter):
    """torch's own, with what it lacks to be durable: its folder is synced, too."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync_files=True, thread_count=2, overwrite=True)
        self._synced = path

    def finish(self, metadata: Any, results: Any) -> None:
        super().finish(metadata, results)
        for folder in (self._synced, self._synced.parent):
            number = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)


class Ours:
    """Shelves: a writer that is kept, as a run keeps it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "run.shelf"
        self._writer: tensorshelf.dcp.ShelfWriter | None = None

    def writer(self) -> StorageWriter:
        if self._writer is None:
            self._writer = tensorshelf.dcp.ShelfWriter(self._path)
        return self._writer

    def reader(self) -> StorageReader:
        return tensorshelf.dcp.ShelfReader(self._path)

    def files(self) -> list[Path]:
        return sorted(self._path.parent.glob("run.*.shelf"))

    def saved(self) -> None:
        """After a save, on rank 0, in nobody's time. Nothing is left over."""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Over:
    """One directory of torch's own files that each save goes over."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "over"

    def writer(self) -> StorageWriter:
        return DurableWriter(self._path)

    def reader(self) -> StorageReader:
        return dcp.FileSystemReader(self._path)

    def files(self) -> list[Path]:
        return sorted(self._path.glob("*.distcp"))

    def saved(self) -> None:
        """Nothing is left over."""

    def close(self) -> None:
        """Nothing is open."""


class Apart:
    """A directory of torch's own files for each save; the newest that was finished counts.

    Older ones are removed after the next save, in nobody's time: what keeps them costs no less.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        taken = [int(path.name.removeprefix("apart-")) for path in folder.glob("apart-*")]
        self._next = max(taken, default=0) + 1

    def writer(self) -> StorageWriter:
        number, self._next = self._next, self._next + 1
        return DurableWriter(self._folder / f"apart-{number}")

    def reader(self) -> StorageReader:
        return dcp.FileSystemReader(self._newest() or self._folder / "apart-0")

    def files(self) -> list[Path]:
        newest = self._newest()
        return sorted(newest.glob("*.distcp")) if newest else []

    def saved(self) -> None:
        newest = self._newest()
        for path in self._folder.glob("apart-*"):
            if path != newest:
                shutil.rmtree(path)

    def close(self) -> None:
        """Nothing is open."""

    def _newest(self) -> Path | None:
        finished = [path.parent for path in self._folder.glob("apart-*/.metadata")]
        return max(finished, key=lambda path: int(path.name.removeprefix("apart-")), default=None)


Store = Ours | Over | Apart
STORES: dict[str, type[Store]] = {"shelves": Ours, "torch, over": Over, "torch, apart": Apart}
