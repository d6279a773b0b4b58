"""DCP's StorageWriter over shelves: one for each rank, under one commit of the coordinator's."""

import os
import threading
from dataclasses import replace
from typing import Any

from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from tensorshelf._options import BlockOptions
from tensorshelf._shelf import Shelf
from tensorshelf.dcp import _record, _verdicts, _write
from tensorshelf.dcp._home import Home, Options, home_of
from tensorshelf.dcp._news import news_of
from tensorshelf.dcp._places import Places, is_path
from tensorshelf.dcp._shares import Piece, Share, Word, Written, file_name, moment, new_id
from tensorshelf.dcp._staging import Staging
from tensorshelf.errors import ClosedError, ShelfError, UnsupportedError


class ShelfWriter(StorageWriter):
    """Saves by ``torch.distributed.checkpoint`` into shelves, one for each rank.

        with ts.dcp.ShelfWriter("run.shelf") as writer:
            dcp.save(state, storage_writer=writer)  # or async_save, by a thread or a process

    Rank 0 writes ``run.0.shelf``, rank 1 ``run.1.shelf``; ``{rank}`` in the path says where else
    the number is to stand. Each save is the next version of the same shelves: tensors are assigned
    in place, those that the state has no more are deleted. A crash at any moment leaves the save
    before or this one, of all ranks: rank 0's commit decides for all (docs/distributed.md).

    size, tier, block, keep, threads, keep_unchanged
                are as for ``tensorshelf.open``, of each rank's shelf
    keep_open   False closes the shelves after each save, so that other processes can load while
                this one goes on. A writer that was pickled, as for a process that saves in the
                background, does so in any case.
    lock_wait   seconds to wait for a shelf that another process has open for writing

    Writers of one path in one process share its shelves. Where one has them open, another may leave
    these options out, or give the same; with others its saves raise BadArgument, in DCP's
    CheckpointException, until the first is closed. Each has a ``lock_wait`` of its own.

    ``checkpoint_id`` of DCP's calls is the same path or left out; another raises BadArgument.
    ``step`` may be set before a save, on each rank, and is stored with the version.

    It is an AsyncStager too: ``async_save`` copies the state by it, in memory that is used again
    once the save that reads it has ended. ``close()``, or ``with``, lets shelf and memory go.
    """

    step: int | None = None

    _synchronize_after_execute = False  # stage() has copied when it returns

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        size: int | str | None = None,
        tier: str | None = None,
        block: BlockOptions | None = None,
        keep: int | None = None,
        threads: int | None = None,
        keep_unchanged: bool | None = None,
        keep_open: bool = True,
        lock_wait: float = 10.0,
    ) -> None:
        super().__init__()
        self._places = Places(path)
        self._options = Options(size, tier, block, keep, threads, keep_unchanged, lock_wait)
        self._keep_open = keep_open
        self._forget()

    def _forget(self) -> None:
        """What a pickled writer begins without."""
        self._rank = 0
        self._is_coordinator = False
        self._home: Home | None = None
        self._staging = Staging()
        self._of_thread = threading.local()  # turn, begun: of the save whose calls it makes

    # ---- a save, in the order of DCP's calls

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A save begins. Raises BadArgument for a path other than the writer's."""
        self._places.check(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Opens this rank's shelf, so that what is wrong with it comes before all planning."""
        if not kwargs.get("use_collectives", True):
            raise UnsupportedError(
                "use_collectives=False saves each rank by itself, under no commit of all",
                "Leave it out; for one process alone, use no_dist=True.",
            )
        rank = kwargs.get("rank")
        self._rank = _own_rank() if rank is None else rank
        if is_coordinator != (self._rank == 0):
            raise UnsupportedError(
                f"rank {self._rank} was told that it does {'' if is_coordinator else 'not '}"
                "coordinate",
                "Rank 0 of the process group has to: leave coordinator_rank out.",
            )
        self._is_coordinator = is_coordinator
        home = home_of(self._places.of(self._rank), self._rank)
        with home.whole(self._options) as shelf:
            self._home = home  # from here on: who is refused closes nothing of another's
            home.stays_open = self._keep_open
            home.turn = self._of_thread.turn = object()
            self._of_thread.begun = moment()
            if is_coordinator:
                _verdicts.refuse_prepared(shelf)
                _verdicts.refuse_part(shelf)
                home.discard(shelf)  # of a save that another rank failed in

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Tells each rank what became of its part of the save before."""
        with self._own().whole(self._options) as shelf:
            self._check_turn()  # or what it says may be older than the save that it says it to
            words = _verdicts.words_for(shelf, range(len(plans)))
        return [replace(plan, storage_data=word) for plan, word in zip(plans, words, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Assigns this rank's items; where it does not coordinate, prepares them as well."""
        written: Future[list[WriteResult]] = Future()
        if self._is_coordinator:
            written.set_result(self._assign(plan, planner))
        else:
            written.set_result(self._prepare(plan, planner))
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commits for the group: the one flip of the coordinator's shelf.

        Raises NotStorable, with the path, for Metadata that cannot be stored; nothing is committed.
        """
        pieces, shares = _gathered(results)
        home = self._own()
        with home.whole(self._options) as shelf:
            self._check_turn()
            self._of_thread.turn = None
            mine = home.take_assigned(shares.get(self._rank))
            shares[self._rank] = mine
            _write.put_record(shelf, _record.group(mine.id, shares, metadata, pieces))
            shelf.persist(self.step)
        metadata.storage_data = pieces
        metadata.storage_meta = news_of(self._places.path, shares.values())
        home.let_go()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it can be a path."""
        return is_path(checkpoint_id)

    def storage_meta(self) -> StorageMeta | None:
        """The path, for planners that ask."""
        return StorageMeta(checkpoint_id=self._places.path)

    @property
    def checkpoint_id(self) -> str:
        """The path that stands for those of all ranks."""
        return self._places.path

    def _assign(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        home = self._own()
        with home.whole(self._options) as shelf:
            self._check_turn()
            rows = _write.assign(shelf, plan, planner)
            home.assigned = self._share(shelf, new_id(shelf.info().shelf_id))
            return _results(rows, home.assigned)

    def _prepare(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        with self._own().whole(self._options) as shelf:
            word = self._heard(plan, shelf)
            _verdicts.settle(shelf, word)
            if not plan.items:  # nothing of the group save lies here
                self._own().let_go()
                return []
            rows = _write.assign(shelf, plan, planner)
            part = new_id(word.coordinator)
            _write.put_record(shelf, _record.mark(part))
            shelf.prepare(self.step, id=part)
            return _results(rows, self._share(shelf, part))

    def _heard(self, plan: SavePlan, shelf: Shelf) -> Word:
        """The coordinator's word. A planner that keeps plans drops it: then it is looked up."""
        word = plan.storage_data if isinstance(plan.storage_data, Word) else None
        if word is not None and not word.heard and word.arrived > self._of_thread.begun:
            word.heard = True
            return word
        path = self._places.of(0)
        try:
            return _verdicts.word_read(path, self._rank, self._options.tier, self._options.block)
        except ShelfError as error:
            if shelf.prepared is None and word is not None:
                return word  # there is nothing to decide
            if shelf.prepared is None:
                raise
            raise _verdicts.unreadable(shelf, path, error) from error

    def _share(self, shelf: Shelf, part: bytes) -> Share:
        """What this rank adds, as the version that its shelf has next."""
        file = file_name(self._own().path)
        return Share(self._rank, file, shelf.info().shelf_id, shelf.version + 1, part)

    def _check_turn(self) -> None:
        """Raises ClosedError where another save began while this one was on its way."""
        self._own().check_turn(getattr(self._of_thread, "turn", None))

    def _own(self) -> Home:
        if self._home is None:
            raise ClosedError(
                "no save is on its way", "Give the writer to dcp.save(), which begins one."
            )
        return self._home

    # ---- saving in the background

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A copy of the state on the host, for ``async_save``."""
        return self._staging.stage(state_dict)

    @property
    def should_synchronize_after_execute(self) -> bool:
        """False: ``stage()`` returns when everything is copied."""
        return self._synchronize_after_execute

    def synchronize_staging(self) -> None:
        """There is nothing to wait for."""

    # ---- the end

    def close(self) -> None:
        """Lets the shelf of this rank and the copies go. A later save opens it again."""
        self._staging.close()
        self._let_home_go()

    def _let_home_go(self) -> None:
        """Once: the shelf may be another writer's from then on."""
        home, self._home = self._home, None
        if home is not None:
            home.close()

    def __enter__(self) -> "ShelfWriter":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """For another process, to whom the shelf is left: one at a time can have it open."""
        self._let_home_go()
        return {"places": self._places, "options": self._options, "step": self.step}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._places, self._options = state["places"], state["options"]
        self.step = state["step"]
        self._keep_open = False  # nobody could ask this one to close
        self._forget()


def _own_rank() -> int:
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _results(rows: list[_write.Row], share: Share) -> list[WriteResult]:
    return [
        WriteResult(index, nbytes, Written(share, name, nbytes)) for index, name, nbytes in rows
    ]


def _gathered(
    results: list[list[WriteResult]],
) -> tuple[dict[MetadataIndex, Piece], dict[int, Share]]:
    pieces: dict[MetadataIndex, Piece] = {}
    shares: dict[int, Share] = {}
    for result in (each for rank in results for each in rank):
        written: Written = result.storage_data
        shares[written.share.rank] = written.share
        pieces[result.index] = Piece(written.share.rank, written.name, written.nbytes)
    return pieces, shares
