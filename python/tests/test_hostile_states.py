"""A saved state that is not what saving gives: told as damaged, whatever stands there."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorshelf as ts
from tensorshelf._state import checked
from tensorshelf._values import _dtypes

msgpack = pytest.importorskip("msgpack")

A = ["tensor", "numpy", "float32", [3], "a", None]
NO_RECORD = "'__state__' is no record of a saved state: "


def put(shelf: ts.Shelf, record: Any) -> None:
    """The record as it is stored, whatever it says."""
    data = msgpack.packb(record, use_bin_type=True)
    raw = len(data).to_bytes(8, "little") + data
    room = np.frombuffer(raw.ljust(4096, b"\0"), np.uint8)
    if "__state__" in shelf:
        shelf.replace("__state__", room)
    else:
        shelf["__state__"] = room


def put_tree(shelf: ts.Shelf, tree: Any, owned: Any = ()) -> None:
    put(shelf, {"format": 1, "owned": list(owned), "tree": tree})


MALFORMED: dict[str, Any] = {
    "a map": {"a": 1},
    "a time": msgpack.Timestamp(1, 2),
    "no tag": [],
    "a number as a tag": [1, 2],
    "a list as a tag": [["list"], 2],
    "a node in a list": ["list", ["tuple", []]],
    "a key without a value": ["dict", "a"],
    "a key of a list": ["dict", ["list", 1], 2],
    "a key of a tensor": ["dict", A, 2],
    "a key in a key": ["dict", ["tuple", ["tuple", ["dict"]]], 2],
    "a bytearray as a key": ["dict", ["bytearray", b"a"], 2],
    "a bytearray in a set": ["set", ["bytearray", b"a"]],
    "a range that stands, of many digits": ["range", 1, 2, ["int", b"\0"]],
    "a part of an empty text": ["tensor", "numpy", "<U0", [3], ["a", 4], None],
    "a part of NumPy's": ["tensor", "numpy", "float32", [3], ["a", 0], None],
    "an item of a set that is a list": ["set", ["list"]],
    "an item of a frozen set that is a tie": ["frozenset", ["tie", 0]],
    "metadata alone": ["OrderedDict"],
    "ordered, without a value": ["OrderedDict", None, "a"],
    "ordered, metadata that are none": ["OrderedDict", {"a": 1}],
    "counted, without a count": ["Counter", "a"],
    "a number that is no bytes": ["int", 5],
    "two numbers": ["int", b"1", b"2"],
    "a complex number of one": ["complex", 1.0],
    "a complex number of whole ones": ["complex", 1, 2],
    "a bytearray of text": ["bytearray", "a"],
    "a range of two": ["range", 1, 2],
    "a range that stands": ["range", 1, 2, 0],
    "a range of fractions": ["range", 1, 2, 1.5],
    "a range of nothing": ["range", 1, 2, None],
    "a range of odd numbers": ["range", 1, 2, ["int", 3]],
    "a number of another width": ["number", "<f4", b"12345"],
    "an empty text with a letter": ["number", "<U0", b"a"],
    "a number of an object": ["number", "|O", b"12345678"],
    "a number of no type": ["number", "float", b"12345678"],
    "a number without bytes": ["number", "<f4"],
    "a type of fields": ["np.dtype", "i4,i4"],
    "a type that is none": ["np.dtype", "<q4"],
    "a type of code": ["np.dtype", "}{"],
    "no type": ["np.dtype", 4],
    "a size below none": ["torch.Size", 1, -1],
    "a size that is true": ["torch.Size", True],
    "a torch type of a number": ["torch.dtype", 4],
    "a device of a number": ["torch.device", 0],
    "a part of a part": ["part", [6], [0], ["part", [6], [0], A]],
    "a part that is no tensor": ["part", [6], [0], 5],
    "a part without a node": ["part", [6], [0]],
    "a part of fewer dimensions": ["part", [6], [], A],
    "a part behind the whole": ["part", [6], [7], A],
    "a part before the whole": ["part", [6], [-1], A],
    "a part of a length that is none": ["part", [6.0], [0], A],
    "a part of a name that is a number": ["part", [6], [0], A, 7],
    "a part of two names": ["part", [6], [0], A, "w", "w"],
    "a part of nothing known": ["part", [6], [0], ["tie", 0]],
    "a tie to nothing": ["tie", 0],
    "a tie to a later tensor": ["list", ["tie", 1], A],
    "a tie below none": ["list", A, ["tie", -1]],
    "a tie of two": ["list", A, ["tie", 0, 0]],
    "a tensor of four parts": A[:5],
    "a tensor of seven parts": [*A, None],
    "a tensor of no library": ["tensor", "jax", "float32", [3], "a", None],
    "a tensor of no type": ["tensor", "numpy", "float31", [3], "a", None],
    "a tensor of objects": ["tensor", "numpy", "|O", [3], "a", None],
    "a torch tensor of text": ["tensor", "torch", "<U1", [3], "a", None],
    "a tensor of a number for a type": ["tensor", "numpy", 4, [3], "a", None],
    "a shape below none": ["tensor", "numpy", "float32", [-3], "a", None],
    "a shape that is a number": ["tensor", "numpy", "float32", 3, "a", None],
    "a place that is a number": ["tensor", "numpy", "float32", [3], 7, None],
    "bytes for a dimension": ["tensor", "numpy", "float32", [3], b"123456789012", None],
    "too few bytes": ["tensor", "numpy", "float32", [], b"123", None],
    "a part within an element": ["tensor", "torch", "float32", [3], ["a", 2], None],
    "a part before the beginning": ["tensor", "torch", "float32", [3], ["a", -4], None],
    "a part of a number": ["tensor", "torch", "float32", [3], [7, 0], None],
    "a part without an offset": ["tensor", "torch", "float32", [3], ["a"], None],
    "a part of nothing": ["tensor", "torch", "float32", [3], [], None],
    "a piece that is no place": ["piece", "torch", "float32", [3], "a", None],
    "a piece of NumPy's": ["piece", "numpy", "float32", [3], ["w", 2, 0, 12, "a"], None],
    "a piece of four": ["piece", "torch", "float32", [3], ["w", 2, 0, 12], None],
    "a piece without a name": ["piece", "torch", "float32", [3], [7, 2, 0, 12, "a"], None],
    "a piece of no writers": ["piece", "torch", "float32", [3], ["w", 0, 0, 12, "a"], None],
    "a piece of the same writer twice": [
        *("piece", "torch", "float32", [3]),
        ["w", [0, 2, 1, 1, 1, 1], 0, 12, "a"],
        None,
    ],
    "a piece before the beginning": ["piece", "torch", "float32", [3], ["w", 2, -4, 8, "a"], None],
    "a piece behind the end": ["piece", "torch", "float32", [3], ["w", 2, 4, 16, "a"], None],
    "a piece of less than none": ["piece", "torch", "float32", [3], ["w", 2, 8, 4, "a"], None],
    "a piece within an element": ["piece", "torch", "float32", [3], ["w", 2, 0, 6, "a"], None],
    "a piece that is nowhere": ["piece", "torch", "float32", [3], ["w", 2, 0, 12, None], None],
    "a piece of nothing": ["piece", "torch", "float32", [3], ["w", 2, 0, 0, "a"], None],
    "a piece of an empty one": ["piece", "torch", "float32", [0], ["w", 2, 0, 0, None], None],
    "pieces of the same name": [
        "list",
        ["piece", "torch", "float32", [3], ["w", 1, 0, 12, "a"], None],
        ["piece", "torch", "float32", [3], ["w", 1, 0, 12, "a"], None],
    ],
    "a piece of strides": ["piece", "torch", "float32", [3], ["w", 2, 0, 12, "a"], [1, 1]],
    "a stride too many": ["tensor", "numpy", "float32", [3], "a", [1, 1]],
    "a stride below none": ["tensor", "numpy", "float32", [3], "a", [-1]],
    "a stride that is a number": ["tensor", "numpy", "float32", [3], "a", 1],
    "an optimizer of a list": ["by_name", ["list"]],
    "an optimizer of none": ["by_name"],
    "an optimizer of two": ["by_name", ["dict"], ["dict"]],
    "an optimizer of a number": ["by_name", 1],
    "an optimizer without groups": ["by_name", ["dict", "state", ["dict"]]],
    "an optimizer without a state": ["by_name", ["dict", "param_groups", ["list"]]],
    "an optimizer of a number of groups": [
        "by_name",
        ["dict", "state", ["dict"], "param_groups", 1],
    ],
    "an optimizer of no groups": [
        "by_name",
        ["dict", "state", ["dict"], "param_groups", ["list"]],
    ],
    "an optimizer whose group is a list": [
        "by_name",
        ["dict", "state", ["dict"], "param_groups", ["list", ["list"]]],
    ],
    "an optimizer whose group names nothing": [
        "by_name",
        ["dict", "state", ["dict"], "param_groups", ["list", ["dict", "lr", 1.0]]],
    ],
    "an optimizer whose group has numbers": [
        "by_name",
        ["dict", "state", ["dict"], "param_groups", ["list", ["dict", "params", ["list", 0]]]],
    ],
}


def names_in(tree: Any) -> list[str]:
    if not isinstance(tree, list):
        return []
    if tree[:1] == ["tensor"] and len(tree) > 4:
        place = tree[4][:1] if isinstance(tree[4], list) else [tree[4]]
        return [name for name in place if isinstance(name, str)]
    if tree[:1] == ["piece"] and len(tree) > 4 and isinstance(tree[4], list):
        return [name for name in tree[4][4:] if isinstance(name, str)]
    return sorted({name for part in tree for name in names_in(part)})


@pytest.mark.parametrize("tree", MALFORMED.values(), ids=MALFORMED)
def test_what_saving_never_gives_is_no_record(shelf: ts.Shelf, tree: Any) -> None:
    shelf.a = np.arange(3, dtype=np.float32)
    put_tree(shelf, ["dict", "x", tree], names_in(tree))
    for call in ways(shelf):
        with pytest.raises(ts.CorruptError, match=NO_RECORD):
            call()
    assert shelf.a.numpy().tolist() == [0, 1, 2]


def ways(shelf: ts.Shelf) -> list[Callable[[], object]]:
    return [
        shelf.load,
        lambda: shelf.load("x"),
        lambda: shelf.load_into({"x": 1}, strict=False),
        lambda: shelf.save({"x": 1}),
    ]


@pytest.mark.parametrize(
    ("tree", "owned"),
    [
        (None, ["a"]),
        (None, "a"),
        (None, None),
        (None, [1]),
        (A, []),
        (A, ["b"]),
        (A, ["a", "b"]),
        (A, ["a", "a"]),
        (["list", A, ["tensor", "numpy", "float32", [3], "b", None]], ["b", "a"]),
    ],
)
def test_a_record_that_owns_other_tensors_deletes_none(
    shelf: ts.Shelf, tree: Any, owned: Any
) -> None:
    shelf.a = np.arange(3, dtype=np.float32)
    put(shelf, {"format": 1, "owned": owned, "tree": tree})
    shelf.persist()
    with pytest.raises(ts.CorruptError, match="it names other tensors than its tree has"):
        shelf.save({"x": 1})
    assert "a" in shelf


@pytest.mark.parametrize(
    ("record", "match"),
    [
        ([1], "it has no format"),
        ({"tree": None, "owned": []}, "it has no format"),
        ({"format": True, "tree": None, "owned": []}, "it has no format"),
        ({"format": "1", "tree": None, "owned": []}, "it has no format"),
        ({"format": 1, "tree": None}, "other parts"),
        ({"format": 1, "tree": None, "owned": [], "more": 1}, "other parts"),
    ],
)
def test_a_record_of_other_parts(shelf: ts.Shelf, record: Any, match: str) -> None:
    put(shelf, record)
    with pytest.raises(ts.CorruptError, match=NO_RECORD + f".*{match}"):
        shelf.load()


def test_a_tree_as_deep_as_one_can_be_saved_is_loaded_and_a_deeper_one_is_told(
    shelf: ts.Shelf,
) -> None:
    state: Any = 7
    for _ in range(200):
        state = {"a": state}
    shelf.save(state)
    assert shelf.load() == state
    tree: Any = 7
    key: Any = 7
    for _ in range(300):
        tree, key = ["list", tree], ["tuple", key]
    for deep in (tree, ["dict", key, 1]):
        put_tree(shelf, deep)
        with pytest.raises(ts.CorruptError, match="too deep"):
            shelf.load()


@pytest.mark.parametrize("data", [b"\x81\x91\x01\x02", b"\xc1", b"\x92\x01", b""])
def test_bytes_that_are_no_record(shelf: ts.Shelf, data: bytes) -> None:
    raw = len(data).to_bytes(8, "little") + data
    shelf["__state__"] = np.frombuffer(raw.ljust(4096, b"\0"), np.uint8)
    with pytest.raises(ts.CorruptError, match=NO_RECORD):
        shelf.load()


HUGE = 1 << 62


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("shape", [[HUGE], [HUGE, HUGE], [4], [3, 0], [HUGE, 0, HUGE]])
def test_no_memory_is_taken_for_what_is_not_there(
    shelf: ts.Shelf, library: str, shape: list[int]
) -> None:
    pytest.importorskip(library)
    for strides in (None, [1] * len(shape)):
        put_tree(shelf, ["tensor", library, "float32", shape, "gone", strides], ["gone"])
        with pytest.raises(ts.CorruptError, match=r"'gone', a part .* is not in the shelf"):
            shelf.load()


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("shape", [[HUGE], [HUGE, HUGE], [4], [3, 0], [HUGE, 0, HUGE]])
def test_no_memory_is_taken_for_more_than_there_is(
    shelf: ts.Shelf, library: str, shape: list[int]
) -> None:
    pytest.importorskip(library)
    shelf.a = np.arange(3, dtype=np.float32)
    put_tree(shelf, ["tensor", library, "float32", shape, "a", None], ["a"])
    with pytest.raises(ts.CorruptError, match=r"'a', a part .* has 12 bytes there, and had"):
        shelf.load()


@pytest.mark.parametrize("strides", [[0, 1], [1, 0], [HUGE, HUGE], [1 << 40, 1 << 59]])
def test_strides_that_cannot_be(shelf: ts.Shelf, strides: list[int]) -> None:
    pytest.importorskip("torch")
    shelf.a = np.arange(6, dtype=np.float32)
    put_tree(shelf, ["tensor", "torch", "float32", [2, 3], "a", strides], ["a"])
    with pytest.raises(ts.CorruptError, match="cannot have the strides"):
        shelf.load()


def test_a_tag_of_a_later_release_is_named(shelf: ts.Shelf) -> None:
    put_tree(shelf, ["dict", "x", ["hypercube", 1]])
    with pytest.raises(ts.CorruptError, match="'hypercube', which this release does not know"):
        shelf.load()


def test_a_part_beyond_its_memory_is_told(shelf: ts.Shelf) -> None:
    pytest.importorskip("torch")
    shelf.a = np.zeros(16, np.uint8)
    within = ["tensor", "torch", "float32", [2, 2], ["a", 0], None]
    put_tree(shelf, within, ["a"])
    assert shelf.load().shape == (2, 2)
    for shape, offset, strides in (
        ([2, 2], 4, None),
        ([3, 2], 0, None),
        ([2, 2], 0, [3, 1]),
        ([1], 16, None),
        ([HUGE, HUGE], 0, None),
        ([2], 0, [HUGE]),
    ):
        put_tree(shelf, ["tensor", "torch", "float32", shape, ["a", offset], strides], ["a"])
        with pytest.raises(ts.CorruptError, match="reaches beyond the 16 bytes"):
            shelf.load()


@pytest.mark.parametrize(
    ("node", "match"),
    [
        (["torch.dtype", "float3"], "has no float3"),
        (["torch.dtype", "nn"], "has no nn"),
        (["torch.device", "abacus"], "has no device 'abacus'"),
    ],
)
def test_what_another_torch_knows_is_named(shelf: ts.Shelf, node: Any, match: str) -> None:
    pytest.importorskip("torch")
    put_tree(shelf, ["dict", "x", node, "y", 1])
    with pytest.raises(ts.UnsupportedError, match=match):
        shelf.load()
    assert shelf.load("y") == {"y": 1}


def test_every_tag_that_is_written_is_checked() -> None:
    """And none else: those of the sources are found by their form, a list that begins with one."""
    written = set()
    for name in ("plain", "tensors", "flatten", "split"):
        module = sys.modules[f"tensorshelf._state.{name}"]
        assert module.__file__ is not None
        with open(module.__file__) as file:
            source = file.read()
        written |= {tag for tag in checked._TAGS if f'"{tag}"' in source}
    assert written == set(checked._TAGS)
    for name in ("float32", "bfloat16", "complex32"):
        assert _dtypes.is_known(name)
    assert not _dtypes.is_known("float31")


def test_the_design_tells_every_tag_that_is_checked() -> None:
    design = (Path(__file__).parents[2] / "docs/design.md").read_text("utf-8")
    rows = design.partition("| tag | takes |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    told = [tag for row in rows for tag in row.split("|")[1].split("`")[1::2]]
    assert sorted(told) == sorted(checked._TAGS)


def random_node(chance: random.Random, depth: int) -> Any:
    plain = [None, True, -1, 0, 3, 1.5, "a", b"12", "numpy", "float32", "params", "state", [3]]
    plain += [HUGE, "torch", "<U0", ["a", 0], [0, 1], ["int", b"\0"], ["bytearray", b"a"]]
    if depth == 0 or chance.random() < 0.3:
        return chance.choice(plain)
    tag = chance.choice([*checked._TAGS, "list", "dict", "tensor"])
    return [tag, *(random_node(chance, depth - 1) for _ in range(chance.randrange(6)))]


def test_no_tree_at_all_raises_another_error(shelf: ts.Shelf) -> None:
    """Made at random, and good ones with one node changed."""
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    shelf.a = np.arange(3, dtype=np.float32)
    group = ["dict", "params", ["list", "w"], "lr", 0.1]
    optimizer = ["dict", "state", ["dict", "w", ["dict"]], "param_groups", ["list", group]]
    good = ["dict", "x", A, "y", ["tie", 0], "z", ["by_name", optimizer], "r", ["range", 1, 2, 1]]
    ends = {"loaded": 0, "told": 0}
    for number in range(800):
        tree = changed(good, chance) if number % 2 else random_node(chance, 5)
        put_tree(shelf, tree, names_in(tree))
        try:
            shelf.load()
            ends["loaded"] += 1
        except ts.ShelfError:
            ends["told"] += 1
    assert min(ends.values()) > 10, ends


def changed(node: Any, chance: random.Random) -> Any:
    if not isinstance(node, list) or chance.random() < 0.15:
        return random_node(chance, 1)
    place = chance.randrange(len(node))
    return [changed(part, chance) if i == place else part for i, part in enumerate(node)]
