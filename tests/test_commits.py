"""What CONTRIBUTING.md says of commit messages, for those since it is checked."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

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


def git(*arguments: str) -> str | None:
    """What git says; nothing where there is no git, no history, or no such commit."""
    if shutil.which("git") is None:
        return None
    here = ["git", "-c", "safe.directory=*", "-C", str(ROOT)]
    done = subprocess.run([*here, *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


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


def checked_commits() -> list[str]:
    if git("merge-base", "--is-ancestor", LAST_UNCHECKED, "HEAD") is None:
        pytest.skip("no history of the project here")
    commits = git("rev-list", "--no-merges", f"{LAST_UNCHECKED}..HEAD")
    assert commits is not None
    return commits.split()


def faults_of_commit(commit: str) -> list[str]:
    message = git("log", "-1", "--format=%B", commit)
    files = git("diff-tree", "--no-commit-id", "--name-only", "-r", commit)
    assert message is not None
    assert files is not None
    return faults_of(message.strip(), tuple(files.split()))


def test_each_commit_names_its_area_and_says_why() -> None:
    faults = {commit[:7]: faults_of_commit(commit) for commit in checked_commits()}
    wrong = {commit for commit, found in faults.items() if found}
    assert wrong - WITH_THE_CORE == set(), faults


def test_contributing_says_since_when() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert f"checks what can be checked, of all since {LAST_UNCHECKED}:" in told


def missing_in(commit: str) -> list[str]:
    """Sources that CMake names, and headers that are included in quotes, which the commit lacks."""
    names = git("ls-tree", "-r", "--name-only", commit)
    assert names is not None
    files = set(names.split("\n"))
    folders = ("src", "include", "tests", "crashtest", "bench", "python")

    def search(pattern: str, *paths: str) -> list[str]:
        found = git("grep", "-hoE", pattern, commit, "--", *paths) or ""
        return [line.strip() for line in found.split("\n") if line]

    below = {name.split("/")[1] for name in files if re.match(r"src/\w+/", name)}
    layers = rf"\b({'|'.join(sorted(below))})/[a-z0-9_/]+\.cpp"
    sources = {f"src/{source}" for source in search(layers, "src/CMakeLists.txt")}
    ends = {name.removeprefix(f"{folder}/") for folder in folders for name in files}
    ends |= {name.rsplit("/", 1)[-1] for name in files}
    headers = {line.split('"')[1] for line in search(r'^#include "[^"]+"', *folders)}
    return sorted(sources - files) + sorted(headers - ends)


def test_each_commit_has_what_it_names() -> None:
    lacking = {commit: missing_in(commit) for commit in checked_commits()[:50]}
    assert {commit: names for commit, names in lacking.items() if names} == {}
