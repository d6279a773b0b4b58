"""That what is planted, played and promised meets: bugs, plays, invariants."""

from __future__ import annotations

import re

from sources import MEDIA, ROOT, code, cpp, shown, tree

# Where a test sleeps, what it waits for is time.
SLEEPS = {
    "tests/guest/guest_pool.cpp": "a machine is cut off meanwhile",
    "tests/test_kill.cpp": "kills come at moments that are drawn",
    "tests/test_store_compact.cpp": "as do requests to end",
    "tests/test_store_pins.cpp": "a writer hears of a reader after a time that the protocol states",
    "crashtest/pin_plays.cpp": "a reader holds what it holds for a while",
}

# The same of those in Python, where each says it beside the call.
SLEEPS_IN_PYTHON = {
    "crashtest/ranks.py",
    "python/tests/test_drain_group.py",
    "python/tests/test_drain_killed.py",
    "python/tests/test_exit.py",
    "python/tests/test_save_killed.py",
    "python/tests/test_state_machine.py",
    "python/tests/test_transactions.py",
}


def test_no_test_sleeps_to_let_others_go_first() -> None:
    sleeps = re.compile(r"\bsleep_(?:for|until)\(|\b(?:u|nano)?sleep\(")
    paths = [path for path in cpp("tests", "crashtest") if sleeps.search(code(path))]
    assert {shown(path) for path in paths} == set(SLEEPS)
    waits = re.compile(r"(?<!def )(?<!\w)(?:time\.)?sleep\((?!0\)|self|scrub)(.*)$", re.MULTILINE)
    found = {}
    for path in tree("python/tests", "crashtest", "tests", suffixes={".py"}):
        if calls := [call for call in waits.findall(path.read_text("utf-8")) if '"' not in call]:
            found[shown(path)] = [call for call in calls if "# " not in call]
    assert found == {name: [] for name in SLEEPS_IN_PYTHON}


def test_every_planted_bug_is_named_by_what_catches_it() -> None:
    """That runs it: tensorshelf-crashtest-planted, and tests of media that are built with bugs."""
    listed = re.search(r"enum class Bug \{(.*?)\};", code(ROOT / "src/base/planted.hpp"), re.DOTALL)
    assert listed
    bugs = set(re.findall(r"\w+", listed[1])) - {"none"}
    catching = [ROOT / "crashtest/bugs.cpp"]
    planted_too = re.compile(rf"test_(?:{'|'.join([*MEDIA, 'group'])})_")
    catching += [path for path in cpp("tests") if planted_too.match(path.name)]
    caught = {bug for path in catching for bug in re.findall(r"Bug::(\w+)", code(path))}
    assert bugs - caught == set()
    assert len(bugs) > 100  # the search can hit


def test_both_lists_of_planted_bugs_name_the_same_invariants() -> None:
    header = (ROOT / "src/base/planted.hpp").read_text("utf-8")
    said = dict(re.findall(r"^  (\w+),(?:\s*// (I\d+))?", header, re.MULTILINE))
    table = code(ROOT / "crashtest/bugs.cpp")
    listed = re.findall(r'\{\s*"\w+",\s*"(I\d+|-)",\s*Bug::(\w+)', table)
    assert {bug: said[bug] or "-" for _, bug in listed if bug != "none"} == {
        bug: invariant for invariant, bug in listed if bug != "none"
    }
    assert len(listed) > 100  # the search can hit


def test_no_two_plays_of_the_explorer_have_one_name() -> None:
    plays = [
        name
        for path in cpp("crashtest")
        if path.name in ("scenarios.cpp", "large.cpp")
        for name in re.findall(
            r'^ {6,8}\{"([\w-]+)", "(?:I\d+|-)", \w+\},', code(path), re.MULTILINE
        )
    ]
    assert sorted({name for name in plays if plays.count(name) > 1}) == []
    played = set(re.findall(r'"([\w-]+)"\},', code(ROOT / "crashtest/bugs.cpp")))
    assert len(plays) > 80  # the search can hit
    assert "older-root-long" in played & set(plays)


def test_the_design_tells_how_each_invariant_is_shown_broken() -> None:
    design = (ROOT / "docs/design.md").read_text("utf-8")
    table = design.partition("| breaks | caught by |")[2].partition("\n\n")[0]
    breaks = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    told = set(re.findall(r"I\d+", " ".join(breaks)))
    broken = set(re.findall(r'"(I\d+)"', code(ROOT / "crashtest/bugs.cpp")))
    assert broken - told == set()
    assert len(broken) > 10  # the search can hit
