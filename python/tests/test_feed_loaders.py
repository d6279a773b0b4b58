"""Loaders that resume with their run: by a sampler of indices, and with draws between epochs."""

import gc
import random
from typing import Any

import pytest
from conftest import OpenShelf

import tensorshelf as ts

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")


class Numbers(torch.utils.data.Dataset):  # type: ignore[name-defined,misc]
    """Counts what is loaded, where no worker does."""

    def __init__(self) -> None:
        self.loaded = 0

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> int:
        self.loaded += 1
        return index


@pytest.mark.parametrize(
    ("workers", "own", "collated"), [(0, False, True), (0, True, False), (2, False, True)]
)
def test_a_loader_resumes_by_its_sampler(
    reopen: OpenShelf, workers: int, own: bool, collated: bool
) -> None:
    def loader() -> Any:
        return torch.utils.data.DataLoader(
            Numbers(),
            batch_size=3 if collated else None,
            sampler=torch.utils.data.RandomSampler(range(23)),
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator().manual_seed(3) if own else None,
        )

    torch.manual_seed(5)
    whole = loader()
    expected = [[str(batch) for batch in whole] + [float(torch.rand(1))] for _ in range(2)]
    torch.manual_seed(5)

    def begin(shelf: ts.Shelf) -> list[Any]:
        with shelf.autosave(rng=ts.RNG()) as auto:
            iterator = iter(auto.batches(loader(), by_sampler=True))
            seen: list[Any] = [str(next(iterator)) for _ in range(5)]
            auto.step(5)
        return seen

    seen = begin(reopen(mode="w"))
    gc.collect()  # and workers end, which were forked while the shelf was open
    torch.manual_seed(99)
    shelf = reopen()
    auto = shelf.autosave(rng=ts.RNG())
    assert auto.resume() == 5
    resumed = loader()
    batches = auto.batches(resumed, by_sampler=True)
    assert [seen + [str(batch) for batch in batches] + [float(torch.rand(1))]] == expected[:1]
    if workers == 0:
        assert resumed.dataset.loaded == 23 - (15 if collated else 5)
    assert [str(batch) for batch in batches] + [float(torch.rand(1))] == expected[1]
    auto.close()


def test_what_has_no_sampler_is_not_resumed_by_one(shelf: ts.Shelf) -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[name-defined,misc]
        def __iter__(self) -> Any:
            return iter(range(4))

    auto = shelf.autosave(rng=ts.RNG())
    for loader in (range(5), torch.utils.data.DataLoader(Stream())):
        with pytest.raises(ts.BadArgument, match="without a sampler of indices"):
            auto.batches(loader, by_sampler=True)
        assert len(list(auto.batches(loader))) > 3
    auto.close()


def test_epochs_with_draws_between_them_resume(reopen: OpenShelf) -> None:
    """``batches()`` is called for each epoch, and something else draws between two."""

    def run(shelf: ts.Shelf, stop: int) -> list[Any]:
        loader = torch.utils.data.DataLoader(range(12), batch_size=3, shuffle=True)
        seen: list[Any] = []
        progress = {"epoch": 0}
        auto = shelf.autosave(progress=progress, rng=ts.RNG())
        step = auto.resume()
        while progress["epoch"] < 4:
            for batch in auto.batches(loader):
                step += 1
                seen.append((step, batch.tolist(), random.random(), float(torch.rand(1))))
                auto.step(step)
                if step == stop:
                    auto.close()
                    return seen
            torch.rand(3)
            progress["epoch"] += 1
        auto.close()
        assert sum(name.startswith("autosave.batches.") for name in shelf) == 3
        return seen

    torch.manual_seed(5)
    random.seed(5)
    expected = run(reopen(mode="w"), 99)
    assert len(expected) == 16
    torch.manual_seed(5)
    random.seed(5)
    shelf = reopen(mode="w")
    seen = []
    for stop in (2, 7, 9, 10, 15, 99):
        seen += run(shelf, stop)
        torch.manual_seed(stop)
        random.seed(stop)
        shelf = reopen()
    assert seen == expected
