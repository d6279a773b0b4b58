"""What CONTRIBUTING.md says of commit messages, for those since it is checked."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
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


def faults_of(message: str, files: tuple[str, ...] = ()) -> list[str]:
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
    return faults


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
    ],
)
def test_the_search_can_hit(message: str, faults: int) -> None:
    assert len(faults_of(message)) == faults


def test_tests_do_not_change_the_library() -> None:
    good = "tests: wait for readers\n\nElse a slot was reused."
    assert faults_of(good, ("tests/test_store.cpp",)) == []
    assert len(faults_of(good, ("tests/test_store.cpp", "src/store/store.cpp"))) == 1
    assert faults_of(good.replace("tests", "store"), ("src/store/store.cpp",)) == []


def test_the_python_face_does_not_change_the_core() -> None:
    good = "python: wait for readers\n\nElse a slot was reused."
    assert faults_of(good, ("python/bind_shelf.cpp", "python/tensorshelf/_shelf.py")) == []
    assert len(faults_of(good, ("python/tensorshelf/_shelf.py", "src/store/store.cpp"))) == 1


def test_documents_alone_are_changed_by_a_commit_of_documents() -> None:
    good = "docs: say what readers wait for\n\nIt was said nowhere."
    assert faults_of(good, ("docs/design.md", "README.md")) == []
    assert len(faults_of(good, ("docs/design.md", "bench/feed.py"))) == 1


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
    faults = {each.name[:7]: faults_of(each.message, each.files) for each in checked_commits()}
    wrong = {commit for commit, found in faults.items() if found}
    assert wrong - WITH_THE_CORE == set(), faults


def test_contributing_says_since_when() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert f"checks what can be checked, of all since {LAST_UNCHECKED}:" in told


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
