"""The README's GPT, by two ranks of torchrun: it goes on where all ranks had saved."""

import os
import pathlib
import re
import socket
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


OF_TWO_AGENTS = """
import os, pathlib, signal
import numpy as np, torch, torch.distributed as dist
import tensorshelf as ts

dist.init_process_group("gloo")
group = ts.Group(timeout=60)
values = np.zeros(100)
died = pathlib.Path("died")
with ts.open(f"run.{group.rank}.shelf", size="16MiB", in_flight=2) as shelf:
    auto = shelf.autosave(group=group, values=values)
    for step in range(auto.resume() + 1, 13):
        dist.all_reduce(torch.ones(4))
        values += 1
        auto.step(step)
        if step == 5 and os.environ["AGENT"] == "1" and not died.exists():
            auto.wait()
            died.write_text(os.environ["TORCHELASTIC_RESTART_COUNT"])
            os.kill(os.getpid(), signal.SIGKILL)
    auto.close()
pathlib.Path(f"ended.{os.environ['AGENT']}").write_text(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.destroy_process_group()
"""


def test_nodes_that_count_restarts_otherwise_go_on(tmp_path: pathlib.Path) -> None:
    """An agent counts what its own workers failed, and starts them anew for others', too."""
    (tmp_path / "train.py").write_text(OF_TWO_AGENTS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    agents = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
                *("--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "job"),
                *("--rdzv-endpoint", f"127.0.0.1:{port}", "--max-restarts", "3", "train.py"),
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "AGENT": str(agent),
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                # Else gloo finds where the ranks of the start before were.
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for agent in range(2)
    ]
    try:
        said = [agent.communicate(timeout=240)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(said)
    assert (tmp_path / "died").read_text() == "0"
    assert [(tmp_path / f"ended.{agent}").read_text() for agent in range(2)] == ["0", "1"]
    for rank in range(2):
        with ts.open(tmp_path / f"run.{rank}.shelf", "r") as shelf:
            assert shelf.step == 12
            assert (shelf["values"].numpy() == 12).all()
