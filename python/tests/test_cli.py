"""The command, as a program of its own."""

import os
import pathlib
import pty
import subprocess
import sys
import termios
from typing import Any

import numpy as np
import pytest
from group_ranks import Rank, Ranks

pytest.importorskip("torch")
pytest.importorskip("msgpack")

import tensorshelf as ts
from tensorshelf import _cli

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def command(*words: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    options = {"capture_output": True, **options}
    program = [sys.executable, "-m", "tensorshelf", *map(str, words)]
    return subprocess.run(program, text=True, check=False, timeout=120, **options)


@pytest.fixture
def shelves(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    """Of two ranks that saved step 2."""
    ranks = Ranks(tmp_path, 2)

    def one(rank: Rank) -> None:
        with rank.open() as shelf:
            part = ts.Shard(np.arange(2.0) + 2 * rank.rank, "w", (4,), (2 * rank.rank,))
            state = {"w": part, "epoch": 1}
            auto = shelf.autosave(group=rank.group, signals=(), state=state)
            auto.resume()
            auto.step(2)
            auto.close()

    assert ranks.run(one) == [None] * 2
    return [ranks.path(rank) for rank in range(2)]


def test_it_merges(shelves: list[pathlib.Path], tmp_path: pathlib.Path) -> None:
    whole = tmp_path / "whole.shelf"
    done = command("merge", *reversed(shelves), "--to", whole, "--size", "64MiB")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{whole}: 1 tensor, 32 B, step 2\n"
    with ts.open(whole, "r") as shelf:
        assert shelf["w"].numpy().tolist() == [0, 1, 2, 3]


def test_it_merges_to_safetensors(shelves: list[pathlib.Path], tmp_path: pathlib.Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    whole = tmp_path / "whole.safetensors"
    done = command("merge", *shelves, "--to", whole)
    assert done.returncode == 0
    assert done.stdout == f"{whole}: 1 tensor, 32 B, step 2\n"
    assert done.stderr == "left out, for it is no tensor: state.epoch\n"
    assert numpy.load_file(whole)["w"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("nowhere.shelf",), "nowhere.shelf"),
        (("run.0.shelf",), "the group has 2 ranks, and the shelves are of [0]"),
        (("run.0.shelf", "run.1.shelf", "--to", "run.0.shelf"), "run.0.shelf"),
        (("run.0.shelf", "run.1.shelf", "--to", "nowhere/whole.shelf"), "nowhere"),
        (("run.0.shelf", "run.1.shelf", "--size", "1MB", "--to", "w.safetensors"), "is of a shelf"),
    ],
)
def test_errors_say_what_and_what_to_do(
    shelves: list[pathlib.Path], tmp_path: pathlib.Path, words: tuple[str, ...], text: str
) -> None:
    to = () if "--to" in words else ("--to", "whole.shelf")
    done = command("merge", *words, *to, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    what, remedy = done.stderr.splitlines()
    assert what.startswith("error: ")
    assert text in what
    assert remedy.startswith("  ")
    assert remedy.strip()
    assert not (tmp_path / "whole.shelf").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "COMMAND"),
        (("divide",), "'divide'"),
        (("merge", "--to", "whole.shelf"), "SHELF"),
        (("merge", "run.0.shelf"), "--to"),
        (("merge", "run.0.shelf", "--to", "whole.shelf", "--size", "4G"), "4GiB"),
    ],
)
def test_what_it_cannot_understand(words: tuple[str, ...], text: str) -> None:
    done = command(*words)
    assert done.returncode == 2
    assert "usage: tensorshelf" in done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (OSError(5, "Input/output error"), 1, "Input/output error"),  # of a terminal that went
        (MemoryError(), 1, "not enough memory"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_is_no_error_of_ours_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException,
    code: int,
    told: str,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(_cli, "merge", fails)
    assert _cli.main(["merge", "run.0.shelf", "--to", "whole.shelf"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.startswith("error: ") is bool(told)


def test_a_terminal_sees_how_far_it_is(shelves: list[pathlib.Path], tmp_path: pathlib.Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    os.set_blocking(ours, False)  # where nothing is seen, that fails and does not wait
    done = command(
        "merge",
        *shelves,
        "--to",
        tmp_path / "whole.shelf",
        capture_output=False,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    seen = os.read(ours, 4096).decode()
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0
    assert "merge:" in seen
    assert "tensor, 32 B" in done.stdout
