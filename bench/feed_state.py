"""A state to save, and how what is done with it is timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import baselines
import numpy as np
import torch

TENSORS = 16


def state_of(nbytes: int) -> baselines.State:
    each = nbytes // TENSORS // 4
    return {f"w{i}": torch.full((each,), float(i)) for i in range(TENSORS)}


def change(state: baselines.State) -> None:
    for tensor in state.values():
        tensor.add_(1)


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def medians(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in samples.items()}


def copy_seconds(state: baselines.State, target: list[np.ndarray]) -> float:
    return timed(
        lambda: [np.copyto(into, t.numpy()) for into, t in zip(target, state.values(), strict=True)]
    )
