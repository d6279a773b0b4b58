"""The rules of docs/design.md that a text search can check, so that they cannot drift unseen."""

from __future__ import annotations

import ast
import itertools
import os
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What may stand at the top, ignored things (.gitignore) aside.
TOP_LEVEL = set(
    "CMakeLists.txt CMakePresets.json cmake src include python tests crashtest bench docs README.md"
    " run pyproject.toml .ci LICENSE CHANGELOG.md CONTRIBUTING.md"
    " .clang-format .clang-tidy .gitignore".split()
)
IGNORED = set(
    ".git .venv build out dist .hypothesis .pytest_cache .mypy_cache .ruff_cache .gl .whl"
    " __pycache__".split()
)
TEXT = set(".cpp .hpp .h .inc .py .pyi .md .cmake .txt .toml .json .sh .in".split())

# Which folders of src each may include: downwards only, and format and media never meet.
MAY_INCLUDE = {
    "base": {"base"},
    "format": {"format", "base"},
    "media": {"media", "base"},
    "store": {"store", "format", "media", "base"},
    "feed": {"feed", "store", "base"},
    "group": {"group", "base"},
    # Beside src: the public API, and what is named here.
    "crashtest": {"crashtest", "format", "base", "tests"},
    "bench": {"bench", "base"},  # base: the bare copy that is the figures' limit
    "python": set(),
}

# Those of the store, from the lowest up: each may include those before it, what lies in none all.
OF_STORE = "threads places manifest io media_set recovery state reading commit room".split()

# The public face: what opens a shelf, and its handles. Below them each takes the header it needs.
FACE = re.compile(r"#\s*include\s*<tensorshelf/(?:shelf|handles|repair)\.hpp>")
ABOVE_THE_FACE = {f"src/store/{name}.cpp" for name in ("shelf", "handles", "repair_shelf")}
ABOVE_THE_FACE |= {"src/feed/access.hpp"}  # of the pipeline, which is given a shelf

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
# Inner headers stand in quotes, so that the search for includes sees them.
INNER = re.compile(r"#\s*include\s*<(?:base|format|media|store|feed|crashtest|tests)/")

# Calls that make bytes durable or map a shelf: behind the seam, so in src/media alone.
MEDIA_ONLY = re.compile(
    r"\b(?:pmem2?_\w+|pmemobj_\w+|io_uring_\w+|fsync|fdatasync|sync_file_range|msync|syncfs|ftruncate"
    r"|fallocate|posix_fallocate|pwrite|pwritev2?|renameat2)\s*\("
    r"|\bmmap\s*\((?!.*MAP_ANONYMOUS)|#\s*include\s*<(?:libpmem\w*|liburing)\.h>"
)
# A function's declaration in a class.
DECLARES = re.compile(r"\s*(?!using|friend|enum|struct|class|template)[\w\[].*?[\s&*]~?\w+\(")
CUDA = re.compile(r"#\s*include\s*<cuda\w*\.h>")

# In pieces, so that this file does not find itself.
WORDS = ["TO/DO", "FIX/ME", "X/XX", "Not/ImplementedError", "not/ implemented", "place/holder"]
UNFINISHED = re.compile(rf"\b(?:{'|'.join(WORDS).replace('/', '')})\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|home|root)/\w")


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


def without_planted(path: Path) -> str:
    """The code without the blocks that planted bugs run."""
    return re.sub(r"if \(planted\([^{;]*\{.*?\n    \}", "", code(path), flags=re.DOTALL)


def lines_matching(pattern: re.Pattern[str], path: Path, text: str) -> list[str]:
    return [
        f"{shown(path)}:{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_top_level_holds_nothing_else() -> None:
    assert {entry.name for entry in ROOT.iterdir()} - IGNORED - TOP_LEVEL == set()


@pytest.mark.parametrize("layer", MAY_INCLUDE)
def test_includes_point_one_way(layer: str) -> None:
    files = cpp(layer) if (ROOT / layer).is_dir() else cpp(f"src/{layer}")
    wrong = []
    for path in files:
        for target in re.findall(r'^\s*#\s*include\s*"([^"]+)"', code(path), re.MULTILINE):
            folder, _, rest = target.partition("/")
            if rest and folder not in MAY_INCLUDE[layer]:
                wrong.append(f"{shown(path)} includes {target}")
        wrong += lines_matching(INNER, path, code(path))
    assert wrong == []


MEDIA = sorted(path.name for path in (ROOT / "src" / "media").iterdir() if path.is_dir())


@pytest.mark.parametrize("kind", MEDIA)
def test_media_do_not_know_each_other(kind: str) -> None:
    others = "|".join(other for other in MEDIA if other != kind)
    pattern = re.compile(rf"include\s*\"media/(?:{others})/")
    assert [
        hit
        for path in cpp(f"src/media/{kind}")
        for hit in lines_matching(pattern, path, code(path))
    ] == []
    assert cpp(f"src/media/{kind}")


@pytest.mark.parametrize("kind", MEDIA)
def test_a_medium_has_its_header_its_sources_and_its_row_in_the_contract(kind: str) -> None:
    assert (ROOT / f"src/media/{kind}/medium.hpp").is_file()
    assert f" media/{kind}/medium.cpp" in (ROOT / "src/CMakeLists.txt").read_text("utf-8")
    assert f'"media/{kind}/medium.hpp"' in (ROOT / "tests/media_rows.hpp").read_text("utf-8")


def test_few_places_name_a_medium() -> None:
    """Beside its own folder, the build and the tests: the one that CONTRIBUTING.md gives."""
    names = "|".join(MEDIA)
    # "block" is an option too, and a folder of sysfs.
    quoted = rf"(?<!arg\()(?<!readwrite\()(?<!\"char\" : )\"(?:{names})\""
    named = re.compile(rf"{quoted}|make_(?:{names})_medium|\"media/(?:{names})/|medium [=!]= \"")
    own = re.compile(rf"src/media/(?:{names})/")
    kind = re.compile(rf"\bis_(?:{names})|FileKind::(?:{names})")  # asked for by the store
    told = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    places = set()
    for path in [*cpp("src", "python", "include"), *tree("python/tensorshelf", suffixes={".py"})]:
        text = code(path) if path.suffix != ".py" else without_prose(path)
        if named.search(text) and not own.match(shown(path)):
            places.add(shown(path))
        assert not (shown(path).startswith("src/store/") and kind.search(text)), shown(path)
    assert places == {"src/media/detect.cpp"}
    assert all(f"`{place}`" in told for place in places)


def test_what_the_documents_say_is_in_a_file_is_there() -> None:
    said = []
    for name in ("docs/design.md", "CONTRIBUTING.md"):
        text = " ".join((ROOT / name).read_text("utf-8").split())
        said += re.findall(r"`(\w+)` in `(?:[\w/]+/)?(\w+\.[ch]pp)`", text)
    assert said
    for what, where in said:
        found = [path for path in cpp("src", "include") if path.name == where]
        assert any(re.search(rf"\b{what}\b", code(path)) for path in found), f"{what} in {where}"


def test_types_have_names_of_their_own() -> None:
    """One namespace holds them all: two of one name are one to the linker."""
    defined: dict[str, list[str]] = {}
    kinds = r"^(?:class|struct|enum(?: class)?) (?:alignas\([^)]*\) )?(\w+)(?!::)\b[^;{]*\{"
    for path in cpp("src", "include"):
        if path.suffix != ".hpp":
            continue
        for name in re.findall(kinds, code(path), re.MULTILINE):
            defined.setdefault(name, []).append(shown(path))
    assert defined
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}


# Where a test sleeps, what it waits for is time.
SLEEPS = {
    "tests/guest/guest_pool.cpp": "a machine is cut off meanwhile",
    "tests/test_kill.cpp": "kills come at moments that are drawn",
    "tests/test_store_compact.cpp": "as do requests to end",
    "tests/test_store_pins.cpp": "a writer hears of a reader after a time that the protocol states",
    "crashtest/pin_plays.cpp": "a reader holds what it holds for a while",
}


# The same of those in Python, where each says it beside the call.
SLEEPS_IN_PYTHON = {
    "crashtest/ranks.py",
    "python/tests/test_drain_group.py",
    "python/tests/test_drain_killed.py",
    "python/tests/test_exit.py",
    "python/tests/test_save_killed.py",
    "python/tests/test_state_machine.py",
    "python/tests/test_transactions.py",
}


def test_no_test_sleeps_to_let_others_go_first() -> None:
    sleeps = re.compile(r"\bsleep_(?:for|until)\(|\b(?:u|nano)?sleep\(")
    paths = [path for path in cpp("tests", "crashtest") if sleeps.search(code(path))]
    assert {shown(path) for path in paths} == set(SLEEPS)
    waits = re.compile(r"(?<!def )(?<!\w)(?:time\.)?sleep\((?!0\)|self|scrub)(.*)$", re.MULTILINE)
    found = {}
    for path in tree("python/tests", "crashtest", "tests", suffixes={".py"}):
        if calls := [call for call in waits.findall(path.read_text("utf-8")) if '"' not in call]:
            found[shown(path)] = [call for call in calls if "# " not in call]
    assert found == {name: [] for name in SLEEPS_IN_PYTHON}


def test_public_headers_include_only_each_other_and_the_standard_library() -> None:
    headers = cpp("include")
    assert headers
    for path in headers:
        for target in re.findall(r"^\s*#\s*include\s*(\S+)", code(path), re.MULTILINE):
            assert re.fullmatch(r"<tensorshelf/\w+\.hpp>|<\w+>", target), f"{shown(path)}: {target}"


def test_persistence_calls_stand_in_src_media_alone() -> None:
    wrong = []
    for path in cpp("src"):
        if ROOT / "src" / "media" not in path.parents:
            wrong += lines_matching(MEDIA_ONLY, path, code(path))
    assert wrong == []
    assert any(MEDIA_ONLY.search(code(path)) for path in cpp("src/media"))  # the search can hit


def test_below_the_public_face_nothing_includes_it() -> None:
    using = {shown(path) for path in cpp("src") if FACE.search(path.read_text("utf-8"))}
    assert using - ABOVE_THE_FACE == set()
    assert "src/store/shelf.cpp" in using  # the search can hit


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


def test_every_planted_bug_is_caught_somewhere() -> None:
    listed = re.search(r"enum class Bug \{(.*?)\};", code(ROOT / "src/base/planted.hpp"), re.DOTALL)
    assert listed
    bugs = set(re.findall(r"\w+", listed[1])) - {"none"}
    catching = [ROOT / "crashtest/bugs.cpp"]
    planted_too = re.compile(rf"test_(?:{'|'.join([*MEDIA, 'group'])})_")
    catching += [path for path in cpp("tests") if planted_too.match(path.name)]
    caught = {bug for path in catching for bug in re.findall(r"Bug::(\w+)", code(path))}
    assert bugs - caught == set()
    assert len(bugs) > 100  # the search can hit


def test_both_lists_of_planted_bugs_name_the_same_invariants() -> None:
    header = (ROOT / "src/base/planted.hpp").read_text("utf-8")
    said = dict(re.findall(r"^  (\w+),(?:\s*// (I\d+))?", header, re.MULTILINE))
    table = code(ROOT / "crashtest/bugs.cpp")
    listed = re.findall(r'\{\s*"\w+",\s*"(I\d+|-)",\s*Bug::(\w+)', table)
    assert {bug: said[bug] or "-" for _, bug in listed if bug != "none"} == {
        bug: invariant for invariant, bug in listed if bug != "none"
    }
    assert len(listed) > 100  # the search can hit


def test_no_two_plays_of_the_explorer_have_one_name() -> None:
    plays = [
        name
        for path in cpp("crashtest")
        if path.name in ("scenarios.cpp", "large.cpp")
        for name in re.findall(
            r'^ {6,8}\{"([\w-]+)", "(?:I\d+|-)", \w+\},', code(path), re.MULTILINE
        )
    ]
    assert sorted({name for name in plays if plays.count(name) > 1}) == []
    played = set(re.findall(r'"([\w-]+)"\},', code(ROOT / "crashtest/bugs.cpp")))
    assert len(plays) > 80  # the search can hit
    assert "older-root-long" in played & set(plays)


def test_the_design_tells_how_each_invariant_is_shown_broken() -> None:
    design = (ROOT / "docs/design.md").read_text("utf-8")
    table = design.partition("| breaks | caught by |")[2].partition("\n\n")[0]
    breaks = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    told = set(re.findall(r"I\d+", " ".join(breaks)))
    broken = set(re.findall(r'"(I\d+)"', code(ROOT / "crashtest/bugs.cpp")))
    assert broken - told == set()
    assert len(broken) > 10  # the search can hit


def test_the_objects_of_a_drain_are_told_alike() -> None:
    told = (ROOT / "docs/drain.md").read_text("utf-8")
    for name in ("manifest", "joint"):
        text = (ROOT / f"python/tensorshelf/_drain/{name}.py").read_text("utf-8")
        paths = re.findall(r"^    ((?:\w+|rank-N)/\S+)", text.split('"""')[1], re.MULTILINE)
        assert len(paths) == {"manifest": 2, "joint": 2}[name]
        for path in paths:
            assert f"    {path.rstrip(',')}" in told, path
        (folder,) = re.findall(r'^FOLDER = "(\w+)"', text, re.MULTILINE)
        assert f"    {folder}/" in told


def test_the_byte_map_of_the_design_is_that_of_layout_hpp() -> None:
    layout = (ROOT / "src/format/layout.hpp").read_text("utf-8")
    design = (ROOT / "docs/design.md").read_text("utf-8")

    def constant(name: str) -> int:
        return int(re.search(rf"\b{name} = (\w+);", layout)[1], 0)  # type: ignore[index]

    page = 4096
    header, mark = constant("kHeaderBytes"), constant("kMarkAt")
    assert f"incarnation +{constant('kIncarnationAt'):#x}, mark +{mark:#x}" in design
    assert f"root homes +{constant('kRootsAt'):#x} ({constant('kMaxSlots')} of 4 KiB)" in design
    assert f"    {header:#07x}  header copy 1" in design
    assert f"    {2 * header:#07x}  heap:" in design
    records = {
        "superblock": "Superblock",
        "incarnation": "IncarnationRecord",
        "mark": "PreparedMark",
        "page ref": "PageRef",
        "chunk record": "ChunkRecord",
        "tensor record": "TensorRecord",
    }
    for words, struct in records.items():
        size = re.search(rf"sizeof\({struct}\) == (\d+)", layout)
        row = re.search(rf"^\| {words} \| (\d+)", design, re.MULTILINE)
        assert size, words
        assert row, words
        assert size[1] == row[1], words
    for words, struct in {
        "root": "Root",
        "directory": "DirectoryPage",
        "cells page": "CellsPage",
    }.items():
        assert f"sizeof({struct}) == kPageBytes" in layout
        assert re.search(rf"^\| {words} \| {page} ", design, re.MULTILINE), words
    # The map in the header of layout.hpp, a third time.
    for place in (constant("kIncarnationAt"), mark, constant("kRootsAt")):
        assert f"+{place:#07x}" in layout
    assert (
        f"home h at +{constant('kRootsAt'):#x} + h * 4 KiB, h < {constant('kMaxSlots')}" in layout
    )
    assert f"//   {header:#07x}  header copy 1" in layout
    # That of a medium beside the first.
    second, stamp = constant("kMediumHeaderBytes"), constant("kMediumStampAt")
    slots = constant("kMediumHeapAt")
    words = " ".join(design.split())
    assert f"nothing else of the shelf, from {slots:#x} on" in words
    assert f"a header, at 0 and {second:#x}, and {stamp:#x} behind each the stamp" in words
    assert f"From {slots:#x} on lies what the other has" in words
    for place, what in {
        stamp: "stamp copy 0",
        second: "header copy 1",
        second + stamp: "stamp copy 1",
        slots: "slots",
    }.items():
        assert f"//   {place:#07x}  {what}" in layout

    assert f"//   {2 * header:#07x}  heap" in layout


def test_prose_has_lines_that_can_be_read() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        prose = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
        assert [line for line in prose if len(line) > 120] == [], shown(path)


RECORDS = {
    "superblock": "Superblock",
    "incarnation": "IncarnationRecord",
    "mark": "PreparedMark",
    "root": "Root",
    "page ref": "PageRef",
    "directory": "DirectoryPage",
    "cells page": "CellsPage",
    "page head": "PageHead",
    "chunk record": "ChunkRecord",
    "media page": "MediaPage",
    "medium header": "MediumHeader",
    "tensor record": "TensorRecord",
}
COUNTS = {"kCopies": 2, "kMaxIdBytes": 256, "kMaxMedia": 8, "kRootRefs": 165}
COUNTS |= {"kFurtherMedia": 7, "kMaxPathBytes": 512}
COUNTS |= {"kDirectoryRefs": (4096 - 16) // 24, "kPageCells": (4096 - 16) // 16}
SIZES = {"char": 1, "std::uint16_t": 2, "std::uint32_t": 4, "std::uint64_t": 8}
SIZES |= {"ShelfId": 16, "PageKind": 4, "Placement": 2, "MediumRecord": 32}
SIZES |= {"PageRef": 24, "PageHead": 16, "ChunkRecord": 16, "MediumEntry": 544}


def members(struct: str, layout: str) -> list[tuple[str, int]]:
    """Names and sizes of the fields of a struct of layout.hpp, in their order."""
    body = re.search(rf"^struct {struct} {{\n(.*?)^}};", layout, re.MULTILINE | re.DOTALL)
    assert body, struct
    found = re.findall(r"^  ([\w:]+(?:<[^>]*>)?) (\w+);", body[1], re.MULTILINE)
    sizes = []
    for kind, name in found:
        several = re.fullmatch(r"std::array<([\w:]+), (\w+)>", kind)
        count = several[2] if several else "1"
        times = int(count) if count.isdigit() else COUNTS[count]
        sizes.append((name, times * SIZES[several[1] if several else kind]))
    return sizes


def test_the_fields_of_each_record_in_the_design_are_those_of_layout_hpp() -> None:
    design = (ROOT / "docs/design.md").read_text("utf-8")
    layout = (ROOT / "src/format/layout.hpp").read_text("utf-8")
    table = design[design.index("| record | bytes | fields |") :].split("\n\n")[0]
    rows = re.findall(r"^\| (\w[\w ]*) \| (\d+)(?: \+)? \| (.*) \|$", table, re.MULTILINE)
    assert [words for words, _, _ in rows] == list(RECORDS)
    for words, size, text in rows:
        fixed = re.sub(r" \([^)]*\)", "", text.split("; K slots")[0])
        fields = [(name, int(bytes)) for name, bytes in re.findall(r"(\w+) (\d+)", fixed)]
        assert fields == members(RECORDS[words], layout), words
        assert sum(bytes for _, bytes in fields) == int(size), words
    for name in ("kMaxIdBytes", "kRootRefs"):
        assert re.search(rf"\b{name} = {COUNTS[name]};", layout), name
    for name in ("kRootRefs", "kDirectoryRefs"):
        assert f"({COUNTS[name]} page refs)" in table
    assert f"({COUNTS['kPageCells']} chunk records)" in table


def test_the_codes_and_bits_of_the_design_are_those_of_layout_hpp() -> None:
    design = (ROOT / "docs/design.md").read_text("utf-8")
    layout = (ROOT / "src/format/layout.hpp").read_text("utf-8")
    public = (ROOT / "include/tensorshelf/tensor.hpp").read_text("utf-8")

    def codes(name: str, text: str, *, but: str = "") -> str:
        body = re.search(rf"enum class {name} [^{{]*{{(.*?)}};", text, re.DOTALL)
        assert body, name
        found = re.findall(
            r"^\s*(\w+) = (\d+)|(?<=, )(\w+) = (\d+)", body[1].lstrip(), re.MULTILINE
        )
        pairs = [(a or c, b or d) for a, b, c, d in found]
        return ", ".join(f"{code} {word.replace('_', ' ')}" for word, code in pairs if word != but)

    def constant(name: str) -> int:
        found = re.search(rf"\b{name} = (\d+);", layout)
        assert found, name
        return int(found[1])

    assert f"kind ({codes('PageKind', layout)}) 4" in design
    assert f"kind in 48-55: {codes('ChunkKind', layout)}) 8" in design
    assert f"placement ({codes('Placement', public)}) 2" in design
    version = constant("kVersionBits")
    assert f"state (version in bits 0-{version - 1}, slot in {version}-{version + 7}," in design
    assert f"low {version} bits and, above, {64 - version} bits of a hash" in design
    assert f"low {64 - version} bits of XXH3-64(incarnation, sequence; seed 0)" in design
    assert (
        f"holds the tag {constant('kWipedTag')} over v - K, or 2^{version} - 1 where v < K"
        in design
    )
    newest, oldest = constant("kFormatVersion"), constant("kOldestFormat")
    assert f"format_version ({oldest} to {newest}) 4" in design
    assert f"format_version ({constant('kMarkFormat')}) 4" in design
    assert f"flags ({constant('kLeavesInRoot')}: they are of leaves) 8" in design
    for record, words in (
        ("MediumRecord", "media (eight of: "),
        ("MediumEntry", "media (seven of: "),
        ("SlotRecord", "n, of 16 ("),
    ):
        told = re.search(re.escape(words) + r"([^)]*)\)", design)
        assert told, record
        sizes = [int(size) for size in re.findall(r"\w+ (\d+)", told[1])]
        assert sizes == [size for _, size in members(record, layout)], record
    for name in ("kSpread1", "kSpread2"):
        value = re.search(rf"{name} = (0x\w+);", layout)
        assert value
        assert value[1] in design


def test_the_codes_of_element_types_stand_in_the_design() -> None:
    design = (ROOT / "docs/design.md").read_text("utf-8")
    header = (ROOT / "include/tensorshelf/tensor.hpp").read_text("utf-8")
    body = re.search(r"enum class DType .*?{(.*?)};", header, re.DOTALL)
    assert body
    coded = [(int(c), n) for n, c in re.findall(r"(\w+) = (\d+),", body[1])]
    told = re.search(r"^Element types: (.*?)\.$", design, re.MULTILINE | re.DOTALL)
    assert told
    words = [(int(c), n) for c, n in re.findall(r"(\d+)\s+(\w+)", told[1])]
    assert words == [(code, "bool" if name == "boolean" else name) for code, name in coded]


def imported(path: Path) -> set[str]:
    """Modules of the package that one of its files names, for checking types alone too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.startswith("tensorshelf.")}


def modules() -> dict[str, set[str]]:
    """Those of the package, but for what gathers it, and whom each imports."""
    files = list((ROOT / "python" / "tensorshelf").rglob("*.py"))
    named = {".".join(f.relative_to(ROOT / "python").with_suffix("").parts): f for f in files}
    named = {name: path for name, path in named.items() if not name.endswith("__init__")}
    return {name: imported(path) & (named.keys() - {name}) for name, path in named.items()}


def in_rings(needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left where whatever needs nothing more is taken away, again and again."""
    waiting = needs
    while ready := {name for name, of in waiting.items() if not of}:
        waiting = {name: of - ready for name, of in waiting.items() if name not in ready}
    return waiting


def test_python_modules_import_in_one_direction() -> None:
    assert in_rings(modules()) == {}


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


def included(path: Path) -> list[Path]:
    """Our headers that a file includes: beside it, or else from where the compilers look."""
    places = (path.parent, ROOT / "src", ROOT / "include", ROOT)
    includes = r'^\s*#\s*include\s*(?:"|<(?=tensorshelf/))([^">]+)'
    names = re.findall(includes, code(path), re.MULTILINE)
    return [next(at / name for at in places if (at / name).is_file()) for name in names]


def test_cpp_modules_include_in_one_direction() -> None:
    """A header and its source are one module, so that no two need each other."""
    needs: dict[str, set[str]] = {}
    for path in cpp("include", "src", "crashtest", "tests", "bench", "python"):
        module = shown(path.with_suffix(""))
        headers = {shown(header.with_suffix("")) for header in included(path)}
        needs[module] = (needs.get(module, set()) | headers) - {module}
    assert in_rings({name: of & needs.keys() for name, of in needs.items()}) == {}
    assert len(needs["src/store/state/state"]) > 10  # the search can hit
    assert {"src/base/check", "crashtest/log"} <= needs["crashtest/window"]


def level_of(path: Path) -> int:
    """The number of its folder of the store; beyond the last for what lies in none."""
    inside = path.relative_to(ROOT / "src" / "store").parts[:-1]
    return OF_STORE.index(inside[0]) if inside else len(OF_STORE)


def test_the_folders_of_the_store_lie_one_above_the_other() -> None:
    assert {path.name for path in (ROOT / "src/store").iterdir() if path.is_dir()} == set(OF_STORE)
    upwards = [
        f"{shown(path)} includes {shown(header)}"
        for path in cpp("src/store")
        for header in included(path)
        if shown(header).startswith("src/store/") and level_of(header) > level_of(path)
    ]
    assert upwards == []


def test_members_are_defined_in_the_folder_that_declares_them() -> None:
    """Else a folder would need one above it when it is linked, which no include shows."""
    declared = {
        name: path.parent
        for path in cpp("src/store")
        if path.suffix == ".hpp"
        for name in re.findall(r"^(?:class|struct) (\w+)[^;\n]*\{$", code(path), re.MULTILINE)
    }
    defined = [
        (path, name)
        for path in cpp("src/store")
        if path.suffix == ".cpp"
        for name in re.findall(r"^\w[^(\n]*\b(\w+)::~?\w+\(", code(path), re.MULTILINE)
        if name in declared
    ]
    assert len(defined) > 300  # the search can hit
    assert [(shown(at), name) for at, name in defined if declared[name] != at.parent] == []


def test_values_know_nothing_of_shelves() -> None:
    allowed = {"tensorshelf.errors"}
    for name, needs in modules().items():
        if name.startswith("tensorshelf._values."):
            others = {each for each in needs if not each.startswith("tensorshelf._values.")}
            assert others <= allowed, name


def test_bindings_decide_nothing_but_where_they_say_so() -> None:
    """Neither what becomes of edits, nor which error there is, nor when Ctrl-C is heard."""
    decisions = re.compile(
        r"\bedits|(?<!\w)Error\(|PyErr_(?:WarnEx|SetString|Format|CheckSignals|Clear|ExceptionMatches)"
    )
    named = re.findall(r"(\w+)\.[ch]pp[,:]", (ROOT / "python" / "bindings.cpp").read_text())
    assert set(named) < {path.stem for path in cpp("python")}
    deciding = {path.stem for path in cpp("python") if decisions.search(code(path))}
    assert deciding
    assert deciding <= set(named)
    assert not [name for name in named if name.startswith("bind")]


def test_cuda_is_included_in_one_folder_alone() -> None:
    using = [shown(path) for path in cpp("src", "include", "python") if CUDA.search(code(path))]
    assert using
    assert {str(Path(path).parent) for path in using} == {"src/feed/cuda"}


def test_warnings_are_errors_in_our_presets_alone() -> None:
    as_error = re.compile("-Werror|WARNING_AS_ERROR")  # would break whoever has another compiler
    files = [*tree("cmake", suffixes={".cmake", ".in"}), *tree(suffixes={".toml"})]
    files += [path for path in tree(suffixes={".txt"}) if path.name == "CMakeLists.txt"]
    hits = [
        hit for path in files for hit in lines_matching(as_error, path, path.read_text("utf-8"))
    ]
    assert hits == []
    assert as_error.search((ROOT / "CMakePresets.json").read_text("utf-8"))


def test_there_is_one_commit_point() -> None:
    marked = [
        hit
        for path in tree("src")
        for hit in lines_matching(re.compile("COMMIT POINT"), path, path.read_text("utf-8"))
    ]
    assert len(marked) == 1, marked
    assert marked[0].startswith("src/store/manifest/flip")


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


def test_rooms_of_the_package_are_small() -> None:
    paths = list(tree("python/tensorshelf", suffixes={".py"}))
    files = {shown(path): len(path.read_text("utf-8").splitlines()) for path in paths}
    assert {name: lines for name, lines in files.items() if lines > 400} == {}
    lengths: dict[str, int] = {}
    private: dict[str, int] = {}
    for path in paths:
        for all_of_them, some in zip((lengths, private), python_rooms(path), strict=True):
            all_of_them |= some
    assert {where: lines for where, lines in lengths.items() if lines > 60} == {}
    assert {where: count for where, count in private.items() if count > 15} == {}
    assert len(lengths) > 1000  # the search can hit


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


def test_no_class_has_more_than_15_private_methods() -> None:
    found: dict[str, int] = {}
    for path in cpp("src", "include", "python"):
        for name, count in private_methods(code(path)).items():
            found[name] = max(count, found.get(name, 0))  # names may come twice
    assert {name: count for name, count in found.items() if count > 15} == {}
    assert found["Stager"] > 10  # the search can hit


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
