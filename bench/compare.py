"""One save each, made atomic and durable: the shelf beside what people use.

A file format becomes atomic and durable by a temporary file, fsync, rename and fsync of the
directory; LMDB by its own synchronous transaction. The shelf needs nothing around it. All on the
same path, in rotation, medians; the source is one contiguous float32 tensor that is saved again
and again, as a training loop does.
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import pools
import safetensors.numpy
import torch

import tensorshelf as ts

Save = Callable[[np.ndarray], None]
SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30]


def replace_durably(path: Path, write: Callable[[Path], None]) -> None:
    temporary = path.with_suffix(".tmp")
    write(temporary)
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def file_saver(path: Path, write: Callable[[Path, np.ndarray], None]) -> Save:
    return lambda array: replace_durably(path, lambda temporary: write(temporary, array))


def write_npy(path: Path, array: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, array)


def write_torch(path: Path, array: np.ndarray) -> None:
    torch.save({"w": torch.from_numpy(array)}, path)


def write_safetensors(path: Path, array: np.ndarray) -> None:
    safetensors.numpy.save_file({"w": array}, path)


class Shelf:
    def __init__(self, path: Path, tier: str, array: np.ndarray) -> None:
        self.shelf = ts.open(path, mode="w", tier=tier)
        self.shelf["w"] = array
        self.w = self.shelf["w"]
        self.shelf.persist()

    def __call__(self, array: np.ndarray) -> None:
        self.w[...] = array
        self.shelf.persist()


class Lmdb:
    def __init__(self, path: Path, size: int) -> None:
        # Room for the committed value, the new one, and pages of freed ones.
        self.environment = lmdb.open(str(path), map_size=4 * size + (64 << 20), subdir=True)

    def __call__(self, array: np.ndarray) -> None:
        with self.environment.begin(write=True, buffers=True) as transaction:
            transaction.put(b"w", memoryview(array).cast("B"))


def rounds_for(size: int, quick: bool) -> int:
    if quick:
        return 3
    return 5 if size >= 1 << 30 else 11 if size >= 16 << 20 else 41


def measure(directory: Path, tier: str, size: int, quick: bool) -> dict[str, float]:
    array = np.arange(size // 4, dtype=np.float32)
    shelf = Shelf(directory / "compare.shelf", tier, array)
    database = Lmdb(directory / "compare.lmdb", size)
    savers: dict[str, Save] = {
        "tensorshelf": shelf,
        "np.save": file_saver(directory / "compare.npy", write_npy),
        "torch.save": file_saver(directory / "compare.pt", write_torch),
        "safetensors": file_saver(directory / "compare.safetensors", write_safetensors),
        "LMDB": database,
    }
    in_pools = {
        name: pools.PoolSaver(directory / f"compare.{number}.pool", array, anew)
        for number, (name, anew) in enumerate({"pmemobj_tx": False, "pmemobj alloc": True}.items())
        if pools.load() is not None and tier == "pmem"  # made for persistent memory
    }
    savers |= in_pools
    seconds: dict[str, list[float]] = {name: [] for name in savers}
    names = list(savers)
    for number in range(-1, rounds_for(size, quick)):
        for offset in range(len(names)):  # another order each round
            name = names[(number + offset) % len(names)]
            array += 1
            begin = time.perf_counter()
            savers[name](array)
            elapsed = time.perf_counter() - begin
            if number >= 0:
                seconds[name].append(elapsed)
    shelf.shelf.close()
    database.environment.close()
    for saver in in_pools.values():
        saver.close()
    for leftover in directory.glob("compare.*"):
        if leftover.is_dir():
            for file in leftover.iterdir():
                file.unlink()
            leftover.rmdir()
        else:
            leftover.unlink()
    return {name: statistics.median(samples) for name, samples in seconds.items()}


def size_name(size: int) -> str:
    return (
        f"{size >> 30} GiB"
        if size >= 1 << 30
        else (f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB")
    )


def show(title: str, results: dict[int, dict[str, float]]) -> None:
    names = list(next(iter(results.values())))
    print(f"{title}: milliseconds a save, and the shelf's lead over the best other")
    print("  " + "size".ljust(8) + "".join(name.rjust(14) for name in names) + "lead".rjust(8))
    for size, row in results.items():
        best = min(seconds for name, seconds in row.items() if name != "tensorshelf")
        lead = best / row["tensorshelf"]
        cells = "".join(f"{row[name] * 1e3:14.3f}" for name in names)
        print(f"  {size_name(size):8}{cells}{lead:7.2f}x")


def draw(media: dict[str, dict[int, dict[str, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(media), figsize=(5.5 * len(media), 4.2), sharey=True)
    for axis, (medium, results) in zip(np.atleast_1d(axes), media.items(), strict=True):
        sizes = list(results)
        for name in next(iter(results.values())):
            ours = name == "tensorshelf"
            axis.plot(
                sizes,
                [size / results[size][name] / 1e9 for size in sizes],
                marker="o",
                linewidth=2.6 if ours else 1.2,
                color="black" if ours else None,
                label=name,
                zorder=3 if ours else 2,
            )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(sizes, [size_name(size) for size in sizes], rotation=30)
        axis.set_title(medium)
        axis.set_xlabel("size of the tensor")
        axis.grid(True, which="major", alpha=0.3)
    np.atleast_1d(axes)[0].set_ylabel("GB/s, atomic and durable")
    np.atleast_1d(axes)[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def run(mapped: Path, block: Path, quick: bool) -> dict[str, object]:
    warnings.simplefilter("ignore", ts.TierWarning)  # the table names the media
    media: dict[str, dict[int, dict[str, float]]] = {}
    sizes = SIZES[:3] if quick else SIZES
    for title, directory, tier in (
        (f"mapped, {mapped}", mapped, "pmem"),
        ("block, a file on this disk", block, "block"),
    ):
        media[title] = {size: measure(directory, tier, size, quick) for size in sizes}
        show(title, media[title])
    out = Path(__file__).resolve().parent.parent / "out" / "bench"
    draw(media, out / "compare.png")
    print("written: out/bench/compare.png")
    return {
        title: {size_name(size): row for size, row in results.items()}
        for title, results in media.items()
    }
