"""Of saves by torch.distributed.checkpoint into shelves."""

from python_bugs.bug import Planted

BUGS = [
    Planted(
        "options_dropped",
        "dcp/_home.py",
        "if shelf is not None and not options.are_of(self._opened):",
        "if False:",
        "test_dcp.py compared_by_its_value",
    ),
    Planted(
        "overtaken_save_finished",
        "dcp/_writer.py",
        "            self._check_turn()\n            self._of_thread.turn = None\n",
        "",
        "test_dcp_turns.py makes_no_mix",
    ),
    Planted(
        "part_left_undecided",
        "dcp/_writer.py",
        "            _verdicts.settle(shelf, word)\n",
        "",
        "test_dcp_group.py does_not_hear",
    ),
    Planted(
        "old_word_believed",
        "dcp/_writer.py",
        "if word is not None and not word.heard and word.arrived > self._of_thread.begun:",
        "if word is not None:",
        "test_dcp_group.py planner_keeps",
    ),
    Planted(
        "words_of_a_save_before",
        "dcp/_writer.py",
        "self._check_turn()  # or what it says may be older than the save that it says it to",
        "pass",
        "test_dcp_turns.py overtaken_says_nothing",
    ),
    Planted(
        "part_committed_alone",
        "dcp/_writer.py",
        "            shelf.prepare(self.step, id=part)\n",
        "            shelf.persist(self.step)\n",
        "test_dcp_group.py kill_before_the_flip",
    ),
    Planted(
        "foreign_tensors_deleted",
        "dcp/_home.py",
        "    if len(shelf) and RECORD not in shelf:\n",
        "    if False:\n",
        "test_dcp.py what_is_refused",
    ),
    Planted(
        "rank_without_a_share",
        "dcp/_record.py",
        "if any(piece.rank not in head.shares for piece in found.storage_data.values()):",
        "if False:",
        "test_dcp_values.py metadata_that_is_none",
    ),
    Planted(
        "failed_save_stays_open",
        "dcp/_home.py",
        "                self.drop()\n",
        "                pass\n",
        "test_dcp_turns.py fails_lets_its_shelf_go",
    ),
]
