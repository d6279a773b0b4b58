"""Two processes under DistributedDataParallel that save pieces of what both hold alike."""

import pathlib
import warnings

import pytest
from dcp_ranks import run_ranks

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

import tensorshelf as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def trained(rank: int, folder: pathlib.Path, steps: int) -> tuple[int, list[bytes], list[str]]:
    """From where they were: the first step, what this rank has at the end, and what it saved."""
    warnings.simplefilter("ignore")
    torch.manual_seed(rank)  # DistributedDataParallel makes them alike
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.Linear(256, 64)
    )
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with ts.open(folder / f"run.{rank}.shelf", size="32MiB", in_flight=2) as shelf:
        group = ts.Group(partition="every_rank")
        auto = shelf.autosave(group=group, model=model, optimizer=optimizer, rng=ts.RNG())
        first = auto.resume()
        for step in range(first + 1, steps + 1):
            model(torch.randn(5, 64)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            auto.step(step)
        auto.close()
        names = list(shelf)
    kept = [
        optimizer.state[p][key] for p in model.parameters() for key in ("exp_avg", "exp_avg_sq")
    ]
    held = [*model.parameters(), *kept]
    return first, [each.detach().numpy().tobytes() for each in held], names


def both(rank: int, folder: pathlib.Path) -> list[tuple[int, list[bytes], list[str]]]:
    """Five steps at once; and three, and the rest by objects that are new."""
    found = []
    for name, steps in (("whole", 5), ("ended", 3), ("ended", 5)):
        (folder / name).mkdir(exist_ok=True)
        found.append(trained(rank, folder / name, steps))
    return found


def test_a_data_parallel_run_goes_on_to_the_last_bit(tmp_path: pathlib.Path) -> None:
    (expected, begun, found), (_, _, other) = run_ranks(both, 2, tmp_path)
    assert [first for first, *_ in (expected, begun, found, other)] == [0, 0, 3, 3]
    assert found[1] == other[1] == expected[1]
    statistics = "model.1.running_mean[0:1024]"  # rank 0's, which all get at each forward
    assert statistics in found[2]
    assert statistics not in other[2]
