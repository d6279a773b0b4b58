"""Objects that have a state: how it is had, and how it is given back.

A model's parameters go by canonical names: what wraps it (DistributedDataParallel, compile) leaves
no trace in them. What an optimizer keeps of a parameter goes by the parameter's name where the
model is in the state too, so that a run may resume with its parameters in another order.
"""

import random
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tensorshelf._state import schedules
from tensorshelf._state.paths import DEEPEST, Path, dotted
from tensorshelf._values._torch import is_tensor
from tensorshelf.errors import LayoutError

_WRAPPED = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_WRAPPERS = {"DataParallel", "DistributedDataParallel", "DeepSpeedEngine"}  # hold it as `module`


def _torch() -> Any:
    return sys.modules.get("torch")


def is_module(value: object) -> bool:
    torch = _torch()
    return torch is not None and isinstance(value, torch.nn.Module)


def is_optimizer(value: object) -> bool:
    torch = _torch()
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def _is_scaler(value: object) -> bool:
    torch = _torch()
    return torch is not None and isinstance(value, torch.amp.GradScaler)


class Kind(NamedTuple):
    """How the state of such objects is had and set."""

    get: Callable[[Any], Any]
    set: Callable[[Any, Any], object]
    # Whether a state may be one of such an object's; where nobody can tell, setting it does.
    fits: Callable[[Any, Any], bool]


def _is_of_bit_generator(generator: Any, state: Any) -> bool:
    own = generator.bit_generator.state
    return isinstance(state, Mapping) and state.get("bit_generator") == own["bit_generator"]


def _is_of_random_state(generator: Any, state: Any) -> bool:
    own = generator.get_state(legacy=False)
    return isinstance(state, Mapping) and state.get("bit_generator") == own["bit_generator"]


def _is_of_python_random(generator: Any, state: Any) -> bool:
    own = generator.getstate()
    return isinstance(state, tuple) and len(state) == len(own) and state[0] == own[0]


def _is_of_torch_generator(generator: Any, state: Any) -> bool:
    own = generator.get_state()
    return bool(getattr(state, "shape", None) == own.shape and state.dtype == own.dtype)


def may_take(holder: Any, state: Any) -> bool:
    """Whether ``load_state_dict()`` is to be given it. Objects of this package know by themselves.
    Another is asked for a state of its own only where the saved one is no mapping, for some have
    to begin something to give one.
    """
    knows = getattr(holder, "_fits_state", None)
    if knows is not None:
        return bool(knows(state))
    if isinstance(state, Mapping):
        return not schedules.is_of_another(holder, state)
    own = holder.state_dict()
    return not isinstance(own, Mapping) and (state is not None or own is None)


def _set_bit_generator(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


_NUMPY_GENERATOR = Kind(lambda g: g.bit_generator.state, _set_bit_generator, _is_of_bit_generator)
_RANDOM_STATE = Kind(
    lambda g: g.get_state(legacy=False), lambda g, s: g.set_state(s), _is_of_random_state
)
_PYTHON_RANDOM = Kind(lambda g: g.getstate(), lambda g, s: g.setstate(s), _is_of_python_random)
_TORCH_GENERATOR = Kind(
    lambda g: g.get_state(), lambda g, s: g.set_state(s), _is_of_torch_generator
)
_STATE_DICT = Kind(lambda x: x.state_dict(), lambda x, s: x.load_state_dict(s), may_take)


def kind_of(value: object) -> Kind | None:
    """None for what has no state of its own. Models and optimizers are more than a kind."""
    if isinstance(value, np.random.Generator):
        return _NUMPY_GENERATOR
    if isinstance(value, np.random.RandomState):
        return _RANDOM_STATE
    if isinstance(value, random.Random):
        return None if isinstance(value, random.SystemRandom) else _PYTHON_RANDOM
    torch = _torch()
    if torch is not None and isinstance(value, torch.Generator):
        return _TORCH_GENERATOR
    if isinstance(value, type) or not callable(getattr(value, "state_dict", None)):
        return None
    return _STATE_DICT


def has_state(value: object) -> bool:
    """True for models, optimizers, generators and what has state_dict()."""
    return is_module(value) or is_optimizer(value) or kind_of(value) is not None


def takes_state(value: object) -> bool:
    """False for what has a state_dict() and nothing that takes it back."""
    return kind_of(value) is not _STATE_DICT or callable(getattr(value, "load_state_dict", None))


def taking_none(state: Any) -> Iterator[tuple[Path | None, Any]]:
    """What in a state does not, and where it is."""
    return _parts(state, lambda value: not takes_state(value))


# ---- models


def canonical(module: Any, key: str) -> str:
    """A key of a module's state_dict() without the names of what wraps it."""
    kept = []
    here: Any = module
    for part in key.split("."):
        wrapped = part in _WRAPPED or (
            part == "module" and any(kind.__name__ in _WRAPPERS for kind in type(here).__mro__)
        )
        if not wrapped:
            kept.append(part)
        here = getattr(here, "_modules", {}).get(part)
    return ".".join(kept)


def unwrapped(key: str) -> str:
    """A key of somebody's state_dict() without what may be the names of a wrapper."""
    return key.removeprefix("module.").removeprefix("_orig_mod.")


def _renamed(mapping: Mapping[str, Any], rename: Callable[[str], str]) -> "OrderedDict[str, Any]":
    renamed = OrderedDict((rename(key), value) for key, value in mapping.items())
    if len(renamed) < len(mapping):
        raise LayoutError(
            "two keys of its state_dict() are one without what wraps it", "Save the state_dict()."
        )
    return renamed


def module_state(module: Any) -> "OrderedDict[str, Any]":
    """state_dict() by canonical names, with its metadata."""
    raw = module.state_dict()
    state = _renamed(raw, lambda key: canonical(module, key))
    metadata = getattr(raw, "_metadata", None)
    if metadata is not None:
        named = {canonical(module, prefix): versions for prefix, versions in metadata.items()}
        state._metadata = named  # type: ignore[attr-defined]
    return state


def raw_state(module: Any, state: Mapping[str, Any]) -> "OrderedDict[str, Any]":
    """The reverse, for load_state_dict() of a module that may be wrapped otherwise."""
    raw = {canonical(module, key): key for key in module.state_dict()}
    wrapped = {canonical(module, name): name for name, _ in module.named_modules()}
    named = OrderedDict((raw.get(key, key), value) for key, value in state.items())
    metadata = getattr(state, "_metadata", None)
    if metadata is not None:
        versions = {wrapped.get(prefix, prefix): known for prefix, known in metadata.items()}
        named._metadata = versions  # type: ignore[attr-defined]
    return named


def load_by_themselves(module: Any) -> list[str]:
    """The canonical names of those within it, or its own "", whose load_state_dict() may do more
    than copy each tensor that has its key: of their tensors, and of those further within.
    """
    names = module.named_modules(remove_duplicate=False)
    return [canonical(module, name) for name, part in names if not _takes_copies(part)]


def _takes_copies(part: Any) -> bool:
    torch = _torch()
    plain = {torch.nn.Module._load_from_state_dict, torch.nn.BatchNorm2d._load_from_state_dict}
    kind = type(part)
    return not (
        kind._load_from_state_dict not in plain
        or kind.load_state_dict is not torch.nn.Module.load_state_dict
        or kind.set_extra_state is not torch.nn.Module.set_extra_state
        or part._load_state_dict_pre_hooks
        or part._load_state_dict_post_hooks
    )


def is_within(key: str, names: Iterable[str]) -> bool:
    """Whether a tensor's canonical name is one of what these modules hold."""
    return any(not name or key.startswith(f"{name}.") for name in names)


def parameter_names(state: Any) -> dict[int, str]:
    """By id: the names of the parameters of all models in a state."""
    names: dict[int, str] = {}
    for path, module in _parts(state, is_module):
        prefix = dotted(path)
        for key, parameter in module.named_parameters(remove_duplicate=False):
            name = canonical(module, key)
            names.setdefault(id(parameter), f"{prefix}.{name}" if prefix else name)
    return names


def modules(state: Any) -> Iterator[Any]:
    """All models in a state."""
    return (module for _, module in _parts(state, is_module))


def parameters(state: Any) -> Iterator[Any]:
    """Those of all models in a state."""
    return (parameter for module in modules(state) for parameter in module.parameters())


def stepped_by(optimizer: Any) -> list[Any]:
    """All parameters that it steps."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def optimizers(state: Any) -> Iterator[Any]:
    """All optimizers in a state."""
    return (optimizer for _, optimizer in _parts(state, is_optimizer))


def tensors(state: Any) -> Iterator[Any]:
    """All torch tensors in a state that are in no object of it."""
    return (tensor for _, tensor in _parts(state, is_tensor))


def with_state_alone(state: Any) -> Iterator[Any]:
    """What in a state is known by its ``state_dict()`` alone: schedules, and what may have one."""
    return (
        value
        for _, value in _parts(state, lambda value: kind_of(value) is _STATE_DICT)
        if not (is_module(value) or is_optimizer(value) or _is_scaler(value))
    )


def has_scaler(state: Any) -> bool:
    """Whether a GradScaler is in a state."""
    return any(True for _ in _parts(state, _is_scaler))


def _parts(
    value: Any,
    wanted: Callable[[object], bool],
    path: Path | None = None,
    above: frozenset[int] = frozenset(),
) -> Iterator[tuple[Path | None, Any]]:
    """What is wanted in containers within each other, with its path."""
    if wanted(value):
        yield path, value
        return
    if not isinstance(value, (dict, list, tuple)) or id(value) in above or len(above) > DEEPEST:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield from _parts(item, wanted, Path(path, key), above | {id(value)})


# ---- optimizers


def optimizer_options() -> frozenset[str]:
    """The names of all that torch's own optimizers can be told."""
    import torch

    return schedules.options(torch.optim.Optimizer)


def names_of(optimizer: Any, names: Mapping[int, str]) -> list[list[str]] | None:
    """The names of the parameters of each of its groups; None where one lacks its own."""
    groups = [[names.get(id(p), "") for p in group["params"]] for group in optimizer.param_groups]
    flat = [name for group in groups for name in group]
    return groups if all(flat) and len(set(flat)) == len(flat) else None


def by_name(packed: Mapping[str, Any], names: list[list[str]]) -> dict[str, Any]:
    """An optimizer's state_dict() with names in place of numbers.

    state_dict() numbers the parameters of one group after the other.
    """
    flat = [name for group in names for name in group]
    state = {flat[k] if isinstance(k, int) else k: v for k, v in packed["state"].items()}
    groups = zip(packed["param_groups"], names, strict=True)
    return {
        **packed,
        "state": state,
        "param_groups": [{**group, "params": some} for group, some in groups],
    }


def by_number(
    named: Mapping[str, Any],
    names: list[list[str]] | None = None,
    own: list[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The reverse, for an optimizer with these groups of parameters; left out, with those saved.

    A group has the options of the saved one that held the first of its parameters that was saved;
    its own, where none was; and one without parameters, those of its place.
    """
    there = named["param_groups"]
    saved = {name: group for group in there for name in group["params"]}
    names = [group["params"] for group in there] if names is None else names
    own = there if own is None else own
    flat = [name for group in names for name in group]
    numbers = {name: number for number, name in enumerate(flat)}
    groups = []
    for place, some in enumerate(names):
        of_place = own[place] if some else there[min(place, len(there) - 1)]
        options = dict(next((saved[name] for name in some if name in saved), of_place))
        options.pop("param_names", None)  # torch's, which stand beside the parameters
        if "param_names" in own[place]:
            options["param_names"] = own[place]["param_names"]
        groups.append({**options, "params": [numbers[name] for name in some]})
    state = {
        numbers.get(key, key): value
        for key, value in named["state"].items()
        if key in numbers or key not in saved
    }
    return {**named, "state": state, "param_groups": groups}
