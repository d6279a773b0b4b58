"""A place in the batches of a loader, as it is saved, and whether a loader can go on there."""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensorshelf._auto.rng import RNG
from tensorshelf._numbers import is_whole
from tensorshelf._state import objects
from tensorshelf.errors import LayoutError

logger = logging.getLogger("tensorshelf")

_OTHER_LOADER = (
    "Resume with the loader that was saved, to the end of its epoch; or iterate over the new one "
    "without batches(), and begin an epoch."
)


@dataclasses.dataclass
class Place:
    """Within an epoch, or before the first one."""

    given: int = 0  # batches of this epoch
    epoch: int = 0  # the number of this one, or of the first; from 0
    before: dict[str, Any] | None = None  # the generators when this epoch began
    length: int | None = None  # of this epoch, in batches
    behind: list[Any] = dataclasses.field(default_factory=list)  # its own ones, behind the given
    loop: int | None = None  # the epoch that the caller's loop was in, by its count
    left_out: int = 0  # batches that come next, of this iteration or later ones
    form: Mapping[str, Any] | None = None  # what decides which batches there are
    over: bool | None = False  # the epoch: nothing comes any more. None: not known
    skipped: int = 0  # of this epoch's batches that count as given
    had_workers: bool = False  # when this epoch began: those that the loader keeps
    loader: Any = None  # the state that the loader has itself, where it has one

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Place":
        """What ``state_dict()`` told, in this release or an earlier one: ``is_place()`` holds."""
        names = [field.name for field in dataclasses.fields(cls)]
        said = {"over": None, "had_workers": state["epoch"] > 0, **state}
        return cls(**{name: said[name] for name in names if name in said})

    def state_dict(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.loader is None:
            del state["loader"]
        return state

    def known_length(self) -> int | None:
        """None where more was given, and the end not seen: that loader says too little."""
        if self.length is not None and self.over is False and self.given > self.length:
            return None
        return self.length

    def is_over(self) -> bool:
        """Whether the epoch had ended: as was seen or, in states of earlier releases, counted."""
        length = self.known_length()
        return bool(self.over) or (length is not None and self.given >= length)


def check_generators(place: Place, own: list[Any]) -> None:
    """Raises LayoutError where a loader has others as ``generator``."""
    begin = [] if place.before is None else list(place.before["own"])
    for generator, saved in [
        *zip(own, begin, strict=False),
        *zip(own, place.behind, strict=False),
    ]:
        kind = objects.kind_of(generator)
        if kind is not None and not kind.fits(generator, saved):
            raise LayoutError(
                f"this loader has a {type(generator).__name__} as generator=, and that of the "
                "saved run was of another kind",
                _OTHER_LOADER,
            )


def check_form(place: Place, form: Mapping[str, Any]) -> None:
    """Raises LayoutError where the rest of an epoch would consist of other batches."""
    for key, value, saved in _differs(place, form):
        if key != "num_workers":
            raise LayoutError(
                f"this loader has {key} {value}, and that of the saved run {saved}: the rest "
                "of its epoch would be other batches",
                _OTHER_LOADER,
            )


def check_length(place: Place, length: int | None) -> None:
    """Raises LayoutError where a loader gives more or fewer batches, and some were given."""
    if is_of_other_length(place, length) and not place.is_over():
        raise LayoutError(
            f"this loader gives {length} batches an epoch, and the saved run was at {place.given} "
            f"of {place.length}: what it had not seen yet is not known here",
            _OTHER_LOADER,
        )


def is_of_other_length(place: Place, length: int | None) -> bool:
    """Where both are known."""
    saved = place.known_length()
    return bool(place.given) and None not in (saved, length) and saved != length


def warn_of_workers(place: Place, form: Mapping[str, Any]) -> None:
    for key, value, saved in _differs(place, form):
        if key == "num_workers":
            logger.warning(
                "batches(): the saved run's loader had num_workers=%s, and this one has %s: "
                "random numbers that are drawn in loading are others from here on",
                saved,
                value,
            )


def _differs(place: Place, form: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Within an epoch: what decides which batches there are, here and where it was saved."""
    if place.is_over() or not place.given:
        return
    saved = dict(place.form or {})
    if "num_workers" in saved:  # of a stream, by an earlier release
        saved.setdefault("workers", max(1, saved["num_workers"]))
    for key, value in form.items():
        if saved.get(key, value) != value:
            yield key, value, saved[key]


def _is_count(value: Any) -> bool:
    return is_whole(value) and value >= 0


def _is_begin(value: Any) -> bool:
    """Whether it is how an epoch begins: states of the global generators, and the loader's own."""
    return (
        isinstance(value, Mapping)
        and RNG()._fits_state(value.get("global"))
        and isinstance(value.get("own"), list)
    )


def _is_form(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        _is_count(value.get(key, 0)) for key in ("num_workers", "workers")
    )


_NEEDED: dict[str, Callable[[Any], bool]] = {
    "given": _is_count,
    "epoch": _is_count,
    "before": lambda value: value is None or _is_begin(value),
}
_MAY_BE: dict[str, Callable[[Any], bool]] = {  # not in states of every earlier release
    "length": lambda value: value is None or _is_count(value),
    "loop": lambda value: value is None or is_whole(value),
    "left_out": _is_count,
    "skipped": _is_count,
    "form": lambda value: value is None or _is_form(value),
    "behind": lambda value: isinstance(value, list),
    "had_workers": lambda value: isinstance(value, bool),
}


def is_place(saved: Any) -> bool:
    """Whether it is what ``state_dict()`` of a place gives, in this release or an earlier one."""
    return (
        isinstance(saved, Mapping)
        and saved.keys() >= _NEEDED.keys()
        and all(check(saved[key]) for key, check in _NEEDED.items())
        and all(check(saved[key]) for key, check in _MAY_BE.items() if key in saved)
    )
