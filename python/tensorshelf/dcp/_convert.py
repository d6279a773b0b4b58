"""Checkpoints of DCP's own files as shelves, and back: by one process, which holds the whole."""

import os
import warnings
from collections.abc import Callable
from typing import Any

from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.planner import LoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter

from tensorshelf.dcp._reader import ShelfReader
from tensorshelf.dcp._writer import ShelfWriter


def from_dcp(
    directory: str | os.PathLike[str], path: str | os.PathLike[str], **options: Any
) -> None:
    """Saves what a directory of torch's FileSystemWriter holds into the shelf of rank 0.

    ``options`` are those of ShelfWriter. Values that are no tensors are unpickled on the way, as
    DCP does itself whenever it loads: convert what you trust.
    """
    state = _whole(FileSystemReader(directory))
    with ShelfWriter(path, **options) as writer:
        _save(state, writer)


def to_dcp(path: str | os.PathLike[str], directory: str | os.PathLike[str], **options: Any) -> None:
    """Saves what shelves hold, of however many ranks, into a directory for torch's own reader.

    ``options`` are those of ShelfReader. The same as of ``from_dcp`` holds for pickled values.
    """
    _save(_whole(ShelfReader(path, **options)), FileSystemWriter(directory))


# The one of torch's own converters: it makes the state from the Metadata.
_planner: Callable[[], LoadPlanner] = _EmptyStateDictLoadPlanner


def _whole(reader: StorageReader) -> dict[str, Any]:
    state: dict[str, Any] = {}
    _load_state_dict(state, storage_reader=reader, planner=_planner(), no_dist=True)
    return state


def _save(state: dict[str, Any], writer: StorageWriter) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # as is meant here
        save(state, storage_writer=writer, no_dist=True)
