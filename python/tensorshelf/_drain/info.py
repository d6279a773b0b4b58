"""What draining tells of itself."""

import datetime
from dataclasses import dataclass


@dataclass(frozen=True)
class DrainInfo:
    """At one moment; ``auto.drain.info()``. Versions are those of the shelf."""

    remote: str
    version: int | None  # that was drained last, and is whole at the remote
    step: int | None  # of that
    on_its_way: int | None  # a version that is being copied
    drained: int  # versions, by this drain
    skipped: int  # versions that were overtaken by newer ones, or left behind by close()
    lag_versions: int | None  # that the shelf is ahead of the remote; None once both are closed
    lag_seconds: float | None  # between the newest of both; None where none was drained, and then
    read_bytes: int  # of the shelf
    sent_bytes: int  # to the remote, compressed where asked
    spared_bytes: int  # of drained versions that lay there already, or were compressed away
    moved_seconds: float  # ago: bytes of a version went on, or one was done
    failures: int  # attempts
    error: str | None  # of the last attempt, where it failed
    lagging: tuple[int, ...] | None  # ranks that the group's next version waits for: rank 0 knows


@dataclass(frozen=True)
class Drained:
    """A version at a remote; ``tensorshelf.drained(url)`` lists them."""

    step: int | None
    version: int  # of the shelf that it was drained from; of a group, of rank 0's
    shelf_id: str
    time: datetime.datetime  # when it was persisted, in UTC by its writer's clock
    nbytes: int  # of its tensors; of a group, of all ranks'
    metric: float | None
    milestone: bool  # it stays, by keep_every=
    ranks: int | None  # that a group has; None without one
