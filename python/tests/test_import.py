"""What importing costs: NumPy, and not a word."""

import subprocess
import sys

import tensorshelf as ts


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_import_is_silent_and_needs_numpy_only() -> None:
    code = (
        "import sys, numpy; before = set(sys.modules)\n"
        "import tensorshelf\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new & {'torch', 'ml_dtypes', 'tqdm', 'rich', 'pandas', 'pybind11'}))"
    )
    result = run(code)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[]\n", "")


def test_works_without_ml_dtypes_and_torch(tmp_path: object) -> None:
    code = f"""
import sys
for name in ("ml_dtypes", "torch", "tqdm"):
    sys.modules[name] = None
import numpy as np, tensorshelf as ts
with ts.open({str(tmp_path)!r} + "/run.shelf", tier="block") as shelf:
    shelf.x = np.arange(6.0).reshape(2, 3)
    shelf.create("b", (4,), "bfloat16")
    shelf.persist()
    assert shelf.x[1, 2] == 5.0
    assert shelf.b.dtype.name == "bfloat16" and shelf.b.dtype.itemsize == 2, shelf.b.dtype
    shelf.c = shelf.b  # bytes move without knowing what they mean
    for use in (shelf.b.numpy, shelf.b.torch):
        try:
            use()
        except ts.UnsupportedError as error:
            assert "pip install" in error.remedy, error.remedy
        else:
            raise AssertionError(use)
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_public_names_are_all_there_and_documented() -> None:
    for name in ts.__all__:
        value = getattr(ts, name)
        assert name == "__version__" or value.__doc__, name
    for cls in (ts.Shelf, ts.Tensor, ts.Committed, ts.Commit):
        for name in dir(cls):
            member = getattr(cls, name)
            if not name.startswith("_") and callable(member):
                assert member.__doc__, f"{cls.__name__}.{name}"


def test_errors_are_the_same_in_both_places() -> None:
    for name in ts.errors.__all__:
        if hasattr(ts, name):
            assert getattr(ts, name) is getattr(ts.errors, name)
