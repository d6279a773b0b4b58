"""What a drive takes: fio's time for one pass over a file."""

import json
import os
import subprocess
from pathlib import Path


def fio_seconds(
    path: Path, size: int, way: str = "write", *, block: int = 2 << 20, depth: int = 16
) -> float:
    """One pass over the file as the shelf goes: io_uring, O_DIRECT, one fdatasync at the end.

    ``block`` is the bytes of a request, ``depth`` how many are in flight. Its memory lies in huge
    pages, as ours does: in pages of 4 KiB a virtual drive gives half of its rate.
    """
    command = ["fio", "--name=limit", f"--filename={path}", f"--size={size}", f"--rw={way}"]
    command += ["--ioengine=io_uring", "--direct=1", f"--bs={block}", f"--iodepth={depth}"]
    command += [
        "--fixedbufs=1",
        "--registerfiles=1",
        "--end_fsync=1",
        "--overwrite=1",
        "--output-format=json",
    ]
    huge = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # of glibc from 2.35 on
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=huge)
    job = json.loads(done.stdout)["jobs"][0]
    # The run time excludes the fsync, which fio reports beside it.
    sync = job.get("sync", {}).get("lat_ns", {})
    return float(job[way]["runtime"]) / 1e3 + sync.get("mean", 0) * sync.get("N", 0) / 1e9
