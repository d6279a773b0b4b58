"""shelf.load_into(): a saved state into what is there."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorshelf._progress import Report
from tensorshelf._state import groups, objects, record, schedules, shards
from tensorshelf._state.load_report import LoadReport, mismatch
from tensorshelf._state.matching import OTHER, Matching
from tensorshelf._state.nodes import head, is_mapping, key_of, pairs, value_of
from tensorshelf._state.paths import Path, dotted, shown
from tensorshelf._state.plain import Node, is_a
from tensorshelf._state.reader import Reader
from tensorshelf._state.record import Reads
from tensorshelf._state.rename import Rename, renamed
from tensorshelf._state.split import Exchange
from tensorshelf._state.tensors import is_tensor, overlaps_itself
from tensorshelf.errors import BadArgument, LayoutError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

LOADERS = "autosave"  # an outermost key that autosave adds: where its loaders are


def load_into(
    shelf: Reads,
    state: Any,
    *,
    step: int | None,
    strict: bool,
    rename: Rename | None,
    report: Report | None,
    given_only: bool = False,
    exchange: Exchange | None = None,
) -> LoadReport:
    """See Shelf.load_into. All is compared before anything is changed. ``given_only``: of a dict,
    outermost keys that are saved alone are no others than it should have. ``exchange`` has the rest
    of what lies here in pieces.
    """
    saved = record.get(shelf)
    tree = saved.tree if rename is None else renamed(saved.tree, rename)
    if isinstance(state, dict) and state and is_mapping(tree):
        tree = _without(tree, lambda key: key not in state and (given_only or key == LOADERS))
    fill = _Fill(Reader(shelf, saved, exchange), objects.parameter_names(state))
    fill.root(state, tree)
    fill.check_schedules()
    found = LoadReport(step, tuple(fill.missing), tuple(fill.unexpected))
    if strict and (fill.missing or fill.unexpected):
        raise mismatch(found)
    fill.reader.read_all(report)
    for action in fill.actions:
        action()
    return found


def _without(tree: Node, is_left_out: Callable[[Any], bool]) -> Node:
    """A mapping with what lies under the other keys."""
    kept = [item for pair in pairs(tree) if not is_left_out(key_of(pair[0])) for item in pair]
    return [*head(tree), *kept]


def load_version_into(version: Reads, state: Any, step: int) -> LoadReport:
    """What was saved at that step, from a version that is kept."""
    return load_into(version, state, step=step, strict=True, rename=None, report=None)


def can_be_filled(target: Any) -> bool:
    """Whether it stays the object that it is, with what was saved in it."""
    kinds = (dict, list)
    tensor = is_tensor(target) or shards.is_sharded(target)
    return tensor or isinstance(target, kinds) or objects.has_state(target)


def _holds_what_stays(target: Any) -> bool:
    """Whether it is filled, or is a tuple in which something is."""
    return can_be_filled(target) or (type(target) is tuple and any(map(_holds_what_stays, target)))


class _Fill:
    """Walks a state beside a tree, and notes what is to be done."""

    def __init__(self, reader: Reader, names: Mapping[int, str]) -> None:
        self.reader = reader
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.actions: list[Callable[[], object]] = []
        self._names = names
        self._matching = Matching(reader)
        self._regrouped: set[int] = set()  # ids of optimizers with groups in another order
        self._schedules: list[tuple[Any, Any, Path | None]] = []  # and what was saved of them

    def check_schedules(self) -> None:
        """A schedule goes by the order of the groups, though an optimizer finds its parameters by
        their names. Raises LayoutError where that makes a difference.
        """
        for schedule, value, path in self._schedules:
            if id(schedule.optimizer) in self._regrouped and schedules.goes_by_order(value):
                raise LayoutError(
                    f"{shown(path)} goes by the order of its optimizer's groups, which are in "
                    "another one than those that were saved",
                    "Give the groups in the order that was saved, or leave this key out. Nothing "
                    "was loaded.",
                )

    def root(self, state: Any, tree: Node) -> None:
        if not self._fill(state, tree, None):
            raise BadArgument(
                f"load_into() fills what can be changed, not a {type(state).__name__}",
                "Give it a dict, a model or a tensor, or use load().",
            )

    def _fill(self, target: Any, node: Node, path: Path | None) -> bool:
        """False where the target is a value that cannot be changed in place."""
        if is_tensor(target) or shards.is_sharded(target):
            self._tensor(target, node, path)
        elif objects.is_module(target):
            self._module(target, node, path)
        elif objects.is_optimizer(target):
            self._optimizer(target, node, path)
        elif (kind := objects.kind_of(target)) is None:  # before dicts that have a state_dict()
            if isinstance(target, dict):
                self._mapping(target, node, path)
            elif isinstance(target, list):
                self._list(target, node, path)
            else:
                return False
        else:
            if not objects.takes_state(target):
                raise LayoutError(
                    f"{shown(path)} is a {type(target).__name__}, which has state_dict() and no "
                    "load_state_dict()",
                    "Leave it out, and set it from what load() gives. Nothing was loaded.",
                )
            value = value_of(node, self.reader)
            if not kind.fits(target, value):
                raise _of_something_else(target, path)
            if objects.is_optimizer(getattr(target, "optimizer", None)):
                self._schedules.append((target, value, path))
            self.actions.append(lambda: kind.set(target, value))
        return True

    def _tensor(self, target: Any, node: Node, path: Path | None) -> None:
        target, node = self._matching.of_this_rank(target, node, path)
        self._matching.check_shape(target, node, path)
        if isinstance(target, np.ndarray):
            if not target.flags.writeable:
                raise LayoutError(f"{shown(path)} is read-only", "Give one that can be written.")
        elif overlaps_itself(target):
            raise LayoutError(
                f"{shown(path)} shows one element several times, as expand() does", "Clone it."
            )
        self.reader.into(node, target)

    def _mapping(self, target: dict[Any, Any], node: Node, path: Path | None) -> None:
        saved = self._saved(node, path)
        if not target:
            values = value_of(node, self.reader)
            self.actions.append(lambda: target.update(values))
            return
        for key in target:
            if key not in saved:
                self.missing.append(dotted(Path(path, key)))
        for key, part in saved.items():
            if key not in target:
                self.unexpected.append(dotted(Path(path, key)))
            else:
                self._item(target, key, part, Path(path, key))

    def _list(self, target: list[Any], node: Node, path: Path | None) -> None:
        if not is_a(node, "list"):
            raise LayoutError(f"{shown(path)} is a list, and none was saved there", OTHER)
        parts: Sequence[Node] = node[1:]
        if not any(map(_holds_what_stays, target)):
            values = value_of(node, self.reader)
            self.actions.append(lambda: target.__setitem__(slice(None), values))
            return
        self._items(target, parts, path)

    def _tuple(self, target: tuple[Any, ...], node: Node, path: Path | None) -> list[Any]:
        """What of it stays, filled, beside what was saved: as a list, when all is done."""
        if not is_a(node, "tuple"):
            raise LayoutError(f"{shown(path)} is a tuple, and none was saved there", OTHER)
        made = list(target)
        self._items(made, node[1:], path)
        return made

    def _items(self, target: list[Any], parts: Sequence[Node], path: Path | None) -> None:
        for index in range(len(parts), len(target)):
            self.missing.append(dotted(Path(path, index)))
        for index, part in enumerate(parts):
            if index >= len(target):
                self.unexpected.append(dotted(Path(path, index)))
            else:
                self._item(target, index, part, Path(path, index))

    def _item(self, holder: Any, key: Any, node: Node, path: Path) -> None:
        there = holder[key]
        if type(there) is tuple and _holds_what_stays(there):
            made = self._tuple(there, node, path)
            self.actions.append(lambda: holder.__setitem__(key, tuple(made)))
        elif not self._fill(there, node, path):
            value = value_of(node, self.reader)
            self.actions.append(lambda: holder.__setitem__(key, value))

    def _module(self, module: Any, node: Node, path: Path | None) -> None:
        saved = self._saved(node, path)
        own = objects.module_state(module)
        if not own.keys() & saved.keys():  # one that was saved as its state_dict(), wrapped
            stripped = {objects.unwrapped(key): key for key in saved if isinstance(key, str)}
            if own.keys() & stripped.keys():
                saved = {key: saved[old] for key, old in stripped.items()}
        missing = [dotted(Path(path, key)) for key in own if key not in saved]
        self.missing += missing
        self.unexpected += [dotted(Path(path, key)) for key in saved if key not in own]
        both = [key for key in own if key in saved]
        by_themselves = objects.load_by_themselves(module)
        parts: dict[str, tuple[Any, Node]] = {}  # of this rank: all, where nothing is sharded
        for key in both:
            parts[key] = own[key], saved[key]
            if is_tensor(own[key]) or shards.is_sharded(own[key]):
                parts[key] = self._matching.of_this_rank(own[key], saved[key], Path(path, key))
                cast = not objects.is_within(key, by_themselves)
                self._matching.check_shape(*parts[key], Path(path, key), cast=cast)
        if not missing and not by_themselves:
            for target, part in parts.values():
                self.reader.into(part, target)
            return
        values: OrderedDict[str, Any] = OrderedDict()
        for key, (_, part) in parts.items():
            values[key] = value_of(part, self.reader)
            if shards.is_dtensor(own[key]):
                self._sharded_as(own[key], values, key)
        if node[0] == "OrderedDict" and node[1] is not None:
            values._metadata = value_of(node[1], self.reader)  # type: ignore[attr-defined]
        self.actions.append(
            lambda: module.load_state_dict(objects.raw_state(module, values), strict=False)
        )

    def _optimizer(self, optimizer: Any, node: Node, path: Path | None) -> None:
        if not is_a(node, "by_name"):
            value = value_of(node, self.reader)
            if not _may_be_optimizers(optimizer, value):
                raise _of_something_else(optimizer, path)
            groups.same_options(optimizer, value, path)
            groups.same_groups(optimizer, value, path)
            self.actions.append(lambda: optimizer.load_state_dict(value))
            return
        names = objects.names_of(optimizer, self._names)
        if names is not None:
            self._adopt(optimizer, node[1], names)
        named = value_of(node[1], self.reader)
        groups.same_options(optimizer, named, path)
        if names is None:
            groups.same_groups(optimizer, named, path)
        else:
            groups.same_partition(named["param_groups"], optimizer.param_groups, names, path)
            if groups.order(named["param_groups"], names) != list(range(len(names))):
                self._regrouped.add(id(optimizer))
            saved = {name for group in named["param_groups"] for name in group["params"]}
            own = {name for group in names for name in group}
            self.missing += [dotted(Path(path, name)) for name in sorted(own - saved)]
            self.unexpected += [dotted(Path(path, name)) for name in sorted(saved - own)]
            self._shard(optimizer, node[1], names, named["state"], path)
        value = objects.by_number(named, names, None if names is None else optimizer.param_groups)
        self.actions.append(lambda: optimizer.load_state_dict(value))

    def _shard(
        self,
        optimizer: Any,
        node: Node,
        names: list[list[str]],
        state: dict[str, Any],
        path: Path | None,
    ) -> None:
        """What was kept of a parameter that is sharded is sharded alike."""
        parameters = _parameters(optimizer, names)
        for name, kept in pairs({key_of(key): part for key, part in pairs(node)}["state"]):
            for key, part in pairs(kept) if is_mapping(kept) else ():
                parameter = parameters.get(key_of(name))
                sharded = isinstance(part, list) and part[0] == "part"
                if parameter is None or not (sharded or self._matching.is_whole(parameter, part)):
                    continue
                where = Path(Path(path, key_of(name)), key_of(key))
                _, region = self._matching.of_this_rank(parameter, part, where)
                if shards.is_dtensor(parameter):
                    kept_now = state[key_of(name)]
                    kept_now[key_of(key)] = self.reader.tensor(region)
                    self._sharded_as(parameter, kept_now, key_of(key))

    def _sharded_as(self, own: "DTensor", values: dict[Any, Any], key: object) -> None:
        """Once it is read: what brings a part to its mesh's device copies the values there are."""

        def shard() -> None:
            values[key] = shards.like(own, values[key])

        self.actions.append(shard)

    def _adopt(self, optimizer: Any, node: Node, names: list[list[str]]) -> None:
        """What torch's own optimizers keep already is read in place: new memory costs more than
        reading does. Others may keep what belongs to somebody else.
        """
        if not type(optimizer).__module__.startswith("torch.optim."):
            return
        parameters = _parameters(optimizer, names)
        state = {key_of(key): part for key, part in pairs(node)}["state"]
        for name, kept in pairs(state):
            own = optimizer.state.get(parameters.get(key_of(name)), {})
            for key, part in pairs(kept) if is_mapping(kept) else ():
                target = own.get(key_of(key))
                stored = isinstance(part, list) and part[0] in ("tensor", "piece")
                if is_tensor(target) and stored:
                    self.reader.adopt(part, target)

    def _saved(self, node: Node, path: Path | None) -> dict[Any, Node]:
        """A mapping's parts by their keys."""
        if not is_mapping(node):
            raise LayoutError(f"{shown(path)} has keys, and none were saved there", OTHER)
        return {key_of(key): part for key, part in pairs(node)}


def _parameters(optimizer: Any, names: list[list[str]]) -> dict[str, Any]:
    return {
        name: parameter
        for group, some in zip(optimizer.param_groups, names, strict=True)
        for parameter, name in zip(group["params"], some, strict=True)
    }


def _of_something_else(target: Any, path: Path | None) -> LayoutError:
    return LayoutError(
        f"{shown(path)} is a {type(target).__name__}, and the state of something else was saved "
        "there",
        "Give one of the kind that was saved, or leave this key out. Nothing was loaded.",
    )


def _may_be_optimizers(optimizer: Any, saved: Any) -> bool:
    if isinstance(saved, Mapping) and "param_groups" not in saved:
        return "param_groups" not in optimizer.state_dict()  # else it has a form of its own
    return objects.may_take(optimizer, saved)
