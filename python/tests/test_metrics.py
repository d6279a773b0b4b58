"""shelf.metrics(): what Prometheus reads."""

import re

import numpy as np

import tensorshelf as ts
from tensorshelf import _metrics

SAMPLE = re.compile(r'tensorshelf_(\w+)\{path="((?:[^"\\]|\\.)*)"\} (\S+)')


def samples(text: str) -> dict[str, float]:
    """Each sample has its help and its type in front of it."""
    lines = text.split("\n")
    assert lines.pop() == ""
    found = {}
    for helps, types, sample in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        match = SAMPLE.fullmatch(sample)
        assert match, sample
        name = match[1]
        kind = "counter" if name.endswith("_total") else "gauge"
        assert helps.startswith(f"# HELP tensorshelf_{name} ")
        assert types == f"# TYPE tensorshelf_{name} {kind}"
        found[name] = float(match[3])
    return found


def test_every_counter_is_a_metric(shelf: ts.Shelf) -> None:
    before = samples(shelf.metrics())
    assert "step" not in before
    assert before["version"] == 0
    shelf.x = np.zeros(1000)
    shelf.persist(step=7)
    shelf.x.numpy()
    found = samples(shelf.metrics())
    assert (found["version"], found["step"], found["commits_total"]) == (1, 7, 1)
    assert found["staged_bytes_total"] == 8000
    assert found["free_bytes"] == shelf.free
    stats = shelf.stats()
    assert set(_metrics._COUNTERS) == set(stats)
    for key, (name, _) in _metrics._COUNTERS.items():
        assert found[f"{name}_total"] == stats[key]


def test_paths_are_quoted() -> None:
    counters = dict.fromkeys(_metrics._COUNTERS, 0)
    gauges = {"version": 1, "step": None, "free_bytes": 2}
    text = _metrics.text('a"b\\c\nd', counters, gauges)
    assert 'tensorshelf_version{path="a\\"b\\\\c\\nd"} 1\n' in text
    assert len(samples(text)) == len(_metrics._COUNTERS) + 2
