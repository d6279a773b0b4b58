"""Who writes what a commit stands on, and that each barrier says for what."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from sources import ROOT, code, cpp, lines_matching, shown, tree

# Who writes metadata, and with which calls.
WRITES_METADATA = re.compile(r"\b(?:write_page|store_over_itself|store_word|copy_to_mirror)\(")
WRITERS = {
    f"src/store/{name}.cpp"
    for name in (
        "manifest/flip format_shelf io/incarnation io/mark io/medium_headers"
        " media_set/mirror_filling recovery/repair"
    ).split()
}
WRITERS |= {f"src/store/io/page_io.{kind}" for kind in ("cpp", "hpp")}  # the calls themselves
PAGE_BYTES = re.compile(r"(?:\.|->)bytes(?:\.|\[)|&\w+(?:\.|->)bytes|memcpy\([^;]*\.bytes")

# Who calls flip() beside whoever has it: the one place that knows the order.
FLIPS = re.compile(r"\bflip\(")


def without_planted(path: Path) -> str:
    """The code without the blocks that planted bugs run."""
    return re.sub(r"if \(planted\([^{;]*\{.*?\n    \}", "", code(path), flags=re.DOTALL)


def test_few_write_metadata_and_format_alone_looks_into_pages() -> None:
    writing = {
        shown(path) for path in cpp("src/store") if WRITES_METADATA.search(without_planted(path))
    }
    assert writing == WRITERS
    looking = [
        hit for path in cpp("src/store") for hit in lines_matching(PAGE_BYTES, path, code(path))
    ]
    assert looking == []
    assert PAGE_BYTES.search("page.bytes[0]")
    assert PAGE_BYTES.search("memcpy(&word, page.bytes.data(), 8)")
    inside = {shown(path) for path in cpp("src") if '"format/bytes.hpp"' in path.read_text("utf-8")}
    assert inside == {f"src/format/{name}.cpp" for name in ("format", "media", "pages")}


def test_the_order_of_a_flip_is_known_in_one_place() -> None:
    calling = {shown(path) for path in cpp("src") if FLIPS.search(code(path))}
    assert calling == {
        f"src/store/{name}"
        for name in ("manifest/flip.cpp", "manifest/flip.hpp", "commit/sealer.cpp")
    }


def own_comment(lines: list[str], number: int) -> str:
    """What is said on a line, and in the comment that stands directly above it."""
    said = [lines[number].partition("//")[2]]
    while number > 0 and lines[number - 1].lstrip().startswith("//"):
        number -= 1
        said.append(lines[number])
    return "\n".join(said)


def uncited(text: str, call: re.Pattern[str], known: set[str]) -> tuple[list[str], int]:
    """Calls that cite no invariant of the design themselves; and how many calls there are."""
    lines = text.splitlines()
    silent, calls = [], 0
    for number, line in enumerate(lines):
        if not call.search(line.split("//")[0]):
            continue
        calls += 1
        cited = set(re.findall(r"\bI\d+\b", own_comment(lines, number)))
        if not cited or cited - known:
            silent.append(f"{number + 1}: {line.strip()}")
    return silent, calls


def test_what_makes_durable_cites_its_invariant() -> None:
    design = (ROOT / "docs/design.md").read_text("utf-8")
    known = set(re.findall(r"^    (I\d+) ", design, re.MULTILINE))
    assert known == {f"I{number}" for number in range(1, len(known) + 1)}
    barrier = re.compile(r"[.>]barrier\(\);")
    flush = re.compile(
        r"::fsync\(|::fdatasync\(|\bdrain_stores\(\);|backend[_.>-]*sync\(\)|->flush\("
        r"|->barrier\(\);|->persist\(|\bpersist\(&|->drain\(\);"
    )
    silent, calls = [], []
    for folder, call in (("src/store", barrier), ("src/media", flush)):
        calls.append(0)
        for path in cpp(folder):
            lines, count = uncited(path.read_text("utf-8"), call, known)
            silent += [f"{shown(path)}:{line}" for line in lines]
            calls[-1] += count
    assert silent == []
    assert min(calls) > 5  # the search can hit


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        ("a.barrier();  // I1: why", 0),
        ("// I1: why,\n// and more\na.barrier();", 0),
        ("// I1: why\na.barrier();\na.barrier();", 1),
        ("// I1: why\nint x;\na.barrier();", 1),
        ("// I1: why\n\na.barrier();", 1),
        ("int I1; a.barrier();", 1),
        ("a.barrier();  // I9: of no design", 1),
    ],
)
def test_a_citation_is_that_of_the_barrier_beside_it(text: str, silent: int) -> None:
    found, calls = uncited(text, re.compile(r"barrier\(\);"), {"I1"})
    assert (len(found), calls) == (silent, text.count("barrier"))


def test_what_is_made_durable_in_python_says_why() -> None:
    calls = re.compile(r"\.settle\(\)|(?<!def )\bf?sync\(")
    silent, count = [], 0
    for path in tree("python/tensorshelf", suffixes={".py"}):
        lines = path.read_text("utf-8").splitlines()
        for before, line in itertools.pairwise(["", *lines]):
            if calls.search(line) and "``" not in line:
                count += 1
                if "#" not in line and "#" not in before:
                    silent.append(f"{shown(path)}: {line.strip()}")
    assert silent == []
    assert count > 8  # the search can hit


def test_there_is_one_commit_point() -> None:
    marked = [
        hit
        for path in tree("src")
        for hit in lines_matching(re.compile("COMMIT POINT"), path, path.read_text("utf-8"))
    ]
    assert len(marked) == 1, marked
    assert marked[0].startswith("src/store/manifest/flip")
