"""What a kill left behind, judged against the states of an uninterrupted run, byte by byte."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from stores import Saved

Digests = Mapping[str, str]  # one for each array of a state


class Verdict(Enum):
    LAST = "the last acknowledged iteration"
    NEXT = "the one in flight, whole"
    OLDER = "whole, but older than acknowledged"
    MIXED = "arrays of different iterations"
    TORN = "bytes of no iteration"
    UNREADABLE = "unreadable"

    @property
    def good(self) -> bool:
        return self in (Verdict.LAST, Verdict.NEXT)


def digest(state: Mapping[str, Any]) -> dict[str, str]:
    """Hash dtype, shape and bytes of each array."""
    return {name: _digest(np.asarray(value)) for name, value in state.items()}


def _digest(array: np.ndarray[Any, Any]) -> str:
    header = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.blake2b(header + array.tobytes(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Reference:
    """The digests of every state of an uninterrupted run; states[k] is after k iterations."""

    states: Sequence[Digests]

    def judge(self, saved: Saved | None, acknowledged: int) -> Verdict:
        """Judge a state found after a kill; iteration 0 stands for "nothing saved yet"."""
        if saved is None:
            return Verdict.LAST if acknowledged == 0 else Verdict.OLDER
        found = digest(saved.state)
        if 0 <= saved.step < len(self.states) and found == self.states[saved.step]:
            return self._place(saved.step, acknowledged)
        return Verdict.MIXED if self._all_known(found) else Verdict.TORN

    def is_final(self, saved: Saved | None) -> bool:
        """Tell whether a state is, bit for bit, that of the last iteration."""
        last = len(self.states) - 1
        return saved is not None and saved.step == last and digest(saved.state) == self.states[last]

    def _place(self, step: int, acknowledged: int) -> Verdict:
        if step == acknowledged:
            return Verdict.LAST
        if step == acknowledged + 1:
            return Verdict.NEXT
        # Further ahead than the iteration in flight cannot be read from one run's files.
        return Verdict.OLDER if step < acknowledged else Verdict.TORN

    def _all_known(self, found: Digests) -> bool:
        known = {(name, value) for state in self.states for name, value in state.items()}
        return all(item in known for item in found.items())
