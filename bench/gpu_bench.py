"""The feed from a CUDA device: rates over bare copies, and what a training of 1 B notices.

The state of the rates is a dictionary of float32 tensors of 64 MiB on the device. Their limit is
cudaMemcpyAsync between that memory and page-locked memory of the host, of as many bytes, in the
same rotation; medians. A save counts until all is copied, until it is staged, when the trainer may
go on (every 16th chunk has crossed the bus once more by then, to be compared), and until it is
durable.

The training is a GPT in float32 under bfloat16's autocast, with AdamW (fused): parameters and both
moments are saved. Micro-batches are accumulated until the bandwidth hides a save per step
(FastPersist's equation 1, with a margin of a quarter), and before that twice as many. Steps with
saves and without come in blocks, which are timed whole, so that the host may run ahead of the
device; of each the first step is left out, which bears the end of the other's.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

import tensorshelf as ts

MIB = 1 << 20
EACH_BYTES = 64 * MIB
WORKERS = (1, 2, 4, 8, 12)
BLOCK_STEPS = 6


def timed(call: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def state_of(nbytes: int) -> dict[str, Any]:
    count = nbytes // EACH_BYTES
    return {f"w{i}": torch.randn(EACH_BYTES // 4, device="cuda") for i in range(count)}


# ---- rates


def rates(folder: Path, tier: str, nbytes: int, rounds: int) -> dict[str, float]:
    """Seconds: of saves by so many workers, of loads, and of bare copies of as many bytes."""
    state = state_of(nbytes)
    pinned = torch.empty(EACH_BYTES // 4, pin_memory=True)
    samples: dict[str, list[float]] = {}

    def note(name: str, seconds: float, number: int) -> None:
        if number >= 0:
            samples.setdefault(name, []).append(seconds)

    def to_host() -> None:
        for tensor in state.values():
            pinned.copy_(tensor, non_blocking=True)

    def to_device() -> None:
        for tensor in state.values():
            tensor.copy_(pinned, non_blocking=True)

    path = folder / "gpu.shelf"
    step = itertools.count(1)
    with ts.open(path, mode="w", tier=tier, in_flight=2) as shelf:
        for workers in WORKERS:
            options = {"workers": workers}
            auto = shelf.autosave(state=state, overlap=False, pipeline=options)
            auto.resume()
            for number in range(-2, rounds):
                for tensor in state.values():
                    tensor.add_(1)
                torch.cuda.synchronize()
                begin = time.perf_counter()
                commit = auto.step(next(step))
                staged = time.perf_counter() - begin
                auto.wait()
                assert commit is not None
                times = commit.times  # of the first save, which makes the tensors, "durable" alone
                if workers == WORKERS[0] and number == -2:
                    note("first save", time.perf_counter() - begin, 0)
                if number >= 0:
                    note(f"copied, {workers} workers", times["copied"] - times["began"], number)
                note(f"staged, {workers} workers", staged, number)
                note(f"durable, {workers} workers", time.perf_counter() - begin, number)
                note("bare copy to the host", timed(to_host), number)
            auto.close()
        into = {"state": state}
        for number in range(-1, rounds):
            note("load_into", timed(lambda: shelf.load_into(into, strict=False)), number)
            note("bare copy to the device", timed(to_device), number)
    path.unlink()
    found = {name: statistics.median(each) for name, each in samples.items()}
    for key, seconds in found.items():
        if key.startswith(("copied", "staged", "durable", "load")):
            bare = found["bare copy to the " + ("device" if key == "load_into" else "host")]
            rate, limit = (nbytes / each / 1e9 for each in (seconds, bare))
            print(f"  {key}: {rate:.1f} GB/s, {bare / seconds:.2f} of a bare copy's {limit:.1f}")
    print(f"  first save: {nbytes / found['first save'] / 1e9:.1f} GB/s", flush=True)
    return {"bytes": float(nbytes), **found}


# ---- a training


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        together = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = together.permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class GPT(torch.nn.Module):
    def __init__(self, width: int, layers: int, words: int = 32_000, length: int = 1024) -> None:
        super().__init__()
        self.length, self.words = length, words
        self.embed, self.place = torch.nn.Embedding(words, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.last = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


class Training:
    def __init__(self, quick: bool) -> None:
        torch.manual_seed(0)
        self.model = (GPT(512, 4) if quick else GPT(2048, 18)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-5, fused=True)
        self.micro_batches = 1

    def step(self) -> None:
        self.optimizer.zero_grad()
        for _ in range(self.micro_batches):
            tokens = torch.randint(self.model.words, (8, self.model.length), device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                logits = self.model(tokens[:, :-1])
                loss = torch.nn.functional.cross_entropy(
                    logits.reshape(-1, self.model.words), tokens[:, 1:].reshape(-1)
                )
            (loss / self.micro_batches).backward()
        self.optimizer.step()


def others(folder: Path, run: Training, steps: int) -> Iterator[tuple[str, float]]:
    """By name, seconds of a step with a save by torch, of the same state on the same medium; none
    of them is made durable. The first, which makes what later ones use again, is left out.
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    def state() -> dict[str, Any]:
        model, optimizer = get_state_dict(run.model, run.optimizer)
        return {"model": model, "optimizer": optimizer}

    saving: list[Any] = []

    def in_background() -> None:
        for each in saving:
            each.result()
        saving[:] = [dcp.async_save(state(), checkpoint_id=folder / "dcp")]

    for name, save in (
        ("torch.save", lambda: torch.save(state(), folder / "state.pt")),
        ("dcp.async_save", in_background),
    ):
        seconds = []
        for _ in range(steps + 1):
            seconds.append(timed(lambda save=save: (save(), run.step())))  # type: ignore[misc]
        for each in saving:
            each.result()
        yield name, statistics.median(seconds[1:])
    (folder / "state.pt").unlink()
    shutil.rmtree(folder / "dcp")


def saves_alone(
    run: Training, save: Callable[[], ts.Commit], wait: Callable[[], object]
) -> dict[str, float]:
    """Seconds from the begin of a save until it is copied, staged and durable, beside no step."""
    durations: dict[str, list[float]] = {}
    for _ in range(5):
        run.step()
        torch.cuda.synchronize()
        commit = save()
        wait()
        for name in ("copied", "staged", "durable"):
            passed = commit.times[name] - commit.times["began"]
            durations.setdefault(name, []).append(passed)
    return {name: statistics.median(each) for name, each in durations.items()}


def beside_saves(
    run: Training, save: Callable[[], object], blocks: int
) -> tuple[float, float, float]:
    """Seconds of a step with a save of the one before under way, of one without, and of save()."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    calls: list[float] = []
    for block in range(2 * blocks):
        saved = block % 2 == 1
        torch.cuda.synchronize()
        for place in range(BLOCK_STEPS):
            if place == 1:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            if saved:
                before = time.perf_counter()
                save()
                calls.append(time.perf_counter() - before)
            run.step()
        torch.cuda.synchronize()
        seconds[saved].append((time.perf_counter() - begin) / (BLOCK_STEPS - 1))
    return (
        statistics.median(seconds[True]),
        statistics.median(seconds[False]),
        statistics.median(calls),
    )


def training(folder: Path, tier: str, quick: bool, blocks: int) -> dict[str, float]:
    """Seconds of a step with a save of the one before under way, and of one without."""
    run = Training(quick)
    for _ in range(2):
        run.step()
    parameters = sum(p.numel() for p in run.model.parameters())
    nbytes = 3 * 4 * parameters
    path = folder / "training.shelf"
    with (
        ts.open(path, mode="w", tier=tier, in_flight=2) as shelf,
        closing(shelf.autosave(model=run.model, optimizer=run.optimizer, rng=ts.RNG())) as auto,
    ):
        number = 0

        def save() -> ts.Commit:
            nonlocal number
            number += 1
            commit = auto.step(number)
            assert commit is not None
            return commit

        first = timed(lambda: (save(), auto.wait()))
        run.step()
        timed(lambda: (save(), auto.wait()))  # the other slots' room
        alone = saves_alone(run, save, auto.wait)
        one = statistics.median(timed(run.step) for _ in range(3))
        hiding = 1 + int(1.25 * alone["durable"] / one)
        found = {
            "parameters": float(parameters),
            "bytes": float(nbytes),
            "first save": first,
            **{f"{name}, alone": seconds for name, seconds in alone.items()},
        }
        for run.micro_batches in (2 * hiding, hiding):
            with_saves, without, call = beside_saves(run, save, blocks)
            auto.wait()
            found |= {
                f"{run.micro_batches} micro-batches, step() call": call,
                f"{run.micro_batches} micro-batches, step with a save": with_saves,
                f"{run.micro_batches} micro-batches, step without": without,
            }
            print(
                f"  {parameters / 1e9:.2f} B parameters, {run.micro_batches} micro-batches: a step "
                f"with a save takes {with_saves:.4f} s, without {without:.4f}: "
                f"{with_saves / without:.4f}x; step() returns in {call * 1e3:.2f} ms",
                flush=True,
            )
    path.unlink()
    for name, each in alone.items():
        print(f"  a save alone, {name}: {nbytes / each / 1e9:.1f} GB/s", flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, each in others(folder, run, 1 if quick else 2):
            print(f"  a step with {name}: {each:.3f} s, {each / without:.2f}x", flush=True)
            found[f"step with {name}"] = each
    return found


def run(mapped: Path, block: Path, quick: bool) -> dict[str, dict[str, Any]]:
    if not torch.cuda.is_available() or ts.build_info().cuda_devices() == 0:
        print("  skipped: no CUDA device, or a build without CUDA")
        return {}
    warnings.simplefilter("ignore", ts.TierWarning)  # the titles name the media
    device = torch.cuda.get_device_name()
    print(f"  {device}, torch {torch.__version__}")
    results: dict[str, dict[str, Any]] = {"device": {"name": device}}
    for title, folder, tier in (
        (f"mapped, {mapped}", mapped, "pmem"),
        ("block, a file on this disk", block, "block"),
    ):
        nbytes = (512 if quick or tier == "block" else 4096) * MIB
        print(f"  {title}: {nbytes // MIB} MiB of a device")
        results[f"rates, {title}"] = rates(folder, tier, nbytes, 3 if quick else 7)
    results["training"] = training(mapped, "pmem", quick, 2 if quick else 6)
    return results
