"""The format as docs/design.md tells it is that of the headers."""

from __future__ import annotations

import re

from sources import ROOT


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
