"""A loader that resumes in the middle of an epoch, with the batches that would have come."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensorshelf._auto import loader_facts
from tensorshelf._auto.places import is_place
from tensorshelf._auto.rng import RNG
from tensorshelf._state import objects
from tensorshelf.errors import BadArgument, LayoutError, UnsupportedError

logger = logging.getLogger("tensorshelf")

_OTHER_LOADER = (
    "Resume with the loader that was saved, to the end of its epoch; or iterate over the new one "
    "without batches(), and begin an epoch."
)


class Batches:
    """Iterates over a loader, and knows how many batches it has given; ``auto.batches(loader)``.

    Each iteration is an epoch. The generators are noted before it begins, for a loader shuffles by
    them: the global ones, and those that it or its samplers have as ``generator``. Batches are
    counted as they are given, not as workers fetch them. After resuming, the first iteration begins
    with those generators, draws and drops what was given already, and goes on with the global
    generators as they are. A loader with a ``state_dict()`` (torchdata's StatefulDataLoader)
    resumes by that, where it was saved with it.

    ``by_sampler``: what was given is drawn from the sampler of a torch DataLoader, and not loaded.
    An iterator that was begun before ``resume()`` or ``rollback()`` raises UnsupportedError.
    """

    def __init__(self, loader: Iterable[Any], *, by_sampler: bool = False) -> None:
        if by_sampler and loader_facts.index_sampler(loader) is None:
            raise BadArgument(
                f"by_sampler=True is for a torch DataLoader of a map-style dataset, and this is a "
                f"{type(loader).__name__} without a sampler of indices",
                "Leave it out: then batches are drawn again, and dropped.",
            )
        self.loader = loader
        self._by_sampler = by_sampler
        self._has_state = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._goes_on_by_itself = self._has_state  # where it was resumed
        # Now: some samplers change what they say of it as they go.
        self._form = loader_facts.form_of(loader)
        self._length = loader_facts.length_of(loader)  # of this epoch
        self._rng = RNG()
        self._before: dict[str, Any] | None = None  # the generators when this epoch began
        self._behind: list[Any] = []  # its own ones, behind what was given
        self._resumed = False
        self.given = 0  # batches of this epoch
        self.epoch = 0  # the number of this one, or of the first; from 0
        self._left_out = 0  # batches that come next, of this iteration or later ones
        self._loop: int | None = None  # the epoch that the caller's loop is in, by its count
        self._saved_loop: int | None = None
        self._loads = 0  # how often it was moved to another place
        self.began_anew = False  # whether an epoch was begun since it was moved last
        self._over = False  # the epoch: nothing comes any more
        self._skipped = 0  # of this epoch's batches that count as given
        self._had_workers = False  # when this epoch began: those that the loader keeps

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def of_epoch(self, number: int | None) -> "Batches":
        """Says which epoch of the caller's loop comes next. What was resumed is the rest of the one
        that the saved run was in; a later one begins anew. Raises BadArgument for an earlier one.
        """
        self._loop, saved = number, self._saved_loop
        if number is None or saved is None or not self._resumed:
            return self
        if number < saved:
            raise BadArgument(
                f"epoch={number}: the saved run was in epoch {saved}, and trained that one",
                f"Begin the loop at {saved}: `for epoch in range(progress['epoch'], epochs)`, with "
                "progress={'epoch': 0} among what autosave() is given.",
            )
        if number > saved and not self._goes_on_by_itself:
            self._resumed = False
            self._left_out, self._skipped = self._left_out + self._skipped, 0
        return self

    def _generators(self) -> list[Any]:
        return loader_facts.generators_of(self.loader)

    def __iter__(self) -> Iterator[Any]:
        if self._resumed:
            iterator = self._again()
        else:
            self.began_anew = True
            self.epoch += self._before is not None
            self.given, self._over, self._skipped = 0, False, 0
            self._length = loader_facts.length_of(self.loader)
            begun = self._before is not None
            self._bring_workers(begun or loader_facts.has_workers(self.loader))
            self._before = {"global": self._rng.state_dict(), "own": self._own_states()}
            iterator = iter(self.loader)
            self._look_for_length()
        self._saved_loop = self._loop
        loads, is_first = self._loads, True
        for batch in iterator:
            self.given += 1
            if is_first:
                is_first = False
                self._look_for_length()
            if self._left_out:
                self._left_out -= 1
                continue
            yield batch
            if self._loads != loads:
                raise UnsupportedError(
                    "resume() or rollback() went to another place, and these batches go on from "
                    "the one before",
                    "Leave the loop, and iterate over auto.batches(loader) anew.",
                )
        self._over = True

    def _bring_workers(self, had: bool) -> None:
        """The loader's, where the run had them by now, and none where it had not: it draws a seed
        when it begins with them. They draw none of the generators that are noted.
        """
        if not loader_facts.keeps_workers(self.loader):
            return
        self._had_workers, has = had, loader_facts.has_workers(self.loader)
        if has and not had:
            loader_facts.drop_workers(self.loader)
        if has or not had:
            return
        now, own = self._rng.state_dict(), self._own_states()
        loader_facts.begin_workers(self.loader)
        self._rng.load_state_dict(now)
        self._set_own(own)
        logger.warning(
            "batches(): this loader has persistent workers, and those of the saved run are gone: "
            "random numbers that they draw themselves are others from here on"
        )

    def _own_states(self) -> list[Any]:
        return [generator.get_state() for generator in self._generators()]

    def _set_own(self, states: list[Any]) -> None:
        for generator, state in zip(self._generators(), states, strict=False):
            generator.set_state(state)

    def _look_for_length(self) -> None:
        """Some know it when they have begun, and some say less and less as they go."""
        now = loader_facts.length_of(self.loader)
        if now is not None:
            self._length = max(now, self._length or 0)

    def _again(self) -> Iterator[Any]:
        """The loader's iterator, behind the batches that were given."""
        self._resumed, self._skipped = False, 0
        if self._goes_on_by_itself:
            return iter(self.loader)
        begin = time.monotonic()
        assert self._before is not None
        now = self._rng.state_dict()
        self._bring_workers(self._had_workers)
        self._rng.load_state_dict(self._before["global"])
        self._set_own(self._before["own"])
        if self._by_sampler:
            iterator = loader_facts.iterator_behind(self.loader, self.given)
        else:
            iterator = iter(self.loader)
            for _ in zip(range(self.given), iterator, strict=False):
                pass
        if self._over:  # whatever number of batches this loader has
            for _ in iterator:
                pass
        self._rng.load_state_dict(now)
        self._set_own(self._behind)  # the caller may have drawn from them too
        taken = time.monotonic() - begin
        logger.info("epoch %d: %d batches drawn again in %.1f s", self.epoch, self.given, taken)
        if self._loop is None and (self._over or self.given == self._length):
            logger.warning(
                "batches(): the saved run had been given all batches of its epoch, so that this "
                "iteration gives none. If it is another epoch, that is left out: "
                "batches(loader, epoch=...) tells which it is"
            )
        return iterator

    def skip(self, batches: int) -> None:
        """Leaves so many out, of the iteration to come and, where it has less, of later ones."""
        within = self._resumed and not self._goes_on_by_itself and not self._over
        if within and self._length is not None:
            with_given = max(0, min(batches, self._length - self.given))  # drawn as those are
            self.given += with_given
            self._skipped += with_given
            batches -= with_given
        self._left_out += batches

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        state: dict[str, Any] = {"given": self.given, "epoch": self.epoch, "before": self._before}
        state["length"], state["behind"] = self._length, self._own_states()
        state["loop"], state["left_out"] = self._saved_loop, self._left_out
        state["form"], state["over"], state["skipped"] = self._form, self._over, self._skipped
        state["had_workers"] = self._had_workers
        if self._has_state:
            state["loader"] = self.loader.state_dict()  # type: ignore[attr-defined]
        return state

    def check(self, state: dict[str, Any]) -> None:
        """Raises LayoutError where it cannot go on from there, for the loader is another."""
        if self._is_own(state):
            return
        self._check_generators(state)
        self._check_form(state)
        saved = _length_in(state)
        own = self._length_like(saved)
        if saved != own and None not in (saved, own) and state["given"] and not _is_over(state):
            raise LayoutError(
                f"this loader gives {own} batches an epoch, and the saved run was at "
                f"{state['given']} of {saved}: what it had not seen yet is not known here",
                _OTHER_LOADER,
            )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there. Raises LayoutError as ``check()``."""
        self.check(state)
        self._loads += 1
        self.began_anew = False
        by_itself = self._goes_on_by_itself = self._is_own(state)
        saved = _length_in(state)
        own = self._length = self._length_like(saved)
        if not by_itself:
            self._warn_of_workers(state)
            if saved != own and None not in (saved, own) and state["given"]:
                state = {**state, "given": own}  # that epoch is over
        self.given, self.epoch = state["given"], state["epoch"]
        self._saved_loop, self._left_out = state.get("loop"), state.get("left_out", 0)
        self._before, self._over = state["before"], state.get("over", False)
        self._skipped, self._behind = state.get("skipped", 0), state.get("behind", [])
        self._had_workers = state.get("had_workers", state["epoch"] > 0)
        self._resumed = self._before is not None
        if by_itself:
            self.loader.load_state_dict(state["loader"])  # type: ignore[attr-defined]

    def restart(self) -> None:
        """To before its first epoch: what is gone back to was saved before it came. A loader with a
        ``state_dict()`` begins where that has it, for nobody knows what it was then.
        """
        self._loads += 1
        self.began_anew, self._resumed, self._over = False, False, False
        self._goes_on_by_itself = self._has_state
        self.given = self.epoch = self._left_out = self._skipped = 0
        self._had_workers = False
        self._before = self._saved_loop = None

    def _length_like(self, saved: int | None) -> int | None:
        """Of an epoch: some samplers have another by epoch, or as they go."""
        now = loader_facts.length_of(self.loader)
        return now if now == saved else self._length

    def _is_own(self, state: dict[str, Any]) -> bool:
        """Whether the loader has a state of its own there: another may have been saved, without."""
        return self._has_state and "loader" in state

    def _check_generators(self, state: dict[str, Any]) -> None:
        own = self._generators()
        for generator, saved in [
            *zip(own, _begin_in(state), strict=False),
            *zip(own, state.get("behind", ()), strict=False),
        ]:
            kind = objects.kind_of(generator)
            if kind is not None and not kind.fits(generator, saved):
                raise LayoutError(
                    f"this loader has a {type(generator).__name__} as generator=, and that of the "
                    "saved run was of another kind",
                    _OTHER_LOADER,
                )

    def _check_form(self, state: dict[str, Any]) -> None:
        """Raises LayoutError where the rest of an epoch would consist of other batches."""
        for key, value, saved in self._differs(state):
            if key != "num_workers":
                raise LayoutError(
                    f"this loader has {key} {value}, and that of the saved run {saved}: the rest "
                    "of its epoch would be other batches",
                    _OTHER_LOADER,
                )

    def _warn_of_workers(self, state: dict[str, Any]) -> None:
        for key, value, saved in self._differs(state):
            if key == "num_workers":
                logger.warning(
                    "batches(): the saved run's loader had num_workers=%s, and this one has %s: "
                    "random numbers that are drawn in loading are others from here on",
                    saved,
                    value,
                )

    def _differs(self, state: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Within an epoch: what decides which batches there are, here and where it was saved."""
        if _is_over(state) or not state["given"]:
            return
        saved = dict(state.get("form") or {})
        if "num_workers" in saved:  # of a stream, by an earlier release
            saved.setdefault("workers", max(1, saved["num_workers"]))
        for key, value in self._form.items():
            if saved.get(key, value) != value:
                yield key, value, saved[key]


def _begin_in(state: Mapping[str, Any]) -> list[Any]:
    """Of the loader's own generators, when the epoch began."""
    return [] if state["before"] is None else list(state["before"]["own"])


def _length_in(state: Mapping[str, Any]) -> int | None:
    """None where more was given, and the end not seen: that loader says too little."""
    length: int | None = state.get("length")
    if length is not None and not state.get("over", True) and state["given"] > length:
        return None
    return length


def _is_over(state: Mapping[str, Any]) -> bool:
    """Whether the epoch had ended: as was seen, or, in states of an earlier release, counted."""
    length = _length_in(state)
    return bool(state.get("over", False) or (length is not None and state["given"] >= length))


class Loaders:
    """The loaders that ``batches()`` made, whether before or after resuming."""

    def __init__(self) -> None:
        self.made: list[Batches] = []
        self._saved: list[dict[str, Any]] = []

    def add(self, loader: Iterable[Any], *, by_sampler: bool) -> Batches:
        for known in self.made:
            if known.loader is loader:
                return known
        batches = Batches(loader, by_sampler=by_sampler)
        if len(self.made) < len(self._saved):
            batches.load_state_dict(self._saved[len(self.made)])
        self.made.append(batches)
        return batches

    def skip(self, batches: int) -> None:
        """Leaves so many out of each, whether it was given to ``batches()`` or is to come."""
        for known in self.made:
            known.skip(batches)
        for at in range(len(self.made), len(self._saved)):
            left_out = self._saved[at].get("left_out", 0) + batches
            self._saved[at] = {**self._saved[at], "left_out": left_out}

    def forget_left_alone(self) -> int:
        """How many were saved and not given to ``batches()``, now that an epoch begins: it trains
        without them, so they begin anew where they come after all.
        """
        if self.made and not any(batches.began_anew for batches in self.made):
            return 0  # others may come at its end
        left = max(0, len(self._saved) - len(self.made))
        del self._saved[len(self.made) :]
        return left

    def state_dict(self) -> dict[str, Any]:
        """Of those that were saved and did not come again yet, what was saved."""
        made = [batches.state_dict() for batches in self.made]
        return {"batches": made + self._saved[len(made) :]}

    def _fits_state(self, state: Any) -> bool:
        """Raises LayoutError where a loader that came cannot go on from there."""
        if not isinstance(state, Mapping) or not isinstance(state.get("batches"), list):
            return False
        if not all(map(is_place, state["batches"])):
            return False
        for batches, saved in zip(self.made, state["batches"], strict=False):
            batches.check(saved)
        return True

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._saved = state["batches"]
        for batches, saved in zip(self.made, self._saved, strict=False):
            batches.load_state_dict(saved)
        for batches in self.made[len(self._saved) :]:
            batches.restart()

    def restart(self) -> None:
        """What is loaded says nothing of loaders."""
        self._saved = []
        for batches in self.made:
            batches.restart()
