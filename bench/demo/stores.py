"""The contenders: each saves a state every iteration and loads it after a kill.

All but the shelf are written as their users write them, and fairly: the step goes in last. "in
place" overwrites the previous save; "durable" writes a temporary file, syncs it, renames it over
the old one and syncs the directory.
"""

import os
import pickle
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import tensorshelf as ts
from model import State


class Saved(NamedTuple):
    step: int
    state: Mapping[str, NDArray[Any]]


class Store(ABC):
    """One way to save. `path` is a directory of its own."""

    name: str
    survives: str = ""  # what an acknowledged save outlives; empty: what the medium promises
    atomic = False  # all arrays change together
    is_shelf = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self) -> None:
        """Make ready to save, in a fresh directory or over what an earlier run left."""
        self.path.mkdir(parents=True, exist_ok=True)

    def resume(self) -> Saved | None:
        """Begin, and return what an earlier run saved."""
        saved = self.load()
        self.begin()
        return saved

    @abstractmethod
    def load(self) -> Saved | None:
        """Return what a new process finds, None where nothing was saved; raise if unreadable."""

    @abstractmethod
    def save(self, step: int, state: State) -> None:
        """Replace what was saved before."""

    def close(self) -> None:  # noqa: B027 (most hold nothing between saves)
        """Release what begin() took."""

    def clear(self) -> None:
        """Forget everything, as a user does who restarts from scratch."""
        shutil.rmtree(self.path, ignore_errors=True)


class ShelfStore(Store):
    name = "tensorshelf"
    atomic = True
    is_shelf = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.file = path / "run.shelf"
        self.shelf: ts.Shelf | None = None

    def begin(self) -> None:
        super().begin()
        self.shelf = ts.open(self.file)

    def resume(self) -> Saved | None:
        self.begin()  # opening for writing is recovering
        assert self.shelf is not None
        return self._read(self.shelf)

    def load(self) -> Saved | None:
        if not self.file.exists():
            return None
        with ts.open(self.file, mode="r") as shelf:
            return self._read(shelf)

    def _read(self, shelf: ts.Shelf) -> Saved | None:
        if shelf.step is None:
            return None
        return Saved(shelf.step, {name: shelf[name].numpy(copy=True) for name in shelf})

    def save(self, step: int, state: State) -> None:
        assert self.shelf is not None, "begin() comes before save()"
        for name, value in state.items():
            self.shelf[name] = value  # creates at first, then writes in place
        self.shelf.persist(step=step)

    def close(self) -> None:
        if self.shelf is not None:
            self.shelf.close()


class PickleInPlace(Store):
    name = "pickle, in place"
    survives = "neither"

    def load(self) -> Saved | None:
        file = self.path / "state.pickle"
        return Saved(*pickle.loads(file.read_bytes())) if file.exists() else None

    def save(self, step: int, state: State) -> None:
        with open(self.path / "state.pickle", "wb") as file:
            pickle.dump((step, _arrays(state)), file, protocol=pickle.HIGHEST_PROTOCOL)


class PickleDurable(PickleInPlace):
    name = "pickle, durable"
    survives = ""
    atomic = True

    def save(self, step: int, state: State) -> None:
        with open(self.path / "new.pickle", "wb") as file:
            pickle.dump((step, _arrays(state)), file, protocol=pickle.HIGHEST_PROTOCOL)
            _sync(file.fileno())
        os.replace(self.path / "new.pickle", self.path / "state.pickle")
        _sync_directory(self.path)


class NumpyInPlace(Store):
    """One .npy file for each array and one for the step."""

    name = "np.save, in place"
    survives = "neither"

    def load(self) -> Saved | None:
        files = {file.stem: file for file in self.path.glob("*.npy")}
        if not files:
            return None
        state = {name: np.load(file) for name, file in files.items()}
        return Saved(int(state.pop("step")), state)

    def save(self, step: int, state: State) -> None:
        for name, value in {**_arrays(state), "step": np.array(step)}.items():
            np.save(self.path / f"{name}.npy", value)


class NumpyDurable(NumpyInPlace):
    """Each file is replaced atomically, the set of them is not."""

    name = "np.save, durable"
    survives = "file by file"

    def save(self, step: int, state: State) -> None:
        for name, value in {**_arrays(state), "step": np.array(step)}.items():
            with open(self.path / f"{name}.new", "wb") as file:
                np.save(file, value)
                _sync(file.fileno())
            os.replace(self.path / f"{name}.new", self.path / f"{name}.npy")
        _sync_directory(self.path)


class NumpyMemmap(Store):
    """One mapped .npy file for each array and one for the step, flushed after each iteration."""

    name = "np.memmap + flush"
    survives = "neither"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.maps: dict[str, np.memmap[Any, Any]] = {}

    def begin(self) -> None:
        super().begin()
        for file in self.path.glob("*.npy"):
            self.maps[file.stem] = _open_map(file, mode="r+")

    def load(self) -> Saved | None:
        files = {file.stem: file for file in self.path.glob("*.npy")}
        if not files:
            return None
        state = {name: np.array(np.load(file, mmap_mode="r")) for name, file in files.items()}
        return Saved(int(state.pop("step")), state)

    def save(self, step: int, state: State) -> None:
        for name, value in {**_arrays(state), "step": np.array(step)}.items():
            if name not in self.maps:
                file = self.path / f"{name}.npy"
                self.maps[name] = _open_map(file, "w+", dtype=value.dtype, shape=value.shape)
            self.maps[name][...] = value
            self.maps[name].flush()

    def close(self) -> None:
        self.maps.clear()


STORES: dict[str, type[Store]] = {
    store.name: store
    for store in (
        ShelfStore,
        PickleInPlace,
        NumpyInPlace,
        NumpyMemmap,
        PickleDurable,
        NumpyDurable,
    )
}


def _open_map(file: Path, mode: str, **layout: Any) -> np.memmap[Any, Any]:
    opened: np.memmap[Any, Any] = np.lib.format.open_memmap(file, mode, **layout)  # type: ignore[no-untyped-call]
    return opened


def _arrays(state: State) -> dict[str, NDArray[Any]]:
    return {name: np.asarray(value) for name, value in state.items()}


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
