"""What stays at a remote, as a table."""

import pytest

from tensorshelf._drain.catalog import Entry
from tensorshelf._drain.manifest import Manifest, Name
from tensorshelf._drain.retain import Rule, best_of, is_better, is_milestone, split, split_parts
from tensorshelf._group.part import Part

OWN = "own"


def entry(
    number: int,
    *,
    shelf: str = OWN,
    metric: float | None = None,
    milestone: bool = False,
    part: Part | None = None,
) -> Entry:
    made = Manifest(
        shelf=shelf,
        version=number,
        step=number,
        time_ns=0,
        metric=metric,
        milestone=milestone,
        group=part,
        tensors=[],
        pieces=[],
        stored=[],
    )
    return Entry(Name(number, 1, "0" * 16), made)


def stays(rule: Rule, entries: list[Entry]) -> list[int]:
    kept, going = split(rule, entries)
    assert sorted([*kept, *going], key=lambda each: each.name) == entries
    return [each.name.sequence for each in kept]


PLAIN = [entry(number) for number in range(1, 6)]
METRICS = [entry(number, metric=abs(number - 2.0)) for number in range(1, 6)]
MIXED = [entry(1, shelf="other"), entry(2), entry(3, shelf="other", metric=0.0), entry(4), entry(5)]
MILESTONES = [entry(number, milestone=number % 2 == 0) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("rule", "entries", "expected"),
    [
        (Rule(OWN, 1, None, None), [], []),
        (Rule(OWN, 1, None, None), PLAIN, [5]),
        (Rule(OWN, 3, None, None), PLAIN, [3, 4, 5]),
        (Rule(OWN, 9, None, None), PLAIN, [1, 2, 3, 4, 5]),
        (Rule(OWN, 1, None, None), MIXED, [1, 3, 5]),
        (Rule(OWN, 1, None, None), MILESTONES, [2, 4, 5]),
        (Rule(OWN, 1, None, None), METRICS, [5]),
        (Rule(OWN, 1, None, "min"), METRICS, [2, 5]),
        (Rule(OWN, 1, None, "max"), METRICS, [5]),
        (Rule(OWN, 2, None, "max"), [*METRICS, entry(6), entry(7)], [5, 6, 7]),
        (Rule(OWN, 1, None, "min"), MIXED, [1, 3, 5]),
    ],
)
def test_what_stays(rule: Rule, entries: list[Entry], expected: list[int]) -> None:
    assert stays(rule, entries) == expected


@pytest.mark.parametrize(
    ("before", "step", "expected"),
    [
        (None, 5, False),
        (None, 10, True),
        (None, 27, True),
        (9, 10, True),
        (9, 13, True),
        (10, 11, False),
        (19, 20, True),
        (20, 15, False),  # it went back
        (15, 20, True),
        (9, None, False),
    ],
)
def test_what_is_a_milestone(before: int | None, step: int | None, expected: bool) -> None:
    last = None if before is None else entry(before).manifest
    assert is_milestone(Rule(OWN, 1, 10, None), last, step) is expected
    assert not is_milestone(Rule(OWN, 1, None, None), last, step)


def test_the_first_of_equals_is_the_best() -> None:
    rule = Rule(OWN, 1, None, "min")
    best = best_of(rule, [entry(1, metric=2.0), entry(2, metric=1.0), entry(3, metric=1.0)])
    assert best is not None
    assert best.name.sequence == 2
    assert is_better(rule, 0.5, 1.0)
    assert not is_better(rule, 1.0, 1.0)
    assert not is_better(rule, None, None)


def test_anothers_best_hides_none() -> None:
    rule = Rule(OWN, 1, None, "min")
    best = best_of(rule, [entry(1, shelf="other", metric=0.0), entry(2, metric=5.0)])
    assert best is not None
    assert best.name.sequence == 2


# ---- parts of a rank


def part(number: int, job: str = "job") -> Entry:
    return entry(number, part=Part(job, 1, 2, 1, number))


@pytest.mark.parametrize(
    ("named", "floor", "expected"),
    [
        ([], 0, [1, 2, 3, 4, 5]),
        ([2], 0, [2, 3, 4, 5]),  # what is newer may be named yet
        ([2, 4], 0, [2, 4, 5]),
        ([5], 0, [5]),
        ([], 4, [4, 5]),  # nobody names what is older any more
        ([1], 4, [1, 4, 5]),
        ([4], 3, [4, 5]),
    ],
)
def test_what_stays_of_parts(named: list[int], floor: int, expected: list[int]) -> None:
    parts = [part(number) for number in range(1, 6)]
    names = {parts[number - 1].name for number in named}
    kept, going = split_parts("job", parts, names, floor)
    assert [each.name.sequence for each in kept] == expected
    assert sorted([*kept, *going], key=lambda each: each.name) == parts


def test_parts_of_other_jobs_stay() -> None:
    parts = [part(1, "other"), entry(2), part(3)]
    assert split_parts("job", parts, {parts[2].name}, 9) == (parts, [])
