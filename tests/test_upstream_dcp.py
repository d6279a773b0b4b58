"""What tests/upstream_dcp.py makes of a checkout: here one of a few tests, written for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).resolve().parent / "upstream_dcp.py"

TESTS = """
import os
import tempfile
import unittest

import torch
import torch.distributed.checkpoint as dcp


class Saves(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        writer = dcp.FileSystemWriter(self.folder)
        dcp.save({"w": torch.ones(3)}, storage_writer=writer, no_dist=True)

    def test_that_it_comes_back(self):
        found = {"w": torch.zeros(3)}
        reader = dcp.FileSystemReader(self.folder)
        dcp.load(found, storage_reader=reader, no_dist=True)
        self.assertEqual(found["w"].tolist(), [1.0, 1.0, 1.0])

    def test_a_file_that_shelves_have_not(self):
        self.assertIn(".metadata", os.listdir(self.folder))

    def test_a_file_that_nobody_has(self):
        self.assertIn("0.shelf", os.listdir(self.folder))
        self.fail()

    def test_Rot13(self):
        self.fail()
"""


def run(*arguments: str | Path, path: Path) -> subprocess.CompletedProcess[str]:
    """PyTorch's harness of tests needs a module of that name, of which nothing is used here."""
    (path / "expecttest.py").write_text("from unittest import TestCase\n")
    found = os.pathsep.join(filter(None, [str(path), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, HARNESS, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": found},
        check=False,
    )


def test_what_shelves_alone_break_fails(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "pytorch" / "test" / "distributed" / "checkpoint"
    folder.mkdir(parents=True)
    (folder / "test_saves.py").write_text(TESTS)
    (folder / "test_of_another_torch.py").write_text("import torch.there_is_none")
    (folder / "test_utils.py").write_text("raise AssertionError")  # it is left out
    done = run(tmp_path / "pytorch", path=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stdout + done.stderr
    assert lines[-1] == "1 passed, 1 failed, 2 skipped", done.stdout + done.stderr
    assert sum("test_of_another_torch.py: cannot be imported" in line for line in lines) == 1
    assert [line for line in lines if line.startswith("failed: ")] == [
        "failed: test/distributed/checkpoint/test_saves.py"
        "::Saves::test_a_file_that_shelves_have_not"
    ]


def test_without_a_checkout_it_says_so(tmp_path: Path) -> None:
    none = tmp_path / "none"
    for arguments, reason in (
        ([], "no checkout of pytorch/pytorch was named"),
        ([none], f"no test/distributed/checkpoint in {none}"),
    ):
        done = run(*arguments, path=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"skipped: PyTorch's own tests of DCP: {reason}\n"
