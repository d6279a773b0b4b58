"""The group's protocol, searched by Spin: tests/model/group.pml.

A second account of what src/group does, in another language and by another searcher than
tests/test_group_explored.cpp, so that a mistake would have to be made twice.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).resolve().parent / "model" / "group.pml"
STATES = re.compile(r"^\s*(\d+) states, stored", re.MULTILINE)
VIOLATED = re.compile(r"assertion violated (\w+)")
INCOMPLETE = ("max search depth too small", "Search not completed", "out of memory")
MOST_MIB = 1900  # what a search may take


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def search(folder: Path, options: str, compiled: str, *how: str) -> str:
    """What the verifier prints that Spin makes of the model with these options."""
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    run(folder, "spin", "-a", *options.split(), str(MODEL))
    run(folder, "gcc", *compiled.split(), f"-DMEMLIM={MOST_MIB}", "-o", "pan", "pan.c")
    return run(folder, "./pan", "-m100000", *how)


def steps(folder: Path, options: str) -> str:
    """The steps to what was violated."""
    trail = folder / "group.pml.trail"
    if not trail.exists():
        return ""
    return run(folder, "spin", "-T", "-k", str(trail), *options.split(), str(MODEL))


def check_whole(folder: Path, options: str, found: str, least: int) -> None:
    """The search found nothing, and left nothing out."""
    assert "errors: 0" in found, found + steps(folder, options)
    assert not any(words in found for words in INCOMPLETE), found
    stored = STATES.search(found)
    assert stored
    assert int(stored[1]) > least  # the search goes somewhere


LONG = pytest.mark.long  # those of three ranks that take longest


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ("-DRANKS=2 -DSTARTS=3 -DSAVES=1", 50_000),
        ("-DRANKS=2 -DSTARTS=2 -DSAVES=2 -DREFUSALS=2", 50_000),
        ("-DRANKS=2 -DSTARTS=1 -DSAVES=6 -DREFUSALS=3", 10_000),
        pytest.param("-DRANKS=3 -DSTARTS=2 -DSAVES=2", 500_000, marks=LONG),
        pytest.param("-DRANKS=3 -DSTARTS=2 -DSAVES=1 -DREFUSALS=3", 100_000, marks=LONG),
        pytest.param("-DRANKS=3 -DSTARTS=1 -DSAVES=4 -DREFUSALS=2", 100_000, marks=LONG),
        # Messages vanish, and who waits asks again.
        ("-DLOSS -DRANKS=2 -DSTARTS=2 -DSAVES=1 -DREFUSALS=2", 20_000),
        ("-DLOSS -DRANKS=2 -DSTARTS=1 -DSAVES=3", 100_000),
        pytest.param("-DLOSS -DRANKS=3 -DSTARTS=2 -DSAVES=1", 300_000, marks=LONG),
        pytest.param("-DLOSS -DRANKS=3 -DSTARTS=1 -DSAVES=2", 200_000, marks=LONG),
    ],
)
def test_no_fate_of_messages_and_ranks_splits_an_epoch(
    tmp_path: Path, options: str, least: int
) -> None:
    found = search(tmp_path, options, "-O2 -DSAFETY -DCOLLAPSE", "-w22")
    check_whole(tmp_path, options, found, least)


@pytest.mark.parametrize(
    "options",
    ["-DRANKS=2 -DSTARTS=2 -DSAVES=2 -DREFUSALS=2", "-DRANKS=3 -DSTARTS=2 -DSAVES=1"],
)
def test_where_nobody_dies_it_comes_to_an_end(tmp_path: Path, options: str) -> None:
    options += " -DPROGRESS"
    found = search(tmp_path, options, "-O2 -DNP -DCOLLAPSE", "-l", "-w22")
    assert "non-progress cycles \t+" in found  # it was looked for
    check_whole(tmp_path, options, found, 20_000)


HARM = "-DHARM_ALONE "  # what the shelves come to, whatever the messages say
BUGS = [
    ("group_generation_ignored", "-DSTARTS=2", "older_start_changes_nothing"),
    ("group_generation_ignored", HARM + "-DSTARTS=2", "every_rank_holds_it"),
    ("group_epoch_ignored", "-DSTARTS=1 -DSAVES=2", "every_rank_holds_it"),
    ("group_vote_overtaken", "-DSTARTS=1", "resolves_what_it_prepared"),
    ("group_old_vote_counted", "-DSTARTS=2", "older_start_changes_nothing"),
    ("group_old_vote_counted", HARM + "-DSTARTS=2", "every_rank_holds_it"),
    ("group_decision_forgotten", "-DSTARTS=1", "aborted_is_not_committed"),
    ("group_decision_forgotten", HARM + "-DSTARTS=1", "acknowledged_is_kept"),
    ("group_no_overheard", "-DSTARTS=1", "every_rank_holds_it"),
    ("group_majority_decides", "-DRANKS=3 -DSTARTS=1", "every_rank_holds_it"),
    ("group_votes_kept", "-DSTARTS=1 -DSAVES=2", "every_rank_holds_it"),
    ("group_prepared_overlooked", "-DSTARTS=2", "acknowledged_is_kept"),
    ("group_missing_part_taken", "-DSTARTS=2", "every_rank_holds_it"),
    ("group_missing_part_taken", "-DRANKS=3 -DSTARTS=2", "every_rank_holds_it"),
    ("group_leftover_committed", "-DSTARTS=2", "every_rank_holds_it"),
    # Of the model alone.
    ("group_yes_before_prepared", "-DSTARTS=1", "resolves_what_it_prepared"),
    ("group_refused_when_prepared", "-DSTARTS=2", "aborted_is_not_committed"),
    ("group_resolved_late", "-DSTARTS=2", "one_is_prepared_at_a_time"),
    ("group_commit_not_kept", HARM + "-DSTARTS=1 -DSAVES=2", "nobody_committed_it"),
    ("group_generation_reused", HARM + "-DSTARTS=2", "every_rank_holds_it"),
    ("group_generation_not_above", "-DSTARTS=2", "commits_nothing_older"),
    ("group_late_vote_unanswered", "-DLOSS -DSTARTS=1", "all_end_alike"),
    ("group_asked_once", "-DLOSS -DSTARTS=1", "all_end_alike"),
]


@pytest.mark.parametrize(("bug", "options", "claim"), BUGS)
def test_each_planted_bug_is_found(tmp_path: Path, bug: str, options: str, claim: str) -> None:
    # Breadth first: the trail is the shortest.
    found = search(tmp_path, f"-DBUG_{bug} {options}", "-O0 -DSAFETY -DBFS", "-w20")
    assert VIOLATED.findall(found) == [claim], found


def test_every_bug_of_the_model_is_listed() -> None:
    assert set(re.findall(r"\bBUG_(\w+)", MODEL.read_text())) == {bug for bug, _, _ in BUGS}
