"""DCP's StorageReader over the shelves of a group."""

import io
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from tensorshelf._options import BlockOptions, on_medium
from tensorshelf._values import _dtypes
from tensorshelf._view import Readable
from tensorshelf.dcp import _record, _room, _verdicts
from tensorshelf.dcp._home import check_wait
from tensorshelf.dcp._opening import Access, GroupSave, Tensors
from tensorshelf.dcp._places import Places, is_path
from tensorshelf.dcp._read import job_for, run_all
from tensorshelf.dcp._shares import Piece, Vouched
from tensorshelf.errors import ClosedError, CorruptError, ShelfNotFound, StaleError, UnknownName

_BATCH_BYTES = 256 << 20  # whose targets are there at once


class ShelfReader(StorageReader):
    """Loads by ``torch.distributed.checkpoint`` what ShelfWriter saved, by any number of ranks.

        dcp.load(state, storage_reader=ts.dcp.ShelfReader("run.shelf"))

    ``path`` is the one that the writer was given. The newest save that was committed for the group
    is read from the shelves of all ranks that have a part in it, each byte of it checked, and no
    more of a tensor than is needed. A part that its rank has not committed yet is committed first,
    for which its shelf is opened for writing.

    tier, verify, block  are as for ``tensorshelf.open``
    lock_wait            seconds to wait where another process has such a shelf open for writing

    ``checkpoint_id`` of DCP's calls is the same path or left out; another raises BadArgument.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tier: str = "auto",
        verify: str = "load",
        block: BlockOptions | None = None,
        lock_wait: float = 10.0,
    ) -> None:
        super().__init__()
        on_medium(tier, block)
        self._places = Places(path)
        check_wait(lock_wait)
        self._access = Access(tier, verify, block, lock_wait)
        self._save: GroupSave | None = None
        self._pieces: dict[MetadataIndex, Piece] = {}
        self._forms: dict[MetadataIndex, tuple[torch.dtype, tuple[int, ...]]] = {}  # of tensors

    @property
    def has_save(self) -> bool:
        """Whether there is a save to load; a crash in the first one leaves shelves without any."""
        try:
            return self._newest() is not None
        except ShelfNotFound:
            return False

    # ---- loading, in the order of DCP's calls

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Loading begins. Raises BadArgument for a path other than the reader's."""
        self._places.check(checkpoint_id)
        self._save = None

    def read_metadata(self) -> Metadata:
        """What the newest group save holds.

        It takes no arguments: where DCP could give ``rank``, it would try again on one rank what
        failed there, while the others wait.

        Raises ShelfNotFound where there is no shelf of rank 0, UnknownName where no save was
        committed, CorruptError where the record is damaged.
        """
        head = self._newest()
        if head is None:
            raise UnknownName(
                f"no DCP save was committed in {self._places.of(0)}",
                "dcp.save(state, storage_writer=ShelfWriter(path)) does, on all ranks.",
            )
        found = _record.metadata_of(head)
        self._save = GroupSave(self._places, self._access, head)
        found.storage_meta = StorageMeta(checkpoint_id=self._places.path)
        return found

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Remembers where the pieces are, and of what form."""
        self._pieces = metadata.storage_data
        self._forms = {
            MetadataIndex(fqn, chunk.offsets): (about.properties.dtype, tuple(chunk.sizes))
            for fqn, about in metadata.state_dict_metadata.items()
            if isinstance(about, TensorStorageMetadata)
            for chunk in about.chunks
        }

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Tells the coordinator which save this rank has seen."""
        return replace(plan, storage_data=Vouched(self._seen().head.id, False))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Raises StaleError where ranks have seen different saves, for they would be mixed."""
        save = self._seen()
        seen = {plan.storage_data.id for plan in plans if isinstance(plan.storage_data, Vouched)}
        if seen - {save.head.id}:
            raise StaleError(
                f"{self._places.of(0)} was saved anew while loading began, and ranks have seen "
                "different saves",
                "Load again.",
            )
        word = Vouched(save.head.id, save.vouch())
        return [replace(plan, storage_data=word) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads what this rank's items need, shelf by shelf."""
        save = self._seen()
        word = plan.storage_data
        if isinstance(word, Vouched) and word.id != save.head.id:
            raise StaleError(
                "the reader looked at another save while one was being loaded",
                "Load again; give each load a reader of its own.",
            )
        save.vouched |= isinstance(word, Vouched) and word.durable
        save.settle_here()
        for rank, items in sorted(self._by_rank(plan).items()):
            with save.part(rank) as tensors:
                for some in self._batches(items):
                    self._read(tensors, some, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it can be a path."""
        return is_path(checkpoint_id)

    @property
    def checkpoint_id(self) -> str:
        """The path that stands for those of all ranks."""
        return self._places.path

    def _newest(self) -> _record.Head | None:
        with self._access.open(self._places.of(0)) as shelf:
            head = _record.find(shelf)
        if head is not None and not head.shares:
            raise _verdicts.not_coordinators(self._places.of(0))
        return head

    def _seen(self) -> GroupSave:
        if self._save is None:
            raise ClosedError(
                "nothing is being loaded", "Give the reader to dcp.load(), which begins."
            )
        return self._save

    def _by_rank(self, plan: LoadPlan) -> dict[int, list[ReadItem]]:
        items: dict[int, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            items[self._piece(item).rank].append(item)
        return items

    def _piece(self, item: ReadItem) -> Piece:
        try:
            return self._pieces[item.storage_index]
        except KeyError:
            raise UnknownName(
                f"the save has no piece {item.storage_index}", "Load by the Metadata that it has."
            ) from None

    def _batches(self, items: list[ReadItem]) -> Iterator[list[ReadItem]]:
        """For planners that give memory of their own for what is read."""
        some: list[ReadItem] = []
        held = 0
        for item in items:
            some.append(item)
            held += self._piece(item).nbytes
            if held >= _BATCH_BYTES:
                yield some
                some, held = [], 0
        yield some

    def _read(self, tensors: Tensors, items: list[ReadItem], planner: LoadPlanner) -> None:
        targets, jobs = [], []
        for item in items:
            handle = self._handle(tensors, item)
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(_room.content(tensors, handle.name)))
                continue
            self._check_form(handle, item)
            target = planner.resolve_tensor(item).detach()
            targets.append((item, target))
            jobs.append(job_for(handle, item, target))
        run_all([job for job in jobs if job is not None])
        for item, target in targets:
            planner.commit_tensor(item, target)

    def _check_form(self, handle: Readable, item: ReadItem) -> None:
        """Raises CorruptError where the tensor is not of the form that was saved."""
        index = item.storage_index
        dtype, shape = self._forms[MetadataIndex(index.fqn, index.offset)]
        name = _dtypes.name_of(dtype)
        if (handle.dtype_name, handle.shape) != (name, shape):
            there = _dtypes.layout_text(handle.dtype_name, handle.shape)
            raise CorruptError(
                f"{handle.name!r} is {there}, and the record says "
                f"{_dtypes.layout_text(name, shape)}",
                "Somebody replaced it. Save again, or load another save.",
            )

    def _handle(self, tensors: Tensors, item: ReadItem) -> Readable:
        name = self._piece(item).name
        if name not in tensors:
            raise CorruptError(
                f"the shelf has no tensor {name!r}, which the record names",
                "Somebody deleted it. Load another save.",
            )
        handle: Readable = tensors[name]
        return handle
