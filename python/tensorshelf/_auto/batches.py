"""A loader that resumes in the middle of an epoch, with the batches that would have come."""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorshelf._auto import loader_facts, place
from tensorshelf._auto.place import Place
from tensorshelf._auto.rng import RNG
from tensorshelf._numbers import count_of
from tensorshelf.errors import BadArgument, UnsupportedError

logger = logging.getLogger("tensorshelf")


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

    def __init__(
        self,
        loader: Iterable[Any],
        *,
        by_sampler: bool = False,
        asked: Callable[[], None] | None = None,
    ) -> None:
        if by_sampler and loader_facts.index_sampler(loader) is None:
            raise BadArgument(
                f"by_sampler=True is for a torch DataLoader of a map-style dataset, and this is a "
                f"{type(loader).__name__} without a sampler of indices",
                "Leave it out: then batches are drawn again, and dropped.",
            )
        self.loader = loader
        self._asked = asked  # called when a batch is asked for behind another
        self._by_sampler = by_sampler
        self._has_state = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._goes_on_by_itself = self._has_state  # where it was resumed
        # Now: some samplers change what they say of it as they go.
        self._form = loader_facts.form_of(loader)
        self._place = Place(length=loader_facts.length_of(loader))
        self._resumed = False  # the next iteration goes on from that place
        self._rng = RNG()
        self._loop: int | None = None  # the epoch that the caller's loop is in, by its count
        self._loads = 0  # how often it was moved to another place
        self.began_anew = False  # whether an epoch was begun since it was moved last

    @property
    def given(self) -> int:
        """Batches of this epoch."""
        return self._place.given

    @property
    def epoch(self) -> int:
        """The number of this one, or of the first; from 0."""
        return self._place.epoch

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def of_epoch(self, number: int | None) -> "Batches":
        """Says which epoch of the caller's loop comes next. What was resumed is the rest of the one
        that the saved run was in; a later one begins anew. Raises BadArgument for an earlier one.
        """
        number = None if number is None else count_of(number, "epoch")
        self._loop, saved, at = number, self._place.loop, self._place
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
            at.left_out, at.skipped = at.left_out + at.skipped, 0
        return self

    def _generators(self) -> list[Any]:
        return loader_facts.generators_of(self.loader)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._again() if self._resumed else self._anew()
        at, loads, is_first = self._place, self._loads, True
        at.loop = self._loop
        for batch in iterator:
            at.given += 1
            if is_first:
                is_first = False
                self._look_for_length()
            if at.left_out:
                at.left_out -= 1
                continue
            yield batch
            if self._asked is not None:
                self._asked()
            if self._loads != loads:
                raise UnsupportedError(
                    "resume() or rollback() went to another place, and these batches go on from "
                    "the one before",
                    "Leave the loop, and iterate over auto.batches(loader) anew.",
                )
        at.over = True

    def _anew(self) -> Iterator[Any]:
        """The loader's iterator, of an epoch that begins."""
        at, begun = self._place, self._place.before is not None
        self.began_anew = True
        at.epoch += begun
        at.given, at.over, at.skipped = 0, False, 0
        at.length = loader_facts.length_of(self.loader)
        self._bring_workers(begun or loader_facts.has_workers(self.loader))
        at.before = {"global": self._rng.state_dict(), "own": self._own_states()}
        iterator = iter(self.loader)
        self._look_for_length()
        return iterator

    def _bring_workers(self, had: bool) -> None:
        """The loader's, where the run had them by now, and none where it had not: it draws a seed
        when it begins with them. They draw none of the generators that are noted.
        """
        if not loader_facts.keeps_workers(self.loader):
            return
        self._place.had_workers, has = had, loader_facts.has_workers(self.loader)
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
            self._place.length = max(now, self._place.length or 0)

    def _again(self) -> Iterator[Any]:
        """The loader's iterator, behind the batches that were given."""
        at, self._resumed = self._place, False
        at.skipped = 0
        if self._goes_on_by_itself:
            return iter(self.loader)
        begin = time.monotonic()
        assert at.before is not None
        now = self._rng.state_dict()
        self._bring_workers(at.had_workers)
        self._rng.load_state_dict(at.before["global"])
        self._set_own(at.before["own"])
        if self._by_sampler:
            iterator = loader_facts.iterator_behind(self.loader, at.given)
        else:
            iterator = iter(self.loader)
            for _ in zip(range(at.given), iterator, strict=False):
                pass
        if at.over:  # whatever number of batches this loader has
            for _ in iterator:
                pass
        self._rng.load_state_dict(now)
        self._set_own(at.behind)  # the caller may have drawn from them too
        taken = time.monotonic() - begin
        logger.info("epoch %d: %d batches drawn again in %.1f s", at.epoch, at.given, taken)
        if self._loop is None and (at.over or at.given == at.length):
            logger.warning(
                "batches(): the saved run had been given all batches of its epoch, so that this "
                "iteration gives none. If it is another epoch, that is left out: "
                "batches(loader, epoch=...) tells which it is"
            )
        return iterator

    def skip(self, batches: int) -> None:
        """Leaves so many out, of the iteration to come and, where it has less, of later ones."""
        at = self._place
        within = self._resumed and not self._goes_on_by_itself and not at.over
        if within and at.length is not None:
            with_given = max(0, min(batches, at.length - at.given))  # drawn as those are
            at.given += with_given
            at.skipped += with_given
            batches -= with_given
        at.left_out += batches

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        own: Any = self.loader.state_dict() if self._has_state else None  # type: ignore[attr-defined]
        at = dataclasses.replace(
            self._place, behind=self._own_states(), form=self._form, loader=own
        )
        return at.state_dict()

    def check(self, state: dict[str, Any]) -> None:
        """Raises LayoutError where it cannot go on from there, for the loader is another."""
        saved = Place.of(state)
        if self._is_own(saved):
            return
        place.check_generators(saved, self._generators())
        place.check_form(saved, self._form)
        place.check_length(saved, self._length_like(saved.known_length()))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there. Raises LayoutError as ``check()``."""
        self.check(state)
        at = Place.of(state)
        self._loads += 1
        self.began_anew = False
        self._goes_on_by_itself = self._is_own(at)
        length = self._length_like(at.known_length())
        if not self._goes_on_by_itself:
            place.warn_of_workers(at, self._form)
            if length is not None and place.is_of_other_length(at, length):
                at.given = length  # that epoch is over
        at.length, at.over = length, bool(at.over)
        self._place = at
        self._resumed = at.before is not None
        if self._goes_on_by_itself:
            self.loader.load_state_dict(at.loader)  # type: ignore[attr-defined]

    def restart(self) -> None:
        """To before its first epoch: what is gone back to was saved before it came. A loader with a
        ``state_dict()`` begins where that has it, for nobody knows what it was then.
        """
        self._loads += 1
        self.began_anew = self._resumed = False
        self._goes_on_by_itself = self._has_state
        self._place = Place(length=self._place.length)

    def _length_like(self, saved: int | None) -> int | None:
        """The length of an epoch: ``saved`` where the loader has that now, and else that of its
        place. Some samplers have another by epoch, or as they go.
        """
        now = loader_facts.length_of(self.loader)
        return now if now == saved else self._place.length

    def _is_own(self, place: Place) -> bool:
        """Whether the loader has a state of its own there: another may have been saved, without."""
        return self._has_state and place.loader is not None
