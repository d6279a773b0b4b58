"""Which ranks save together, and the store that carries their messages."""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from socket import gethostname
from typing import Any

from tensorshelf._group.checked import (
    check_store,
    copies_of,
    name_of,
    path_of,
    rank_of,
    seconds_of,
    socket_of,
)
from tensorshelf._group.naming import Naming
from tensorshelf._group.replicas import Options
from tensorshelf._group.wire import Store, TrainersWire
from tensorshelf._group.writers import Choice, check_choice
from tensorshelf._size import parse_size
from tensorshelf.errors import BadArgument, UnsupportedError

_made = itertools.count()  # in this process; the same on every rank, for all make the same ones


@dataclass(frozen=True)
class GroupInfo:
    """Where a rank of a group stands."""

    job: str | None  # None before resume() has agreed with the others
    rank: int
    members: int
    generation: int | None  # of this start of the job
    epoch: int  # the last one that this rank has committed, or gone on from; 0 for none
    step: int | None  # of that
    undecided: int  # saves of this rank that wait for others, or are being copied
    keepers: tuple[int, ...]  # ranks with copies of this rank's part; none: its shelf is all
    held_by: tuple[int, ...]  # of these, those that have that epoch: each can give it back
    keeps: tuple[int, ...]  # whose parts it has copies of
    # Ranks that have not voted on the next, or of whose node one has not, where that has a relay.
    # Rank 0 knows, and a relay of its own node's.
    awaited: tuple[int, ...] | None
    partition: bool = False  # what all hold alike is in pieces: a lost shelf is lost to all
    writers: tuple[int, ...] = ()  # ranks that save these; none before resume() has agreed


class Group:
    """The ranks of a job whose saves are one version: each of all, or none.

        shelf = ts.open(f"run.{rank}.shelf", size="4GiB", in_flight=2)
        auto = shelf.autosave(group=ts.Group(), model=model, optimizer=optimizer)

    Without arguments these are the ranks of torch.distributed, which is to be initialized before;
    its store carries the messages, over connections of our own, and no collective is called. Every
    rank makes the same groups, in the same order; each is for one ``autosave()``.

    store    a store of torch.distributed, such as TCPStore; ``rank`` and ``members`` go with it
    rank     whose part of the state this process saves: from 0 on, each once; ``open_part()``
             finds out by the shelves that are there, and sets it
    members  how many there are
    timeout  seconds that ``resume()``, ``wait()``, ``close()``, and a ``step()`` that is held
             up, wait for other ranks

    replicate     how many other ranks keep a copy of each rank's part, on other nodes where there
                  are such; a version is committed when they have it. A rank whose shelf is lost,
                  or damaged, gets it back from a copy when the job starts next
    replicas      the folder for the copies that this rank keeps; by default they lie beside its
                  shelf, named after that: ``run.1.shelf.of-0`` has the part of rank 0
    replica_rate  the most that this rank sends for its copies, in bytes a second: a number, or
                  text such as "500MB"; a save waits for them before it is durable
    node          names what is lost together; by default the host
    rack          names what loses power, or the network, together: copies are on other racks
                  where there are such. Give it on all ranks, or on none

    partition  what data-parallel ranks hold alike, the parameters of models and what optimizers
               keep of them, is saved once, an equal piece by each writer, in place of all of it by
               each rank; ``resume()`` gives each the whole. A lost shelf without copies is a lost
               piece of the state: use ``replicate`` beside it. Who writes: "every_rank"; the
               lowest of each socket or node, "per_socket" or "per_node"; or a number of ranks,
               spread over nodes and sockets. True chooses: of each drive one rank of each socket,
               and every rank where the medium is mapped. The writers are chosen anew at each
               ``resume()``, which loads what other ones saved as well
    socket     the number of this rank's within its node; by default the one that has all CPUs which
               the thread that calls ``resume()`` may run on, where hwloc knows it. Ranks of a node
               that have none count as being on the same one
    """

    def __init__(
        self,
        store: Any = None,
        *,
        rank: int | None = None,
        members: int | None = None,
        timeout: float = 300.0,
        replicate: int = 0,
        replicas: str | os.PathLike[str] | None = None,
        replica_rate: int | str | None = None,
        node: str | None = None,
        rack: str | None = None,
        partition: Choice = False,
        socket: int | None = None,
    ) -> None:
        if (store is None, rank is None, members is None) not in ((True,) * 3, (False,) * 3):
            raise BadArgument(
                "of store, rank and members some are given, and some are not",
                "Give all three, or none: then they are torch.distributed's.",
            )
        self.timeout = seconds_of(timeout)
        self._node = name_of("node", node) or gethostname()
        self._rack = name_of("rack", rack)
        self._socket = socket_of(socket)
        if store is None:
            store, rank, members = _of_torch()
        self.rank, self.members = rank_of(rank, members)
        self._store = check_store(store)
        check_choice(partition, self.members)
        self.partition = partition
        folder = None if replicas is None else os.path.abspath(path_of("replicas", replicas))
        most = None if replica_rate is None else float(parse_size(replica_rate, "replica_rate"))
        self._replicas = Options(copies_of(replicate, self.members), folder, most)
        self._keeps_store = self.rank == 0  # it may lie there, whatever part open_part() gives
        self._number = next(_made)
        self._info: Callable[[], GroupInfo] | None = None  # of who has it
        self._has_places = False  # open_part() gave this rank its part
        self._is_numbered_anew = False  # and some rank another than its own; the same on all

    def info(self) -> GroupInfo:
        """Which version all have, as far as this rank knows, and whom it waits for."""
        if self._info is None:
            return GroupInfo(
                job=None,
                rank=self.rank,
                members=self.members,
                generation=None,
                epoch=0,
                step=None,
                undecided=0,
                keepers=(),
                held_by=(),
                keeps=(),
                awaited=None,
                partition=self.partition is not False,
            )
        return self._info()

    def _take(self, info: Callable[[], GroupInfo]) -> None:
        """For an autosave. Raises UnsupportedError the second time."""
        if self._info is not None:
            raise UnsupportedError(
                "this group has an autosave() already, and messages of two would mix",
                "Make a Group for each, on all ranks.",
            )
        self._info = info

    def _meet(self, by: str) -> TrainersWire:
        """For what all ranks do next, with keys that are those of nothing else. Blocks until all
        ranks call ``by``.
        """
        wire = TrainersWire(self._store, f"tensorshelf/{self._number}/", self.timeout)
        return wire.within(Naming(wire, self.rank, self.members, self.timeout, by).name())

    def _refuse_second_places(self) -> None:
        """Raises UnsupportedError where it has its parts."""
        if self._info is not None or self._has_places:
            raise UnsupportedError(
                "this group has its parts already: by open_part(), or by autosave()",
                "Make a Group for each run, on all ranks, and call open_part() once before.",
            )

    def __repr__(self) -> str:
        return f"<Group: rank {self.rank} of {self.members}>"


def check_group(group: Any) -> None:
    """Raises BadArgument for what is none."""
    if not isinstance(group, Group):
        raise BadArgument(f"group={group!r} is no group", "Use tensorshelf.Group().")


def _of_torch() -> tuple[Store, int, int]:
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise UnsupportedError(
            "torch.distributed has no process group yet, and Group() is of its ranks",
            "Call torch.distributed.init_process_group() before, or give store, rank and members.",
        )
    store: Any = dist.distributed_c10d._get_default_store()
    return store, dist.get_rank(), dist.get_world_size()
