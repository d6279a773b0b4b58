"""A rank of the job that crashtest/ranks.py kills: it trains a small model under DDP, or FSDP2.

Whose part of the state a process has is its member number, which a start may give to another rank
of torch.distributed's (SHIFT): gradients are summed in the order of the members, so that losses are
the same to the last bit, whatever the numbering.
"""

import pathlib
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tensorshelf as ts
from tensorshelf._state import shards

WIDTH = 64


def in_order_of_members(
    members: list[int], bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of DDP's."""
    parts = [torch.empty_like(bucket.buffer()) for _ in members]
    work = dist.all_gather(parts, bucket.buffer(), async_op=True)

    def mean(gathered: torch.futures.Future[Any]) -> torch.Tensor:
        gathered.value()  # raises where a rank is gone: what was gathered is nothing then
        by_member = dict(zip(members, parts, strict=True))
        total = torch.zeros_like(parts[0])
        for member in sorted(by_member):
            total += by_member[member]
        return total / len(members)

    return work.get_future().then(mean)


def writers(named: str, shift: int) -> str | int:
    """For Group(partition=): as ranks.Job has it."""
    if named == "any":
        return 1 if shift % 2 else "every_rank"
    return int(named) if named.isdecimal() else named or False


def train(
    folder: pathlib.Path, shift: int, steps: str, form: str, replicate: str, partition: str
) -> None:
    """Each step that was done is a line of losses.MEMBER, each that is durable of told.MEMBER."""
    sharded = form == "sharded"
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    members = [(each + shift) % world for each in range(world)]
    member = members[rank]
    torch.manual_seed(7)
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.Dropout(0.1),
        torch.nn.GELU(),
        torch.nn.Linear(WIDTH, 1),
    )
    if sharded:  # whose part is whose goes by the rank
        assert shift == 0
        fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
        model.register_comm_hook(members, in_order_of_members)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(member)
    store = dist.distributed_c10d._get_default_store()
    group = ts.Group(
        store,
        rank=member,
        members=world,
        timeout=60,
        replicate=int(replicate),
        node=str(member),
        partition=writers(partition, shift),
    )
    path = folder / f"run.{member}.shelf"
    losses = open(folder / f"losses.{member}", "a", buffering=1)  # noqa: SIM115 - to the end
    told = open(folder / f"told.{member}", "a", buffering=1)  # noqa: SIM115
    with ts.open(path, size="64MiB", in_flight=2) as shelf:
        auto = shelf.autosave(
            group=group, model=model, optimizer=optimizer, rng=ts.RNG(), deadline=1.0
        )
        first = auto.resume()
        print("resumed", first, file=losses)
        flying: list[tuple[int, ts.Commit]] = []
        for step in range(first + 1, int(steps) + 1):
            loss = model(torch.randn(16, WIDTH)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(step, loss.item().hex(), file=losses)
            commit = auto.step(step)
            assert commit is not None
            flying.append((step, commit))
            while flying and flying[0][1].done():
                number, landed = flying.pop(0)
                landed.wait()
                print(number, file=told)
        auto.close()
        total = sum(float(p.double().sum()) for p in map(shards.local, model.parameters()))
        print("end", total.hex(), file=losses)


def main() -> None:
    folder, shift, *job = sys.argv[1:]
    dist.init_process_group("gloo")
    train(pathlib.Path(folder), int(shift), *job)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
