"""Data-parallel ranks as threads: each has the same model and optimizer, and saves its pieces."""

import pathlib
from typing import Any

import torch
from group_ranks import Kept, Rank


class Mixed(torch.nn.Module):
    """What parameters may be like."""

    def __init__(self) -> None:
        super().__init__()
        of = torch.Generator().manual_seed(1)
        self.weight = torch.nn.Parameter(torch.randn(300, 100, generator=of))
        self.tied = self.weight
        self.turned = torch.nn.Parameter(torch.randn(60, 90, generator=of).t())
        self.bfloat = torch.nn.Parameter(torch.randn(5001, generator=of).to(torch.bfloat16))
        self.frozen = torch.nn.Parameter(torch.randn(4000, generator=of), requires_grad=False)
        self.nothing = torch.nn.Parameter(torch.empty(0, 4))
        self.number = torch.nn.Parameter(torch.tensor(2.0))
        self.register_buffer("mean", torch.zeros(100))


class Job:
    """Of one rank; ``train`` does the same on all of them."""

    def __init__(self, rank: int = 0) -> None:
        self.model = Mixed()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.own = torch.full((5,), float(rank))

    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "own": self.own}

    def forget(self) -> "Job":
        """What it holds, but for its own."""
        with torch.no_grad():
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                tensor.fill_(-1)
        return self

    def train(self, step: int) -> None:
        of = torch.Generator().manual_seed(step)
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.randn(parameter.shape, generator=of).to(parameter.dtype)
        self.optimizer.step()
        self.model.mean += step

    def values(self) -> dict[str, bytes]:
        """Of all tensors, bit by bit."""
        return bits(
            {"model": self.model.state_dict(), "kept": self.optimizer.state_dict()["state"]}
        )


def bits(state: Any, name: str = "") -> dict[str, bytes]:
    if isinstance(state, torch.Tensor):
        return {name: state.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()}
    if not isinstance(state, dict):
        return {}
    return {k: v for key in state for k, v in bits(state[key], f"{name}.{key}").items()}


def expected(steps: int) -> dict[str, bytes]:
    """What a run that nothing ended has by then."""
    job = Job()
    for step in range(1, steps + 1):
        job.train(step)
    return job.values()


class Parted(Kept):
    """Their groups save pieces; ``copies`` is how many each has of another rank's part."""

    def __init__(self, folder: pathlib.Path, members: int, copies: int = 0) -> None:
        super().__init__(folder, members)
        self.copies = copies
        self.more = {"partition": True}


def trained(rank: Rank, count: int, job: Job | None = None) -> tuple[int, dict[str, bytes]]:
    """Resumes, and goes so many steps further; where it began, and what it had then."""
    if job is None:
        job = Job(rank.rank).forget() if rank._path.exists() else Job(rank.rank)
    with rank.open() as shelf:
        auto = shelf.autosave(group=rank.group, signals=(), **job.state())
        begin = auto.resume()
        found = job.values()
        for step in range(begin + 1, begin + count + 1):
            job.train(step)
            auto.step(step)
        auto.wait()
        return begin, found
