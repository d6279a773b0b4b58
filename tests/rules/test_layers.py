"""Who may include, import and call whom."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from sources import (
    IGNORED,
    MEDIA,
    ROOT,
    code,
    cpp,
    in_rings,
    included,
    lines_matching,
    shown,
    tree,
    without_prose,
)

# What may stand at the top, ignored things (.gitignore) aside.
TOP_LEVEL = set(
    "CMakeLists.txt CMakePresets.json cmake src include python tests crashtest bench docs README.md"
    " run pyproject.toml .ci LICENSE CHANGELOG.md CONTRIBUTING.md"
    " .clang-format .clang-tidy .gitignore".split()
)

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

# Inner headers stand in quotes, so that the search for includes sees them.
INNER = re.compile(r"#\s*include\s*<(?:base|format|media|store|feed|crashtest|tests)/")

# Calls that make bytes durable or map a shelf: behind the seam, so in src/media alone.
MEDIA_ONLY = re.compile(
    r"\b(?:pmem2?_\w+|pmemobj_\w+|io_uring_\w+|fsync|fdatasync|sync_file_range|msync|syncfs|ftruncate"
    r"|fallocate|posix_fallocate|pwrite|pwritev2?|renameat2)\s*\("
    r"|\bmmap\s*\((?!.*MAP_ANONYMOUS)|#\s*include\s*<(?:libpmem\w*|liburing)\.h>"
)
CUDA = re.compile(r"#\s*include\s*<cuda\w*\.h>")


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


def test_python_modules_import_in_one_direction() -> None:
    assert in_rings(modules()) == {}


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
        r"\bedits|(?<!\w)Error\(|\b(?:value|type|key|index)_error\b|PyErr_(?:WarnEx|SetString|Format|CheckSignals|Clear|ExceptionMatches)"
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
