"""One save at a time, of one group: what else comes ends with an error, and mixes nothing."""

import contextlib
import copy
import dataclasses
import pathlib
import pickle
import threading
from typing import Any

import pytest
from dcp_ranks import alone

import tensorshelf as ts

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
dcp = pytest.importorskip("torch.distributed.checkpoint")

from tensorshelf.dcp import (  # noqa: E402
    ShelfReader,
    ShelfWriter,
    _verdicts,
)
from tensorshelf.dcp._names import name_of  # noqa: E402
from tensorshelf.dcp._shares import (  # noqa: E402
    Vouched,
    Word,
    moment,
)

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def state_of(value: float) -> dict[str, Any]:
    return {name: torch.full((4,), value) for name in "abcd"}


def save(value: float, writer: ShelfWriter, **more: Any) -> None:
    with alone():
        dcp.save(state_of(value), storage_writer=writer, no_dist=True, **more)


def values(path: pathlib.Path) -> set[float]:
    found = state_of(-1)
    with alone():
        dcp.load(found, storage_reader=ShelfReader(path), no_dist=True)
    return {value for tensor in found.values() for value in tensor.tolist()}


class Interrupted(dcp.DefaultSavePlanner):  # type: ignore[misc,name-defined]
    """Something comes before the third of its items, or before its plan."""

    def __init__(self, come: Any, *, in_plan: bool = False) -> None:
        super().__init__()
        self._come, self._in_plan, self._items = come, in_plan, 0

    def create_local_plan(self) -> Any:
        if self._in_plan:
            self._come()
        return super().create_local_plan()

    def resolve_data(self, item: Any) -> Any:
        self._items += 1
        if self._items == 3 and not self._in_plan:
            self._come()
        return super().resolve_data(item)


@pytest.mark.parametrize("in_plan", [False, True])
def test_a_save_within_the_calls_of_another_makes_no_mix(
    tmp_path: pathlib.Path, in_plan: bool
) -> None:
    path = tmp_path / "run.shelf"
    ended: list[float] = [1]
    with ShelfWriter(path) as writer:
        save(1, writer)

        def attempt(value: float, **more: Any) -> None:
            with contextlib.suppress(dcp.CheckpointException):
                save(value, writer, **more)
                ended.append(value)

        attempt(3, planner=Interrupted(lambda: attempt(2), in_plan=in_plan))
        assert values(path) == {ended[-1]}
        assert 3 not in ended or 2 not in ended
        attempt(4)
        assert ended[-1] == 4
    assert values(path) == {4}


def test_a_save_that_another_thread_overtakes_ends(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"
    with ShelfWriter(path) as writer:
        save(1, writer)

        def overtake() -> None:
            thread = threading.Thread(target=save, args=(2, writer))
            thread.start()
            thread.join()

        with pytest.raises(dcp.CheckpointException, match="another save into it began"):
            save(3, writer, planner=Interrupted(overtake, in_plan=True))
    assert values(path) == {2}


def test_a_save_that_was_overtaken_says_nothing_to_other_ranks(tmp_path: pathlib.Path) -> None:
    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save(1, writer)
        writer.set_up_storage_writer(True, rank=0)
        thread = threading.Thread(target=writer.set_up_storage_writer, args=(True,))
        thread.start()
        thread.join()
        with pytest.raises(ts.ClosedError, match="another save into it began"):
            writer.prepare_global_plan([dcp.SavePlan([]), dcp.SavePlan([])])


def test_a_save_that_fails_lets_its_shelf_go(tmp_path: pathlib.Path) -> None:
    def fails() -> None:
        raise ValueError("no data")

    with ShelfWriter(tmp_path / "run.shelf") as writer:
        save(1, writer)
        with pytest.raises(dcp.CheckpointException, match="no data"):
            save(2, writer, planner=Interrupted(fails))
        with ts.open(tmp_path / "run.0.shelf", mode="r+") as shelf:  # nobody has it open
            assert shelf.version == 1
    assert values(tmp_path / "run.shelf") == {1}


def test_a_load_whose_reader_looked_at_another_save_is_ended(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"

    class Looks(dcp.DefaultLoadPlanner):  # type: ignore[misc,name-defined]
        def finish_plan(self, plan: Any) -> Any:
            save(2, writer)
            reader.read_metadata()
            return super().finish_plan(plan)

    with ShelfWriter(path, keep=1) as writer:
        save(1, writer)
        reader = ShelfReader(path)
        with alone(), pytest.raises(dcp.CheckpointException, match="looked at another save"):
            dcp.load(state_of(0), storage_reader=reader, no_dist=True, planner=Looks())


def test_ranks_that_have_seen_different_saves_load_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"
    with ShelfWriter(path) as writer:
        save(1, writer)
    reader = ShelfReader(path)
    reader.read_metadata()
    own = reader.prepare_local_plan(dcp.LoadPlan([]))
    other = dataclasses.replace(own, storage_data=Vouched(b"of another save", False))
    assert len(reader.prepare_global_plan([own, own])) == 2
    with pytest.raises(ts.StaleError, match="ranks have seen different saves"):
        reader.prepare_global_plan([own, other])


def test_a_save_whose_shelf_another_writer_closed_is_none(tmp_path: pathlib.Path) -> None:
    """Between its values and its end: they went with the shelf."""
    path = tmp_path / "run.shelf"
    with ShelfWriter(path) as first, ShelfWriter(path) as second:
        save(1, first)
        save(2, second)
        finish = first.finish

        def closed_before(*given: Any, **more: Any) -> None:
            second.close()
            finish(*given, **more)

        first.finish = closed_before  # type: ignore[method-assign]
        with pytest.raises((ts.ClosedError, dcp.CheckpointException), match="was closed"):
            save(3, first)
    assert values(path) == {2}


def test_the_shelf_of_another_rank_is_no_beginning(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.shelf"
    with ShelfWriter(path) as writer:
        save(1, writer)
    with ts.open(tmp_path / "run.0.shelf") as shelf:  # as a rank that does not coordinate has it
        from tensorshelf.dcp import _record, _write

        _write.put_record(shelf, _record.mark(b"part"))
        shelf.persist()
    with pytest.raises(ts.CorruptError, match=r"run\.0\.shelf holds the part of another rank"):
        _ = ShelfReader(path).has_save
    with (
        ShelfWriter(path) as writer,
        pytest.raises(
            dcp.CheckpointException, match=r"run\.0\.shelf holds the part of another rank"
        ),
    ):
        save(2, writer)


def test_a_name_like_a_shortened_one_is_another() -> None:
    long = "x" * 2000
    assert name_of(name_of(long, None), None) != name_of(long, None)


def test_a_word_has_arrived_when_it_was_sent_and_not_when_it_is_copied() -> None:
    word = Word("shelf", b"part")
    assert word.arrived == 0
    begun = moment()
    sent = pickle.loads(pickle.dumps(word))
    assert (sent.coordinator, sent.committed) == ("shelf", b"part")
    assert sent.arrived > begun
    later = moment()
    assert copy.deepcopy(sent).arrived < later


@pytest.mark.parametrize("late", [False, True])
def test_a_word_from_before_the_save_is_looked_up_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """A planner that keeps plans gives an old one again."""
    looked_up = Word("shelf", b"of now")
    monkeypatch.setattr(_verdicts, "word_read", lambda *_: looked_up)
    with ShelfWriter(tmp_path / "run.shelf") as writer, ts.open(tmp_path / "x.shelf") as shelf:
        old = pickle.loads(pickle.dumps(Word("shelf", b"of then")))
        writer.set_up_storage_writer(False, rank=1)
        new = pickle.loads(pickle.dumps(Word("shelf", b"of this save")))
        plan = dcp.SavePlan([], storage_data=old if late else new)
        assert writer._heard(plan, shelf) is (looked_up if late else new)


def test_a_reader_is_not_asked_for_each_rank() -> None:
    """Where DCP can give a rank, it tries again on that one alone, and the others wait for it."""
    import inspect

    assert list(inspect.signature(ShelfReader.read_metadata).parameters) == ["self"]
