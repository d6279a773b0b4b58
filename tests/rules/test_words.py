"""What documents and comments say is there, whole, and can be read."""

from __future__ import annotations

import ast
import re

import pytest
from sources import ROOT, code, cpp, lines_matching, shown, tree

# In pieces, so that this file does not find itself.
WORDS = ["TO/DO", "FIX/ME", "X/XX", "Not/ImplementedError", "not/ implemented", "place/holder"]
UNFINISHED = re.compile(rf"\b(?:{'|'.join(WORDS).replace('/', '')})\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|home|root)/\w")


def test_what_the_documents_say_is_in_a_file_is_there() -> None:
    said = []
    for name in ("docs/design.md", "CONTRIBUTING.md"):
        text = " ".join((ROOT / name).read_text("utf-8").split())
        said += re.findall(r"`(\w+)` in `(?:[\w/]+/)?(\w+\.[ch]pp)`", text)
    assert said
    for what, where in said:
        found = [path for path in cpp("src", "include") if path.name == where]
        assert any(re.search(rf"\b{what}\b", code(path)) for path in found), f"{what} in {where}"


def test_prose_has_lines_that_can_be_read() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        prose = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
        assert [line for line in prose if len(line) > 120] == [], shown(path)


@pytest.mark.parametrize("folder", ["_auto", "_state"])
def test_a_folder_of_the_package_lists_its_modules(folder: str) -> None:
    """One line each, in the docstring of what gathers them."""
    path = ROOT / "python/tensorshelf" / folder
    prose = (path / "__init__.py").read_text("utf-8")
    listed = re.findall(r"^(?: {4})?(\w+)  +\S", prose, re.MULTILINE)
    assert sorted(listed) == sorted(each.stem for each in path.glob("[!_]*.py"))
    assert len(listed) > 20  # the search can hit


def test_no_comment_is_broken_by_its_formatter() -> None:
    """As clang-format leaves one that was a word too long: that word by itself."""
    alone = re.compile(r"\s*// {0,4}[\w()`'\"-]{1,14}")
    hits = []
    for path in cpp("src", "include", "crashtest", "tests", "python", "bench"):
        lines = path.read_text("utf-8").split("\n")
        hits += [
            f"{shown(path)}:{number}"
            for number, line in enumerate(lines[1:-1], 2)
            if alone.fullmatch(line)
            and re.match(r"\s*//", lines[number - 2])
            and len(lines[number - 2]) > 80
            and re.match(r"\s*//\s*[a-z(]", lines[number])
        ]
    assert hits == []


@pytest.mark.parametrize("folder", ["_drain", "_group"])
def test_a_folder_lists_its_modules_by_what_they_do(folder: str) -> None:
    """Several on a line, where they belong together."""
    path = ROOT / "python/tensorshelf" / folder
    prose = (path / "__init__.py").read_text("utf-8")
    listed = set(re.findall(r"(?:^(?: {4})?|[;,] )(\w+)(?=  |[:,])", prose, re.MULTILINE))
    modules = {each.stem for each in path.glob("[!_]*.py")}
    assert modules - listed == set()
    assert len(modules) > 20  # the search can hit


def test_warnings_are_errors_in_our_presets_alone() -> None:
    as_error = re.compile("-Werror|WARNING_AS_ERROR")  # would break whoever has another compiler
    files = [*tree("cmake", suffixes={".cmake", ".in"}), *tree(suffixes={".toml"})]
    files += [path for path in tree(suffixes={".txt"}) if path.name == "CMakeLists.txt"]
    hits = [
        hit for path in files for hit in lines_matching(as_error, path, path.read_text("utf-8"))
    ]
    assert hits == []
    assert as_error.search((ROOT / "CMakePresets.json").read_text("utf-8"))


def only_narrows(test: ast.expr) -> bool:
    """Whether it says what type something has, for who reads it, and checks nothing."""
    if isinstance(test, ast.Call):
        return isinstance(test.func, ast.Name) and test.func.id == "isinstance"
    if isinstance(test, ast.BoolOp):
        return all(map(only_narrows, test.values))
    if isinstance(test, ast.UnaryOp):
        return only_narrows(test.operand)
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot)


def test_nothing_that_the_package_asserts_is_a_check() -> None:
    found, checks = 0, []
    for path in tree("python/tensorshelf", suffixes={".py"}):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Assert):
                found += 1
                checks += [] if only_narrows(node.test) else [f"{shown(path)}:{node.lineno}"]
    assert checks == []  # python -O leaves them out
    assert found > 20  # the search can hit


def test_contributing_tells_every_file_of_the_store() -> None:
    rows = [line for line in (ROOT / "CONTRIBUTING.md").read_text().split("\n") if line[:2] == "| "]
    told = {name for row in rows for name in re.findall(r"`(\w+)\.(?:\*|[ch]pp)`", row)}
    assert {path.stem for path in cpp("src/store")} - told == set()


def test_every_source_says_what_it_is() -> None:
    headers = {path.stem for path in tree(suffixes={".hpp"})}  # say it for their .cpp as well
    silent = [
        shown(path)
        for path in cpp("src", "include", "crashtest")
        if not path.read_text("utf-8").startswith("//")
        and not (path.suffix == ".cpp" and path.stem in headers)
    ]
    assert silent == []


@pytest.mark.parametrize("pattern", [UNFINISHED, MACHINE_PATH], ids=["unfinished", "machine path"])
def test_nothing_is_left_unfinished_or_bound_to_one_machine(pattern: re.Pattern[str]) -> None:
    hits = [
        hit
        for path in [*tree(), ROOT / "run"]
        for hit in lines_matching(pattern, path, path.read_text("utf-8"))
    ]
    assert hits == []


def test_the_changelog_says_nothing_twice() -> None:
    lines = [line.strip() for line in (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()]
    assert len(lines) > 50  # the search can hit
    assert [line for line in lines if len(line) > 30 and lines.count(line) > 1] == []
