"""Runs PyTorch's own tests of torch.distributed.checkpoint with shelves in place of its files.

    .venv/bin/python tests/upstream_dcp.py CHECKOUT [arguments of pytest]

CHECKOUT is one of pytorch/pytorch, best of the installed torch's version; none is fetched here, and
nothing of it is kept. Every test runs twice: as it is, which says what works on this machine at
all, then with FileSystemWriter and FileSystemReader replaced by name wherever DCP has them, before
a test is imported, in each process that a test starts. What failed as it is, is skipped then: only
what shelves break fails. What asks for GPUs runs on CPUs, by gloo, where it can. Without a
checkout, or what PyTorch's tests need, nothing is run, and that is said.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path("test/distributed/checkpoint")
AS_IT_IS = "TENSORSHELF_UPSTREAM_AS_IT_IS"  # the file for what failed, in the first run

_OTHER = "tests another storage"
_OWN = "brings a storage of its own"
_NONE = "uses no storage"
_CUDA = "moves tensors to CUDA devices itself"
_FORMAT = "looks into files that shelves have not"

FILES_LEFT_OUT = {
    "_experimental/*": "tests another interface than DCP's",
    "test_async_executor.py": _NONE,
    "test_async_process_executor.py": _OWN,
    "test_checkpoint.py": _OWN,
    "test_compatibility.py": _FORMAT,
    "test_consolidate_hf_safetensors.py": _OTHER,
    "test_cuobj_rdma_storage.py": _OTHER,
    "test_dedup_tensors.py": _NONE,
    "test_file_system_checkpoint.py": f"{_CUDA}; test_file_system_checkpoint_cpu.py has the same",
    "test_fsspec.py": _OTHER,
    "test_grad_dtype.py": _NONE,
    "test_hf_*.py": _OTHER,
    "test_hugging_face_storage.py": _OTHER,
    "test_metadata_warning.py": _FORMAT,
    "test_nested_dict.py": _NONE,
    "test_pg_aware_planner.py": _NONE,
    "test_pg_transport.py": _NONE,
    "test_quantized_hf_storage.py": _OTHER,
    "test_restricted_metadata_unpickler.py": _FORMAT,
    "test_shared_and_pinned_memory.py": _NONE,
    "test_state_dict.py": _NONE,
    "test_state_dict_stager.py": _NONE,
    "test_state_dict_utils.py": _NONE,
    "test_traverse.py": _NONE,
    "test_utils.py": _NONE,
}

TESTS_LEFT_OUT = {
    "Rot13": "an extension transforms streams of bytes, and shelves have none",
    "ZStandard": "an extension transforms streams of bytes, and shelves have none",
    "test_overwrite": "wants overwrite=False refused, and a save always follows the one before",
}


# ---- in each process


def replace_storage() -> None:
    """Puts shelves where DCP has the names of its own files' writer and reader."""
    import torch.distributed.checkpoint as dcp
    import torch.distributed.checkpoint.filesystem as files
    from torch.distributed.checkpoint import format_utils  # noqa: F401  (it has the names, too)

    import tensorshelf.dcp

    def shelf_in(directory: str | os.PathLike[str]) -> str:
        return os.path.join(os.fspath(directory), "{rank}.shelf")

    class Writer(tensorshelf.dcp.ShelfWriter):
        """Takes what FileSystemWriter takes: a directory, which another save may have."""

        def __init__(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
            os.makedirs(path, exist_ok=True)
            super().__init__(shelf_in(path))

        def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
            super().reset(None if checkpoint_id is None else shelf_in(checkpoint_id))

    class Reader(tensorshelf.dcp.ShelfReader):
        """Takes what FileSystemReader takes."""

        def __init__(self, path: str | os.PathLike[str], **kwargs: Any) -> None:
            super().__init__(shelf_in(path))

        def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
            super().reset(None if checkpoint_id is None else shelf_in(checkpoint_id))

    instead = {files.FileSystemWriter: Writer, files.FileSystemReader: Reader}
    for theirs, ours in instead.items():
        ours.__qualname__ = ours.__name__ = theirs.__name__
        ours.__module__ = theirs.__module__  # that it can be pickled by name
    for name, module in list(sys.modules.items()):
        if name.startswith(dcp.__name__):
            for attribute, value in list(vars(module).items()):
                if isinstance(value, type) and value in instead:
                    setattr(module, attribute, instead[value])


def run_on_cpus() -> None:
    """Has the tests' harness ask for no GPUs, and take gloo where it would take NCCL."""
    import torch.testing._internal.common_distributed as common
    import torch.testing._internal.distributed._shard.sharded_tensor as sharded
    import torch.testing._internal.distributed._tensor.common_dtensor as dtensor

    def any_number(count: int, **options: Any) -> Any:
        return lambda test: test

    for module in (common, sharded, dtensor):
        module.skip_if_lt_x_gpu = any_number
    with_comms = sharded.with_comms

    def by_gloo(func: Any = None, init_rpc: bool = True, backend: str = "gloo") -> Any:
        return with_comms(func=func, init_rpc=init_rpc, backend="gloo")

    sharded.with_comms = by_gloo


# ---- in the first one


class Selection:
    """Skips what the tables and the first run say, and takes down what fails."""

    def __init__(self, broken: set[str]) -> None:
        self.broken = broken
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            reason = next((why for part, why in TESTS_LEFT_OUT.items() if part in item.nodeid), "")
            if item.nodeid in self.broken:
                reason = "fails here with torch's own files, too"
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
            if report.outcome == "failed":
                self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def chosen(folder: Path, quiet: bool) -> Iterator[Path]:
    """The files of tests that apply."""
    for path in sorted(folder.rglob("test_*.py")):
        name = path.relative_to(folder)
        reason = next((why for each, why in FILES_LEFT_OUT.items() if name.match(each)), "")
        if not reason:
            yield path
        elif not quiet:
            print(f"left out: {name}: {reason}")


def broken_here(checkout: str, arguments: list[str]) -> set[str]:
    """Tests, and files of them, that fail with torch's own storage."""
    kept = [each for each in arguments if not each.startswith("--junitxml")]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "failed.json"
        words = [sys.executable, __file__, checkout, *kept]
        env = os.environ | {AS_IT_IS: str(answer)}
        subprocess.run(words, env=env, stdout=subprocess.DEVNULL, check=False)
        return set(json.loads(answer.read_text()))


def lacking(checkout: str) -> str:
    """What is not there to run them."""
    if not checkout:
        return "no checkout of pytorch/pytorch was named"
    if not (Path(checkout) / FOLDER).is_dir():
        return f"no {FOLDER} in {checkout}"
    for module in ("torch", "expecttest"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    return ""


def main(arguments: list[str]) -> int:
    checkout, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    missing = lacking(checkout)
    if "--lacking" in rest:  # for .ci/stages.py, which has lines of its own for what is skipped
        print(missing)
        return 0
    if missing:
        print(f"skipped: PyTorch's own tests of DCP: {missing}")
        return 0
    root = Path(checkout).resolve()
    first = AS_IT_IS in os.environ
    broken = set() if first else broken_here(checkout, rest)
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    selection = Selection(broken)
    files = [
        str(path)
        for path in chosen(root / FOLDER, quiet=first)
        if str(path.relative_to(root)) not in broken
    ]
    options = ["-q", "-rs", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={root}"]
    options.append("--continue-on-collection-errors")
    code = pytest.main([*options, *rest, *files], plugins=[selection])
    if first:
        Path(os.environ[AS_IT_IS]).write_text(json.dumps(selection.failed))
        return 0
    for name in sorted(each for each in broken if "::" not in each):
        print(f"left out: {name}: cannot be imported by this torch")
    for name in selection.failed:
        print(f"failed: {name}")
    print(", ".join(f"{selection.counts[kind]} {kind}" for kind in ("passed", "failed", "skipped")))
    return int(code)


if __name__ in ("__main__", "__mp_main__") and importlib.util.find_spec("expecttest"):
    if AS_IT_IS not in os.environ:  # which processes that a test starts have, too
        replace_storage()
    run_on_cpus()
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
