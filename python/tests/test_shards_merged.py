"""What merge() makes of Shards: of one name, wherever ranks have them."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from group_ranks import Rank, Ranks

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

import tensorshelf as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

WHOLE = torch.arange(24.0).reshape(4, 6)
ARRAY = np.arange(24.0).reshape(4, 6)


def part(name: str, rows: slice, columns: slice = slice(0, 6), whole: Any = WHOLE) -> ts.Shard:
    offset = (rows.start, columns.start)
    return ts.Shard(whole[rows, columns].clone(), name, (4, 6), offset)


def merged(
    folder: pathlib.Path, state_of: Callable[[int], dict[str, Any]], members: int = 2
) -> pathlib.Path:
    """Of ranks that save once what they have."""
    ranks = Ranks(folder, members)

    def saved(rank: Rank) -> None:
        with rank.open() as shelf:
            state = state_of(rank.rank)
            auto = shelf.autosave(group=rank.group, signals=(), state=state)
            auto.resume()
            auto.step(1)
            auto.close()

    assert ranks.run(saved) == [None] * members
    ts.merge([ranks.path(rank) for rank in range(members)], folder / "whole.shelf")
    return folder / "whole.shelf"


def loaded(path: pathlib.Path) -> tuple[list[str], Any]:
    with ts.open(path, "r") as shelf:
        return sorted(set(shelf) - {"__state__"}), shelf.load()["state"]


HALVES = (slice(0, 2), slice(2, 4))


def part_of_rank(whole: Any, rank: int) -> ts.Shard:
    """In memory of its own."""
    rows = whole[HALVES[rank]] + 0
    return ts.Shard(rows, "w", whole.shape, (2 * rank, 0))


def same(found: Any, expected: Any) -> bool:
    return type(found) is type(expected) and bool((found == expected).all())


class Kept:
    """Gives Shards of what an optimizer keeps, anew at each look."""

    def __init__(self, momentum: Any, rank: int) -> None:
        self.momentum = momentum
        self.rank = rank
        self.given: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"m": ts.Shard(self.momentum, "w.m", (4, 6), (2 * self.rank, 0))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["m"]


def trained(rank: Rank, steps: int, whole: Any = WHOLE) -> tuple[int, Any]:
    """Adds 1 to a part of a tensor at each step; where it began, and what it has."""
    part, kept = part_of_rank(whole, rank.rank), Kept(whole[:2] * 0 + rank.rank, rank.rank)
    with rank.open() as shelf:
        state = {"weights": {"w": part}, "kept": kept}
        auto = shelf.autosave(group=rank.group, signals=(), **state)
        first = auto.resume()
        for step in range(first + 1, first + steps + 1):
            part.tensor[...] += 1
            auto.step(step)
        auto.close()
    return first, part.tensor


@pytest.mark.parametrize("whole", [WHOLE, ARRAY])
def test_a_group_goes_on_from_them_and_merges_them(tmp_path: pathlib.Path, whole: Any) -> None:
    ranks = Ranks(tmp_path, 2)
    for start, first in enumerate((0, 3)):
        found = ranks.run(lambda rank: trained(rank, 3, whole))
        for rank, (began, part) in enumerate(found):
            assert began == first
            assert same(part, whole[2 * rank : 2 * rank + 2] + 3 * (start + 1))
    ts.merge([ranks.path(0), ranks.path(1)], tmp_path / "whole.shelf")
    with ts.open(tmp_path / "whole.shelf", "r") as shelf:
        assert shelf["w"].shape == (4, 6)  # by its name, not by its place
        state = shelf.load()
        assert same(state["weights"]["w"], whole + 6)
        assert state["kept"]["m"][:, 0].tolist() == [0, 0, 1, 1]
        plain = {"weights": {"w": whole * 0}, "kept": Kept(whole, 0)}
        shelf.load_into(plain, strict=False)
        assert same(plain["weights"]["w"], whole + 6)
        columns = ts.Shard(whole[:, 4:] * 0, "w", (4, 6), (0, 4))  # otherwise than it was
        shelf.load_into({"weights": {"w": columns}}, strict=False)
        assert same(columns.tensor, whole[:, 4:] + 6)


def test_parts_that_several_have_are_merged_once(tmp_path: pathlib.Path) -> None:
    def state(rank: int) -> dict[str, Any]:  # two by two; of what all say alike, rank 0's counts
        both = {"w": part("w", HALVES[rank % 2])}
        if rank == 3:
            both["w"].tensor.fill_(-1)
        return both

    names, found = loaded(merged(tmp_path, state, 4))
    assert names == ["w"]
    assert torch.equal(found["w"], WHOLE)


def test_several_parts_of_one_rank(tmp_path: pathlib.Path) -> None:
    def state(rank: int) -> dict[str, Any]:  # every other row, as of interleaved heads
        mine = range(rank, 4, 2)
        return {"rows": [part("w", slice(row, row + 1)) for row in mine], "n": 1}

    names, found = loaded(merged(tmp_path, state))
    assert names == ["w"]
    assert all(torch.equal(each, WHOLE) for each in found["rows"])
    assert found["rows"][0] is found["rows"][1]


def test_what_only_others_have_lies_where_they_have_it(tmp_path: pathlib.Path) -> None:
    def state(rank: int) -> dict[str, Any]:
        name = f"expert.{rank}"
        whole = ts.Shard(WHOLE + rank, name, (4, 6), (0, 0))
        return {"experts": {name: {"w": whole}}, "rank": rank}

    path = merged(tmp_path, state)
    names, found = loaded(path)
    assert names == ["expert.0", "expert.1"]
    assert found["rank"] == 0
    for rank in range(2):
        assert torch.equal(found["experts"][f"expert.{rank}"]["w"], WHOLE + rank)
    with ts.open(path, "r") as shelf:
        target = ts.Shard(torch.zeros(2, 6), "expert.1", (4, 6), (1, 0))
        shelf.load_into({"state": {"experts": {"expert.1": {"w": target}}}}, strict=False)
        assert torch.equal(target.tensor, WHOLE[1:3] + 1)


@pytest.mark.parametrize("within", ["a dict", "a list"])
def test_one_place_of_two_tensors_is_refused(tmp_path: pathlib.Path, within: str) -> None:
    def state(rank: int) -> dict[str, Any]:
        whole = ts.Shard(WHOLE + rank, f"expert.{rank}", (4, 6), (0, 0))
        return {"w": whole if within == "a dict" else [whole]}

    with pytest.raises(ts.BadArgument, match=r"rank 1 has a part of 'expert\.1'") as caught:
        merged(tmp_path, state)
    assert "by their names" in caught.value.remedy
    assert ("state.w" in str(caught.value)) is (within == "a dict")
    assert not (tmp_path / "whole.shelf").exists()


def test_what_is_tied_stays_tied_and_what_is_not_keeps_its_number(tmp_path: pathlib.Path) -> None:
    def state(rank: int) -> dict[str, Any]:
        plain = torch.ones(3)
        embedding = part("embedding", HALVES[rank])
        head = ts.Shard(embedding.tensor, "head", (4, 6), embedding.offset)
        return {"embedding": embedding, "a": plain, "head": head, "b": plain, "local": head.tensor}

    names, found = loaded(merged(tmp_path, state))
    assert names == ["embedding", "state.a", "state.embedding"]
    assert found["head"] is found["embedding"]
    assert torch.equal(found["head"], WHOLE)
    assert found["a"] is found["b"]
    assert torch.equal(found["local"], WHOLE[:2])  # of rank 0, as all that is no Shard


def test_a_name_that_rank_0_has_another_tensor_by(tmp_path: pathlib.Path) -> None:
    def state(rank: int) -> dict[str, Any]:
        return {"a": torch.ones(2), "b": part("state.a", HALVES[rank])}

    path = merged(tmp_path, state)
    names, found = loaded(path)
    assert names == ["state.a", "state.a~2"]
    assert torch.equal(found["a"], torch.ones(2))
    assert torch.equal(found["b"], WHOLE)


def test_a_name_that_another_tensor_got_before(tmp_path: pathlib.Path) -> None:
    """Each has its own values, whatever it is called in the end."""

    def state(rank: int) -> dict[str, Any]:
        return {
            "a": torch.ones(2),
            "a~2": torch.zeros(3),
            "b": part("state.a", HALVES[rank]),
        }

    names, found = loaded(merged(tmp_path, state))
    assert len(names) == 3
    assert torch.equal(found["a"], torch.ones(2))
    assert torch.equal(found["a~2"], torch.zeros(3))
    assert torch.equal(found["b"], WHOLE)


def test_parts_within_one_memory(tmp_path: pathlib.Path) -> None:
    """As those of a bucket are: what overlaps is stored as one."""

    def state(rank: int) -> dict[str, Any]:
        bucket = torch.cat([WHOLE[HALVES[rank]].flatten(), torch.zeros(12)])
        view = bucket[:12].view(2, 6)
        return {"bucket": bucket, "w": ts.Shard(view, "w", (4, 6), (2 * rank, 0))}

    names, found = loaded(merged(tmp_path, state))
    assert "w" in names
    assert torch.equal(found["w"], WHOLE)
    assert torch.equal(found["bucket"][:12], WHOLE[:2].flatten())


def test_blocks_of_rows_and_columns_and_types_of_other_libraries(tmp_path: pathlib.Path) -> None:
    text = np.array([["a", "bcd"], ["e", "f"]])

    def state(rank: int) -> dict[str, Any]:
        row, column = divmod(rank, 2)
        block = part("w", HALVES[row], (slice(0, 5), slice(5, 6))[column], WHOLE.bfloat16())
        empty = ts.Shard(torch.zeros(0, 6), "empty", (0, 6), (0, 0))
        texts = ts.Shard(text[row : row + 1].copy(), "text", (2, 2), (row, 0))
        return {"w": block, "empty": empty, "text": texts}

    _, found = loaded(merged(tmp_path, state, 4))
    assert torch.equal(found["w"], WHOLE.bfloat16())
    assert found["empty"].shape == (0, 6)
    assert found["text"].tolist() == text.tolist()


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ((slice(0, 2), slice(3, 4)), "not all of 'w'"),
        ((slice(0, 3), slice(2, 3)), "not all of 'w'"),  # as many elements, some of them twice
        ((slice(0, 3), slice(2, 4)), "some of it twice"),
    ],
)
def test_parts_that_are_not_the_whole_are_refused(
    tmp_path: pathlib.Path, of: tuple[slice, slice], text: str
) -> None:
    with pytest.raises(ts.CorruptError, match=text):
        merged(tmp_path, lambda rank: {"w": part("w", of[rank])})


@pytest.mark.parametrize("how", ["another type", "another library", "another shape"])
def test_parts_of_two_tensors_are_refused(tmp_path: pathlib.Path, how: str) -> None:
    def state(rank: int) -> dict[str, Any]:
        shard = part("w", HALVES[rank])
        if rank == 0:
            return {"w": shard}
        tensor: Any = shard.tensor.double() if how == "another type" else shard.tensor
        tensor = tensor.numpy() if how == "another library" else tensor
        shape = (5, 6) if how == "another shape" else (4, 6)
        return {"w": ts.Shard(tensor, "w", shape, shard.offset)}

    with pytest.raises(ts.CorruptError, match="another tensor in the place of 'w'"):
        merged(tmp_path, state)


@pytest.mark.parametrize(
    ("rank_1", "text"),
    [
        (ts.Shard(WHOLE[2:], "w", (5, 6), (3, 0)), r"reaches beyond \[4, 6\]"),
        (ts.Shard(WHOLE[2], "w", (6,), (0,)), "of other dimensions"),
    ],
)
def test_what_no_shard_says_of_itself(tmp_path: pathlib.Path, rank_1: ts.Shard, text: str) -> None:
    """As a record may that something else wrote."""
    object.__setattr__(rank_1, "global_shape", (4, 6))
    object.__setattr__(rank_1, "offset", (*rank_1.offset, 0)[:2])
    with pytest.raises(ts.CorruptError, match=text):
        merged(tmp_path, lambda rank: {"w": rank_1 if rank else part("w", HALVES[0])})
