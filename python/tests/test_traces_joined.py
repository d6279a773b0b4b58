"""Traces of a group's ranks, and one of them all."""

import json
import pathlib
from typing import Any

import pytest
from group_ranks import Kept, Rank

import tensorshelf as ts
from tensorshelf._cli import main

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

LANES = ["trainer", "pipeline", "commit", "group", "copies sent"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> list[pathlib.Path]:
    """What two ranks wrote, of five epochs: the third came to nothing."""
    folder = tmp_path_factory.mktemp("run")
    two = Kept(folder, 2)
    paths = [folder / f"{rank}.json" for rank in range(2)]

    def body(rank: Rank) -> None:
        with rank.open() as shelf:
            auto = rank.autosave(shelf)
            auto.resume()
            for number in range(1, 6):
                rank.step(auto, number + 100 * (number == 3 and rank.rank == 1))
                try:
                    auto.wait()
                except ts.ShelfError:
                    assert number == 3
            auto.close()
        auto.write_trace(paths[rank.rank])

    assert two.run(body) == [None, None]
    return paths


def loaded(path: pathlib.Path) -> Any:
    return json.loads(path.read_text())


def test_the_trace_of_a_rank_has_what_it_did_for_its_group(run: list[pathlib.Path]) -> None:
    events = loaded(run[1])["traceEvents"]
    assert {event["pid"] for event in events} == {1}
    (name,) = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert name == "rank 1 on node 1"
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(lanes.values()) == LANES
    of: dict[int, list[str]] = {}
    copied = []
    for event in (event for event in events if event["ph"] == "X"):
        assert event["dur"] >= 0
        if lanes[event["tid"]] == "group":
            of.setdefault(event["args"]["epoch"], []).append(event["name"])
        if lanes[event["tid"]] == "copies sent":
            copied.append((event["args"]["epoch"], event["name"], event["args"]["nbytes"] > 8000))
    made = ["prepared", "copies sent", "vote", "decided", "flip"]
    assert of == {1: made, 2: made, 3: [*made[:-1], "abandoned"], 4: made, 5: made}
    assert copied == [(epoch, "to rank 0", True) for epoch in range(1, 6)]


def test_an_epoch_that_came_to_nothing_aligns_nothing(run: list[pathlib.Path]) -> None:
    """A rank may vote when another's no has decided it."""
    decided = loaded(run[0])["tensorshelf"]["decided"]
    assert [epoch for epoch, _, _ in decided] == [1, 2, 4, 5]
    assert all(votes <= heard for _, votes, heard in decided)


def test_ranks_of_one_host_are_joined_as_they_are(
    run: list[pathlib.Path], tmp_path: pathlib.Path
) -> None:
    joined = tmp_path / "all.json"
    assert ts.join_traces(reversed(run), joined) == ts.JoinedTraces((0, 1), 0.0)
    events = [event for path in run for event in loaded(path)["traceEvents"]]
    assert loaded(joined)["traceEvents"] == events


def test_a_clock_of_another_host_is_aligned(
    run: list[pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """One that shows 1,000 s less, and is of a host whose time of day is wrong by an hour."""
    trace = loaded(run[1])
    about = trace["tensorshelf"]
    about["clock"] = "another"
    about["wall"] += 1000 + 3600
    about["decided"] = [[epoch, *(t - 1000 for t in times)] for epoch, *times in about["decided"]]
    for event in trace["traceEvents"]:
        if "ts" in event:
            event["ts"] -= 1000e6
    moved = tmp_path / "moved.json"
    moved.write_text(json.dumps(trace))
    made = ts.join_traces([run[0], moved], tmp_path / "all.json")
    assert made.ranks == (0, 1)
    assert made.within is not None
    shown: dict[tuple[int, str, int], dict[str, Any]] = {
        (event["pid"], event["name"], event["args"]["epoch"]): event
        for event in loaded(tmp_path / "all.json")["traceEvents"]
        if event["ph"] == "X" and "epoch" in event["args"]
    }
    meant = next(event for event in loaded(run[1])["traceEvents"] if event["name"] == "vote")
    off = (shown[1, "vote", 1]["ts"] - meant["ts"]) / 1e6
    assert abs(off) <= made.within + 1e-6
    for epoch in (1, 2, 4, 5):
        for one, other in ((0, 1), (1, 0)):
            heard = shown[other, "decided", epoch]
            assert shown[one, "vote", epoch]["ts"] <= heard["ts"] + heard["dur"] + 1


def made(
    folder: pathlib.Path, rank: int, wall: float, decided: list[Any], **about: Any
) -> pathlib.Path:
    """The trace of a rank whose clock is its own, with one event at 1 s."""
    told = {"rank": rank, "node": "n", "job": "j", "generation": 1, "clock": f"of {rank}"}
    told |= {"wall": wall, "decided": decided, **about}
    path = folder / f"made.{rank}.{len(about)}.json"
    event = {"ph": "X", "pid": rank, "tid": 1, "ts": 1e6, "dur": 1.0, "name": "x", "args": {}}
    path.write_text(json.dumps({"traceEvents": [event], "tensorshelf": told}))
    return path


@pytest.mark.parametrize(
    ("wall", "ours", "theirs", "at", "within"),
    [
        # The second clock is 10 s behind by the time of day.
        (110.0, [], [], 11.0, None),
        (110.0, [[1, 20.0, 21.0]], [[2, 10.0, 11.0]], 11.0, None),  # no epoch of both
        (110.0, [[1, 20.0, 21.0]], [[1, 10.0, 11.0]], 11.0, 1.0),
        (110.5, [[1, 20.0, 21.0]], [[1, 10.0, 11.0]], 11.5, 1.5),
        (113.0, [[1, 20.0, 21.0]], [[1, 10.0, 11.0]], 12.0, 2.0),  # which cannot be
        (100.0, [[1, 20.0, 21.0]], [[1, 10.0, 11.0]], 10.0, 2.0),
        (110.0, [[1, 20.0, 21.0], [2, 30.0, 30.1]], [[1, 10.0, 11.0], [2, 20.0, 20.1]], 11.0, 0.1),
        (110.0, [[1, 20.0, 20.1], [2, 31.0, 31.1]], [[1, 10.0, 10.1], [2, 20.0, 20.1]], 11.5, 0.4),
    ],
)
def test_times_of_day_are_taken_as_far_as_epochs_agree(
    tmp_path: pathlib.Path,
    wall: float,
    ours: list[Any],
    theirs: list[Any],
    at: float,
    within: float | None,
) -> None:
    paths = [made(tmp_path, 0, 100.0, ours), made(tmp_path, 1, wall, theirs)]
    joined = ts.join_traces(paths, tmp_path / "all.json")
    assert joined.within == (None if within is None else pytest.approx(within))
    first, second = (event["ts"] for event in loaded(tmp_path / "all.json")["traceEvents"])
    assert (first, second) == (1e6, pytest.approx(at * 1e6))


def test_what_cannot_be_joined_is_refused(tmp_path: pathlib.Path) -> None:
    one, again = made(tmp_path, 0, 0.0, []), made(tmp_path, 0, 0.0, [], clock="c")
    later = made(tmp_path, 1, 0.0, [], generation=2)
    alone, text = tmp_path / "alone.json", tmp_path / "text"
    alone.write_text('{"traceEvents": []}')
    text.write_text("no trace")
    for paths, says in (
        ([], "no trace is given"),
        (str(one), "is one path"),
        ([one, again], "are both of rank 0"),
        ([one, later], "of different starts of a job"),
        ([one, alone], "alone.json is no trace of a rank of a group"),
        ([text], "is no trace of a rank of a group"),
        ([3], "path=3 is not a path"),
        (3, "paths=3 are not paths"),
    ):
        with pytest.raises(ts.BadArgument, match=says):
            ts.join_traces(paths, tmp_path / "all.json")
    with pytest.raises(ts.ShelfNotFound, match="nowhere"):
        ts.join_traces([tmp_path / "nowhere"], tmp_path / "all.json")
    with pytest.raises(ts.IoError, match="cannot be read: Is a directory"):
        ts.join_traces([tmp_path], tmp_path / "all.json")
    assert not (tmp_path / "all.json").exists()


@pytest.mark.parametrize(
    "wrong",
    [{"rank": "0"}, {"clock": 3}, {"wall": None}, {"decided": [[1, 2.0]]}, {"generation": 1.5},
     {"decided": [[1, 2.0, "x"]]}, {"wall": float("nan")}, {"decided": 3}, {"wall": 1.7e308}],
)  # fmt: skip
def test_a_trace_that_somebody_changed_is_refused(
    tmp_path: pathlib.Path, wrong: dict[str, Any]
) -> None:
    path = made(tmp_path, 0, 0.0, [[1, 20.0, 20.001]])
    trace = loaded(path)
    trace["tensorshelf"] |= wrong
    path.write_text(json.dumps(trace))
    with pytest.raises(ts.BadArgument, match="is no trace of a rank of a group"):
        ts.join_traces([path], tmp_path / "all.json")


@pytest.mark.parametrize("dur", ["NaN", "1e999", "[" * 100_000])
def test_a_trace_that_could_not_be_written_again_is_refused(
    tmp_path: pathlib.Path, dur: str
) -> None:
    path = made(tmp_path, 0, 0.0, [])
    path.write_text(path.read_text().replace('"dur": 1.0', f'"dur": {dur}'))
    with pytest.raises(ts.BadArgument, match="is no trace of a rank of a group"):
        ts.join_traces([path], tmp_path / "all.json")


def test_a_home_is_found_for_who_reads_traces_as_for_who_writes_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, 0, 0.0, [])
    monkeypatch.setenv("HOME", str(tmp_path))
    (name,) = [path.name for path in tmp_path.iterdir()]
    assert ts.join_traces([f"~/{name}"], "~/all.json").ranks == (0,)
    assert (tmp_path / "all.json").exists()


def test_the_command_says_how_well_clocks_are_aligned(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decided = [[1, 20.0, 20.001]]
    paths = [str(made(tmp_path, rank, 0.0, decided)) for rank in range(2)]
    to = str(tmp_path / "all.json")
    assert main(["traces", *paths, "--to", to]) == 0
    assert main(["traces", paths[0], "--to", to]) == 0
    assert main(["traces", paths[0], str(made(tmp_path, 1, 0.0, [], clock="c")), "--to", to]) == 0
    assert main(["traces", paths[0], paths[0], "--to", to]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{to}: 2 ranks, clocks aligned within 1 ms",
        f"{to}: 1 rank, clocks aligned within 0 ms",
        f"{to}: 2 ranks, clocks aligned by the times of day alone",
    ]
    assert "are both of rank 0" in err
