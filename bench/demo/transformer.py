"""A small byte-level transformer, trained in torch on the source of Python's standard library.

An ordinary training loop: a shuffling loader, AdamW, a schedule, dropout. It is saved by
shelf.autosave() after every step, and knows nothing else of being killed.
"""

import sysconfig
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

import torch
from torch import nn

import tensorshelf as ts

CONTEXT, BATCH, STEPS, SEED = 64, 16, 120, 3
TEXT_BYTES = 1 << 20

torch.set_num_threads(1)  # sums in one order, whoever runs them


@dataclass(frozen=True)
class Step:
    """What the trainer tells after each step."""

    number: int
    compute: float  # seconds
    save: float  # seconds until auto.step() returned


@dataclass(frozen=True)
class Begun:
    """What it tells first."""

    step: int  # at which it resumed


def text() -> torch.Tensor:
    """Source of the standard library, as bytes."""
    parts, size = [], 0
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        parts.append(file.read_bytes())
        size += len(parts[-1])
        if size >= TEXT_BYTES:
            break
    return torch.frombuffer(bytearray(b"".join(parts)[:TEXT_BYTES]), dtype=torch.uint8)


class Windows(torch.utils.data.Dataset[torch.Tensor]):
    """Stretches of the text, a byte longer than the context."""

    def __init__(self) -> None:
        self._text = text()

    def __len__(self) -> int:
        return (len(self._text) - 1) // CONTEXT

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._text[index * CONTEXT : (index + 1) * CONTEXT + 1].long()


class Transformer(nn.Module):
    """Two layers of attention over bytes."""

    def __init__(self, width: int = 96, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        nn.init.normal_(self.bytes.weight, std=0.02)
        self.places = nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.1, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256, bias=False)
        self.head.weight = self.bytes.weight  # tied
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, window: torch.Tensor) -> torch.Tensor:
        """The loss of each next byte, in nats."""
        seen, expected = window[:, :-1], window[:, 1:]
        hidden = self.layers(self.bytes(seen) + self.places, self.mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), expected.flatten())


class Run:
    """All that a run consists of; a step at a time."""

    def __init__(self) -> None:
        torch.manual_seed(SEED)
        self.model = Transformer()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 3e-3, total_steps=STEPS)
        self.loader = torch.utils.data.DataLoader(Windows(), BATCH, shuffle=True, drop_last=True)
        self.record: dict[str, list[float]] = {"losses": []}

    def learn(self, window: torch.Tensor) -> None:
        loss = self.model(window)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.record["losses"].append(loss.item())


def train(path: Path, pipe: Connection, report: Path | None = None) -> None:
    """Train to the last step, from what the shelf holds or from the start."""
    run = Run()
    with ts.open(path, in_flight=2) as shelf:
        auto = shelf.autosave(
            model=run.model,
            optimizer=run.optimizer,
            schedule=run.schedule,
            record=run.record,
            rng=ts.RNG(),
        )
        step = auto.resume()
        pipe.send(Begun(step))
        started = perf_counter()
        for window in auto.batches(run.loader):
            if step == STEPS:
                break
            run.learn(window)
            step += 1
            computed = perf_counter()
            auto.step(step)
            ended = perf_counter()
            pipe.send(Step(step, computed - started, ended - computed))
            started = ended
        auto.wait()
        if report is not None:
            auto.report(report)


def train_unsaved(steps: int, pipe: Connection) -> None:
    """The first steps of the same training, with nothing that saves it."""
    run = Run()
    pipe.send(Begun(0))
    started = perf_counter()
    for step, window in zip(range(steps), run.loader, strict=False):
        run.learn(window)
        ended = perf_counter()
        pipe.send(Step(step + 1, ended - started, 0.0))
        started = ended
