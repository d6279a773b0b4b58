"""keep_unchanged, where what is assigned is a view of a file that was cut short."""

import subprocess
import sys

import pytest
from support import Place

PROGRAM = """
import os, sys, warnings
import numpy as np
import tensorshelf as ts
warnings.simplefilter("ignore")
shelf = ts.open(sys.argv[1], tier=sys.argv[2], keep_unchanged=True)
shelf["t"] = np.ones(4 << 20, np.uint8)
shelf["z"] = np.ones(4 << 20, np.uint8)
shelf.persist()
view = shelf["z"].numpy(copy=False)
os.truncate(sys.argv[1], 1 << 20)
try:
    shelf["t"] = view
except ts.CorruptError as error:
    print("told", flush=True)
os._exit(0)
"""


def test_it_is_an_error_and_no_signal(place: Place) -> None:
    if place[1] != "pmem":
        pytest.skip("only a mapped shelf lends views")
    words = [sys.executable, "-c", PROGRAM, str(place[0]), place[1]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr
