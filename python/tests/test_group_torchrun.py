"""The README's GPT, by two ranks of torchrun: it goes on where all ranks had saved."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import tensorshelf as ts

pytest.importorskip("torch.distributed")
pytest.importorskip("msgpack")

README = pathlib.Path(__file__).parents[2] / "README.md"


def listing() -> str:
    if not README.exists():
        pytest.skip("installed without the sources")
    texts = re.findall(
        r"^```python\n(.*?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    (found,) = (text for text in texts if "ts.Group()" in text)
    return str(found)


def torchrun(folder: pathlib.Path, script: str) -> None:
    (folder / "gpt.py").write_text(script)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "gpt.py",
        ],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def saved(folder: pathlib.Path, rank: int) -> tuple[int | None, bytes]:
    with ts.open(folder / f"gpt.{rank}.shelf", "r") as shelf:
        return shelf.step, shelf["model.head.weight"].numpy().tobytes()


def test_a_job_of_torchrun_goes_on(tmp_path: pathlib.Path) -> None:
    script = listing()
    torchrun(tmp_path, script.replace("), 12)", "), 5)"))
    assert [saved(tmp_path, rank)[0] for rank in range(2)] == [5, 5]
    torchrun(tmp_path, script)
    first, second = (saved(tmp_path, rank) for rank in range(2))
    assert first == second  # replicas, step and all
