"""The process that is killed: resume, then iterate and save, telling each moment to a pipe.

What was written to the pipe before a SIGKILL is still read by the other side, so "saved" of step
k in the pipe is exactly what acknowledged means.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

import digits
import tensorshelf as ts
from judge import Digests, digest
from model import Model, State
from models import MODELS
from stores import STORES, Store

digits.images()  # read once, by the server that trainers are forked from
warnings.simplefilter("ignore", ts.TierWarning)  # the demo reports the medium once, itself


class Moment(Enum):
    RESUMED = 1
    SAVING = 2
    SAVED = 3


@dataclass(frozen=True)
class Job:
    model: str
    store: str
    path: Path


def train(job: Job, pipe: Connection) -> None:
    """Run to the last iteration, from what the store holds or from the start."""
    model, store = MODELS[job.model], STORES[job.store](job.path)
    step, state = store.resume() or (0, model.start())
    pipe.send((Moment.RESUMED, step))
    for done, new in _iterate(model, step, state):
        pipe.send((Moment.SAVING, done))
        store.save(done, new)
        pipe.send((Moment.SAVED, done))
    store.close()


@dataclass(frozen=True)
class Measured:
    """One uninterrupted run: its states as digests, and seconds for each iteration."""

    states: list[Digests]
    compute: list[float]
    save: dict[str, list[float]]


def measure(model_name: str, path: Path, pipe: Connection) -> None:
    """Run uninterrupted; after each iteration all stores save the state, in rotating order."""
    model = MODELS[model_name]
    stores = [kind(path / kind.name) for kind in STORES.values()]
    state = model.start()
    measured = Measured([digest(state)], [], {store.name: [] for store in stores})
    for store in stores:
        store.begin()
    started = perf_counter()
    for step, new in _iterate(model, 0, state):
        measured.compute.append(perf_counter() - started)
        measured.states.append(digest(new))
        for store in _rotated(stores, step):
            with _timed(measured.save[store.name]):
                store.save(step, new)
        pipe.send(step)
        started = perf_counter()
    for store in stores:
        store.close()
    pipe.send(measured)


def _iterate(model: Model, step: int, state: State) -> Iterator[tuple[int, State]]:
    for index in range(step, model.steps):
        state = model.advance(state, index)
        yield index + 1, state


def _rotated(stores: list[Store], step: int) -> list[Store]:
    first = step % len(stores)
    return stores[first:] + stores[:first]


@contextmanager
def _timed(into: list[float]) -> Iterator[None]:
    started = perf_counter()
    yield
    into.append(perf_counter() - started)
