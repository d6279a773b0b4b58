"""What ranks saved in pieces, whole on each of them when a job starts anew.

    each rank                                      rank 0 besides
    reads its pieces into the trainer's tensors,
      and checks them
    "read": all have, and list the same tensors;   compares; tells all, or who failed; and where
      each offers a room (hall.py)                   the rooms are, if all are on one machine
    "rooms": whether it has found them             tells whether all have
    the pieces of the others, by hall_ring.py
      where all have, and else by ring.py
    gives the state to its objects
    "loaded": all have                             tells all, or who failed

No rank goes on before all have come to such a point, and who fails says so there: so no rank hangs,
and none trains from what another has not.

Where a piece that is damaged cannot be had back (``meanwhile``), pieces are read behind "read",
while those that are there are on their way already.
"""

import contextlib
import json
import threading
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence

from tensorshelf._group import hall, hall_ring
from tensorshelf._group.hall_ring import HallRing
from tensorshelf._group.link import Links
from tensorshelf._group.ring import Ring, Share
from tensorshelf._group.stage import Stages
from tensorshelf._group.wire import Wire
from tensorshelf._state import split
from tensorshelf._state import writers as writing
from tensorshelf._state.split import Spot
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import LayoutError

_READ, _ROOMS, _LOADED = "read", "rooms", "loaded"
_FOUND = "found"
_TICK = 0.05  # seconds between two looks for Ctrl-C
_MOMENT = 1.0  # seconds


class Exchange:
    """The exchange of pieces at one start of a group. For the trainer's thread."""

    def __init__(
        self,
        wire: Wire,
        rank: int,
        members: int,
        seconds: float,
        *,
        meanwhile: bool = False,
        save: str = "",
    ) -> None:
        """``save`` names the one that is read, where that is not agreed on already."""
        self.meanwhile = meanwhile
        self._save = save
        self._rank, self._members = rank, members
        self._stages = Stages(wire, rank, members, seconds)
        # By the wire's connection, for this thread waits while they are made: to connect anew may
        # take torch's store 5 s.
        self._links = Links(*wire.place(), seconds=seconds, most=None, own=True)
        self._next: str | None = _READ  # where this rank is to come, or to fail
        self._ring: Ring | HallRing | None = None
        self._rooms: list[Array] = []  # of all ranks, where each has found them all

    @contextlib.contextmanager
    def loading(self) -> Iterator["Exchange"]:
        """Around what is to call this. Other ranks hear what it raises."""
        try:
            yield self
            if self.has_begun:
                self._next = None
                self._stages.come(_LOADED)
        except BaseException as error:
            if self._next is not None:
                self._stages.fail(self._next, error)
            raise
        finally:
            self._ring, self._rooms = None, []  # nobody waits for what lies in it still

    def refused(self, error: BaseException) -> None:
        """This rank loads nothing, and the others hear why, where they wait for it."""
        self._next = None
        with contextlib.suppress(RuntimeError):  # torch's, of its store
            self._stages.fail(_READ, error, waits=False)

    @property
    def has_begun(self) -> bool:
        """Whether other ranks go on by what this one has read: it reads nothing anew then."""
        return self._next != _READ

    def __call__(self, spots: Sequence[Spot], arrived: Callable[[int], None]) -> None:
        """Fills them; on all ranks, with the same tensors."""
        spots = sorted(spots, key=lambda spot: spot.place.name)
        shares = self._shares(spots)
        self._meet(spots)
        if self._members > 1:
            self._gather(spots, shares, arrived)
        else:
            arrived(sum(map(len, shares[0])))

    def _meet(self, spots: Sequence[Spot]) -> None:
        """All have come so far, with the same tensors, and know whether they share memory."""
        room = hall.Room(hall_ring.room_bytes()) if self._members > 1 else None
        said = json.dumps([_listed(spots), room.offer if room is not None else "", self._save])
        self._next = _ROOMS
        try:
            offers = self._stages.come(
                _READ, said, lambda own, other: _unlike(spots, own, other), _rooms_of
            )
            self._rooms = self._entered(json.loads(offers)) if offers else []
            if offers:
                found = _FOUND if self._rooms else ""
                if self._stages.come(_ROOMS, found, sum_up=_all_found) != _FOUND:
                    self._rooms = []
        finally:
            if room is not None:
                room.shut()
        if self._rooms and room is not None:
            self._rooms[self._rank] = room.memory
        self._next = _LOADED

    def _entered(self, offers: list[str]) -> list[Array]:
        """The rooms of all ranks; none where one of them is not found."""
        rooms = [hall.entered(offer, hall_ring.room_bytes()) for offer in offers]
        found = [room for room in rooms if room is not None]
        return found if len(found) == len(rooms) else []

    def _shares(self, spots: Sequence[Spot]) -> list[Share]:
        """The share of each rank. Raises LayoutError where this rank's is not what was saved."""
        _check_writers(spots, self._members)
        sizes = {spot.place.name: (spot.place.writers, len(spot.memory)) for spot in spots}
        shares = []
        for rank in range(self._members):
            of_rank = split.shares(sizes, rank)
            if rank == self._rank:
                _check_own(spots, of_rank)
            runs = ((spot.memory, of_rank.get(spot.place.name, (0, 0))) for spot in spots)
            shares.append([memory[begin:end] for memory, (begin, end) in runs if begin < end])
        return shares

    def _gather(
        self, spots: Sequence[Spot], shares: list[Share], arrived: Callable[[int], None]
    ) -> None:
        """By a thread: one that waits for gloo hears no Ctrl-C."""
        on_device = any(spot.memory.is_cuda for spot in spots)
        failed: list[BaseException] = []
        ended = False

        def gather() -> None:
            try:
                self._ring = self._made(lambda: not ended)
                self._ring.gather(shares, arrived)
                _wait_for_devices(on_device)
            except BaseException as error:
                self._ring = None
                _let_go(error)  # neighbours hear of it by their links
                failed.append(error)

        _wait_for_devices(on_device)  # what was read is there, for the thread's streams, too
        thread = threading.Thread(target=gather, name="tensorshelf-exchange", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_TICK)
        finally:
            ended = True
            thread.join(_MOMENT)
        if failed:
            raise failed[0]

    def _made(self, go_on: Callable[[], bool]) -> Ring | HallRing:
        if self._rooms:
            return HallRing(self._links, self._rank, self._members, self._rooms, go_on)
        return Ring(self._links, self._rank, self._members, go_on)


def _let_go(error: BaseException | None) -> None:
    """Lets go of what the frames of an error, and of those behind it, hold."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _wait_for_devices(wanted: bool) -> None:
    if wanted:
        import torch

        torch.cuda.synchronize()


def _check_writers(spots: Sequence[Spot], members: int) -> None:
    """What ranks have that are not here nobody sends."""
    for place in (spot.place for spot in spots):
        if (last := writing.last(place.writers)) >= members:
            raise LayoutError(
                f"rank {last} has a piece of {place.name!r}, and {members} ranks are here",
                "Was it saved by as many ranks? tensorshelf.merge() makes one shelf of theirs.",
            )


def _check_own(spots: Sequence[Spot], share: dict[str, tuple[int, int]]) -> None:
    for spot in spots:
        place = spot.place
        if share.get(place.name, (0, 0)) != (place.begin, place.end):
            raise LayoutError(
                f"this rank has bytes {place.begin} to {place.end} of {place.name!r}, which is not "
                f"its share of what {writing.count(place.writers)} ranks saved",
                "Was it saved by as many ranks? tensorshelf.merge() makes one shelf of theirs.",
            )


def _listed(spots: Sequence[Spot]) -> list[int]:
    """A number for each, for other ranks to compare."""
    forms = ([spot.place.name, spot.place.writers, spot.form] for spot in spots)
    return [zlib.crc32(json.dumps(form).encode()) for form in forms]


def _unlike(spots: Sequence[Spot], own: str, other: str) -> str | None:
    """On rank 0, whose own these are."""
    (numbers, _, save), (others, _, another) = json.loads(own), json.loads(other)
    if save != another:
        return f"has opened {another}, and rank 0 {save}: give all ranks the same paths"
    if numbers == others:
        return None
    known = set(others)
    names = [spot.place.name for spot in spots]
    lacking = [name for name, number in zip(names, numbers, strict=True) if number not in known]
    what = f"rank 0 has {lacking[0]!r}, and it has not" if lacking else "it has more of them"
    return f"saved other tensors in pieces than rank 0: {what}"


def _rooms_of(said: list[str]) -> str:
    """Where to find those of all ranks, if that is one machine; on rank 0."""
    offers = [json.loads(each)[1] for each in said]
    return json.dumps(offers) if hall.of_one_machine(offers) else ""


def _all_found(said: list[str]) -> str:
    return _FOUND if all(each == _FOUND for each in said) else ""
