"""shelf.save() and shelf.load(): any state without pickle, and what cannot be one."""

import collections
import math
import random
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf._state import record
from tensorshelf._state.flatten import DEEPEST
from tensorshelf._state.room import put

pytest.importorskip("msgpack")


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        keys = list(zip(a, b, strict=False))
        return len(a) == len(b) and all(same(k, m) and same(a[k], b[m]) for k, m in keys)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (float, np.floating)) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


STATES: dict[str, Any] = {
    "nothing": None,
    "numbers": [True, 0, -1, 2**63, -(2**63), 2**64, -(2**64), 3**500, 1.5, math.nan, -math.inf],
    "complex": [1 + 2j, complex("inf")],
    "text": ["", "a", "\0", "ä\U0001f600", "lone \ud800", "x" * 100_000],
    "bytes": [b"", b"\xff\0", bytearray(b"ab")],
    "sequences": [(), [], ((),), [[[]]], range(3, 2**70, 2)],
    "sets": [{1, "a", None}, frozenset({(1, 2), b"x"}), set()],
    "keys": {1: "int", "1": "str", 1.5: "float", (1, ("a", None)): "tuple", None: 0, b"b": 1},
    "true": {True: "a bool is no int here"},
    "order": {"b": 1, "a": 2},
    "ordered": collections.OrderedDict(b=1, a={"c": 2}),
    "counter": collections.Counter(a=2, b=-1),
    "scalars": [np.float32(0.1), np.int8(-3), np.bool_(True), np.complex64(1j), np.float64(2.5)],
    "odd scalars": [np.str_("ab"), np.datetime64("2024-01-01"), np.timedelta64(3, "s")],
    "arrays": [np.arange(6.0).reshape(2, 3), np.zeros((0, 3), np.int16), np.array(7, np.uint8)],
    "orders": [np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(9)[::-2], np.eye(4)[:, 1]],
    "text arrays": [np.array(["a", "bcd"]), np.array([b"x"]), np.array("s"), np.array([], "U3")],
    "time arrays": np.array(["2024-01-01", "NaT"], "M8[D]"),
    "big-endian": np.arange(3, dtype=">i4").astype("<i4"),
    "types": [np.dtype("float32"), np.dtype("<U4"), np.dtype("M8[ns]")],
}


@pytest.mark.parametrize("name", STATES)
def test_comes_back_as_it_was(shelf: ts.Shelf, reopen: OpenShelf, name: str) -> None:
    shelf.save(STATES[name], step=3)
    assert same(shelf.load(), STATES[name])
    shelf = reopen(mode="r")
    assert shelf.step == 3
    assert same(shelf.load(), STATES[name])


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=50),
    st.complex_numbers(allow_nan=False),
    st.sampled_from(["f4", "i8", "u1", "?", "c8"]).map(lambda d: np.arange(5).astype(d)),
)  # fmt: skip
KEYS = st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.tuples(st.integers()))
ANY = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=20,
)


@hypothesis.settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(states=st.lists(ANY, min_size=1, max_size=3))
def test_whatever_one_state_follows_another(shelf: ts.Shelf, states: list[Any]) -> None:
    for state in states:
        shelf.save(state)
        assert same(shelf.load(), state)
        owned = record.get(shelf).owned
        assert sorted([*owned, "__state__"]) == list(shelf)


def test_tensors_lie_by_their_paths(shelf: ts.Shelf) -> None:
    weight = np.arange(4.0)
    shelf.save({"model": {"layers.0.weight": weight, 1: [weight + 1]}, "n": np.array(3.0)})
    assert list(shelf) == ["__state__", "model.1.0", "model.layers.0.weight"]
    assert np.array_equal(shelf["model.layers.0.weight"], weight)
    assert np.array_equal(shelf["model.1.0"], weight + 1)


def test_names_that_meet_and_names_that_cannot_be(shelf: ts.Shelf) -> None:
    a, b, c, d = (np.full(2, float(i)) for i in range(4))
    state = {"a.b": a, "a": {"b": b}, "x" * 2000: c, "__state__": d, "lone \ud800\0": a + 9}
    shelf.save(state)
    assert same(shelf.load(), state)
    assert np.array_equal(shelf["a.b"], a)
    assert np.array_equal(shelf["a.b~2"], b)
    shelf.save(state)  # and the same names once more
    assert same(shelf.load(), state)


def test_one_array_in_two_places_is_one(shelf: ts.Shelf) -> None:
    a = np.arange(3.0)
    shelf.save({"x": a, "y": [a, a[:2], a.copy()]})
    assert list(shelf) == ["__state__", "x", "y.1", "y.2"]
    loaded = shelf.load()
    assert loaded["y"][0] is loaded["x"]
    assert loaded["y"][2] is not loaded["x"]


def test_what_it_had_before_goes_and_what_is_anothers_stays(shelf: ts.Shelf) -> None:
    shelf.mine = [1.0, 2.0]
    shelf.save({"a": np.zeros(3), "b": np.ones(2)}, step=1)
    shelf.save({"a": np.zeros((2, 2), np.float32)}, step=2)
    assert list(shelf) == ["__state__", "a", "mine"]
    assert shelf.a.shape == (2, 2)
    assert shelf.step == 2
    with pytest.raises(ts.LayoutError, match="'mine' is float64\\[2\\] in the shelf") as error:
        shelf.save({"mine": np.zeros(3)})
    assert "del shelf['mine']" in error.value.remedy
    assert same(shelf.load(), {"a": np.zeros((2, 2), np.float32)})
    shelf.save({"mine": np.zeros(2)})  # of its layout: taken over
    assert list(shelf) == ["__state__", "mine"]


def test_a_counter_that_grows_is_no_new_tensor(shelf: ts.Shelf) -> None:
    shelf.save({"n": 1})
    capacity = shelf.info().capacity_bytes
    for n in (10**18, 3**500, "x" * 3000):
        shelf.save({"n": n})
    assert shelf["__state__"].shape == (4096,)
    assert shelf.info().capacity_bytes == capacity
    shelf.save({"n": "x" * 5000})
    assert shelf["__state__"].shape == (8192,)
    assert shelf.load() == {"n": "x" * 5000}


class Own:
    """Something with a state."""

    def __init__(self, n: int) -> None:
        self.n = n

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n, "a": np.full(2, self.n)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n = state["n"]
        assert np.array_equal(state["a"], [self.n, self.n])


def test_objects_give_their_states(shelf: ts.Shelf) -> None:
    rng, old, python = np.random.default_rng(1), np.random.RandomState(2), random.Random(3)
    state = {"own": Own(5), "rng": rng, "old": old, "python": python}
    shelf.save(state)
    expected = rng.random(), old.random(), python.random()
    loaded = shelf.load()
    assert loaded["own"]["n"] == 5
    python.setstate(loaded["python"])
    assert python.random() == expected[2]
    state["own"] = Own(0)
    report = shelf.load_into(state)
    assert (rng.random(), old.random(), python.random()) == expected
    assert state["own"].n == 5
    assert report == ts.LoadReport(None, (), ())


class Point(collections.namedtuple("Point", "x y")):
    """A tuple that is more than one."""


class Words(dict[str, int]):
    """A dict that is more than one."""


def circle() -> Any:
    a: list[Any] = []
    a.append({"again": a})
    return a


def deep() -> Any:
    a: Any = None
    for _ in range(DEEPEST + 2):
        a = [a]
    return a


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "function": (lambda: {"a": {"fn": [len]}}, r"state\['a'\]\['fn'\]\[0\]: a builtins\.builtin"),
    "object": (lambda: {"x": object()}, r"state\['x'\]: a builtins\.object cannot be stored"),
    "namedtuple": (lambda: (1, Point(1, 2)), r"state\[1\]: a test_save\.Point"),
    "dict of its own": (lambda: Words(a=1), r"^state: a test_save\.Words"),
    "class": (lambda: [Own], r"state\[0\]: a builtins\.type"),
    "system's random": (lambda: random.SystemRandom(), r"^state: a random\.SystemRandom"),
    "objects in an array": (lambda: [np.array([None])], r"state\[0\]: element type object"),
    "fields": (lambda: [np.zeros(2, "i4,f4")], r"state\[0\]: element type"),
    "fields of one": (lambda: [np.zeros(2, "i4,f4")[0]], r"state\[0\]: the NumPy type"),
    "type of arrays": (lambda: [np.dtype((np.int32, (2,)))], r"state\[0\]: the NumPy type"),
    "long double": (lambda: {"l": np.zeros(2, np.longdouble)}, r"state\['l'\]: element type"),
    "mask": (lambda: np.ma.zeros(3), r"^state: a masked array has a mask"),
    "key": (lambda: {"a": {Own: 1}}, r"state\['a'\] has the key <class"),
    "key within": (lambda: {(1, len): 1}, r"^state has the key"),
    "type as key": (lambda: {"a": {np.dtype("i4,f4"): 1}}, r"state\['a'\] has a key: the NumPy"),
    "circle": (circle, r"state\[0\]\['again'\] contains itself"),
    "depth": (deep, "more than 200 containers within each other"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_stored_is_told_first(shelf: ts.Shelf, name: str) -> None:
    shelf.save({"a": np.zeros(2)}, step=1)
    make, text = REFUSED[name]
    with pytest.raises(ts.NotStorable, match=text) as error:
        shelf.save(make(), step=2)
    assert error.value.code == "not_storable"
    assert error.value.remedy
    assert isinstance(error.value, TypeError)
    assert (shelf.version, shelf.step) == (1, 1)
    shelf.rollback(1)  # which refuses where anything is assigned


def test_default_replaces_what_cannot_be_stored(shelf: ts.Shelf) -> None:
    def default(value: Any) -> Any:
        return {"x": value.x} if isinstance(value, Point) else repr(value)

    shelf.save([Point(1, 2), len, np.array([None])], default=default)
    assert shelf.load() == [{"x": 1}, "<built-in function len>", "array([None], dtype=object)"]
    with pytest.raises(ts.NotStorable, match="default= gave it back"):
        shelf.save(len, default=lambda value: value)
    with pytest.raises(ts.NotStorable, match="more than 200 containers"):
        shelf.save(len, default=lambda value: lambda: value)
    with pytest.raises(ZeroDivisionError):
        shelf.save({"a": np.zeros(2), "b": len}, default=lambda value: 1 // 0)
    assert shelf.version == 1


def test_a_save_that_fails_leaves_nothing_assigned(reopen: OpenShelf) -> None:
    shelf = reopen(size="8MiB")
    shelf.save({"a": np.zeros(2)}, step=1)
    with pytest.raises(ts.ShelfFull):
        shelf.save({"a": np.ones(2), "big": np.zeros(8 << 20, np.uint8)}, step=2)
    assert not shelf.a.dirty
    assert same(shelf.load(), {"a": np.zeros(2)})
    shelf.mine = [1.0]
    with pytest.raises(ts.ShelfFull) as error:
        shelf.save({"a": np.ones(2), "big": np.zeros(8 << 20, np.uint8)}, step=2)
    assert "discard() drops both" in "".join(error.value.__notes__)
    assert shelf.mine.dirty
    shelf.discard()
    assert same(shelf.load(), {"a": np.zeros(2)})


def test_save_goes_on_in_the_background(reopen: OpenShelf) -> None:
    shelf = reopen(mode="w", in_flight=2)
    for step in range(1, 6):
        commit = shelf.save({"a": np.full(1000, step), "step": step}, step=step, wait=False)
    assert commit.wait().step == 5
    assert same(shelf.load(), {"a": np.full(1000, 5), "step": 5})


def test_what_else_was_assigned_is_persisted_with_it(shelf: ts.Shelf) -> None:
    shelf.mine = [1.0]
    shelf.save({"a": 1})
    assert np.array_equal(shelf.mine.committed, [1.0])


def test_a_read_only_shelf_saves_nothing(shelf: ts.Shelf, reopen: OpenShelf) -> None:
    shelf.save({"a": np.zeros(2)})
    with pytest.raises(ts.ReadOnlyError):
        reopen(mode="r").save({"a": np.zeros(2)})


def test_parts_are_loaded_alone(shelf: ts.Shelf) -> None:
    state = {
        "model": {"a.weight": np.zeros(2), "a.bias": np.ones(1), "b": [1, 2]},
        "epoch": 3,
        "optimizer": collections.OrderedDict(lr=0.1),
    }
    shelf.save(state)
    del shelf["model.a.weight"]
    assert shelf.load("epoch") == {"epoch": 3}
    assert same(shelf.load(["epoch", "optimizer"]), {k: state[k] for k in ("epoch", "optimizer")})
    assert same(shelf.load("model.*bias"), {"model": {"a.bias": np.ones(1)}})
    assert shelf.load("*.b") == {"model": {"b": [1, 2]}}
    with pytest.raises(ts.UnknownName, match="nothing of the key 'modle'") as error:
        shelf.load(["epoch", "modle"])
    assert "'model', 'epoch', 'optimizer'" in error.value.remedy
    with pytest.raises(ts.CorruptError, match=r"'model\.a\.weight'.*not in the shelf any more"):
        shelf.load()


def test_parts_are_renamed(shelf: ts.Shelf) -> None:
    shelf.save({"model": {"a.weight": np.zeros(2), "ab": 1, 5: {"c": 2}}, "l": [{"a": 1}]})
    loaded = shelf.load(rename={"model": "net", "model.a": "net.z", "l.0.a": "l.0.b"})
    assert list(loaded) == ["net", "l"]
    assert list(loaded["net"]) == ["z.weight", "ab", 5]
    assert loaded["l"] == [{"b": 1}]
    swapped = shelf.load(rename={"model": "l", "l": "model"})
    assert swapped["model"] == [{"a": 1}]
    assert swapped["l"]["ab"] == 1
    assert list(shelf.load(rename=str.upper)) == ["MODEL", "L"]
    with pytest.raises(ts.BadArgument, match=r"makes 'x' of 'model\.ab'"):
        shelf.load(rename={"model.ab": "x"})
    with pytest.raises(ts.BadArgument, match=r"makes 'model' of 'model' and of 'l'") as error:
        shelf.load(rename={"l": "model"})
    assert "keys=" in error.value.remedy
    for rename, text in ((3, "neither a dict nor a function"), (lambda key: None, "is no path")):
        with pytest.raises(ts.BadArgument, match=text):
            shelf.load(rename=rename)  # type: ignore[arg-type]


def test_parts_are_renamed_whatever_they_lie_in(shelf: ts.Shelf) -> None:
    ordered = collections.OrderedDict(a=(np.ones(2), {"b": 2}))
    shelf.save({"pair": ({"a": 1}, [{"a": 3}]), "count": collections.Counter(a=4), "od": ordered})
    names = {"pair.0.a": "pair.0.z", "pair.1.0.a": "pair.1.0.y", "count.a": "count.x"}
    loaded = shelf.load(rename={**names, "od.a.1.b": "od.a.1.w"})
    assert loaded["pair"] == ({"z": 1}, [{"y": 3}])
    assert loaded["count"] == collections.Counter(x=4)
    assert loaded["od"]["a"][1] == {"w": 2}


def test_other_byte_orders_come_back_as_this_machines(shelf: ts.Shelf) -> None:
    state = {"a": np.array(1.5, ">f8"), "b": np.arange(3, dtype=">i4"), "c": np.array(7, ">i8")}
    shelf.save(state)
    loaded = shelf.load()
    for key, value in state.items():
        assert np.array_equal(loaded[key], value)
        assert loaded[key].dtype == value.dtype.newbyteorder("=")
    with shelf.autosave(state={"b": state["b"], "f": np.asfortranarray(state["b"])}) as auto:
        auto.resume(strict=False)
        for step in (1, 2, 3):
            state["b"][0] = step
            auto.step(step)
            auto.wait()
            assert shelf.load()["state"]["b"].tolist() == [step, 1, 2]


@pytest.mark.parametrize("mib", [3, 9], ids=["one thread", "several"])
def test_progress_is_told(shelf: ts.Shelf, mib: int) -> None:
    shelf.save({"a": np.zeros(mib << 20, np.uint8), "b": np.zeros(1 << 20, np.uint8), "c": 1})
    seen: list[tuple[int, int]] = []
    shelf.load(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == ((mib + 1) << 20, (mib + 1) << 20)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shelf.load(progress=stop)


def test_where_no_state_was_saved(shelf: ts.Shelf) -> None:
    for load in (shelf.load, lambda: shelf.load_into({})):
        with pytest.raises(ts.UnknownName, match="no state was saved") as error:
            load()
        assert "shelf.save(state)" in error.value.remedy


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3, np.uint8),
        np.zeros((64, 64), np.uint8),
        np.zeros(4096),
        np.zeros(4096, np.uint8),
        np.full(4096, 255, np.uint8),
        np.array([3, *[0] * 7, 0x81, 0xA1, 0x61, *[0] * 100], np.uint8),
    ],
)
def test_what_is_no_record_of_a_state(shelf: ts.Shelf, value: Any) -> None:
    shelf["__state__"] = value
    with pytest.raises(ts.CorruptError, match="'__state__' is no record of a saved state"):
        shelf.load()


def test_a_state_of_a_later_release(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "FORMAT", 2)
    shelf.save({"a": 1})
    monkeypatch.undo()
    with pytest.raises(ts.FormatTooNew, match="of format 2; this release reads 1"):
        shelf.load()
    other_parts = record._packer().pack({"format": 2, "tree": None, "shards": []})
    room = np.zeros(4096, np.uint8)
    put(room, other_parts)
    shelf.replace("__state__", room)
    with pytest.raises(ts.FormatTooNew, match="of format 2; this release reads 1"):
        shelf.load()
    room = record.encoded(record.Record(["dict", "a", ["hypercube", 1]], []))
    shelf.replace("__state__", room)
    with pytest.raises(ts.CorruptError, match="holds a 'hypercube'"):
        shelf.load()


def test_a_part_that_was_changed_since(shelf: ts.Shelf) -> None:
    shelf.save({"a": np.zeros(2)})
    shelf.replace("a", np.zeros(3))
    with pytest.raises(ts.CorruptError, match=r"'a', a part .* has 24 bytes there, and had 16"):
        shelf.load()


def test_without_msgpack(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgpack", None)
    with pytest.raises(ts.UnsupportedError, match="msgpack is not installed"):
        shelf.save({"a": np.zeros(2)})
    assert list(shelf) == []


KEPT = {
    "step": 7,
    "note": "a",
    (1, None): [True, 2.5, b"b", 2**70, -(2**70), 1j],
    "set": {3},
    "frozen": frozenset((4,)),
    "ordered": collections.OrderedDict(z=1),
    "counter": collections.Counter(a=2),
    "range": range(1, 9, 2),
    "array": bytearray(b"c"),
    "number": np.float32(1.5),
    "dtype": np.dtype("<i8"),
    "zero": np.array(2, np.int16),
    "w": np.arange(3, dtype=np.float32),
}
KEPT_BYTES = (
    "5a0100000000000083a6666f726d617401a56f776e656491a177a474726565dc001ba464696374a473746570"
    "07a46e6f7465a16193a57475706c6501c097a46c697374c3cb4004000000000000c4016292a3696e74c40900"
    "000000000000004092a3696e74c4090000000000000000c093a7636f6d706c6578cb0000000000000000cb3f"
    "f0000000000000a373657492a373657403a666726f7a656e92a966726f7a656e73657404a76f726465726564"
    "94ab4f72646572656444696374c0a17a01a7636f756e74657293a7436f756e746572a16102a572616e676594"
    "a572616e6765010902a5617272617992a9627974656172726179c40163a66e756d62657293a66e756d626572"
    "a33c6634c4040000c03fa5647479706592a86e702e6474797065a33c6938a47a65726f96a674656e736f72a5"
    "6e756d7079a5696e74313690c4020200c0a17796a674656e736f72a56e756d7079a7666c6f617433329103a1"
    "77c0"
)


def test_a_state_that_was_saved_by_the_first_release_is_read(shelf: ts.Shelf) -> None:
    """Its tags are stored for good."""
    shelf.save(KEPT)
    assert shelf["__state__"].numpy().tobytes().rstrip(b"\0").hex() == KEPT_BYTES
    shelf.replace("__state__", np.frombuffer(bytes.fromhex(KEPT_BYTES), np.uint8))
    assert same(shelf.load(), KEPT)


def test_a_discard_that_fails_is_told(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ts.ShelfFailed("an earlier write failed", "reopen")

    monkeypatch.setattr(type(shelf), "_persist", fail)
    monkeypatch.setattr(type(shelf), "discard", fail)
    with pytest.raises(ts.ShelfFailed) as error:
        shelf.save({"a": np.zeros(2)})
    assert "stays assigned, for discarding it failed" in "".join(error.value.__notes__)


def test_arrays_that_would_cut_short(shelf: ts.Shelf) -> None:
    shelf.save({"a": np.arange(3), "b": np.arange(3.5), "c": np.ones(2, np.int8)})
    target = {"a": np.zeros(3, int), "b": np.zeros(4, np.int32), "c": np.zeros(2, np.int8)}
    with pytest.raises(ts.LayoutError, match=r"state\['b'\] is int32, and float64 was saved"):
        shelf.load_into(target)
    assert not target["a"].any()
    wide = {"a": np.zeros(3), "b": np.zeros(4, np.float32), "c": np.zeros(2)}
    shelf.load_into(wide)
    assert wide["a"].tolist() == [0, 1, 2]


def test_an_older_version_is_loaded(reopen: OpenShelf) -> None:
    shelf = reopen(keep=2)
    for n in (1, 2, 3):
        shelf.save({"n": n, "a": np.full(4, n)}, step=n)
    for n in (1, 2, 3):
        old = shelf.at(n).load()
        assert (old["n"], old["a"].tolist()) == (n, [n] * 4)
    assert shelf.at(2).load("n", rename={"n": "m"}) == {"m": 2}


def test_lists_that_are_too_deep(shelf: ts.Shelf) -> None:
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(ts.NotStorable, match="more than 200 containers"):
        shelf.save(deep)
