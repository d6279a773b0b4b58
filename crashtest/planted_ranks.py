"""Bugs in the Python of groups, partition, copies and drains, planted one at a time.

Each is put into a copy of the package, and the tests that are named with it must fail there; over
the package as it is they pass. `./run crashtest planted-ranks` runs all, `--only NAME` one. Those
of the C++ below are `tensorshelf-crashtest-planted`'s.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "build/release/python/tensorshelf"
SECONDS = 300  # that the tests of a bug may take


class Planted(NamedTuple):
    """A text of a file, in which it is found once, and what stands there instead."""

    name: str
    file: str
    right: str
    wrong: str
    tests: str  # a file of python/tests, and which of it, as of pytest's -k


def planted() -> list[Planted]:
    """All of them."""
    return [*_OF_DRAINS, *_OF_COPIES, *_OF_PARTITION, *_OF_GROUPS]


_OF_DRAINS = [
    Planted(
        "given_up_drain_spins",
        "_drain/copier.py",
        "self._standing.refuse_given_up()  # nobody waits for what cannot be begun either",
        "pass",
        "test_drain_stuck.py cannot_begin_ends",
    ),
    Planted(
        "floor_before_its_part",
        "_drain/rank.py",
        "        self._site.put(staged, copied",
        "        self._site.floor = copied.floor\n        self._site.put(staged, copied",
        "test_drain_group.py floor_holds",
    ),
    Planted(
        "pieces_not_durable",
        "_drain/place.py",
        "self._remote.settle()  # all that the manifest names is durable",
        "pass",
        "test_drain_crash.py at_each_change",
    ),
    Planted(
        "shortened_piece_counts",
        "_drain/upload.py",
        "if stored.suffix == codec.PLAIN or stored in named:",
        "if True:",
        "test_drain_crash.py piece_that_was_cut",
    ),
    Planted(
        "swept_piece_counts",
        "_drain/upload.py",
        "            self._unsure.pop(name, None)\n",
        "",
        "test_drain_read.py swept_is_not_taken",
    ),
    Planted(
        "manifest_not_durable",
        "_drain/place.py",
        "self._remote.put(name.path, made.encode())\n        self._remote.settle()",
        "self._remote.put(name.path, made.encode())",
        "test_drain_crash.py at_each_change",
    ),
    Planted(
        "manifest_comes_back",
        "_drain/retain.py",
        "self._remote.settle()  # else a power cut might bring back one whose pieces are gone",
        "pass",
        "test_drain_crash.py at_each_change",
    ),
    Planted(
        "named_pieces_deleted",
        "_drain/retain.py",
        "unnamed = there - _pieces(kept)",
        "unnamed = there",
        "test_drain_crash.py each_change",
    ),
    Planted(
        "damaged_manifest_names_nothing",
        "_drain/retain.py",
        "if self._catalog.damaged:  # what it names is not known: no piece goes",
        "if False:",
        "test_drain_read.py damaged_manifest_names_stay",
    ),
    Planted(
        "version_lacks_a_part",
        "_drain/rank_site.py",
        "if len(parts) < len(found):",
        "if not parts:",
        "test_drain_group_crash.py each_change",
    ),
    Planted(
        "named_before_durable",
        "_drain/roll.py",
        "if None not in found:  # but a rank puts its part, and then settles it",
        "if False:",
        "test_drain_group_crash.py seen_and_not_durable",
    ),
    Planted(
        "parts_go_before_their_version",
        "_drain/rank_site.py",
        "self._top.settle()  # before a part goes that they name",
        "pass",
        "test_drain_group_crash.py each_change",
    ),
    Planted(
        "unread_part_is_none",
        "_drain/roll.py",
        "{name: part for name, part in found.items() if part is not None}\n"
        "        self.parts = dict(self._known.values())",
        "found\n        self.parts = dict(filter(None, found.values()))",
        "test_drain_read.py could_not_be_read_once",
    ),
    Planted(
        "settled_by_an_older_fsync",
        "_drain/directory.py",
        "sync(folder)  # names, and that they are gone",
        "sync(folder)\n                        self._unsettled.discard(folder)",
        "test_drain_places.py being_settled",
    ),
]

_OF_COPIES = [
    Planted(
        "copies_not_waited_for",
        "_group/member.py",
        "                self._send(save, told)\n",
        "",
        "test_group_replicas.py without_a_copy_nobody",
    ),
    Planted(
        "older_copy_taken",
        "_group/agree.py",
        "if number not in behind:",
        "if True:",
        "test_group_copies.py older_is_not_taken",
    ),
    Planted(
        "sum_of_a_copy_ignored",
        "_group/stream.py",
        "    link.check_sum()\n\n\n",
        "\n\n",
        "test_group_replicas.py otherwise_than_it_was_sent",
    ),
    Planted(
        "changes_alone_behind_a_failure",
        "_group/copies.py",
        "self.holds = None  # nobody knows what it has: the next is sent whole",
        "pass",
        "test_group_copies.py refused_is_sent_whole",
    ),
    Planted(
        "broken_link_used_on",
        "_group/copies.py",
        "            self._lost = self._told(error)\n            raise self._lost from error\n"
        "        self.holds",
        "            raise self._told(error) from error\n        self.holds",
        "test_group_replicas.py link_that_broke",
    ),
    Planted(
        "refused_part_stays_prepared",
        "_group/member.py",
        "            self._drop_what_is_left(save)\n",
        "",
        "test_group_replicas.py has_abandoned_its_part",
    ),
    Planted(
        "put_aside_over_another",
        "_group/replicas.py",
        "if not os.path.lexists(aside):",
        "if True:",
        "test_group_replicas.py put_aside_before",
    ),
    Planted(
        "failed_start_keeps_copies",
        "_group/together.py",
        "            replicas.close(wire, 0.0, settled=False)\n",
        "",
        "test_group_replicas.py start_that_fails_behind",
    ),
]

_OF_PARTITION = [
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

_OF_GROUPS = [
    Planted(
        "error_of_the_system_kept",
        "_group/council.py",
        "except BaseException as error:  # whatever it is, of a signal's handler too: all wait",
        "except ZeroDivisionError as error:",
        "test_group_council.py whatever_it_is",
    ),
    Planted(
        "one_save_alone_ends",
        "_group/member.py",
        "        for save in under_way:  # whom nobody else wakes; and all have ended where the "
        "store is gone\n",
        "",
        "test_group_beside.py store_is_gone_hears",
    ),
    Planted(
        "epoch_left_out",
        "_group/together.py",
        "        self._number(step)\n        self.failed(error)",
        "        self.failed(error)",
        "test_group.py leaves_a_save_out",
    ),
    Planted(
        "who_leaves_says_nothing",
        "_group/member.py",
        "        self._wire.post(self._box, with_step(LEAVES, vote))\n",
        "",
        "test_group.py no_more_waited_for",
    ),
    Planted(
        "older_start_heard",
        "_group/council.py",
        "if self.wire.count(_CAME) > self.members:",
        "if False:",
        "test_group_starts.py store_of_an_older_start",
    ),
    Planted(
        "relay_leaves_its_node",
        "_group/station.py",
        "len(self._relayed), self._rank == first, seconds)",
        "len(self._relayed), False, seconds)",
        "test_group_relays.py stay_till_their_ranks",
    ),
    Planted(
        "empty_file_in_the_way",
        "_group/places.py",
        "        if os.path.getsize(path) == 0:\n            return Seen(path, number, [])\n",
        "",
        "test_group_places.py file_of_no_bytes",
    ),
    Planted(
        "waited_for_twice_as_long",
        "_group/wire.py",
        "if time.monotonic() > end:",
        "if time.monotonic() > end + seconds:",
        "test_group_council.py as_long_as_the_group_says",
    ),
]


def run_tests(package: pathlib.Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Of the package in that folder, each as a Planted names them."""
    files, chosen = zip(*(each.split(" ", 1) for each in tests), strict=True)
    paths = [str(ROOT / "python/tests" / name) for name in dict.fromkeys(files)]
    more = ("-k", " or ".join(dict.fromkeys(chosen)))
    env = os.environ | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-x", *more, *paths]
    try:
        return subprocess.run(
            words, env=env, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:  # that may be the machine's doing
        return subprocess.CompletedProcess(words, 124, str(error.stdout), "")


def copied(folder: pathlib.Path) -> pathlib.Path:
    shutil.copytree(PACKAGE, folder / "tensorshelf")
    return folder


def plant(bug: Planted, package: pathlib.Path) -> None:
    path = package / "tensorshelf" / bug.file
    text = path.read_text("utf-8")
    assert text.count(bug.right) == 1, (
        f"{bug.name}: {bug.file} has it {text.count(bug.right)} times"
    )
    path.write_text(text.replace(bug.right, bug.wrong), "utf-8")


def fate(bug: Planted) -> str:
    """Empty where it is caught."""
    with tempfile.TemporaryDirectory(prefix="tensorshelf-planted-") as name:
        package = copied(pathlib.Path(name))
        plant(bug, package)
        done = run_tests(package, [bug.tests])
    if done.returncode == 1:
        return ""
    return f"pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run crashtest planted-ranks")
    parser.add_argument("--only", metavar="NAME", help="this bug alone")
    only = parser.parse_args().only
    if not __debug__:  # tests that assert nothing catch nothing, and plant() would plant nothing
        parser.error("without asserts nothing is judged: run it without -O and PYTHONOPTIMIZE")
    bugs = [bug for bug in planted() if only in (None, bug.name)]
    if not bugs:
        parser.error(f"no bug {only}; there are {', '.join(bug.name for bug in planted())}")
    with tempfile.TemporaryDirectory(prefix="tensorshelf-planted-") as name:
        done = run_tests(copied(pathlib.Path(name)), [bug.tests for bug in bugs])
        if done.returncode:
            print(f"without a bug tests fail:\n{done.stdout}{done.stderr}")
            return 1
    missed = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for bug, found in zip(bugs, pool.map(fate, bugs), strict=True):
            missed += bool(found)
            print(f"{bug.name:32} {'MISSED: ' + found if found else 'caught'}", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} planted bugs are caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
