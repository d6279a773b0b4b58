"""Makes the shelves that every later build must open: ``make.py NAME...``, or all.

Run once for each of them, by the build of its time; a shelf that is here is not made anew. What
they hold is computed (``value``), so that the test needs nothing but this page.
"""

import lzma
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorshelf as ts

HERE = pathlib.Path(__file__).parent
FORMATS = [2, 3, 4]  # the last is what the build of today makes
CHUNK = 1 << 20
PART = ".part"  # the second medium of a shelf
DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]


def value(seed: int, count: int, dtype: str = "float32") -> np.ndarray:
    """Numbers of a fixed generator, which are the same in every NumPy."""
    raw = np.random.Generator(np.random.PCG64(seed)).bytes(count * np.dtype(dtype).itemsize)
    if dtype == "bool":
        return np.frombuffer(raw, "uint8") % 2 == 1
    return np.frombuffer(raw, dtype)


def large() -> np.ndarray:
    """Two chunks, of which little is left when they are packed."""
    return np.tile(value(51, 256), CHUNK // 512)


def plain(path: str) -> None:
    """Two slots, every dtype, odd shapes and names; version 3, the second half of it partial."""
    with ts.open(path, "x") as shelf:
        for index, dtype in enumerate(DTYPES):
            shelf[f"all.{dtype}"] = value(index, 24, dtype).reshape(2, 3, 4)
        shelf["größe/ß 名前"] = value(50, 7)
        shelf.empty = np.zeros((0, 5), "int16")
        shelf.scalar = np.array(2.5)
        shelf.big = large()  # two chunks
        shelf.gone = value(52, 10)
        shelf.persist(step=10)
        shelf.big[10:20] = value(53, 10)
        del shelf.gone
        shelf.persist(step=20)
        shelf.big[-5:] = value(54, 5)
        shelf.persist()


def kept(path: str) -> None:
    """Six slots, each chunk in its own, versions 3 to 5 retained; one chunk was never written."""
    with ts.open(path, "x", keep=2, in_flight=3, placement="by_chunk") as shelf:
        shelf.create("w", 3 * CHUNK, "uint8")
        for version in range(1, 6):
            shelf.w[CHUNK : CHUNK + 1000] = value(version, 1000, "uint8")
            shelf[f"only{version}"] = value(version, 5)
            if version > 1:
                del shelf[f"only{version - 1}"]
            shelf.persist(step=version * 10)


def rolled(path: str) -> None:
    """Whole tensors, version 4 is version 2 again; one was opened with another split since."""
    with ts.open(path, "x", keep=3, in_flight=1, placement="whole") as shelf:
        for version in range(1, 4):
            shelf.w = value(version, 1000)
            shelf.persist(step=version * 10)
        shelf.rollback(2)
    with ts.open(path, "r+", keep=1, in_flight=3) as shelf:
        shelf.late = value(9, 10)
        shelf.persist(step=50)


def prepared(path: str) -> None:
    """Version 1, and version 2 prepared."""
    with ts.open(path, "x", in_flight=2, placement="by_chunk") as shelf:
        shelf.w = value(1, 1000)
        shelf.v = value(2, 10)
        shelf.persist(step=10)
        shelf.w[0:10] = value(3, 10)
        del shelf.v
        shelf.new = value(4, 10)
        shelf.prepare(step=20, id=b"\x00golden\xff")


def long_names(path: str) -> None:
    """So many leaves that the root of version 2 names directories, and that of version 1 none."""
    with ts.open(path, "x", keep=1) as shelf:
        for version, count in ((1, 300), (2, 600)):
            for number in range(len(shelf), count):
                shelf[f"{number:0>1000}"] = value(number, 2, "uint8")
            shelf.persist(step=version * 10)


def media(path: str) -> None:
    """A second medium: a tensor there, one in stripes over both, one that moved; two versions."""
    with ts.open(path, "x", keep=1, also=path + PART, tier="block") as shelf:
        shelf.here = value(1, 10)
        shelf.create("there", 1000, "float32", on=1)[:] = value(2, 1000)
        shelf.create("stripes", 3 * CHUNK, "uint8", on=[0, 1])[:5] = value(3, 5, "uint8")
        shelf.persist(step=10)
        shelf.move("here", 1)
        shelf.stripes[-5:] = value(4, 5, "uint8")
        shelf.persist(step=20)


SHELVES: "dict[str, Callable[[str], None]]" = {
    "plain": plain,
    "kept": kept,
    "rolled": rolled,
    "prepared": prepared,
    "long_names": long_names,
    "media": media,
}


def packed(name: str, number: int, part: str = "") -> pathlib.Path:
    return HERE / f"format-{number}-{name}.shelf{part}.xz"


def parts(path: str) -> "list[str]":
    """The media beside the first, for open(also=)."""
    return [path + PART] if pathlib.Path(path + PART).exists() else []


def unpack(name: str, number: int, folder: pathlib.Path) -> str:
    """The shelf in a file of its own, for a test to change."""
    path = folder / f"{name}.shelf"
    for part in ("", PART):
        if packed(name, number, part).exists():
            image = lzma.decompress(packed(name, number, part).read_bytes())
            pathlib.Path(f"{path}{part}").write_bytes(image)
    return str(path)


def main(names: "list[str]") -> None:
    """Makes those that are asked for, and none that is there."""
    for name in names or SHELVES:
        made = packed(name, FORMATS[-1])
        if made.exists():
            print(f"{made.name} is there")
            continue
        with tempfile.TemporaryDirectory(dir=HERE) as folder:
            path = pathlib.Path(folder) / "shelf"
            SHELVES[name](str(path))
            for part in ("", PART):
                image = pathlib.Path(f"{path}{part}")
                if image.exists():
                    beside = packed(name, FORMATS[-1], part)
                    beside.write_bytes(lzma.compress(image.read_bytes(), preset=9))
        print(f"{made.name}: {made.stat().st_size} bytes")


def same(tensor: Any, expected: np.ndarray) -> bool:
    """Of one dtype and shape, and every byte."""
    found = tensor.numpy(copy=True)
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


if __name__ == "__main__":
    main(sys.argv[1:])
