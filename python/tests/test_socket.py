"""The socket of a thread, by hwloc."""

import os
import subprocess
import sys

import pytest

import tensorshelf as ts


@pytest.mark.skipif(not ts.build_info().libraries["hwloc"], reason="a build without hwloc")
@pytest.mark.parametrize(("cpus", "socket"), [({0}, 0), ({1}, 1), ({0, 1}, None)])
def test_a_thread_is_on_the_socket_that_it_is_bound_to(cpus, socket):
    """Of a machine that hwloc makes up, with a CPU in each of two sockets."""
    if not cpus <= os.sched_getaffinity(0):
        pytest.skip("CPUs 0 and 1 are not both there")
    call = "import os; from tensorshelf import _core; "
    call += f"os.sched_setaffinity(0, {cpus}); print(_core.own_socket())"
    made_up = {"HWLOC_SYNTHETIC": "pack:2 core:1 pu:1", "HWLOC_THISSYSTEM": "1"}
    done = subprocess.run(
        [sys.executable, "-c", call], env=os.environ | made_up, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(socket), done.stderr


def test_a_build_without_hwloc_says_what_that_means() -> None:
    lacks = any("hwloc" in sentence for sentence in ts.build_info().lacks)
    assert lacks == (not ts.build_info().libraries["hwloc"])
