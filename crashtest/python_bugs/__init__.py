"""Bugs in the Python package, each with the tests that find it (planted_python.py)."""

from python_bugs import copies, drains, groups, partition, scrubs, states
from python_bugs import dcp as saves_by_dcp
from python_bugs.bug import Planted


def planted() -> list[Planted]:
    """All of them."""
    kinds = (drains, copies, partition, groups, states, scrubs, saves_by_dcp)
    return [bug for kind in kinds for bug in kind.BUGS]
