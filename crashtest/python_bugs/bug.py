"""A bug in the Python package that is planted to see whether its tests find it."""

from typing import NamedTuple


class Planted(NamedTuple):
    """A text of a file, in which it is found once, and what stands there instead."""

    name: str
    file: str
    right: str
    wrong: str
    tests: str  # a file of python/tests, and which of it, as of pytest's -k
