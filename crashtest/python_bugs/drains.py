"""Of drains: what is sent, what commits at the remote, what stays there."""

from python_bugs.bug import Planted

BUGS = [
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
        "given_up_commits",
        "_drain/place.py",
        "self._wait(0)  # who was given up commits nothing: another may have its place",
        "pass",
        "test_drain_stuck.py given_up_commits_nothing",
    ),
    Planted(
        "found_not_durable",
        "_drain/place.py",
        "self._remote.settle()  # what was found, before it is told",
        "pass",
        "test_drain_crash.py tells_that_it_found",
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
