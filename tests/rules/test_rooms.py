"""Files, functions and classes are small."""

from __future__ import annotations

import ast
import re
import statistics
from pathlib import Path

from sources import code, cpp, shown, tree

# A function's declaration in a class.
DECLARES = re.compile(r"\s*(?!using|friend|enum|struct|class|template)[\w\[].*?[\s&*]~?\w+\(")


def test_rooms_are_small() -> None:
    lengths = {
        shown(path): len(path.read_text("utf-8").splitlines())
        for path in cpp("src", "include", "python", "crashtest", "bench", "tests")
    }
    lengths |= {
        shown(path): len(path.read_text("utf-8").splitlines())
        for path in tree("python/tensorshelf", suffixes={".py"})
    }
    long = sorted(f"{name}: {count}" for name, count in lengths.items() if count > 400)
    assert statistics.median(lengths.values()) <= 120
    assert [name for name in lengths if name.startswith("src/store/") and lengths[name] > 300] == []
    core = [name for name in lengths if name.startswith("src/") and lengths[name] > 400]
    assert core == ["src/format/layout.hpp"]
    assert len(long) <= max(2, len(lengths) // 20), long
    tests = {
        shown(path): len(path.read_text("utf-8").splitlines())
        for path in tree("python/tests", suffixes={".py"})
    }
    assert [f"{name}: {count}" for name, count in tests.items() if count > 750] == []
    assert len([name for name in tests if tests[name] > 400]) <= 26  # may only fall
    assert statistics.median(tests.values()) <= 250


def function_lengths(path: Path) -> dict[str, int]:
    """Of each function, from its first line to its last, but for the labels of a switch."""
    found = {}
    lines = code(path).splitlines()
    opens = re.compile(
        r"( *)(?!namespace|class|struct|enum|union|extern|template|if|for|while|else)"
    )
    for start, line in enumerate(lines):
        match = opens.match(line)
        if not (match and "(" in line) or line.strip().startswith(("}", "#", "return")):
            continue
        if " = " in line or re.search(r"\](?:\(| \{)", line):  # a value, or a lambda
            continue
        indent = match[1]
        if len(indent) > 2 or re.match(r" *(if|for|while|switch|do|else|try|catch)\b", line):
            continue
        head = start
        while head < len(lines) and not re.search(r"[{};]\s*$", lines[head]):
            head += 1
        if head == len(lines) or not lines[head].rstrip().endswith("{"):
            continue
        end = next((n for n in range(head + 1, len(lines)) if lines[n] == f"{indent}}}"), None)
        if end is not None:
            labels = sum(bool(re.match(r" *(case .*|default):$", each)) for each in lines[head:end])
            found[f"{shown(path)}:{start + 1}"] = end - start + 1 - labels
    return found


# Of the harness: what is planted, what is played, and how, is told row by row.
TABLES = {"bugs.cpp", "workload.cpp", "scenarios.cpp", "feed_plays.cpp"}


def test_functions_are_short() -> None:
    lengths: dict[str, int] = {}
    tests: dict[str, int] = {}
    for path in cpp("src", "include", "python", "crashtest", "tests"):
        if shown(path).startswith("tests/") or path.name.startswith("test_"):
            tests |= function_lengths(path)
        elif path.parent.name != "crashtest" or path.name not in TABLES:
            lengths |= function_lengths(path)
    assert {where: count for where, count in lengths.items() if count > 60} == {}
    assert len(lengths) > 500  # the search can hit
    long = sorted(f"{where}: {count}" for where, count in tests.items() if count > 60)
    assert len(long) <= 10, long  # may only fall
    assert max(tests.values()) <= 104, long  # likewise
    assert len(tests) > 1000  # the search can hit


def private_methods(text: str) -> dict[str, int]:
    """How many functions each class declares in its private parts."""
    counts: dict[str, int] = {}
    around: list[tuple[str, int, bool]] = []  # classes, with their indents; whether it is private
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        part = re.match(r"\s*(public|private|protected):", line)
        while around and line.strip() and not part and indent <= around[-1][1]:
            around.pop()
        if opened := re.match(r"\s*(class|struct) (\w+)\b[^;(]*\{\s*$", line):
            around.append((opened[2], indent, opened[1] == "class"))
        elif part and around:
            around[-1] = (*around[-1][:2], part[1] == "private")
        elif around and around[-1][2] and indent == around[-1][1] + 2:
            name = around[-1][0]
            counts[name] = counts.get(name, 0) + bool(DECLARES.match(line))
    return counts


def python_rooms(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The lines of each function but for its docstring, and each class's private methods."""
    lengths, private = {}, {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            spoken = len((ast.get_docstring(node, clean=False) or "").splitlines())
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            lengths[f"{shown(path)}:{node.lineno}"] = lines - spoken
        if isinstance(node, ast.ClassDef):
            names = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            own = [name for name in names if name.startswith("_") and not name.startswith("__")]
            private[f"{shown(path)}:{node.lineno}"] = len(own)
    return lengths, private


def test_no_python_but_tests_of_the_package_has_long_files() -> None:
    folders = ("python/tensorshelf", "tests", "crashtest", "bench", ".ci")
    paths = tree(*folders, suffixes={".py", ".pyi"})
    long = {shown(path) for path in paths if len(path.read_text("utf-8").splitlines()) > 400}
    assert long == {"python/tensorshelf/_core.pyi"}
    assert len(paths) > 250  # the search can hit


def test_rooms_of_the_package_are_small() -> None:
    paths = tree("python/tensorshelf", suffixes={".py"})
    lengths: dict[str, int] = {}
    private: dict[str, int] = {}
    for path in paths:
        for all_of_them, some in zip((lengths, private), python_rooms(path), strict=True):
            all_of_them |= some
    assert {where: lines for where, lines in lengths.items() if lines > 60} == {}
    assert {where: count for where, count in private.items() if count > 15} == {}
    assert len(lengths) > 1000  # the search can hit


def test_no_class_has_more_than_15_private_methods() -> None:
    found: dict[str, int] = {}
    for path in cpp("src", "include", "python"):
        for name, count in private_methods(code(path)).items():
            found[name] = max(count, found.get(name, 0))  # names may come twice
    assert {name: count for name, count in found.items() if count > 15} == {}
    assert found["Stager"] > 10  # the search can hit
