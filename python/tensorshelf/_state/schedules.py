"""Whether a schedule of torch's own may take a state: its ``load_state_dict()`` takes any."""

import inspect
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

_BY_GROUP = {"lr_lambdas", "T_0", "T_max", "max_lrs"}  # step by what each group began with
_OF_SCHEDULES = {"lr_lambdas", "_schedulers", "_milestones"}  # what they keep beside their options


def is_of_another(schedule: Any, state: Mapping[Any, Any]) -> bool:
    """Whether it is one that this schedule could not go on from. False for what is no schedule of
    torch's own, which knows by itself.
    """
    torch = sys.modules.get("torch")
    base = None if torch is None else torch.optim.lr_scheduler.LRScheduler
    return base is not None and _differs(schedule, state, base, in_turn=False)


def goes_by_order(state: Any) -> bool:
    """Whether a schedule's state has of each of several groups what that began with, or goes down
    to, and not the same of all.
    """
    if not isinstance(state, Mapping):
        return False
    inner = state.get("_schedulers")
    if isinstance(inner, list | tuple) and any(map(goes_by_order, inner)):
        return True
    by_group = ("base_lrs", "max_lrs") if _BY_GROUP & state.keys() else ()
    lists = [state.get(key) for key in (*by_group, "min_lrs")]
    return any(one != each[0] for each in lists if isinstance(each, list) for one in each[1:])


def _differs(schedule: Any, state: Any, base: Any, *, in_turn: bool) -> bool:
    """By the options: one that this kind has not, or none of an option that every one of this kind
    was given; or for another number of groups, where it steps by what each began with. ``in_turn``:
    it is one of those that a SequentialLR goes through, which begins each with that.
    """
    if not isinstance(schedule, base) or type(schedule).__module__ != base.__module__:
        return False
    if not isinstance(state, Mapping):
        return True
    own = schedule.state_dict()
    parameters = inspect.signature(type(schedule)).parameters.values()
    needed = {each.name for each in parameters if each.default is each.empty} | _OF_SCHEDULES
    if (state.keys() - own.keys()) & (options(base) | _OF_SCHEDULES):
        return True
    if (needed & own.keys()) - state.keys():
        return True
    if (in_turn or _BY_GROUP & own.keys()) and _counts_differ(own, state, "base_lrs"):
        return True
    if state.get("default_min_lr", 0) is None and _counts_differ(own, state, "min_lrs"):
        return True
    return "_schedulers" in own and _inner_differ(schedule, state, base, in_turn=in_turn)


def _inner_differ(schedule: Any, state: Mapping[Any, Any], base: Any, *, in_turn: bool) -> bool:
    inner, states = schedule._schedulers, state["_schedulers"]
    in_turn = in_turn or "_milestones" in state
    return (
        not isinstance(states, list | tuple)
        or len(states) != len(inner)
        or any(
            _differs(one, its, base, in_turn=in_turn)
            for one, its in zip(inner, states, strict=True)
        )
    )


def _counts_differ(own: Mapping[Any, Any], state: Mapping[Any, Any], key: str) -> bool:
    """Whether the groups, which have an entry each in these lists, are not as many as they were."""
    ours, theirs = own.get(key), state.get(key)
    return isinstance(ours, list) and isinstance(theirs, list) and len(ours) != len(theirs)


@cache
def options(base: type) -> frozenset[str]:
    """The names of all that torch's own kinds of it can be told."""
    import torch

    known = [*vars(torch.optim).values(), *vars(torch.optim.lr_scheduler).values()]
    kinds = [kind for kind in known if isinstance(kind, type) and issubclass(kind, base)]
    return frozenset().union(*(inspect.signature(kind).parameters for kind in kinds))
