"""The tensors of a saved state: first all that are wanted, then all are read, several at once; but
one with strides of its own when it is wanted.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tensorshelf._progress import Report
from tensorshelf._state import split, targets, tensors
from tensorshelf._state.ahead import Ahead
from tensorshelf._state.checked import Checked
from tensorshelf._state.jobs import AnyJob, BoxJob, HostJob, Job, batches, run, run_all
from tensorshelf._state.plain import Node
from tensorshelf._state.record import Reads
from tensorshelf._state.split import Exchange, Spot
from tensorshelf._values import _torch
from tensorshelf._values._cuda import DeviceMemory
from tensorshelf._values._dtypes import Array
from tensorshelf._values._index import Box
from tensorshelf.errors import CorruptError


def all_tensors(node: Node) -> Iterator[Node]:
    """The nodes of a tree's tensors, and pieces of such, in their order; ties are none of them."""
    if not isinstance(node, list):
        return
    if node[0] in ("tensor", "piece"):
        yield node
        return
    for part in node[3:4] if node[0] == "part" else node[1:]:
        yield from all_tensors(part)


class Reader:
    """The tensors of one tree. Memory is there at once; what it holds, when ``read_all`` has
    returned.

    ``exchange`` has of other ranks what lies here in pieces. It is called once then, where there
    are such, with all of them: other ranks need what this one does not.
    """

    def __init__(self, shelf: Reads, record: Checked, exchange: Exchange | None = None) -> None:
        self._shelf = shelf
        self._exchange = exchange
        self._spots: dict[int, Spot] = {}
        self._nodes = list(all_tensors(record.tree))
        self._numbers = {id(node): number for number, node in enumerate(self._nodes)}
        self._made: dict[int, Any] = {}
        self._adopted: set[int] = set()  # storages
        self._memories: dict[str, Any] = {}
        self._jobs: list[AnyJob] = []
        self._pieces: dict[str, Job | HostJob] = {}  # by the names of their wholes
        self._then: list[Callable[[], object]] = []

    def about(self, node: Node) -> tensors.Tensor:
        """What the tree says of a tensor, or of a region of one."""
        if node[0] == "region":
            _, whole, _, lengths = node
            return self.about(whole)._replace(shape=tuple(lengths), place=None, strides=None)
        return tensors.Tensor.of(self._nodes[self._number(node)])

    def tensor(self, node: Node) -> Any:
        """The tensor, in memory of its own; one and the same for ties. A node ["region", tensor,
        offsets, lengths], which is never stored, is a part of one.
        """
        if node[0] == "region":
            return self._region(node)
        number = self._number(node)
        if number not in self._made:
            about = tensors.Tensor.of(self._nodes[number])
            whole = split.is_piece(self._nodes[number])
            self._made[number] = self._gathered(number, about) if whole else self._new(about)
        return self._made[number]

    def handle(self, node: Node) -> Any:
        """The tensor of the shelf that has the bytes of this one, and no others; else None."""
        tensor = self.about(node)
        return self._handle(tensor.place, tensor.nbytes) if isinstance(tensor.place, str) else None

    def into(self, node: Node, target: Any) -> None:
        """The tensor into one that is there, of the same shape."""
        tensor = self.about(node)
        memory = self._memory(target, tensor)
        if node[0] == "region" and isinstance(memory, np.ndarray) and self._lies_apart(node):
            self._jobs.append(self._box_job(node, memory))
            return
        if memory is not None and isinstance(tensor.place, str):
            self._jobs.append(self._job(tensor.place, memory))
            return
        if self._is_taken_by(node, target):
            return
        source = self.tensor(node)
        self._then.append(lambda: targets.copy(source, target))

    def adopt(self, node: Node, target: Any) -> None:
        """From here on the tensor is that one of torch's, where it is alike and has a storage that
        no other adopted one has.
        """
        number = self._number(node)
        tensor = tensors.Tensor.of(self._nodes[number])
        memory = self._memory(target, tensor)
        if memory is None or number in self._made:
            return
        storage = target.untyped_storage().data_ptr()
        if tuple(target.shape) != tensor.shape or storage in self._adopted:
            return
        if isinstance(tensor.place, str):
            self._made[number] = target
            self._jobs.append(self._job(tensor.place, memory))
        elif not self._is_taken_by(node, target):
            return
        self._adopted.add(storage)

    def read_all(self, report: Report | None = None) -> None:
        """Raises CorruptError where a checksum fails; then some of the memory holds nothing yet."""
        if self._exchange is not None:
            for node in filter(split.is_piece, self._nodes):
                self.tensor(node)
        spots, self._spots = list(self._spots.values()), {}
        pieces = [self._pieces[name] for name in sorted(self._pieces)]
        if self._exchange is not None and self._exchange.meanwhile:
            self._run(report)
            if spots:
                parts = batches([part for piece in pieces for part in piece.cut()])
                with Ahead([partial(run, batch) for batch in parts]) as ahead:
                    self._exchange(spots, ahead.arrived)
        else:
            self._jobs += pieces
            self._run(report)
            if spots and self._exchange is not None:
                self._exchange(spots, lambda _: None)
        self._pieces = {}
        for step in self._then:
            step()

    def _run(self, report: Report | None) -> None:
        jobs, self._jobs = self._jobs, []
        run_all(jobs, report)

    def _memory(self, target: Any, tensor: tensors.Tensor) -> Array | DeviceMemory | None:
        """The memory of a target, where the tensor can be read straight into it; else None."""
        memory = targets.plain_memory(target, tensor)
        if isinstance(memory, DeviceMemory) and isinstance(tensor.place, str):
            handle = self._handle(tensor.place, tensor.nbytes)
            return memory if hasattr(handle, "_read_onto") else None
        return memory

    def _is_taken_by(self, node: Node, target: Any) -> bool:
        """Whether the whole of what lies here in pieces comes into the target at once."""
        if node[0] == "region" or not split.is_piece(self._nodes[self._number(node)]):
            return False
        number = self._number(node)
        memory = None if number in self._made else targets.flat(target, self.about(node))
        if memory is None:
            return False
        self._gather(number, memory)
        self._made[number] = target
        return True

    def _gather(self, number: int, memory: Any) -> None:
        place = split.Place(*self._nodes[number][4])
        if self._exchange is None:
            raise split.in_pieces(place.name, getattr(self._shelf, "_path", "this shelf"))
        if place.held is not None:
            self._pieces[place.name] = self._piece(place.held, memory[place.begin : place.end])
        form = tensors.Tensor.of(self._nodes[number]).layout
        self._spots[number] = split.Spot(place, form, memory)

    def _piece(self, name: str, into: Any) -> Job | HostJob:
        on_device = _torch.device_memory_of(into)
        if on_device is None:
            return self._job(name, into.numpy())
        handle = self._handle(name, into.nbytes)
        if hasattr(handle, "_read_onto"):
            return Job(handle, on_device)
        return HostJob(handle, into)

    def _number(self, node: Node) -> int:
        return int(node[1]) if node[0] == "tie" else self._numbers[id(node)]

    def _job(self, name: str, into: Array | DeviceMemory) -> Job:
        return Job(self._handle(name, into.nbytes), into)

    def _handle(self, name: str, nbytes: int) -> Any:
        """The tensor of the shelf, which is to have so many bytes."""
        if name not in self._shelf:
            raise _changed(name, "is not in the shelf any more")
        handle = self._shelf[name]
        if handle.nbytes != nbytes:
            raise _changed(name, f"has {handle.nbytes} bytes there, and had {nbytes}")
        return handle

    def _new(self, tensor: tensors.Tensor) -> Any:
        place = tensor.place
        if isinstance(place, list):
            return self._part(tensor, *place)
        if isinstance(place, bytes):
            return tensors.new(tensor, lambda into: _put(into, place))
        self._handle(place, tensor.nbytes)  # before memory is taken for it
        if tensor.strides is not None:  # copied once more when it is read
            return tensors.new(tensor, lambda into: _ignore(self._job(place, into).run()))
        return tensors.new(tensor, lambda into: self._jobs.append(self._job(place, into)))

    def _gathered(self, number: int, tensor: tensors.Tensor) -> Any:
        """In new memory."""
        import torch

        made = tensors.new(
            tensor._replace(strides=None),
            lambda into: self._gather(number, torch.from_numpy(into)),
        )
        if tensor.strides is None:
            return made
        strided = tensors.strided(made, tensor.strides)
        self._then.append(lambda: strided.copy_(made))
        return strided

    def _region(self, region: Node) -> Any:
        made = self.about(region)
        if self._lies_apart(region):
            return tensors.new(made, lambda into: self._jobs.append(self._box_job(region, into)))
        _, node, offsets, lengths = region
        whole, part = self.tensor(node), tensors.empty(made)
        places = tuple(
            slice(begin, begin + length) for begin, length in zip(offsets, lengths, strict=True)
        )
        self._then.append(lambda: part.__setitem__(..., whole[places]))
        return part

    def _lies_apart(self, region: Node) -> bool:
        """Whether it is of a tensor of the shelf, and not of memory that several show."""
        return isinstance(self.about(region[1]).place, str)

    def _box_job(self, region: Node, into: Array) -> BoxJob:
        _, node, offsets, lengths = region
        whole = self.about(node)
        box = Box(whole.shape, whole.itemsize, tuple(offsets), tuple(lengths))
        return BoxJob(self._handle(whole.place, whole.nbytes), into, box)

    def _part(self, tensor: tensors.Tensor, name: str, offset: int) -> Any:
        if name not in self._memories:
            if name not in self._shelf:
                raise _changed(name, "is not in the shelf any more")
            whole = tensors.Tensor("torch", "uint8", self._shelf[name].shape, name, None)
            self._memories[name] = self._new(whole)
        return tensors.part_of(self._memories[name], tensor, offset)


def _put(into: Array, data: bytes) -> None:
    into[:] = np.frombuffer(data, np.uint8)


def _ignore(_: object) -> None: ...


def _changed(name: str, what: str) -> CorruptError:
    return CorruptError(
        f"{name!r}, a part of the saved state, {what}",
        "Something else changed it. Save the state again, or roll back to a version that has it.",
    )
