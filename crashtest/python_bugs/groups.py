"""Of ranks that save together."""

from python_bugs.bug import Planted

BUGS = [
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
        "        for save in under_way:\n            save.ended(save.undecided(",
        "        for save in under_way[:1]:\n            save.ended(save.undecided(",
        "test_group_beside.py store_is_gone_hears",
    ),
    Planted(
        "given_up_not_woken",
        "_group/member.py",
        '            wake.put(decision_key(save.part.number, self._rank), b"")\n',
        "            pass\n",
        "test_group_beside.py thread_of_who_gives_up",
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
        "        self._wire.post(self._box, Posted(vote, LEAVES).pack())\n",
        "",
        "test_group.py no_more_waited_for",
    ),
    Planted(
        "older_start_heard",
        "_group/naming.py",
        "        if word == before:\n",
        "        if before is not None:\n",
        "test_group_naming.py started_anew_is_no_hello",
    ),
    Planted(
        "stopped_store_stops_all",
        "_group/wire.py",
        "            self.has(box)\n",
        "            self._queues.queue_len(self._prefix + box)\n",
        "test_group_wire.py holds_the_gil",
    ),
    Planted(
        "handed_over_twice",
        "_group/member.py",
        "            if save.is_settled():  # it was submitted twice, perhaps as it settled\n"
        "                if save in self._under_way:\n"
        "                    self._under_way.remove(save)\n"
        "                continue\n",
        "",
        "test_group_leaves.py handed_over",
    ),
    Planted(
        "settled_stays_under_way",
        "_group/member.py",
        "                if save in self._under_way:\n"
        "                    self._under_way.remove(save)\n",
        "",
        "test_group_again.py submitted_again",
    ),
    Planted(
        "list_of_tensors_cut",
        "_group/stream.py",
        "piece = said[begin : begin + _SAID_BYTES]",
        "piece = said[: min(_SAID_BYTES, len(said) - begin)]",
        "test_group_copies.py of_many_tensors",
    ),
    Planted(
        "stopped_store_stops_start",
        "_group/wire.py",
        "        if not _is_answered(answer, seconds):\n",
        "        if not _is_answered(answer, 100.0):\n",
        "test_group_beside.py a_start_over_a_store_that_is_stopped",
    ),
    Planted(
        "interrupted_is_here",
        "_group/naming.py",
        "missing = [r for r in ranks if self._welcome_anew(name, r, words, older)]",
        "missing = []",
        "test_group_naming.py interrupted_comes_again",
    ),
    Planted(
        "begun_by_some",
        "_group/started.py",
        'with Stages(wire, group.rank, group.members, group.timeout).all_come("begun"):',
        "with contextlib.nullcontext():",
        "test_group_again.py cannot_keep_a_copy",
    ),
    Planted(
        "places_taken_though_refused",
        "_group/places.py",
        "    group._refuse_second_places()\n",
        "    group._refuse_second_places()\n    group._has_places = True\n",
        "test_group_again.py places_that_were_refused",
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
