"""Of copies that ranks keep of each other, and of a lost shelf that is had back."""

from python_bugs.bug import Planted

BUGS = [
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
        "_group/started.py",
        "            replicas.close(wire, 0.0, settled=False)\n",
        "            pass\n",
        "test_group_replicas.py start_that_fails_behind",
    ),
]
