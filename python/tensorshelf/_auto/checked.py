"""What autosave() is given, checked before anything is done."""

import signal
from collections.abc import Iterable, Mapping
from typing import Any

from tensorshelf._auto.options import AutosaveOptions
from tensorshelf._drain.drainer import check_drain
from tensorshelf._group.group import Group
from tensorshelf._numbers import is_finite, is_number, is_whole
from tensorshelf._state import objects
from tensorshelf._state.fill import can_be_filled
from tensorshelf._state.paths import shown
from tensorshelf.errors import BadArgument

_PIPELINE = (
    "workers",
    "check_one_in",
    "bytes_per_second",
    "cpus",
    "nice",
    "device_pieces",
    "device_piece_bytes",
    "trace",
)


def check_options(options: AutosaveOptions) -> None:
    """Raises BadArgument for what cannot be."""
    _check_interval(options.every, options.mtbi)
    if not is_number(options.deadline, least=0):
        raise BadArgument(f"deadline={options.deadline!r} is no time", "Give seconds: 0 or more.")
    if options.on_busy not in ("wait", "skip"):
        raise BadArgument(f"on_busy={options.on_busy!r} is unknown", 'Use "wait" or "skip".')
    if options.on_error not in ("raise", "warn"):
        raise BadArgument(f"on_error={options.on_error!r} is unknown", 'Use "raise" or "warn".')
    if not isinstance(options.overlap, bool):
        raise BadArgument(f"overlap={options.overlap!r} is neither True nor False", "Use one.")
    if options.grads is not None and not isinstance(options.grads, bool):
        raise BadArgument(
            f"grads={options.grads!r} is neither True, False nor None",
            "Use True to save what several backwards add up; None refuses to save in their midst.",
        )
    if options.group is not None:
        _check_group(options.group, options.on_busy)
    if options.drain is not None:
        check_drain(options.drain)


def _check_interval(every: Any, mtbi: Any) -> None:
    if every != "auto" and not (is_whole(every) and every >= 1):
        raise BadArgument(f"every={every!r} is no number of steps", 'Use 1 or more, or "auto".')
    if every == "auto" and mtbi is None:
        raise BadArgument(
            'every="auto" needs the mean time between interruptions',
            "Give mtbi=, in seconds: 86400 where the job dies once a day.",
        )
    if every != "auto" and mtbi is not None:
        raise BadArgument(
            f"mtbi={mtbi!r} chooses nothing where every={every!r} says how often to save",
            'Use every="auto", or leave mtbi= out.',
        )
    if mtbi is not None and not is_finite(mtbi, above=0):
        raise BadArgument(f"mtbi={mtbi!r} is no time", "Give seconds: more than 0.")


def pipeline_options(given: Any) -> dict[str, Any]:
    """What of it is given; the pipeline has what it is else. Raises BadArgument for what cannot
    be.
    """
    if not isinstance(given, Mapping):
        raise BadArgument(f"pipeline={given!r} is no dict", 'Use {"workers": 2}, say.')
    unknown = given.keys() - set(_PIPELINE)
    if unknown:
        raise BadArgument(
            f"the pipeline has no option {min(unknown, key=str)!r}",
            f"It has {', '.join(_PIPELINE)}.",
        )
    chosen = dict(given)
    if chosen.get("workers", 0) is None:
        del chosen["workers"]
    cpus = chosen.pop("cpus", ())
    if not isinstance(chosen.get("trace", False), bool):
        raise BadArgument(f"trace={chosen['trace']!r} is neither True nor False", "Use one.")
    for option, number in chosen.items():
        if option != "trace":
            _check_number(option, number)
    if isinstance(cpus, (str, bytes)) or not isinstance(cpus, Iterable):
        raise BadArgument(f"cpus={cpus!r} is no list of cores", "Use [0, 1], say.")
    chosen["cpus"] = list(cpus)
    if not all(map(is_whole, chosen["cpus"])):
        raise BadArgument(f"cpus={cpus!r} has what is no core's number", "Use [0, 1], say.")
    return chosen


def _check_number(option: str, number: Any) -> None:
    """As far as the pipeline could not tell of it: its own limits are lower."""
    if not is_whole(number):
        raise BadArgument(f"{option}={number!r} is no whole number", "Give one, or leave it.")
    most = 2**31 - 1 if option in ("workers", "device_pieces", "nice") else 2**63 - 1
    if number < 0 and option != "nice":
        raise BadArgument(f"{option}={number} is out of range", "Give 0 or more.")
    if abs(number) > most:
        raise BadArgument(f"{option}={number} is out of range", "Give one that is far smaller.")


def _check_group(group: Any, on_busy: Any) -> None:
    """Raises BadArgument for what ranks could not do alike."""
    if not isinstance(group, Group):
        raise BadArgument(f"group={group!r} is no group", "Use tensorshelf.Group().")
    if on_busy == "skip":
        raise BadArgument(
            "on_busy='skip': each rank of a group would choose by itself which steps it saves",
            'Use every="auto", by which all choose an interval that saves fit in, or every=10.',
        )


def check_signals(signals: Iterable[Any]) -> tuple[int, ...]:
    """Their numbers. Raises BadArgument for what no handler can be for."""
    caught = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    if not isinstance(signals, Iterable):
        raise BadArgument(f"signals={signals!r} is no list of signals", "Use (signal.SIGTERM,).")
    given = tuple(signals)
    for number in given:
        if isinstance(number, bool) or number not in caught:
            raise BadArgument(
                f"signals= has {number!r}, which cannot be caught",
                "Use signals such as signal.SIGTERM and signal.SIGUSR1; none with signals=().",
            )
    return given


def check_state(state: Mapping[str, Any], own_keys: Iterable[str]) -> None:
    """Raises BadArgument for what could not be resumed."""
    for own in own_keys:
        if own in state:
            raise BadArgument(f"{own}= is a key of autosave itself", "Use another.")
    for key, value in state.items():
        if isinstance(value, (bool, int, float, complex, str, bytes, tuple)):
            raise BadArgument(
                f"{key}={value!r} is a value and no object: it would be saved as it is now at "
                "every step, and resume() could not change it",
                f"Put what changes into a dictionary, such as {key}={{...}}; where it is an option "
                "of autosave(), see its spelling.",
            )
        if isinstance(value, type):
            raise BadArgument(
                f"{key}= is the class {value.__name__}, which has no state",
                f"Give an object of it: {key}={value.__name__}(...).",
            )
        if (kind := _copied_state_of(value)) is not None:
            raise BadArgument(
                f"{key}= is what state_dict() of {kind} gave, a copy: training does not change it, "
                "and what is resumed would not reach the object",
                "Give the object itself, as in autosave(optimizer=optimizer).",
            )
        if value is None or (can_be_filled(value) and objects.takes_state(value)):
            continue
        raise BadArgument(
            f"{key}= is a {type(value).__name__}, which has no state that could be resumed",
            "Iterate over auto.batches(loader) in its place, and leave it out here."
            if _is_loader(value)
            else "Give a model, an optimizer, a tensor, a dict or list, or what has state_dict() "
            "and load_state_dict().",
        )
    for path, value in objects.taking_none(dict(state)):
        raise BadArgument(
            f"{shown(path)} is a {type(value).__name__}, which has state_dict() and no "
            "load_state_dict(): it would be saved, and no run resumed",
            "Give it one, or leave it out.",
        )


# Keys by which what state_dict() gave is known: of it nearly all is values, and no tensors that
# training changes.
_COPIED_STATES = {
    "an optimizer": {"state", "param_groups"},
    "a schedule": {"last_epoch", "_step_count"},
    "a GradScaler": {"scale", "growth_factor", "backoff_factor"},
}


def _copied_state_of(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return None
    return next((kind for kind, keys in _COPIED_STATES.items() if keys <= value.keys()), None)


def _is_loader(value: object) -> bool:
    return hasattr(value, "dataset") and hasattr(value, "__iter__")
