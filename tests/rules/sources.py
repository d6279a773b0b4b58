"""The sources of the project, as the rules beside this file search them."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
IGNORED = set(
    ".git .venv build out dist .hypothesis .pytest_cache .mypy_cache .ruff_cache .gl .whl"
    " __pycache__".split()
)
TEXT = set(".cpp .hpp .h .inc .py .pyi .md .cmake .txt .toml .json .sh .in".split())
MEDIA = sorted(path.name for path in (ROOT / "src" / "media").iterdir() if path.is_dir())


def tree(*folders: str, suffixes: set[str] = TEXT) -> list[Path]:
    """The project's files of these suffixes below the folders (or all), ignored ones left out."""
    found: list[Path] = []
    for folder in folders or ("",):
        for directory, names, files in os.walk(ROOT / folder):
            names[:] = [name for name in names if name not in IGNORED]
            found += [Path(directory, file) for file in files]
    return sorted(path for path in found if path.suffix in suffixes)


def cpp(*folders: str) -> list[Path]:
    return tree(*folders, suffixes={".cpp", ".hpp", ".inc"})


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(path: Path) -> str:
    """The text without comments, its lines kept."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def without_prose(path: Path) -> str:
    """A Python file without its docstrings and comments."""
    text = re.sub(r'""".*?"""', "", path.read_text("utf-8"), flags=re.DOTALL)
    return re.sub(r"#[^\n]*", "", text)


def lines_matching(pattern: re.Pattern[str], path: Path, text: str) -> list[str]:
    return [
        f"{shown(path)}:{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def in_rings(needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left where whatever needs nothing more is taken away, again and again."""
    waiting = needs
    while ready := {name for name, of in waiting.items() if not of}:
        waiting = {name: of - ready for name, of in waiting.items() if name not in ready}
    return waiting


def included(path: Path) -> list[Path]:
    """Our headers that a file includes: beside it, or else from where the compilers look."""
    places = (path.parent, ROOT / "src", ROOT / "include", ROOT)
    includes = r'^\s*#\s*include\s*(?:"|<(?=tensorshelf/))([^">]+)'
    names = re.findall(includes, code(path), re.MULTILINE)
    return [next(at / name for at in places if (at / name).is_file()) for name in names]
