"""What is saved of a loader's place, and what may be gone on from, one fact each."""

from typing import Any

import pytest
from conftest import OpenShelf
from test_resumed_loaders import begun, listed, resumed, stepped

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
data = torch.utils.data


class KnownByAndBy:
    """Its length is that of the batches which it cuts when it begins, anew for each epoch."""

    batches: list[int]

    def __init__(self, *lengths: int) -> None:
        self.lengths = list(lengths)

    def __iter__(self) -> Any:
        self.batches = list(range(self.lengths.pop(0)))
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class CutWhenTheFirstIsAsked(KnownByAndBy):
    def __iter__(self) -> Any:
        self.batches = list(range(self.lengths.pop(0)))
        yield from self.batches


@pytest.mark.parametrize("kind", [KnownByAndBy, CutWhenTheFirstIsAsked])
def test_a_length_that_is_known_when_an_epoch_has_begun_is_that_of_this_one(
    shelf: ts.Shelf, kind: Any
) -> None:
    loader = kind(3, 6)
    with shelf.autosave(progress={"n": 0}) as auto:
        assert [*iter(auto.batches(loader))] == [0, 1, 2]
        batches = iter(auto.batches(loader))
        assert [next(batches) for _ in range(4)] == [0, 1, 2, 3]
        auto.step(7)
    loader.lengths = [6]
    loader.batches = list(range(6))
    with resumed(shelf) as auto:
        assert list(auto.batches(loader)) == [4, 5]


def test_a_loader_that_says_another_length_is_refused_though_less_than_what_was_given(
    shelf: ts.Shelf,
) -> None:
    begun(shelf, KnownByAndBy(6), 4)
    other = KnownByAndBy(6)
    other.batches = [0, 1, 2]  # as it says before it begins: that epoch is not over
    with resumed(shelf) as auto, pytest.raises(ts.LayoutError, match=r"3 batches.* 4 of 6"):
        auto.batches(other)


def test_more_batches_than_a_loader_says_are_an_epoch_that_goes_on(reopen: OpenShelf) -> None:
    class SaysTooLittle(list[int]):
        def __len__(self) -> int:
            return 2

    with reopen(mode="w") as shelf:
        begun(shelf, SaysTooLittle(range(6)), 4)
        with resumed(shelf) as auto:
            assert list(auto.batches(SaysTooLittle(range(6)))) == [4, 5]


def test_a_generator_that_the_caller_draws_from_too_goes_on_where_it_was(
    reopen: OpenShelf,
) -> None:
    def run(shelf: ts.Shelf, end: int) -> list[Any]:
        generator = torch.Generator().manual_seed(7)
        loader = data.DataLoader(range(12), batch_size=3, shuffle=True, generator=generator)
        progress, drawn = {"epoch": 0, "step": 0}, []
        with shelf.autosave(generator=generator, progress=progress) as auto:
            auto.resume()
            for epoch in range(progress["epoch"], 2):
                for batch in auto.batches(loader, epoch=epoch):
                    progress["step"] += 1
                    drawn.append((batch.tolist(), torch.rand(1, generator=generator).item()))
                    auto.step(progress["step"])
                    if progress["step"] == end:
                        return drawn
                progress["epoch"] = epoch + 1
        return drawn

    with reopen(mode="w") as shelf:
        whole = run(shelf, 8)
    with reopen(mode="w") as shelf:
        assert run(shelf, 2) == whole[:2]
        assert run(shelf, 8) == whole[2:]


@pytest.mark.parametrize("is_early", [False, True])
def test_a_rollback_skips_batches_of_a_loader_that_comes_behind_it(
    reopen: OpenShelf, is_early: bool
) -> None:
    shelf = reopen(mode="w", keep=4)
    loader = data.DataLoader(range(8))
    with shelf.autosave(progress={"n": 0}) as auto:
        whole = stepped(auto, auto.batches(loader))
    with shelf.autosave(progress={"n": 0}) as auto:
        auto.resume()
        if is_early:
            auto.batches(loader)
        auto.rollback(5, skip_batches=1)
        batches = iter(auto.batches(loader))
        assert next(batches).tolist() == whole[6]
        auto.step(6)
    with resumed(shelf) as auto:
        assert listed(auto.batches(loader)) == whole[7:]


BEGIN = {"global": ts.RNG().state_dict(), "own": []}
WRONG: dict[str, dict[str, Any]] = {
    "a number for its form": {"form": 5},
    "a list for its form": {"form": [1]},
    "a text for a number of workers": {"form": {"num_workers": "a"}},
    "no number of workers": {"form": {"num_workers": None}},
    "a text for its length": {"length": "a"},
    "a text for its loop": {"before": BEGIN, "loop": "a"},
    "a text for what is skipped": {"skipped": "a"},
    "a text for what is left out": {"left_out": "a"},
    "fewer than none": {"given": -1},
    "a number for all generators": {"before": {**BEGIN, "own": 5}},
    "a number for one generator": {"before": {**BEGIN, "own": [5]}},
    "a number for the global ones": {"before": {**BEGIN, "global": 5}},
    "a number for those behind it": {"before": BEGIN, "behind": 5},
    "a number for one behind it": {"before": BEGIN, "behind": [5]},
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_place_of_a_loader_is_refused(shelf: ts.Shelf, what: str) -> None:
    place = {"given": 1, "epoch": 0, "before": None, **WRONG[what]}
    shelf.save({"progress": {"n": 1}, "autosave": {"batches": [place]}}, step=3)
    progress = {"n": 0}
    with shelf.autosave(progress=progress) as auto:
        generator = torch.Generator()
        auto.batches(data.DataLoader(range(12), shuffle=True, generator=generator))
        with pytest.raises(ts.LayoutError, match=r"loader|Loaders"):
            auto.resume()
    assert progress == {"n": 0}
