"""The small parts of tensorshelf.dcp: names, and what says how a save is made up."""

from typing import Any

import pytest

import tensorshelf as ts

torch = pytest.importorskip("torch")
msgpack = pytest.importorskip("msgpack")
pytest.importorskip("torch.distributed.checkpoint")

from torch.distributed.checkpoint import metadata as md  # noqa: E402

from tensorshelf.dcp import _codec, _plain, _record, _room  # noqa: E402
from tensorshelf.dcp._names import name_of  # noqa: E402
from tensorshelf.dcp._shares import Piece, Share, coordinator_of, new_id  # noqa: E402


def test_names() -> None:
    assert name_of("a.b", None) == name_of("a.b", (0, 0)[:0]) == "a.b"
    assert name_of("a.b", (4, 0)) == "a.b[4,0]"
    given = ["w", "w[]", "w[4]", "w[4][]", "w[4,0]", "__dcp__", "", "w[x]", "y" * 2000, "y" * 2001]
    pieces: list[tuple[int, ...] | None] = [None, (4,), (4, 0)]
    names = [name_of(fqn, piece) for fqn in given for piece in pieces]
    assert len(set(names)) == len(names)
    assert all(0 < len(name.encode()) <= 1024 and name != "__dcp__" for name in names)


@pytest.mark.parametrize(
    "value",
    [None, True, -5, 0.5, "t", b"b", [], (), {}, {"a": ("b", 0, [1.0])}, {0: {(1, "x"): None}}],
)
def test_data_of_planners(value: Any) -> None:
    node = msgpack.unpackb(msgpack.packb(_plain.encoded(value, "x")), strict_map_key=False)
    found = _plain.value_of(node)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [{1}, {"a": [object()]}, 1 << 63, torch.ones(1)])
def test_data_that_is_refused(value: Any) -> None:
    with pytest.raises(ts.NotStorable, match=r"^x"):
        _plain.encoded(value, "x")


def whole() -> Any:
    properties = md.TensorProperties(
        torch.bfloat16, requires_grad=True, memory_format=torch.channels_last, pin_memory=True
    )
    chunks = [md.ChunkStorageMetadata(torch.Size([n, 0]), torch.Size([1, 2])) for n in (0, 1)]
    return md.Metadata(
        {
            "b": md.BytesStorageMetadata(),
            "a": md.TensorStorageMetadata(properties, torch.Size([2, 2]), chunks),
            "0d": md.TensorStorageMetadata(md.TensorProperties(), torch.Size([]), []),
        },
        planner_data={"a": ("a", 0)},
        version="1.0.0",
    )


class Tensor:
    """A tensor of a shelf, as far as records need it."""

    dtype_name = "uint8"

    def __init__(self, data: bytes) -> None:
        self.room = _room.filled(data, None)
        self.shape, self.nbytes = self.room.shape, self.room.nbytes

    def numpy(self) -> Any:
        return self.room


def test_metadata() -> None:
    given = whole()
    pieces = {
        md.MetadataIndex("a", [1, 0], 1): Piece(1, "a[1,0]", 4),
        md.MetadataIndex("b"): Piece(0, "b", 3),
    }
    shares = {n: Share(n, f"run.{n}.shelf", "f" * 32, 5 + n, new_id("f" * 32)) for n in (0, 1)}

    data = _record.group(shares[0].id, shares, given, pieces)
    head = _record.find({"__dcp__": Tensor(data)})
    assert head is not None
    assert (head.id, head.shares) == (shares[0].id, shares)
    found = _record.metadata_of(head)
    assert list(found.state_dict_metadata) == list(given.state_dict_metadata)
    assert found.state_dict_metadata == given.state_dict_metadata
    assert (found.planner_data, found.version) == (given.planner_data, given.version)
    assert found.storage_data == pieces
    assert [index.index for index in found.storage_data] == [1, None]


def test_a_room_that_is_far_too_large_is_replaced() -> None:
    """And one that is a little too large is used again, so that lengths may vary."""
    before = Tensor(bytes(100_000))
    assert _room.filled(bytes(40_000), before).nbytes == before.nbytes
    assert _room.filled(bytes(10), before).nbytes < before.nbytes // 4


@pytest.mark.parametrize("version", [None, "2.0", ("2", 0), {"major": 2}], ids=str)
def test_versions_of_other_kinds_come_back(version: Any) -> None:
    given = whole()
    given.version = version
    assert _codec.decoded(_codec.encoded(given, {})).version == version


def test_metadata_of_other_kinds_is_refused_by_name() -> None:
    given = whole()
    given.state_dict_metadata["a"].properties.layout = torch.sparse_coo
    with pytest.raises(ts.NotStorable, match=r"^metadata.state_dict_metadata\['a'\].properties"):
        _codec.encoded(given, {})
    given.state_dict_metadata["a"] = 5
    with pytest.raises(ts.NotStorable, match=r"^metadata.state_dict_metadata\['a'\]: 5"):
        _codec.encoded(given, {})


SHARE = [0, "run.0.shelf", "f" * 32, 1, b"i"]
INNER: dict[str, Any] = {"state": [], "planner": None, "version": None, "pieces": []}
PLACE = ["a", [0], None, 0, "a", 4]
ENTRY = [["float32", False, "contiguous", False], [2], [[[0], [2]]]]


@pytest.mark.parametrize(
    "node",
    [
        [],
        7,
        {"format": "1"},
        {"format": 1},
        {"format": 1, "id": "text"},
        {"format": 1, "id": b"i", "shares": 5},
        *(
            {"format": 1, "id": b"i", "shares": [[*SHARE[:n], [], *SHARE[n + 1 :]]]}
            for n in range(5)
        ),
        {"format": 1, "id": b"i", "shares": [["../0", *SHARE[1:]]]},
        {"format": 1, "id": b"i", "shares": [[-1, *SHARE[1:]]]},
        *(
            {"format": 1, "id": b"i", "shares": [[0, name, *SHARE[2:]]]}
            for name in ("../x", "", "..", "a/b")
        ),
        {"format": 1, "id": b"i", "shares": [[*SHARE[:3], 0, b"i"]]},
        {"format": 1, "id": b"i", "shares": [[*SHARE[:4], b""]]},
        {"format": 1, "id": b"i", "shares": [SHARE, SHARE]},
        {"format": 1, "id": b""},
        {"format": 1, "id": b"i", "metadata": 5},
    ],
)
def test_records_that_are_none(node: Any) -> None:
    with pytest.raises(ts.CorruptError, match="'__dcp__' is no record of a DCP save"):
        _record.find({"__dcp__": Tensor(msgpack.packb(node))})


def deep(levels: int) -> Any:
    node: Any = None
    for _ in range(levels):
        node = ["list", node]
    return node


@pytest.mark.parametrize(
    "change",
    [
        {"state": 5},
        {"state": [["a"]]},
        {"state": [[5, None]]},
        {"state": [["a", [ENTRY[0], [-1], []]]]},
        {"state": [["a", [ENTRY[0], [2**64 - 1], []]]]},
        {"state": [["a", [["float33", *ENTRY[0][1:]], *ENTRY[1:]]]]},
        {"state": [["a", [["nn", *ENTRY[0][1:]], *ENTRY[1:]]]]},
        {"state": [["a", [[*ENTRY[0][:2], "odd", False], *ENTRY[1:]]]]},
        {"planner": ["odd"]},
        {"planner": ["dict", 1]},
        {"planner": ["dict", ["list"], 1]},
        {"planner": deep(900)},
        {"pieces": [PLACE[:5]]},
        *({"pieces": [[*PLACE[:n], {}, *PLACE[n + 1 :]]]} for n in (0, 2, 3, 4, 5)),
        {"pieces": [["a", [0], None, 1, "a", 4]]},
    ],
)
def test_metadata_that_is_none(change: dict[str, Any]) -> None:
    inner = msgpack.packb({**INNER, "state": [["a", ENTRY]], "pieces": [PLACE], **change})
    data = msgpack.packb({"format": 1, "id": b"i", "shares": [SHARE], "metadata": inner})
    head = _record.find({"__dcp__": Tensor(data)})
    assert head is not None
    with pytest.raises(ts.CorruptError, match="'__dcp__' is no record of a DCP save"):
        _record.metadata_of(head)


def test_a_record_of_a_later_release() -> None:
    with pytest.raises(ts.FormatTooNew, match="of format 2"):
        _record.find({"__dcp__": Tensor(msgpack.packb({"format": 2}))})


def test_ids() -> None:
    one, other = new_id("ab"), new_id("ab")
    assert one != other
    assert len(one) <= 256
    assert coordinator_of(one) == "ab"
    assert coordinator_of(b"a job of mine") is None
