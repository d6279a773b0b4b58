"""Plain tensors as parts of larger ones: Shard, saved, loaded and resumed."""

import itertools
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

import tensorshelf as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

WHOLE = torch.arange(24.0).reshape(4, 6)
ARRAY = np.arange(24.0).reshape(4, 6)


def rows(whole: Any, rank: int, name: str = "w") -> ts.Shard:
    """Two of its four."""
    part = whole[2 * rank : 2 * rank + 2]
    part = part.copy() if isinstance(part, np.ndarray) else part.clone()
    return ts.Shard(part, name, whole.shape, (2 * rank, 0))


def same(found: Any, expected: Any) -> bool:
    return type(found) is type(expected) and bool((found == expected).all())


@pytest.mark.parametrize("whole", [WHOLE, ARRAY, WHOLE.bfloat16(), WHOLE.t().contiguous().t()])
def test_it_goes_back_into_its_memory(shelf: ts.Shelf, whole: Any) -> None:
    shelf.save({"a": rows(whole, 1)})
    assert shelf["a"].shape == (2, 6)  # by its place, and of this rank's part
    assert same(shelf.load()["a"], whole[2:])  # the plain tensor
    target = rows(whole * 0, 1)
    there = target.tensor
    shelf.load_into({"a": target})
    assert target.tensor is there
    assert same(there, whole[2:])


@pytest.mark.parametrize("whole", [WHOLE, ARRAY])
def test_its_region_of_a_whole_one(shelf: ts.Shelf, whole: Any) -> None:
    shelf.save({"a": whole})
    target = {"a": ts.Shard(whole[1:4, 2:4] * 0, "w", whole.shape, (1, 2))}
    shelf.load_into(target)
    assert same(target["a"].tensor, whole[1:4, 2:4])
    shelf.load_into({"a": ts.Shard(all_of := whole * 0, "w", whole.shape, (0, 0))})
    assert same(all_of, whole)


def test_one_that_is_all_of_it_is_a_tensor_too(shelf: ts.Shelf) -> None:
    shelf.save({"a": ts.Shard(WHOLE, "w", WHOLE.shape, (0, 0))})
    shelf.load_into({"a": (plain := WHOLE * 0)})
    assert same(plain, WHOLE)
    target = rows(WHOLE * 0, 1)
    shelf.load_into({"a": target})
    assert same(target.tensor, WHOLE[2:])


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (
            rows(WHOLE, 0),
            "[2, 6] from [0, 0] on of [4, 6], and what was saved is [2, 6] from [2, 0]",
        ),
        (ts.Shard(WHOLE[2:], "w", (5, 6), (2, 0)), "of [5, 6], and what was saved"),
        (ts.Shard(WHOLE[2:, :5], "w", (4, 6), (2, 0)), "[2, 5] from [2, 0] on"),
        (rows(WHOLE, 1, "v"), "a part of 'v', and one of 'w' was saved"),
        (WHOLE[2:], "not sharded"),
    ],
)
def test_another_part_is_refused(shelf: ts.Shelf, target: Any, text: str) -> None:
    shelf.save({"a": rows(WHOLE * 0, 1)})
    with pytest.raises(ts.LayoutError) as caught:
        shelf.load_into({"a": target})
    assert text in str(caught.value)
    assert "state['a']" in str(caught.value)
    assert "Nothing was loaded" in caught.value.remedy


def test_a_whole_tensor_of_another_shape_is_refused(shelf: ts.Shelf) -> None:
    shelf.save({"a": WHOLE[:, :5]})
    with pytest.raises(ts.LayoutError, match="no part of a sharded tensor"):
        shelf.load_into({"a": rows(WHOLE, 1)})


@pytest.mark.parametrize(
    ("arguments", "kind", "texts"),
    [
        (([1.0], "w", (1,), (0,)), ts.LayoutError, ("'w'", "list", "torch tensor or a NumPy")),
        ((WHOLE.sum(), "w", (), ()), ts.LayoutError, ("'w'", "no dimensions", "as it is")),
        ((WHOLE, "w", (8,), (0, 0)), ts.LayoutError, ("'w'", "2 dimensions", "global_shape")),
        ((WHOLE, "w", (8, 6), (0,)), ts.LayoutError, ("'w'", "2 dimensions", "offset")),
        ((WHOLE, "w", (8, 6), (5, 0)), ts.LayoutError, ("'w'", "4 from 5", "dimension 0", "at 8")),
        ((WHOLE, "w", (8, 5), (0, 0)), ts.LayoutError, ("'w'", "6 from 0", "dimension 1", "at 5")),
        ((WHOLE, "w", (8, -6), (0, 0)), ts.BadArgument, ("'w'", "global_shape=(8, -6)", "below 0")),
        ((WHOLE, "w", (8, 6), (-1, 0)), ts.BadArgument, ("'w'", "offset=(-1, 0)", "below 0")),
        ((WHOLE, "w", 8, (0, 0)), ts.BadArgument, ("'w'", "global_shape=8", "(1024, 512)")),
        ((WHOLE, "w", (8, 6.0), (0, 0)), ts.BadArgument, ("'w'", "whole numbers")),
        ((WHOLE, "w", (8, 6), (True, 0)), ts.BadArgument, ("'w'", "whole numbers")),
        ((WHOLE, 7, (8, 6), (0, 0)), ts.BadName, ("7",)),
        ((WHOLE, "", (8, 6), (0, 0)), ts.BadName, ("''", "900 bytes")),
        ((WHOLE, "__state__", (8, 6), (0, 0)), ts.BadName, ("'__state__'",)),
        ((WHOLE, "x" * 901, (8, 6), (0, 0)), ts.BadName, ("900 bytes",)),
        ((WHOLE, "ü" * 451, (8, 6), (0, 0)), ts.BadName, ("900 bytes",)),
    ],
)
def test_what_cannot_be_is_told_at_once(
    arguments: Any, kind: type[ts.ShelfError], texts: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as caught:
        ts.Shard(*arguments)
    assert type(caught.value) is kind
    for text in texts:
        assert text in str(caught.value)


def test_one_name_is_of_one_whole(shelf: ts.Shelf) -> None:
    other = ts.Shard(WHOLE.clone(), "w", (9, 6), (0, 0))
    with pytest.raises(ts.NotStorable, match=r"'b'.*'w' of \[9, 6\].*\[4, 6\]"):
        shelf.save({"a": rows(WHOLE, 0), "b": other})


def test_what_it_is() -> None:
    shard = rows(WHOLE, 1)
    assert repr(shard) == "Shard('w', float32[2, 6] from (2, 0) on of (4, 6))"
    assert (shard.name, shard.global_shape, shard.offset) == ("w", (4, 6), (2, 0))
    copy = pickle.loads(pickle.dumps(shard))
    assert (repr(copy), same(copy.tensor, shard.tensor)) == (repr(shard), True)


def test_one_that_a_model_has_too_is_stored_once(shelf: ts.Shelf) -> None:
    layer = torch.nn.Linear(6, 2, bias=False)
    state = {"model": layer, "w": ts.Shard(layer.weight, "w", (4, 6), (2, 0))}
    shelf.save(state)
    assert sorted(shelf) == ["__state__", "model.weight"]
    expected = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.zero_()
    shelf.load_into(state)
    assert torch.equal(layer.weight, expected)


def test_a_plan_stays_while_a_shard_is_what_it_was(tmp_path: pathlib.Path) -> None:
    with ts.open(tmp_path / "run.shelf", size="8MiB", in_flight=2) as shelf:
        memory = torch.zeros(2, 6)
        box = {"w": ts.Shard(memory, "w", (4, 6), (0, 0))}
        auto = shelf.autosave(signals=(), box=box)
        auto.resume()
        plans = []
        for step in range(1, 7):
            if step == 3:  # another object that says the same
                box["w"] = ts.Shard(memory, "w", (4, 6), (0, 0))
            if step == 4:
                box["w"] = ts.Shard(memory, "w", (4, 6), (2, 0))
            if step == 5:
                box["w"] = ts.Shard(memory, "v", (4, 6), (2, 0))
            memory += 1
            auto.step(step)
            plans.append(auto._feed._plan)
        auto.wait()
        stays = [plan is after for plan, after in itertools.pairwise(plans[1:])]
        assert stays == [True, False, False, True]
        target = {"box": {"w": ts.Shard(torch.zeros(2, 6), "v", (4, 6), (2, 0))}}
        shelf.load_into(target, strict=False)
        assert same(target["box"]["w"].tensor, memory)
        auto.close()


class Kept:
    """Gives Shards of what an optimizer keeps, anew at each look."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        kept = list(self.optimizer.state.values())
        return {"m": ts.Shard(kept[0]["exp_avg"], "w.m", (4, 6), (2, 0))} if kept else {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def test_a_plan_stays_beside_shards_of_what_an_optimizer_keeps(tmp_path: pathlib.Path) -> None:
    layer = torch.nn.Linear(6, 2, bias=False)
    optimizer = torch.optim.AdamW(layer.parameters())
    with ts.open(tmp_path / "run.shelf", size="8MiB", in_flight=2) as shelf:
        auto = shelf.autosave(signals=(), model=layer, optimizer=optimizer, kept=Kept(optimizer))
        auto.resume()
        plans = []
        for step in range(1, 6):
            layer(torch.ones(6)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 5:
                kept = optimizer.state[layer.weight]
                kept["exp_avg"] = kept["exp_avg"].clone()
            auto.step(step)
            plans.append(auto._feed._plan)
        auto.wait()
        stays = [plan is after for plan, after in itertools.pairwise(plans[1:])]
        assert plans[1] is not None
        assert stays == [True, True, False]
        found = shelf.load()
        assert torch.equal(found["kept"]["m"], optimizer.state[layer.weight]["exp_avg"])
        assert "kept.m" not in shelf
        auto.close()
