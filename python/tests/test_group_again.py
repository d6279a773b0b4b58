"""A start that came to nothing on some ranks, or on all, and the next one, which all call; and a
save that is submitted twice.
"""

import contextlib
import pathlib
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from group_ranks import Kept, Rank, Ranks, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import member, station, together, wire  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

ONE = "rank 1"


class Stops:
    """Raises KeyboardInterrupt once, in the thread of rank 1."""

    def __init__(self) -> None:
        self.stopped = False

    def __call__(self) -> None:
        if threading.current_thread().name == ONE and not self.stopped:
            self.stopped = True
            raise KeyboardInterrupt


def tried(rank: Rank, auto: ts.Autosave) -> Any:
    try:
        return auto.resume()
    except (ts.ShelfError, KeyboardInterrupt) as error:
        return type(error)


def until_all(ranks: Ranks, *, met: int = 2, before: int = 0, timeout: float = 1.0) -> list[Any]:
    """What resume() came to on each rank, so often; all call it together each time."""
    together = threading.Barrier(ranks.members)

    def body(rank: Rank) -> list[Any]:
        if rank.rank == 1:
            threading.current_thread().name = ONE
        found = []
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            for number in range(before):
                auto.resume()
                rank.step(auto, number + 1)
                auto.wait()
            for _ in range(met):
                together.wait(60)
                found.append(tried(rank, auto))
            rank.step(auto, before + 1)
            auto.wait()
        return found

    return ranks.run(body, timeout=timeout)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for rank 0 gives it no more than a moment."""
    for module in ("naming", "council"):
        monkeypatch.setattr(f"tensorshelf._group.{module}.SLACK", 0.5)
    monkeypatch.setattr("tensorshelf._group.stage._SLACK", 0.5)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("key", ["/all", "answer", "begun/all"])
def test_ctrl_c_in_a_start_is_no_end_of_the_next_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Of one rank, which the others count as here: by the name, by its offer, behind both."""
    stops, take = Stops(), wire.Wire.take

    def interrupted(self: wire.Wire, name: str, **options: Any) -> bytes:
        if name.endswith(key):
            stops()
        return take(self, name, **options)

    monkeypatch.setattr(wire.Wire, "take", interrupted)
    first, second, third = until_all(Ranks(tmp_path, 3))
    assert second[0] is KeyboardInterrupt
    assert first[1] == second[1] == third[1] == 0


@pytest.mark.usefixtures("short")
def test_ctrl_c_as_a_second_start_leaves_the_first_is_none_either(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops, leave = Stops(), station.Station.leave

    def interrupted(self: station.Station, *args: Any, **options: Any) -> None:
        stops()
        leave(self, *args, **options)

    monkeypatch.setattr(station.Station, "leave", interrupted)
    monkeypatch.setattr("tensorshelf._group.together._FAREWELL", 0.2)
    first, second = until_all(Ranks(tmp_path, 2), before=1)
    assert second[0] is KeyboardInterrupt
    assert first == [ts.UnresolvedError, 1]
    assert second[1] == 1


def test_where_one_rank_cannot_keep_a_copy_none_begins(tmp_path: pathlib.Path) -> None:
    ranks = Kept(tmp_path, 3)
    together = threading.Barrier(3)

    def body(rank: Rank) -> list[Any]:
        folder = tmp_path / ("gone" if rank.rank == 1 else "copies")
        folder.mkdir(exist_ok=True)
        if rank.rank == 1:
            folder.rmdir()
        group = ts.Group(
            rank.group._store,
            rank=rank.rank,
            members=3,
            timeout=20,
            replicate=1,
            node=f"node {rank.rank}",
            replicas=folder,
        )
        group._number = rank.group._number
        rank.group = group
        found = []
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            found.append(tried(rank, auto))
            together.wait(60)
            folder.mkdir(exist_ok=True)
            together.wait(60)
            found.append(tried(rank, auto))
            rank.step(auto, 1)
            auto.wait()
        return found

    told = [ts.GroupError, 0]
    assert ranks.run(body) == [told, [ts.ShelfNotFound, 0], told]


def test_a_load_that_one_rank_did_not_come_to_is_no_end_of_the_next(
    tmp_path: pathlib.Path,
) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.run(trained(2))
    together = threading.Barrier(2)

    def body(rank: Rank) -> int | None:
        with ts.open_merged([ranks.path(0), ranks.path(1)]) as view:
            if rank.rank == 0:
                with pytest.raises(ts.UnresolvedError, match=r"All ranks call load_into\(\)"):
                    view.load_into({}, group=rank.group)
            together.wait(60)
            view.load_into({}, group=rank.group)
            return view.step

    assert ranks.run(body, timeout=0.5) == [2, 2]


def test_places_that_were_refused_are_asked_for_again(tmp_path: pathlib.Path) -> None:
    ranks = Ranks(tmp_path, 2)
    (tmp_path / "run.1.shelf").write_bytes(b"x" * 8192)
    together = threading.Barrier(2)

    def body(rank: Rank) -> int:
        path = tmp_path / "run.{part}.shelf"
        with pytest.raises(ts.BadArgument, match="in the way"):
            ts.open_part(path, rank.group, size="64MiB")
        if together.wait(60) == 0:
            (tmp_path / "run.1.shelf").unlink()
        together.wait(60)
        with ts.open_part(path, rank.group, size="64MiB"):
            return rank.group.rank

    assert sorted(ranks.run(body)) == [0, 1]


def test_a_group_that_is_lost_as_a_save_begins_is_told_as_that(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread closes the pipeline then, of which the trainer knows nothing."""
    save_into = together.save_into
    told = []

    def body(rank: Rank) -> None:
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            if rank.rank == 1:
                return

            def lost(*args: Any) -> None:
                auto._commits._started.member._lose(ts.UnresolvedError("gone", "Start anew."))
                save_into(*args)

            monkeypatch.setattr(together, "save_into", lost)
            with pytest.raises(ts.UnresolvedError) as error:
                rank.step(auto, 2)
            told.append(error.value.what)
            with contextlib.suppress(ts.ShelfError):
                auto.close()

    Ranks(tmp_path, 2).run(body, timeout=0.5)
    assert told == ["gone"]


def test_a_save_submitted_again_as_it_settles_is_under_way_no_more(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal may end the first call, and the thread settle the save between two lines of the
    second: it is listed anew then, and put behind what is settled.
    """
    submitted = []
    submit = member.Member.submit

    def noted(self: member.Member, save: member.GroupSave) -> None:
        submit(self, save)
        submitted.append((self, save))

    monkeypatch.setattr(member.Member, "submit", noted)

    def body(rank: Rank) -> bool:
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            rank.step(auto, 1)
            auto.wait()
            own = auto._commits._started.member
            (settled,) = [save for of, save in submitted if of is own]
            own._under_way.append(settled)
            own._saves.put(settled)
            rank.step(auto, 2)
            auto.wait()
            return settled in own._under_way  # the thread does one after the other

    assert Ranks(tmp_path, 2).run(body) == [False, False]
