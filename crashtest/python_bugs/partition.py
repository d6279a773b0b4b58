"""Of what ranks hold alike, split over those that write."""

from python_bugs.bug import Planted

BUGS = [
    Planted(
        "sharded_taken_for_alike",
        "_group/parted.py",
        "found.add(value.data_ptr() + offset)",
        "pass",
        "test_group_alike.py ignored_or_sharded",
    ),
    Planted(
        "buffers_of_others",
        "_group/parted.py",
        "found = found._replace(of_first=frozenset())",
        "pass",
        "test_group_alike.py numbered_anew",
    ),
    Planted(
        "drift_not_compared",
        "_group/drift.py",
        "if self._cause is None and len(of_ranks) == len(self._together):",
        "if False:",
        "test_group_alike.py differ_are_named",
    ),
    Planted(
        "one_chunk_compared",
        "_group/drift.py",
        "turn = number % self._ends[-1]",
        "turn = 0",
        "test_group_alike.py compared_in_turn",
    ),
    Planted(
        "pieces_overlap",
        "_group/pieces.py",
        " or _overlap(list(found))",
        "",
        "test_shards_merged.py not_the_whole_are_refused",
    ),
    Planted(
        "broken_link_waited_for_in_full",
        "_group/stage.py",
        "            until = min(until, time.monotonic() + _MOMENT)\n",
        "",
        "test_group_partition.py waited_for_a_moment_alone",
    ),
    Planted(
        "one_reader_for_two_threads",
        "_group/joined.py",
        "with self._lock:",
        "if True:",
        "test_group_view.py one_thread_at_a_time",
    ),
]
