"""What CONTRIBUTING.md says of commit messages, for those since it is checked."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAST_UNCHECKED = "1a03d9f"
# Commits of Python that changed the core, before that was checked.
WITH_THE_CORE = {"4c5e0f7", "6b46417", "e984957", "f0da0fc"}
AREAS = "base format media store feed group python crashtest tests bench docs build".split()
# An article, a question word, a gerund, a call, a name: no imperative begins so.
NOT_A_VERB = re.compile(
    r"an?|the|what|which|who|how|where|that|no|bugs|raw|[A-Z]\w*|\w+ing|\w*[().,_]\S*",
)
LIBRARY = ("src/", "include/", "python/tensorshelf/")
SUMMARY = re.compile(rf"(?:{'|'.join(AREAS)}): \S.*[^.\s]")
FOLDERS = ("src", "include", "tests", "crashtest", "bench", "python")
BUILD_OF_SRC = "src/CMakeLists.txt"
# Behind it a body has five words, and a commit that changes code brings a test, or says why not.
LAST_WITHOUT_TESTS = "f9f0ceb"
CODE = ("src/", "python/tensorshelf/")
TESTS = ("tests/", "python/tests/", "crashtest/")
SAYS_WHY_NO_TEST = re.compile(r"Nothing\s+else\s+changes|No\s+test:")
# A string, or a comment.
STRING_OR_COMMENT = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/""", re.DOTALL
)
# Between what the log gives of a commit: no message and no name of a file has these.
BEGINS, NEXT = "\x1e", "\x1f"


class Commit(NamedTuple):
    name: str
    message: str
    files: tuple[str, ...]


def git_bytes(*arguments: str, given: bytes = b"") -> bytes | None:
    """What git says; nothing where there is no git, no history, or no such commit."""
    if shutil.which("git") is None:
        return None
    here = ["git", "-c", "safe.directory=*", "-c", "color.ui=false", "-C", str(ROOT)]
    done = subprocess.run([*here, *arguments], input=given, capture_output=True)
    return done.stdout if done.returncode == 0 else None


def git(*arguments: str) -> str | None:
    said = git_bytes(*arguments)
    return None if said is None else said.decode("utf-8")


def faults_of(
    message: str,
    files: tuple[str, ...] = (),
    *,
    is_new: bool = True,
    changes_code: Callable[[str], bool] = lambda file: True,
) -> list[str]:
    """Of a commit that `is_new`, what is asked since LAST_WITHOUT_TESTS, too."""
    summary, _, rest = message.partition("\n")
    body = rest.removeprefix("\n").strip()
    faults = []
    if not SUMMARY.fullmatch(summary):
        faults.append("not `area: summary`, or another area, or a full stop at its end")
    if ";" in summary:
        faults.append("two things: a commit does one")
    if len(summary) > 100:
        faults.append("a summary beyond 100 columns")
    if not body:
        faults.append("no body that says why")
    elif not rest.startswith("\n"):
        faults.append("no blank line under the summary")
    if re.search(r"^Also\b", body, re.MULTILINE):
        faults.append("a body that goes on to another thing: a commit does one")
    first = summary.partition(": ")[2].partition(" ")[0]
    if NOT_A_VERB.fullmatch(first):
        faults.append("it does not begin with what the commit does: add, keep, refuse, ...")
    beside = summary.startswith(("tests:", "bench:"))
    if beside and any(file.startswith(LIBRARY) for file in files):
        faults.append("the library is changed by a commit that names none of its layers")
    if summary.startswith("python:") and any(file.startswith(LIBRARY[:2]) for file in files):
        faults.append("the core is changed by a commit of its Python face")
    if summary.startswith("docs:") and not all(file.endswith(".md") for file in files):
        faults.append("more than documents is changed by a commit of documents")
    if not is_new:
        return faults
    if 0 < len(body.split()) < 5:
        faults.append("a body of fewer than five words does not say why")
    says_why_not = SAYS_WHY_NO_TEST.search(body) or any(file.startswith(TESTS) for file in files)
    if not says_why_not and any(file.startswith(CODE) and changes_code(file) for file in files):
        faults.append(
            "code is changed without a test: bring one, or say in the body why there is none"
        )
    return faults


def code_of(file: str, text: str) -> str:
    """What is neither comment nor docstring, in whatever lines."""
    if not file.endswith((".py", ".pyi")):
        code = STRING_OR_COMMENT.sub(lambda found: found[1] or " ", text)
        return "" if file.endswith(".md") else " ".join(code.split())
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [each for each in body if not is_prose(each)]
    return ast.dump(tree)


def is_prose(node: ast.AST) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def changes_code_in(commit: str, file: str) -> bool:
    before, after = (git("show", f"{at}:{file}") or "" for at in (f"{commit}~", commit))
    return code_of(file, before) != code_of(file, after)


@pytest.mark.parametrize(
    ("message", "faults"),
    [
        ("store: wait for readers\n\nElse a slot was reused.", 0),
        ("store: wait for readers", 1),
        ("store: wait for readers\nElse a slot was reused.", 1),
        ("threads: wait for readers\n\nElse a slot was reused.", 1),
        ("Wait for readers.", 2),
        ("store: " + "w" * 100, 2),
        ("store: wait for readers; drop a page\n\nElse a slot was reused.", 1),
        ("store: a reader waits\n\nElse a slot was reused.", 1),
        ("store: resolve() tells more\n\nElse a slot was reused.", 1),
        ("store: waiting for readers\n\nElse a slot was reused.", 1),
        ("store: wait for readers\n\nElse a slot was reused.\n\nAlso a page is dropped.", 1),
        ("store: wait for readers\n\nElse it failed.", 1),
    ],
)
def test_the_search_can_hit(message: str, faults: int) -> None:
    assert len(faults_of(message)) == faults


def test_tests_do_not_change_the_library() -> None:
    good = "tests: wait for readers\n\nElse a slot was reused."
    assert faults_of(good, ("tests/test_store.cpp",)) == []
    assert len(faults_of(good, ("tests/test_store.cpp", "src/store/store.cpp"))) == 1
    assert faults_of(good.replace("tests", "store"), ("src/store/store.cpp",), is_new=False) == []


def test_the_python_face_does_not_change_the_core() -> None:
    good = "python: wait for readers\n\nElse a slot was reused."
    own = ("python/bind_shelf.cpp", "python/tensorshelf/_shelf.py", "python/tests/test_shelf.py")
    assert faults_of(good, own) == []
    assert len(faults_of(good, (*own, "src/store/store.cpp"))) == 1


def test_documents_alone_are_changed_by_a_commit_of_documents() -> None:
    good = "docs: say what readers wait for\n\nIt was said in no document."
    assert faults_of(good, ("docs/design.md", "README.md")) == []
    assert len(faults_of(good, ("docs/design.md", "bench/feed.py"))) == 1


@pytest.mark.parametrize("file", ["src/store/store.cpp", "python/tensorshelf/_shelf.py"])
def test_code_is_not_changed_without_a_test_or_a_word_of_why(file: str) -> None:
    good = "store: wait for readers\n\nElse a slot was reused."
    for test in ("tests/test_store.cpp", "python/tests/test_shelf.py", "crashtest/plays.cpp"):
        assert faults_of(good, (file, test)) == []
    for words in ("Nothing else\nchanges.", "No test: it takes two drives."):
        assert faults_of(f"{good} {words}", (file,)) == []
    for besides in ((), ("docs/design.md", "bench/run_bench.py")):
        assert len(faults_of(good, (file, *besides))) == 1
        assert faults_of(good, (file, *besides), is_new=False) == []
        assert faults_of(good, (file, *besides), changes_code=lambda file: False) == []
    assert faults_of("store: wait for readers\n\nElse it failed.", is_new=False) == []


@pytest.mark.parametrize(
    ("file", "one", "other", "alike"),
    [
        ("a.cpp", "int a;  // one\n", "// another\nint a;\n", True),
        ("a.cpp", "f(a, /* one */ b);\n", "f(a,\n  b);\n", True),
        ("a.cpp", "int a = 1;\n", "int a = 2;\n", False),
        ("a.cpp", 'f("http://one");\n', 'f("http://other");\n', False),
        ("a.py", "def f():\n    'One.'\n    g(1)\n", "def f():\n    g(1)  # other\n", True),
        ("a.py", "x = 1\n'One.'\n", "x = (\n    1\n)\n'Other.'\n", True),
        ("a.py", "x = 'one'\n", "x = 'other'\n", False),
        ("a.py", "", "x = 1\n", False),
    ],
)
def test_comments_and_docstrings_are_no_code(file: str, one: str, other: str, alike: bool) -> None:
    assert (code_of(file, one) == code_of(file, other)) == alike


@functools.cache
def checked_commits() -> list[Commit]:
    """The newest first, all by one call: there are many."""
    if git("merge-base", "--is-ancestor", LAST_UNCHECKED, "HEAD") is None:
        pytest.skip("no history of the project here")
    form = f"--format={BEGINS}%H{NEXT}%B{NEXT}"
    said = git(
        *("log", "-z", "--no-show-signature", "--no-merges", "--no-renames", "--name-only", form),
        f"{LAST_UNCHECKED}..HEAD",
    )
    assert said is not None
    commits = []
    for one in said.split(BEGINS)[1:]:
        name, message, files = one.split(NEXT)
        commits.append(Commit(name, message.strip(), tuple(re.findall(r"[^\0\n]+", files))))
    return commits


def test_each_commit_names_its_area_and_says_why() -> None:
    commits = checked_commits()
    listed = git("rev-list", f"{LAST_WITHOUT_TESTS}..HEAD")
    assert listed is not None, "that commit is not in the history: nothing would be asked"
    new = set(listed.split())
    faults = {
        each.name[:7]: faults_of(
            each.message,
            each.files,
            is_new=each.name in new,
            changes_code=functools.partial(changes_code_in, each.name),
        )
        for each in commits
    }
    wrong = {commit for commit, found in faults.items() if found}
    assert wrong - WITH_THE_CORE == set(), faults


def test_contributing_says_since_when() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert f"checks what can be checked, of all since {LAST_UNCHECKED}:" in told
    assert f"- Since {LAST_WITHOUT_TESTS}: " in told


def trees_of(commits: list[str]) -> dict[str, dict[str, str]]:
    """Of each commit, the files by their paths: the names of their bytes."""
    trees = {}
    for commit in commits:
        listed = git("ls-tree", "-rz", commit)
        assert listed is not None
        lines = (line.split("\t", 1) for line in listed.split("\0") if line)
        trees[commit] = {path: what.split()[2] for what, path in lines}
    return trees


def contents_of(blobs: set[str]) -> dict[str, str]:
    """By one call: of what fifty commits have, most is the same in all."""
    order = sorted(blobs)
    said = git_bytes("cat-file", "--batch", given="".join(f"{one}\n" for one in order).encode())
    assert said is not None
    contents = {}
    at = 0
    for blob in order:
        head, _, _ = said[at : at + 200].partition(b"\n")
        size = int(head.split()[2])
        at += len(head) + 1
        contents[blob] = said[at : at + size].decode("utf-8", "replace")
        at += size + 1
    return contents


def missing_in(tree: dict[str, str], included: dict[str, set[str]], build_of_src: str) -> list[str]:
    """Sources that CMake names, and headers that are included in quotes, which the commit lacks."""
    below = {name.split("/")[1] for name in tree if re.match(r"src/\w+/", name)}
    layers = rf"\b(?:{'|'.join(sorted(below))})/[a-z0-9_/]+\.cpp"
    sources = {f"src/{source}" for source in re.findall(layers, build_of_src)}
    ends = {name.removeprefix(f"{folder}/") for folder in FOLDERS for name in tree}
    ends |= {name.rsplit("/", 1)[-1] for name in tree}
    headers = {header for blob in tree.values() for header in included.get(blob, ())}
    return sorted(sources - set(tree)) + sorted(headers - ends)


def test_the_search_for_what_is_missing_can_hit() -> None:
    tree = {"src/store/tree.cpp": "1", "src/store/tree.hpp": "2", "tests/scratch.hpp": "3"}
    whole = {"1": {"store/tree.hpp", "scratch.hpp"}}
    assert missing_in(tree, whole, "store/tree.cpp\n") == []
    lacking = ["src/store/heap.cpp", "store/heap.hpp"]
    assert missing_in(tree, {"1": {"store/heap.hpp"}}, "store/heap.cpp\n") == lacking


def test_each_commit_has_what_it_names() -> None:
    trees = trees_of([each.name for each in checked_commits()[:50]])
    below = tuple(f"{folder}/" for folder in FOLDERS)
    blobs = {
        blob for tree in trees.values() for path, blob in tree.items() if path.startswith(below)
    }
    contents = contents_of(blobs)
    included = {
        blob: set(re.findall(r'^#include "([^"]+)"', text, re.MULTILINE))
        for blob, text in contents.items()
    }
    lacking = {
        commit: missing_in(tree, included, contents.get(tree.get(BUILD_OF_SRC, ""), ""))
        for commit, tree in trees.items()
    }
    assert {commit: names for commit, names in lacking.items() if names} == {}
