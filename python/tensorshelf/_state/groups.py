"""The groups of an optimizer, beside those of one that was saved."""

from collections.abc import Mapping
from typing import Any

from tensorshelf._state import objects
from tensorshelf._state.alike import alike
from tensorshelf._state.load_report import SHOWN
from tensorshelf._state.paths import Path, shown
from tensorshelf.errors import LayoutError


def groups_of(saved: Any) -> list[Mapping[Any, Any]]:
    """Empty where they are of a form of their own, which the optimizer may know."""
    groups = saved.get("param_groups") if isinstance(saved, Mapping) else None
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        return []
    return groups


def same_groups(optimizer: Any, saved: Any, path: Path | None) -> None:
    """Raises LayoutError where the groups have other numbers of parameters than those that were
    saved. For an optimizer that was saved by its parameters' numbers: the model was not beside it.
    """
    groups = groups_of(saved)
    if not groups:
        return
    there = [len(group.get("params", ())) for group in groups]
    own = [len(group["params"]) for group in optimizer.param_groups]
    if there != own:
        raise LayoutError(
            f"{shown(path)} has {own} parameters in its groups, and {there} were saved",
            "Give an optimizer of as many parameters, or save the model beside it: then they go by "
            "their names. Nothing was loaded.",
        )


def same_partition(
    saved: list[Any], own: list[Any], names: list[list[str]], path: Path | None
) -> None:
    """Raises LayoutError where parameters that are known to both do not lie together as they did,
    and it makes a difference: else some would get the options of others. For an optimizer that was
    saved by its parameters' names.
    """
    home = {name: number for number, group in enumerate(saved) for name in group["params"]}
    homes = [{home[name] for name in group if name in home} for group in names]
    merged = any(not alike([saved[number] for number in some], read=False) for some in homes)
    shared = [
        [group for group, some in zip(own, homes, strict=True) if number in some]
        for number in range(len(saved))
    ]
    if merged or not all(alike(groups, read=True) for groups in shared):
        raise LayoutError(
            f"{shown(path)} has its parameters in other groups ({list(map(len, names))} of them) "
            f"than were saved ({[len(group['params']) for group in saved]})",
            "Give an optimizer with the groups that were saved, or leave this key out. "
            "Nothing was loaded.",
        )


def order(saved: list[Any], names: list[list[str]]) -> list[int]:
    """The saved group of each group, by the first of its parameters that is known to both."""
    home = {name: number for number, group in enumerate(saved) for name in group["params"]}
    return [
        next((home[name] for name in group if name in home), place)
        for place, group in enumerate(names)
    ]


def same_options(optimizer: Any, saved: Any, path: Path | None) -> None:
    """Raises LayoutError where what was saved is of another kind of optimizer, by what its groups
    have. Versions of torch add options, or take some away; and schedulers keep values of their own
    in the groups. So what counts is an option of another of torch's optimizers.
    """
    groups = groups_of(saved)
    if not groups:
        return
    there = groups[0].keys()
    lacking = sorted(optimizer.defaults.keys() - there)
    other = sorted((there - optimizer.param_groups[0].keys()) & objects.optimizer_options())
    if lacking and other:
        raise LayoutError(
            f"{shown(path)} is {type(optimizer).__name__}, with {', '.join(lacking[:SHOWN])}; one "
            f"with {', '.join(other[:SHOWN])} was saved",
            "Give an optimizer of the kind that was saved, or leave this key out. "
            "Nothing was loaded.",
        )
