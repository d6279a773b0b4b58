"""Copies on the host of what is saved in the background, in memory that later saves use again."""

import weakref
from concurrent.futures import Future
from typing import Any

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions


class Staged(dict[str, Any]):
    """A copied state. While anybody has it, a save may be reading it."""

    __slots__ = ("__weakref__",)


class Staging:
    """Copies, each in memory that no save on its way is reading.

    Whoever saves does not tell here that it has, least of all where another process does. But it
    lets the copy go.
    """

    def __init__(self) -> None:
        self._made: list[tuple[DefaultStager, weakref.ref[Staged]]] = []

    def stage(self, state: dict[str, Any]) -> Staged:
        """A copy of a state; in page-locked memory where there is a CUDA device."""
        stager = self._free()
        copy = stager.stage(state)
        assert not isinstance(copy, Future)  # it is one where it was asked for in the background
        copied = Staged(copy)
        self._made.append((stager, weakref.ref(copied)))
        return copied

    def close(self) -> None:
        """Gives the memory back, but for what is being read."""
        made, self._made = self._made, []
        for stager, _ in made:
            stager.close()

    def _free(self) -> DefaultStager:
        for number, (stager, copied) in enumerate(self._made):
            if copied() is None:
                del self._made[number]
                return stager
        on_device = torch.cuda.is_available()
        return DefaultStager(
            StagingOptions(
                use_pinned_memory=on_device,
                use_shared_memory=False,  # torch moves it there itself where it sends it
                use_async_staging=False,
                use_non_blocking_copy=on_device,
            )
        )
