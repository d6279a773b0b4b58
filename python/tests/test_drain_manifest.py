"""What one object says of a version: what is not as it was written counts for nothing."""

import json
import pathlib
from typing import Any

import pytest
from drain_remotes import Remote, assign, check_whole, copied, new_site, use

import tensorshelf as ts
from tensorshelf._drain import codec, joint, manifest
from tensorshelf._drain.catalog import Entry, in_common
from tensorshelf._drain.joint import Joint, Named
from tensorshelf._drain.layout import Part, Tensor
from tensorshelf._drain.manifest import FOLDER, Manifest, Name, Stored, hash_of
from tensorshelf._group.part import Part as GroupPart

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

HASH = hash_of(b"x")
MANIFEST = Manifest(
    shelf="ab",
    version=7,
    step=None,
    time_ns=5,
    metric=1.5,
    milestone=True,
    group=None,
    tensors=[Tensor("w", "float32", (3,), 12, 6)],
    pieces=[(Part(0, 0, 12),)],
    stored=[Stored(HASH, codec.ZLIB, 5)],
)
JOINT = Joint(
    shelf="ab",
    version=7,
    step=3,
    time_ns=5,
    metric=None,
    milestone=False,
    group=GroupPart("job", 0, 1, 1, 4),
    parts=[Named(Name(1, 1, "0" * 16), HASH, 12)],
)


def test_it_is_read_as_it_was_written() -> None:
    assert manifest.decode(MANIFEST.encode(), "x") == MANIFEST
    assert joint.decode(JOINT.encode(), "x") == JOINT


def signed(line: bytes) -> bytes:
    return b"%s\n%s\n" % (line, hash_of(line).encode())


def changed(made: Manifest | Joint, change: dict[str, Any]) -> bytes:
    line = made.encode().partition(b"\n")[0]
    return signed(json.dumps({**json.loads(line), **change}).encode())


def tensor(
    name: Any = "w", dtype: Any = "float32", shape: Any = (3,), nbytes: Any = 12, written: Any = 6
) -> dict[str, Any]:
    return {"tensors": [[name, dtype, shape, nbytes, written]]}


def piece(suffix: Any, nbytes: Any, parts: Any = ((0, 0, 12),), hash: Any = HASH) -> Any:
    return {"pieces": [[hash, suffix, nbytes, parts]]}


INF, MUCH = float("inf"), 10**30

OF_FACTS: list[dict[str, Any]] = [
    {"format": "other"},
    {"format_version": "1"},
    {"format_version": INF},
    {"shelf": 5},
    {"version": None},
    {"version": 7.0},
    {"version": MUCH},
    {"step": -5},
    {"step": MUCH},
    {"step": True},
    {"time_ns": INF},
    {"time_ns": MUCH},
    {"time_ns": -1},
    {"metric": "best"},
    {"metric": 10**400},
    {"milestone": 1},
    {"group": {"rank": 0}},
    {"group": {**JOINT.group.state(), "rank": 1}},
    {"group": {**JOINT.group.state(), "members": MUCH}},
    {"group": {**JOINT.group.state(), "number": MUCH}},
]
OF_MANIFESTS: list[dict[str, Any]] = [
    {"pieces": []},
    piece("", 5, hash="../../x"),
    piece("/../y", 5),
    piece("", 12, [[0, 0, 11]]),
    piece("", 12, [[0, 0, 12], [0, 0, 12]]),
    piece("", 12, [[1, 0, 12]]),
    piece("", 12, [[0, 0, 12.0]]),
    piece("", 11),
    piece(".zlib", 12),
    piece(".zlib", 0),
    piece(".zlib", -1),
    piece(".zlib", INF),
    {"tensors": 5},
    {"tensors": tensor()["tensors"] * 2},
    {"tensors": [*tensor()["tensors"], ["w", "float32", [0], 0, 6]]},
    tensor(name=""),
    tensor(name=5),
    tensor(name="a\0b"),
    tensor(name="\ud800"),
    tensor(name="\u00e9" * 513),
    tensor(dtype="float31"),
    tensor(dtype=None),
    tensor(shape=[4]),
    tensor(shape=[-3]),
    tensor(shape=[-1, -3]),
    tensor(shape=[3.0]),
    tensor(shape=[INF]),
    tensor(shape=[1] * 64 + [3]),
    tensor(shape=3),
    tensor(nbytes=INF),
    tensor(written=-1),
    tensor(written=MUCH),
]
OF_JOINTS: list[dict[str, Any]] = [
    {"group": None},
    {"parts": []},
    {"parts": [["latest", HASH, 12]]},
    {"parts": [[str(JOINT.parts[0].name), "x", 12]]},
    {"parts": [[str(JOINT.parts[0].name), HASH, -1]]},
    {"parts": [[str(JOINT.parts[0].name), HASH, INF]]},
]


@pytest.mark.parametrize("change", [*OF_FACTS, *OF_MANIFESTS])
def test_a_hostile_manifest_is_damaged(change: dict[str, Any]) -> None:
    with pytest.raises(ts.CorruptError):
        manifest.decode(changed(MANIFEST, change), "x")


@pytest.mark.parametrize("change", [*OF_FACTS, *OF_JOINTS])
def test_a_hostile_joint_is_damaged(change: dict[str, Any]) -> None:
    with pytest.raises(ts.CorruptError):
        joint.decode(changed(JOINT, change), "x")


@pytest.mark.parametrize(
    "line", [b"[" * 200_000, b"[]", b"5", b"\xff", b'{"format":' + b"9" * 5000 + b"}"]
)
def test_hostile_json_is_damaged(line: bytes) -> None:
    with pytest.raises(ts.CorruptError):
        manifest.decode(signed(line), "x")


@pytest.mark.parametrize("change", [{}, tensor(shape=[0, 1 << 62], nbytes=0) | {"pieces": []}])
def test_what_a_shelf_can_have_is_not_damaged(change: dict[str, Any]) -> None:
    manifest.decode(changed(MANIFEST, change), "x")


def test_a_metric_that_is_none_is_no_damage() -> None:
    assert manifest.decode(changed(MANIFEST, {"metric": INF}), "x").metric is None


@pytest.mark.parametrize("change", [{"time_ns": INF}, {"time_ns": MUCH}, {"step": -5}])
def test_a_hostile_one_hides_no_other(
    tmpfs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    remote = Remote()
    use(monkeypatch, remote)
    with ts.open(tmpfs / "run.shelf") as shelf:
        assign(shelf, 1)
        copied(new_site(shelf), shelf, tmpfs)
    remote.put(f"{FOLDER}/{Name(9, 9, 'f' * 16)}", changed(MANIFEST, change))
    assert [found.step for found in ts.drained("x")] == [1]
    ts.fetch("x", tmpfs / "back.shelf")
    with ts.open(tmpfs / "back.shelf", "r") as back:
        assert check_whole(back) == 1


def test_a_group_of_so_many_is_not_counted_through() -> None:
    """Whatever a part says: nothing as large is made of it."""
    group = GroupPart("job", 0, 1 << 62, 1, 4)
    made = manifest.decode(changed(MANIFEST, {"group": group.state()}), "x")
    assert in_common([[Entry(Name(1, 1, "0" * 16), made)]]) == set()


def test_a_later_format_is_told() -> None:
    for made, decode in ((MANIFEST, manifest.decode), (JOINT, joint.decode)):
        with pytest.raises(ts.FormatTooNew):
            decode(changed(made, {"format_version": 2}), "x")
