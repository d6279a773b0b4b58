"""The wheel that `pip install .` builds, in an environment that has NumPy and nothing else."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

USE = """
import sys, tempfile, pathlib
import numpy as np
import tensorshelf as ts

assert "torch" not in sys.modules and "ml_dtypes" not in sys.modules and "tqdm" not in sys.modules
where = pathlib.Path(tempfile.mkdtemp()) / "run.shelf"
with ts.open(where) as shelf:
    shelf.x = np.arange(6.0).reshape(2, 3)
    shelf.persist(step=4)
with ts.open(where, mode="r") as shelf:
    assert shelf.step == 4
    assert np.array_equal(shelf.x.numpy(), np.arange(6.0).reshape(2, 3))
print(ts.__version__, ts.__file__)
"""


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("scikit_build_core", "pybind11"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed, so no wheel can be built without a network")
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    # What is in it matters here, not its speed.
    quick = "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0 -g0"
    run(*pip, "--no-deps", "--no-build-isolation", quick, "-w", folder, ROOT, cwd=ROOT)
    (built,) = folder.glob("tensorshelf-*.whl")
    return built


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tensorshelf"}
    assert "tensorshelf/py.typed" in names
    assert any(re.fullmatch(r"tensorshelf/_core\..*\.so", name) for name in names)
    assert any(name.endswith("_core.pyi") for name in names)
    sources = (ROOT / "python" / "tensorshelf").rglob("*.py")
    assert {str(path.relative_to(ROOT / "python")) for path in sources} <= set(names)


def test_wheel_leaves_the_library_to_its_module_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (module,) = (tmp_path / "tensorshelf").glob("_core.*.so")
    shown = run("nm", "--dynamic", "--defined-only", module, cwd=tmp_path).splitlines()
    assert "PyInit__core" in {line.split()[-1] for line in shown}
    assert [line for line in shown if re.search(r" T _ZNK?11tensorshelf", line)] == []


def test_wheel_has_the_version_that_cmake_states(wheel: Path) -> None:
    stated = re.search(
        r"project\(tensorshelf VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text("utf-8")
    )
    assert stated
    assert wheel.name.startswith(f"tensorshelf-{stated[1]}-")


def test_wheel_works_with_nothing_but_numpy(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('platlib'))"
    site = Path(run(python, "-c", where, cwd=tmp_path).strip())
    for part in Path(sysconfig.get_path("platlib")).glob("numpy*"):  # with libraries and metadata
        (site / part.name).symlink_to(part)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
    run(*pip, "--disable-pip-version-check", "--no-index", "--no-deps", wheel, cwd=tmp_path)

    stated, file = run(python, "-I", "-c", USE, cwd=tmp_path).split()
    assert wheel.name.startswith(f"tensorshelf-{stated}-")
    assert Path(file).is_relative_to(site)
    assert "merge" in run(environment / "bin" / "tensorshelf", "--help", cwd=tmp_path)
