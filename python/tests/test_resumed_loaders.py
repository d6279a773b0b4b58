"""Where loaders go on when a run is resumed or goes back, one fact each."""

from typing import Any

import pytest
from conftest import OpenShelf
from test_feed_details import Stateful

import tensorshelf as ts
from tensorshelf._auto.batches import Batches

pytest.importorskip("msgpack")
torch = pytest.importorskip("torch")
data = torch.utils.data


def begun(shelf: ts.Shelf, loader: Any, count: int, **options: Any) -> list[Any]:
    """The first batches, by a run that saved behind the last of them and ended."""
    with shelf.autosave(progress={"n": 0}) as auto:
        auto.resume()
        batches = iter(auto.batches(loader, **options))
        seen = [next(batches) for _ in range(count)]
        auto.step(count)
    return seen


def resumed(shelf: ts.Shelf) -> Any:
    auto = shelf.autosave(progress={"n": 0})
    auto.resume()
    return auto


def listed(batches: Any) -> list[Any]:
    return [batch.tolist() for batch in batches]


def stepped(auto: Any, batches: Any) -> list[Any]:
    """An epoch, with a step behind each batch."""
    seen = []
    for step, batch in enumerate(batches, 1):
        seen.append(batch.tolist())
        auto.step(step)
    return seen


def test_the_generator_of_a_sampler_within_is_resumed(shelf: ts.Shelf) -> None:
    def made() -> Any:
        generator = torch.Generator().manual_seed(1)
        sampler = data.RandomSampler(range(12), generator=generator)
        return data.DataLoader(range(12), batch_sampler=data.BatchSampler(sampler, 3, False))

    whole = made()
    expected = [listed(whole) for _ in range(2)][1]
    with shelf.autosave(progress={"n": 0}) as auto:
        loader = made()
        list(auto.batches(loader))
        for number, _ in enumerate(auto.batches(loader), 1):
            if number == 2:
                auto.step(6)
                break
    with resumed(shelf) as auto:
        assert listed(auto.batches(made())) == expected[2:]


def test_a_loader_with_lasting_workers_goes_back_within_its_epoch(reopen: OpenShelf) -> None:
    shelf = reopen(keep=8)
    torch.manual_seed(0)
    loader = data.DataLoader(
        range(12), batch_size=3, shuffle=True, num_workers=1, persistent_workers=True
    )
    auto = shelf.autosave(progress={"n": 0})
    seen = stepped(auto, auto.batches(loader, by_sampler=True))
    auto.rollback(2)
    assert listed(auto.batches(loader, by_sampler=True)) == seen[2:]
    auto.close()


def with_lasting_workers() -> Any:
    return data.DataLoader(
        range(12), batch_size=3, shuffle=True, num_workers=1, persistent_workers=True
    )


@pytest.mark.parametrize("by_sampler", [False, True])
@pytest.mark.parametrize("stop", [2, 4, 6, 8])  # within an epoch, and at an end
def test_lasting_workers_draw_their_seed_in_the_first_epoch_alone(
    reopen: OpenShelf, stop: int, by_sampler: bool
) -> None:
    """Of training, and of a validation behind each epoch; also where a run is resumed."""

    def run(shelf: ts.Shelf, until: int) -> list[Any]:
        torch.manual_seed(0)
        loader, validation = with_lasting_workers(), with_lasting_workers()
        progress = {"epoch": 0}
        seen: list[Any] = []
        with shelf.autosave(progress=progress, rng=ts.RNG()) as auto:
            step = auto.resume()
            for epoch in range(progress["epoch"], 3):
                progress["epoch"] = epoch
                for batch in auto.batches(loader, epoch=epoch, by_sampler=by_sampler):
                    seen.append((epoch, batch.tolist()))
                    step += 1
                    auto.step(step)
                    if step == until:
                        return seen
                seen += listed(auto.batches(validation, epoch=epoch))
        return seen

    whole = run(reopen(mode="w"), 0)
    parts = run(reopen(mode="w"), stop)
    assert parts + run(reopen(), 0) == whole


@pytest.mark.parametrize("by_sampler", [False, True])
@pytest.mark.parametrize("step", [1, 6])  # of the first epoch, and of the second
def test_lasting_workers_that_are_there_go_back(
    reopen: OpenShelf, step: int, by_sampler: bool
) -> None:
    shelf = reopen(keep=8)
    torch.manual_seed(0)
    loader = with_lasting_workers()
    auto = shelf.autosave(progress={"n": 0}, rng=ts.RNG())
    seen = []
    for epoch in range(2):
        for number, batch in enumerate(auto.batches(loader, by_sampler=by_sampler), 1):
            seen.append(batch.tolist())
            auto.step(4 * epoch + number)
    auto.rollback(step)
    epoch_end = 4 if step < 4 else 8
    assert listed(auto.batches(loader, by_sampler=by_sampler)) == seen[step:epoch_end]
    auto.close()


def test_it_is_told_that_lasting_workers_begin_anew(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:

    def begun(auto: ts.Autosave) -> None:
        loader = with_lasting_workers()  # whose workers would keep the shelf's lock
        list(auto.batches(loader))
        list(auto.batches(loader))
        assert "persistent workers" not in caplog.text
        auto.step(8)

    with reopen(mode="w").autosave(progress={"n": 0}) as auto:
        begun(auto)
    del auto
    with resumed(reopen()) as auto:
        list(auto.batches(with_lasting_workers(), epoch=2))
    assert caplog.text.count("persistent workers") == 1


@pytest.mark.parametrize("by_sampler", [False, True])
def test_generators_are_as_they_were_saved_when_batches_were_drawn_again(
    shelf: ts.Shelf, by_sampler: bool
) -> None:
    def made() -> Any:
        return data.DataLoader(range(12), batch_size=3, shuffle=True)

    with shelf.autosave(rng=ts.RNG()) as auto:
        batches = iter(auto.batches(made()))
        for step in (1, 2):
            next(batches)
            torch.rand(step)  # as dropout draws
            auto.step(step)
    expected = torch.rand(4)
    with shelf.autosave(rng=ts.RNG()) as auto:
        auto.resume()
        next(iter(auto.batches(made(), by_sampler=by_sampler)))
        assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("form", [{"batch_size": 4}, {"shuffle": True}, {"drop_last": True}])
def test_a_run_saved_before_its_first_batch_takes_any_loader(
    shelf: ts.Shelf, form: dict[str, Any]
) -> None:
    with shelf.autosave(progress={"n": 0}) as auto:
        auto.batches(data.DataLoader(range(8), batch_size=2))
        auto.step(0)
    with resumed(shelf) as auto:
        loader = data.DataLoader(range(8), **{"batch_size": 2, **form})
        assert len(list(auto.batches(loader))) == len(loader)


def test_loaders_that_are_equal_are_two(shelf: ts.Shelf) -> None:
    auto = shelf.autosave(progress={"n": 0})
    first, second = [0, 1], [0, 1]
    next(iter(auto.batches(first)))
    assert list(auto.batches(second)) == [0, 1]
    auto.step(1)
    auto.close()
    with resumed(shelf) as auto:
        assert [list(auto.batches(loader)) for loader in (first, second)] == [[1], []]


def test_what_a_rollback_skips_of_a_loader_with_a_state_stays_skipped(reopen: OpenShelf) -> None:
    auto = reopen(keep=4).autosave(progress={"n": 0})
    for step, _ in enumerate(auto.batches(Stateful()), 1):
        auto.step(step)
        if step == 3:
            break
    auto.rollback(1, skip_batches=2)
    auto.close()
    with resumed(reopen()) as auto:
        assert list(auto.batches(Stateful())) == [3, 4, 5]


def test_an_epoch_that_is_told_needs_no_warning(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    begun(shelf, [0, 1, 2], 3, epoch=4)
    with resumed(shelf) as auto:
        assert list(auto.batches([0, 1, 2], epoch=4)) == []
        assert list(auto.batches([0, 1, 2], epoch=5)) == [0, 1, 2]
    assert caplog.text == ""


def test_a_loader_that_came_to_have_a_state_goes_on_where_another_was(shelf: ts.Shelf) -> None:
    assert begun(shelf, list(range(6)), 3) == [0, 1, 2]
    with resumed(shelf) as auto:
        batches = auto.batches(Stateful())
        assert list(batches) == [3, 4, 5]
        auto.step(6)
        at = iter(batches)
        assert [next(at) for _ in range(2)] == [0, 1]
        auto.step(8)
    with resumed(shelf) as auto:  # by its own from here on
        assert list(auto.batches(Stateful())) == [2, 3, 4, 5]


def test_a_loader_that_had_a_state_goes_on_without_one(shelf: ts.Shelf) -> None:
    begun(shelf, Stateful(), 3)
    with resumed(shelf) as auto:
        assert list(auto.batches(list(range(6)))) == [3, 4, 5]


@pytest.mark.parametrize("lacking", ["length", "loop", "left_out", "form", "loader"])
def test_what_an_earlier_release_saved_of_a_loader_resumes(lacking: str) -> None:
    def made() -> Any:
        return Batches(data.DataLoader(range(8), batch_size=2))

    first = made()
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    state.pop(lacking, None)
    again = made()
    again.load_state_dict(state)
    assert listed(again) == [[2, 3], [4, 5], [6, 7]]


def test_more_loaders_than_were_saved_begin(shelf: ts.Shelf) -> None:
    first, second = [0, 1, 2], [5, 6]
    begun(shelf, first, 1)
    auto = shelf.autosave(progress={"n": 0})
    batches = [auto.batches(loader) for loader in (first, second)]  # before it is resumed
    auto.resume()
    assert [list(each) for each in batches] == [[1, 2], [5, 6]]
    auto.close()


def test_what_was_saved_of_a_loader_that_has_not_come_again_stays(shelf: ts.Shelf) -> None:
    auto = shelf.autosave(progress={"n": 0})
    for loader, given in ((range(10), 2), (range(20, 30), 4)):
        for _ in zip(range(given), auto.batches(loader), strict=False):
            pass
    auto.step(1)
    auto = resumed(shelf)
    assert next(iter(auto.batches(range(10)))) == 2
    auto.step(2)  # before the second one comes, and the run dies here
    auto = resumed(shelf)
    assert [next(iter(auto.batches(loader))) for loader in (range(10), range(20, 30))] == [3, 24]


def test_a_loader_that_stayed_away_for_an_epoch_begins_anew(
    shelf: ts.Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    with shelf.autosave(progress={"n": 0}) as auto:
        for loader, given in ((range(10), 2), (range(20, 30), 4)):
            for _ in zip(range(given), auto.batches(loader), strict=False):
                pass
        auto.step(1)
    with resumed(shelf) as auto:
        batches = auto.batches(range(10))
        for step in (2, 3):
            list(batches)
            auto.step(step)
    assert caplog.text.count("their epochs begin anew") == 1
    with resumed(shelf) as auto:
        assert list(auto.batches(range(10))) == []
        assert list(auto.batches(range(20, 30))) == list(range(20, 30))


def test_a_loader_that_is_refused_leaves_the_rest_as_it_is(shelf: ts.Shelf) -> None:
    progress = {"n": 5}
    with shelf.autosave(progress=progress) as auto:
        next(iter(auto.batches(data.DataLoader(range(12), batch_size=3))))
        auto.step(1)
    progress = {"n": 0}
    auto = shelf.autosave(progress=progress)
    auto.batches(data.DataLoader(range(12), batch_size=2))
    with pytest.raises(ts.LayoutError, match="batch_size 2, and that of the saved run 3"):
        auto.resume()
    assert progress == {"n": 0}


class Stream(data.IterableDataset):  # type: ignore[misc, name-defined]
    def __iter__(self) -> Any:
        return iter(range(12))


class Threes:
    """Gives batches, and no number of them."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> Any:
        size = self.batch_size
        return (list(range(begin, begin + size)) for begin in range(0, 12, size))


@pytest.mark.parametrize(
    "made",
    [lambda size: data.DataLoader(Stream(), batch_size=size),
     lambda size: data.DataLoader(range(12), batch_sampler=Threes(size))],
    ids=["stream", "sampler"],
)  # fmt: skip
def test_other_batches_of_a_loader_without_a_length_are_refused_within_an_epoch(
    shelf: ts.Shelf, made: Any
) -> None:
    begun(shelf, made(3), 2)
    with resumed(shelf) as auto:
        with pytest.raises(ts.LayoutError, match=r"(batch_size|sampler) .*2, and .* 3"):
            auto.batches(made(2))
        assert listed(auto.batches(made(3))) == [[6, 7, 8], [9, 10, 11]]
        auto.step(4)
    with resumed(shelf) as auto:  # the epoch is over
        batches = auto.batches(made(2))
        assert (len(list(batches)), len(list(batches))) == (0, 6)


@pytest.mark.parametrize("kind", ["plain", "no length", "own state"])
@pytest.mark.parametrize("step", [2, 5, 6])
def test_what_a_rollback_skips_goes_on_in_the_next_epoch(
    reopen: OpenShelf, kind: str, step: int
) -> None:
    class Endless(list[int]):
        __len__ = None  # type: ignore[assignment]

    loaders: dict[str, Any] = {
        "plain": list(range(6)), "no length": Endless(range(6)), "own state": Stateful(),
    }  # fmt: skip
    loader = loaders[kind]
    auto = reopen(mode="w", keep=8).autosave(progress={"n": 0})
    for number, _ in enumerate(auto.batches(loader), 1):
        auto.step(number)
    auto.rollback(step, skip_batches=3)
    batches = auto.batches(loader)
    seen = [batch for _ in range(3) for batch in batches]
    assert seen == ([*range(step, 6), *range(6), *range(6)])[3 : 3 + len(seen)]
    assert len(seen) == (6 - step) + 12 - 3


class Warm:
    """Batches that become larger within an epoch."""

    batch_size = 1

    def __iter__(self) -> Any:
        self.batch_size, begin = 2, 0
        while begin < 14:
            yield list(range(begin, begin + self.batch_size))
            begin += self.batch_size
            self.batch_size += 1


def test_a_sampler_whose_batches_grow_is_still_the_same_one(reopen: OpenShelf) -> None:
    loader = data.DataLoader(range(20), batch_sampler=Warm())
    auto = reopen(mode="w", keep=4).autosave(progress={"n": 0})
    seen = stepped(auto, auto.batches(loader))
    auto.rollback(2)
    assert listed(auto.batches(loader)) == seen[2:]


def test_another_number_of_workers_of_a_stream_is_refused(shelf: ts.Shelf) -> None:
    begun(shelf, data.DataLoader(Stream(), batch_size=2, num_workers=2), 2)
    with resumed(shelf) as auto, pytest.raises(ts.LayoutError, match=r"workers 1, and .* 2"):
        auto.batches(data.DataLoader(Stream(), batch_size=2))


def test_one_worker_of_a_stream_gives_all_of_it_as_none_does(shelf: ts.Shelf) -> None:
    begun(shelf, data.DataLoader(Stream(), batch_size=2, num_workers=1), 2)
    with resumed(shelf) as auto:
        rest = auto.batches(data.DataLoader(Stream(), batch_size=2))
        assert listed(rest) == [[4, 5], [6, 7], [8, 9], [10, 11]]


def test_an_epoch_that_was_seen_to_end_has_ended_whatever_its_length_says(
    shelf: ts.Shelf,
) -> None:
    class Short(list[int]):
        def __len__(self) -> int:
            return 12

    with shelf.autosave(progress={"n": 0}) as auto:
        list(auto.batches(Short(range(8))))
        auto.step(8)
    with resumed(shelf) as auto:
        batches = auto.batches(list(range(20, 25)))
        assert [list(batches), list(batches)] == [[], list(range(20, 25))]


def test_what_a_rollback_skips_of_an_epoch_that_is_passed_over_is_left_out_of_the_next(
    reopen: OpenShelf,
) -> None:
    auto = reopen(mode="w", keep=4).autosave(progress={"n": 0})
    loader = list(range(4))
    for step, _ in enumerate(auto.batches(loader, epoch=0), 1):
        auto.step(step)
        if step == 2:
            break
    auto.rollback(2, skip_batches=3)
    auto.close()
    with resumed(reopen()) as auto:
        assert list(auto.batches(loader, epoch=1)) == [3]
        assert list(auto.batches(loader, epoch=2)) == loader


def test_what_was_left_out_once_is_not_left_out_again(reopen: OpenShelf) -> None:
    loader = list(range(6))
    auto = reopen(mode="w", keep=4).autosave(progress={"n": 0})
    next(iter(auto.batches(loader, epoch=0)))
    auto.step(1)
    auto.rollback(1, skip_batches=2)
    assert next(iter(auto.batches(loader, epoch=0))) == 3
    auto.step(2)
    auto.close()
    with resumed(reopen()) as auto:
        assert list(auto.batches(loader, epoch=1)) == loader


@pytest.mark.parametrize("by", ["the caller's seed", "autosave"])
def test_a_generator_of_its_own_is_the_callers_behind_an_epoch_that_is_passed_over(
    shelf: ts.Shelf, by: str
) -> None:
    def made() -> Any:
        generator = torch.Generator().manual_seed(7)
        loader = data.DataLoader(range(6), batch_size=2, shuffle=True, generator=generator)
        given = {"generator": generator} if by == "autosave" else {"progress": {"n": 0}}
        return loader, generator, given

    def epoch(auto: Any, loader: Any, generator: Any, number: int) -> list[Any]:
        if by != "autosave":
            generator.manual_seed(number)
        return listed(auto.batches(loader, epoch=number))

    loader, generator, given = made()
    with shelf.autosave(**given) as auto:
        epoch(auto, loader, generator, 0)
        auto.step(3)
        expected = epoch(auto, loader, generator, 1)
    loader, generator, given = made()
    with shelf.autosave(**given) as auto:
        assert auto.resume() == 3
        assert epoch(auto, loader, generator, 1) == expected


def test_a_length_that_goes_by_the_epoch_is_that_of_the_saved_one(reopen: OpenShelf) -> None:
    class ByEpoch(list[int]):
        epoch = 0

        def __len__(self) -> int:
            return 4 + self.epoch

        def __iter__(self) -> Any:
            return iter(range(4 + self.epoch))

    loader = ByEpoch()
    auto = reopen(mode="w", keep=8).autosave(progress={"n": 0})
    step = 0
    for loader.epoch in range(2):
        for _ in auto.batches(loader, epoch=loader.epoch):
            auto.step(step := step + 1)
    loader.epoch = 0
    auto.rollback(2)
    assert list(auto.batches(loader, epoch=0)) == [2, 3]


def test_a_sampler_whose_length_shrinks_within_an_epoch_loses_nothing(reopen: OpenShelf) -> None:
    class Shrinks(Warm):
        def __len__(self) -> int:
            return 20 // (self.batch_size + 1)

    loader = data.DataLoader(range(20), batch_sampler=Shrinks())
    auto = reopen(mode="w", keep=8).autosave(progress={"n": 0})
    seen = stepped(auto, auto.batches(loader))
    auto.rollback(3)
    assert listed(auto.batches(loader)) == seen[3:]


def test_what_is_left_out_behind_a_seen_end_is_left_out_of_the_next_epoch(
    reopen: OpenShelf, caplog: pytest.LogCaptureFixture
) -> None:
    class Short(list[int]):
        def __len__(self) -> int:
            return 12

    loader = Short(range(8))
    auto = reopen(mode="w", keep=4).autosave(progress={"n": 0})
    list(auto.batches(loader))
    auto.step(1)
    auto.rollback(1, skip_batches=2)
    batches = auto.batches(loader)
    assert [list(batches), list(batches)] == [[], [2, 3, 4, 5, 6, 7]]
    assert "this iteration gives none" in caplog.text


def test_a_run_that_takes_over_is_told_the_step_of_what_it_loads(reopen: OpenShelf) -> None:
    shelf = reopen(mode="w", in_flight=2)
    big, progress = torch.zeros(1 << 22), {"n": 0}
    auto = shelf.autosave(big=big, progress=progress)
    for step in (1, 2):
        progress["n"] = step
        auto.step(step)
    again = shelf.autosave(big=big, progress=progress)
    assert again.resume() == progress["n"] == 2


def test_a_rollback_that_an_object_refuses_leaves_the_shelf_where_it_is(reopen: OpenShelf) -> None:
    class Refuses:
        n = 0

        def state_dict(self) -> dict[str, int]:
            return {"n": self.n}

        def load_state_dict(self, state: dict[str, int]) -> None:
            raise RuntimeError("not back")

    shelf = reopen(mode="w", keep=4)
    auto = shelf.autosave(refuses=Refuses())
    for step in (1, 2):
        auto.step(step)
    auto.wait()
    with pytest.raises(RuntimeError, match="not back"):
        auto.rollback(1)
    assert shelf.step == 2


def test_a_rollback_to_what_save_saved_begins_an_epoch(reopen: OpenShelf) -> None:
    shelf = reopen(mode="w", keep=4)
    progress = {"n": 1}
    shelf.save({"progress": progress}, step=1)
    auto = shelf.autosave(progress=progress)
    auto.resume()
    loader = list(range(4))
    next(iter(auto.batches(loader)))
    progress["n"] = 2
    auto.step(2)
    assert auto.rollback(1) == 1
    assert progress == {"n": 1}
    assert list(auto.batches(loader)) == loader


def test_a_loader_that_came_behind_where_a_rollback_goes_begins_anew(reopen: OpenShelf) -> None:
    auto = reopen(keep=2).autosave()
    first = iter(auto.batches(range(10)))
    next(first)
    auto.step(1)
    loader = range(20, 30)
    second = iter(auto.batches(loader))
    assert [next(second), next(second)] == [20, 21]
    auto.step(2)
    auto.rollback(1)
    for iterator in (first, second):
        with pytest.raises(ts.UnsupportedError, match="went to another place"):
            next(iterator)
    assert list(auto.batches(loader)) == list(loader)
