"""Where the tensors of a state lie, and what brings the rest of it up to date: made once, and used
for each save until the state takes another form.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorshelf import _core
from tensorshelf._auto.early import Early
from tensorshelf._auto.gated import Gated, gated_in
from tensorshelf._auto.start import Sources
from tensorshelf._state import paths, room
from tensorshelf._state.again import Again
from tensorshelf._state.flatten import Flat
from tensorshelf._state.looks import Changed
from tensorshelf._state.memories import Counted
from tensorshelf._state.split import Piece
from tensorshelf._values import _torch
from tensorshelf._values._cuda import Axes
from tensorshelf._values._dtypes import Array


class Tensors(Protocol):
    """The tensors of a shelf."""

    def __getitem__(self, name: str) -> Any: ...
    def __contains__(self, name: object) -> bool: ...


class _Place(NamedTuple):
    """Bytes that a tensor is saved from, consecutive but on a CUDA device."""

    address: int
    nbytes: int
    device: tuple[int, int, Axes] | None  # stream, number and axes of a CUDA device
    keeps: Any


class SavePlan(NamedTuple):
    """A state of one form, and where its tensors lie."""

    again: Again
    native: _core.SavePlan
    sources: Sources
    room: Array  # that the record is saved from
    fresh: list[Callable[[], object]]  # bring copies up to date of what lies in no order
    moving: list[Array]  # copies of what lies elsewhere each time
    early: Early  # of what is copied behind step()
    streams: dict[int, int]  # the current one of each CUDA device that is copied from
    keeps: list[Any]  # what the sources lie in

    def prepare(self, shelf: Tensors, state: Any) -> Counted:
        """All that is no tensor of the shelf is as the state is now. What is copied behind step(),
        with its changes so far. Raises Changed.

        A tensor that was erased, and that no other took the place of, is for the save to miss.
        """
        for name, name_now in self.native.departed():
            if name_now != name or name in shelf:
                raise Changed  # what the record calls so is another tensor by now, or none
        if any(_torch.current_stream(device) != known for device, known in self.streams.items()):
            raise Changed  # what is queued on another would not be seen
        found = self.again.look(state)
        if not room.put(self.room, self.again.encoded(found.leaves)):
            raise Changed
        for copy, value in zip(self.moving, found.moving, strict=True):
            copy[...] = _on_host(value)
        for bring_up_to_date in self.fresh:
            bring_up_to_date()
        return found.counted


def planned(shelf: Tensors, state: Any, flat: Flat, eager: set[str] | None) -> SavePlan:
    """The plan of a flattened state that the shelf holds, saved or loaded just now. ``eager`` names
    tensors that may change when step() returns; None: all. Raises Changed where there can be none.
    """
    again = Again(state, flat)
    gated = Gated() if eager is None else gated_in(state)
    sources: list[_core.SourceTuple] = []
    names: list[str] = []
    fresh: list[Callable[[], object]] = []
    keeps: list[Any] = []
    watched: list[tuple[str, Any]] = []
    streams: dict[int, int] = {}
    moving = dict.fromkeys(again.moving)
    for name, value in flat.tensors.items():
        if name in moving:
            moving[name] = copy = np.empty_like(_on_host(value), order="C")
            place, lazy = _of_array(copy), False
        else:
            piece = flat.pieces.get(name)
            whole = value if piece is None else piece.whole
            place, bring_up_to_date = _lies(value, piece)
            lazy = bring_up_to_date is None and gated.has(whole) and name not in (eager or ())
            if bring_up_to_date is not None:
                fresh.append(bring_up_to_date)
            if lazy:
                watched.append((name, whole))
        if place.device is not None:
            streams[place.device[1]] = place.device[0]
        keeps += (value, place.keeps)
        sources.append((shelf[name]._ref, place.address, place.nbytes, lazy, place.device))
        names.append(name)
    room = np.array(shelf[paths.RECORD].numpy())
    sources.append((shelf[paths.RECORD]._ref, room.ctypes.data, room.nbytes, False, None))
    names.append(paths.RECORD)
    copies = [copy for copy in moving.values() if copy is not None]
    plan = _core.SavePlan(sources)
    about = _about(names, sources)
    return SavePlan(again, plan, about, room, fresh, copies, Early(again, watched), streams, keeps)


def _about(names: list[str], sources: "list[_core.SourceTuple]") -> Sources:
    """In the order of the plan: the eager ones first."""
    parts = []
    for wanted in (False, True):
        of = [
            (name, each[2]) for name, each in zip(names, sources, strict=True) if each[3] is wanted
        ]
        parts.append((tuple(name for name, _ in of), sum(size for _, size in of)))
    (eager, eager_nbytes), (lazy, lazy_nbytes) = parts
    return Sources(eager, lazy, eager_nbytes, lazy_nbytes)


def _lies(value: Any, piece: Piece | None) -> tuple[_Place, Callable[[], object] | None]:
    """Where it is copied from, and what brings that up to date where it is a copy itself."""
    found = _place(value)
    if piece is not None and not piece.is_shown:
        assert found is not None  # it was made for this
        return found, lambda: value.copy_(piece.values())
    return _copied(value) if found is None else (found, None)


def _place(value: Any) -> _Place | None:
    """The value's own, where it lies in order, in this machine's byte order, in the memory of this
    machine; or in that of a CUDA device, with gaps too.
    """
    memory = _torch.device_memory_of(value)
    if memory is not None:
        device = memory.stream, memory.device, memory.axes
        return _Place(memory.address, memory.nbytes, device, value)
    array = _array(value)
    in_order = array is not None and array.flags.c_contiguous and array.dtype.isnative
    return _of_array(array) if array is not None and in_order else None


def _of_array(array: Array) -> _Place:
    return _Place(array.ctypes.data, array.nbytes, None, array)


def _array(value: Any) -> Array | None:
    """An array, or a plain tensor of this machine's memory as NumPy has it, in place."""
    if isinstance(value, np.ndarray):
        return value
    plain = _torch.memory_of(value)
    return None if plain is None else plain[1]


def _on_host(value: Any) -> Array:
    array = _array(value)
    if array is None:
        array = _torch.TorchSource(value).array()
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _copied(value: Any) -> tuple[_Place, Callable[[], object]]:
    """Memory for the value in order, and what brings it up to date."""
    if isinstance(value, np.ndarray):
        array = np.empty(value.shape, value.dtype.newbyteorder("="))
        return _of_array(array), lambda: np.copyto(array, value)
    import torch

    copy = torch.empty(value.shape, dtype=value.dtype)
    place = _Place(copy.data_ptr(), copy.nbytes, None, copy)
    return place, lambda: copy.copy_(value)
