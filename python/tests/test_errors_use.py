"""The error table in use, provoked for real: class, stable code, builtin, remedy."""

import collections
import datetime
import errno
import fractions
import gc
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place, check, in_child

import tensorshelf as ts
from tensorshelf._values import _dtypes


def test_read_only_mode(made: pathlib.Path, place: Place) -> None:
    with ts.open(made, mode="r", tier=place[1]) as shelf:
        writes: list[Callable[[], object]] = [
            lambda: shelf.w.fill_(1),
            lambda: shelf.create("new", 3, "int8"),
            lambda: shelf.replace("w", [1, 2]),
            lambda: shelf.__delitem__("w"),
            lambda: shelf.persist(),
        ]
        for write in writes:
            with pytest.raises(PermissionError) as caught:
                write()
            check(caught, ts.ReadOnlyError, "read_only", PermissionError)
        assert (shelf.w.numpy() == 1).all()


def test_read_only_comes_before_what_is_wrong_with_the_value(
    made: pathlib.Path, place: Place
) -> None:
    """Else the remedy for the value would lead to the next error."""
    with ts.open(made, mode="r", tier=place[1]) as shelf:
        writes: list[Callable[[], object]] = [
            lambda: shelf.__setattr__("w", 3),
            lambda: shelf.__setitem__("new", None),
            lambda: shelf.replace("nowhere", None),
            lambda: shelf.update(w=None),
            lambda: shelf.w.__setitem__(99, 1),
            lambda: shelf.w.__setitem__(..., np.ones(7)),
            lambda: shelf.w.fill_([1, 2]),
            lambda: shelf.w.copy_(None),
        ]
        for write in writes:
            with pytest.raises(PermissionError, match='is open with mode="r"'):
                write()
    with pytest.raises(ts.ClosedError):
        shelf.w = 3


def test_too_small(reopen: OpenShelf) -> None:
    shelf = reopen(size="4MiB")
    with pytest.raises(OSError, match="'w'") as caught:
        shelf.w = np.zeros(1 << 20)
    error = check(caught, ts.ShelfFull, "shelf_full", OSError)
    assert error.errno == errno.ENOSPC
    assert "w" not in shelf
    shelf.w = np.zeros(10)
    shelf.persist()  # nothing was lost, and persist never runs out of space


@pytest.mark.parametrize(("keep", "size"), [(0, 1 << 62), (2, 1 << 62), (14, 1 << 60)])
def test_beyond_all_media(reopen: OpenShelf, keep: int, size: int) -> None:
    """K slots of it are more bytes than 64 bits can count."""
    shelf = reopen(keep=keep)
    free = shelf.free
    with pytest.raises(OSError, match=f"'w' needs {keep + 2} x .* free") as caught:
        shelf.create("w", (size,), "uint8")
    assert check(caught, ts.ShelfFull, "shelf_full", OSError).errno == errno.ENOSPC
    assert (list(shelf), shelf.free) == ([], free)
    shelf.w = np.zeros(10)
    shelf.persist()


@pytest.fixture
def small_disk() -> Iterator[pathlib.Path]:
    """A file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    directory = tempfile.mkdtemp(prefix="tensorshelf-small-")
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", directory]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        os.rmdir(directory)
        pytest.skip("mounting a tmpfs is not allowed here")
    yield pathlib.Path(directory)
    subprocess.run(["umount", directory], check=True)
    os.rmdir(directory)


@pytest.mark.parametrize("tier", ["auto", "block"])
@pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")
def test_disk_full_at_create(small_disk: pathlib.Path, tier: str) -> None:
    with ts.open(small_disk / "run.shelf", tier=tier) as shelf:
        shelf.a = np.arange(1000)
        shelf.persist(1)
        with pytest.raises(OSError, match="'w'") as caught:
            shelf.w = np.zeros(1 << 20)
        assert check(caught, ts.ShelfFull, "shelf_full", OSError).errno == errno.ENOSPC
        shelf.a[0] = 7
        shelf.persist(2)
    with ts.open(small_disk / "run.shelf", tier=tier) as shelf:
        assert (shelf.step, shelf.a[0], list(shelf)) == (2, 7, ["a"])


def test_layout_mismatch(shelf: ts.Shelf) -> None:
    shelf.w = np.ones((4, 3), np.float32)
    values: list[object] = [np.ones((4, 4)), np.ones((4, 3)), np.ones((3, 4), np.float32), 1.0]
    for value in values:
        for builtin in (ValueError, TypeError):
            with pytest.raises(builtin) as caught:
                shelf.w = value
        error = check(caught, ts.LayoutError, "layout_mismatch", ValueError, TypeError)
        assert "'w' is float32[4, 3], got float64[" in str(error) or value is values[2]
        assert "shelf.replace('w', value)" in error.remedy
    assert (shelf.w.numpy() == 1).all()


@pytest.mark.parametrize(
    ("value", "way"),
    [
        (np.ones((4, 3)), "cast"),
        (np.ones((1, 4, 3)), "cast and broadcast"),
        (np.ones(3, np.float32), "broadcast"),
        (1, "cast and broadcast"),
        (np.ones((4, 1), np.float16), "cast and broadcast"),
        (np.ones((4, 3), np.complex64), None),  # no cast of the same kind
        (1j, None),
        (np.ones((3, 4), np.float32), None),
        (np.ones((2, 4, 3), np.float32), None),
        (np.ones(4), None),
        (np.ones(0), None),
    ],
    ids=str,
)
def test_the_other_way_is_named_only_where_it_is_one(
    shelf: ts.Shelf, value: object, way: str | None
) -> None:
    shelf.w = np.zeros((4, 3), np.float32)
    with pytest.raises(ts.LayoutError) as caught:
        shelf.w = value
    remedy = "For a new layout: shelf.replace('w', value)."
    if way is None:
        assert caught.value.remedy == remedy
        with pytest.raises(ts.LayoutError):
            shelf["w"][...] = value
    else:
        assert caught.value.remedy == f"{remedy} To {way}: shelf['w'][...] = value."
        shelf["w"][...] = value


def test_no_cast_is_named_for_an_integer_that_gets_a_fraction(shelf: ts.Shelf) -> None:
    shelf.loss = 0
    with pytest.raises(ts.LayoutError) as caught:
        shelf.loss = 0.5
    assert caught.value.remedy == "For a new layout: shelf.replace('loss', value)."


def test_what_holds_several_tensors_is_flattened(shelf: ts.Shelf) -> None:
    """The remedy as it stands does what it says, whatever the name."""
    value = collections.OrderedDict(weight=np.ones(3), bias=np.zeros(2))
    for name in ("lin", "a'b", "{k}", 'q"\\'):
        with pytest.raises(ts.LayoutError, match="an OrderedDict cannot be stored") as caught:
            shelf.update({name: value})
        code = caught.value.remedy.partition("or flatten it: ")[2].removesuffix(".")
        exec(code, {"shelf": shelf, "value": value})
        assert shelf[f"{name}.weight"].shape == (3,)
    with pytest.raises(ts.LayoutError) as caught:
        shelf.lin = value
    assert caught.value.remedy == (
        "shelf.save() stores it, nested ones too; or flatten it: "
        "shelf.update({f'lin.{k}': v for k, v in value.items()})."
    )


def test_a_model_is_stored_by_its_state(shelf: ts.Shelf) -> None:
    class Model:
        def __call__(self) -> None: ...

        def state_dict(self) -> dict[str, Any]:
            return {"w": np.ones(3)}

    with pytest.raises(ts.LayoutError, match=r"shelf\.update\(model\.state_dict\(\)\)"):
        shelf.update(Model())
    with pytest.raises(
        ts.LayoutError, match=r"'lin\.\{k\}': v for .* value\.state_dict\(\)\.items"
    ):
        shelf.lin = Model()
    assert not shelf


def test_every_layout_error_names_its_tensor(shelf: ts.Shelf) -> None:
    shelf.b, shelf.i = np.zeros((4, 3), np.float32), np.zeros(4, int)
    writes: list[Callable[[], object]] = [
        lambda: shelf.b.__setitem__(slice(None), np.ones(7)),
        lambda: shelf.b.__setitem__([0, 2], np.ones(7)),
        lambda: shelf.b.__setitem__(0, None),
        lambda: shelf.b.fill_("x"),
        lambda: shelf.b.fill_([1, 2]),
        lambda: shelf.b.copy_(np.ones((2, 2))),
        lambda: shelf.b.copy_(1j),
        lambda: shelf.__setattr__("b", None),
        lambda: shelf.replace("b", None),
        lambda: shelf.update(b=np.ones(7)),
    ]
    for write in writes:
        with pytest.raises(ts.LayoutError, match=r"^'b'") as caught:
            write()
        assert caught.value.what.count("'b'") == 1
    with pytest.raises(ts.LayoutError, match=r"^'i': cannot cast float64 to int64"):
        shelf.i[0] = 1.7
    with pytest.raises(ts.LayoutError, match=r"^'i': cannot cast"):
        shelf.i[[0, 1]] = 1.7


def test_unsupported_objects(shelf: ts.Shelf) -> None:
    for value in ("text", b"bytes", None, {"a": 1}, {1}, object(), print, np.array([None])):
        with pytest.raises(TypeError) as caught:
            shelf.x = value
        check(caught, ts.LayoutError, "layout_mismatch", TypeError)
        assert "x" not in shelf


def test_what_gives_no_tensor_names_what_would(shelf: ts.Shelf) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4)
    cases: list[tuple[Any, str]] = [
        ((i for i in range(3)), r"a generator cannot be stored as a tensor\. .*list\(value\)"),
        (None, r"a NoneType cannot be stored as a tensor\. .*save\(\)"),
        (map(int, "12"), r"a map cannot .*list\(value\)"),
        ({1: 2}.values(), r"a dict_values cannot .*list\(value\)"),
        (moment, r"a datetime cannot .*value\.timestamp\(\)"),
        (moment.date(), r"a date cannot .*value\.toordinal\(\)"),
        (moment - moment, r"a timedelta cannot .*value\.total_seconds\(\)"),
        (fractions.Fraction(1, 2), r"a Fraction cannot .*float\(value\)"),
        (pathlib.Path("x"), r"a PosixPath cannot .*NumPy array"),
        ([1.0, moment], r"a list that holds a datetime cannot .*value\.timestamp\(\)"),
        ([None, 1], r"a list that holds a NoneType cannot"),
        (np.datetime64("2026"), r"view\('int64'\)"),
        ([np.ma.array([1, 2], mask=[0, 1])], r"masks, which would be lost"),
        (([1, 2], [np.ma.masked, 1]), r"masks, which would be lost"),
    ]
    for value, text in cases:
        with pytest.raises(TypeError, match=text) as caught:
            shelf.x = value
        check(caught, ts.LayoutError, "layout_mismatch", TypeError)
        assert "x" not in shelf
    shelf.x = [[1, 2], (3, 4)]
    assert shelf.x.shape == (2, 2)


def test_unknown_names(shelf: ts.Shelf) -> None:
    shelf.weight = 1.0
    with pytest.raises(
        AttributeError, match="no tensor or attribute 'wieght'; did you mean 'weight'"
    ) as by_attr:
        _ = shelf.wieght
    assert by_attr.value.code == "unknown_name"  # type: ignore[attr-defined]
    with pytest.raises(KeyError, match=r"^no tensor 'wieght'; did you mean 'weight'\?") as by_item:
        _ = shelf["wieght"]
    assert type(by_item.value) is ts.UnknownName
    assert isinstance(by_attr.value, ts.UnknownName)
    assert "did you mean 'weight'? The shelf has 'weight'." in str(by_item.value)
    with pytest.raises(KeyError, match=r"no tensor 'zzz'\. The shelf has 'weight'\."):
        _ = shelf["zzz"]
    with pytest.raises(AttributeError):
        del shelf.wieght
    with pytest.raises(KeyError):
        del shelf["wieght"]
    with pytest.raises(KeyError):
        shelf.replace("wieght", 1)
    assert not hasattr(shelf, "wieght")
    with pytest.raises(AttributeError, match="did you mean 'persist'"):
        shelf.persits()
    with pytest.raises(AttributeError, match=r"take \.numpy\(\)\.mean or \.torch\(\)"):
        shelf.weight.mean()
    assert f"{shelf.weight:.2f}" == "1.00"
    assert getattr(shelf, "_private", None) is None


def test_what_an_unknown_name_suggests(shelf: ts.Shelf) -> None:
    with pytest.raises(KeyError, match=r"no tensor 'w'\. The shelf is empty"):
        _ = shelf["w"]
    for save in ("commit", "flush", "Sync"):
        with pytest.raises(AttributeError, match="did you mean 'persist'"):
            getattr(shelf, save)
        with pytest.raises(KeyError) as caught:
            _ = shelf[save]
        assert "persist" not in str(caught.value)
    shelf.update(dict.fromkeys(["w", "größe", "c", "d", "e"], 1.0))
    for name in ("erase", "delete", "remove"):
        with pytest.raises(AttributeError, match=r"did you mean 'del shelf\[name\]'"):
            getattr(shelf, name)
    with pytest.raises(AttributeError, match="did you mean 'w'"):
        _ = shelf.W
    with pytest.raises(KeyError, match="did you mean 'größe'") as caught:
        _ = shelf["GRÖSSE"]
    assert caught.value.remedy == "The shelf has 'c', 'd', 'e', 'größe', 'w'."  # type: ignore[attr-defined]
    shelf.z = 1
    with pytest.raises(KeyError, match=r"'größe', 'w' and more: list\(shelf\) gives the names\.$"):
        _ = shelf["nothing"]
    shelf["a" * 500] = 1
    with pytest.raises(KeyError, match=r"'nothing'\. list\(shelf\) gives the names\.$"):
        _ = shelf["nothing"]


def test_a_part_that_is_taken_for_a_torch_tensor_says_what_it_is(shelf: ts.Shelf) -> None:
    shelf.w = np.ones((4, 3), np.float32)
    with pytest.raises(
        AttributeError, match=r"no attribute 'torch'; .*shelf\.x\.torch\(\)\[index\]"
    ):
        shelf.w[0].torch()
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = shelf.w[0].nonsense
    assert not hasattr(shelf.w[0], "__cuda_array_interface__")


def test_handles_of_deleted_tensors(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(3)
    handle = shelf.x
    del shelf.x
    uses: list[Callable[[], object]] = [handle.numpy, lambda: handle.fill_(1), lambda: handle[0]]
    for use in uses:
        with pytest.raises(ts.UnknownName):
            use()
    assert repr(handle).startswith("<Tensor 'x' float64[3]")


@pytest.mark.parametrize("name", ["", "a" * 1025, "a\0b", "\ud800", 3, None, b"x"], ids=repr)
def test_bad_names(shelf: ts.Shelf, name: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        shelf[name] = 1.0
    check(caught, ts.BadName, "bad_name", ValueError)
    with pytest.raises(ts.BadName):
        shelf.create(name, 3)


def test_a_nul_does_not_cut_the_text(shelf: ts.Shelf) -> None:
    with pytest.raises(ts.BadName, match=r"'a\\x00b' contains a NUL"):
        shelf["a\0b"] = 1.0


def test_more_dimensions_than_numpy_has(reopen: OpenShelf) -> None:
    if _dtypes.MAX_DIMS == 64:
        pytest.skip("this NumPy has arrays of 64 dimensions, as many as a shelf")
    shelf = reopen()
    x = shelf.create("x", (1,) * 40)
    uses: list[Callable[[], object]] = [
        x.numpy,
        lambda: x.numpy(copy=True),
        lambda: x[...],
        lambda: x[0],
        lambda: x + 1,
        lambda: x.fill_(1),
        lambda: x.edit().__enter__(),
    ]
    for use in uses:
        with pytest.raises(ts.UnsupportedError, match="at most 32") as caught:
            use()
        assert "torch" in caught.value.remedy
    assert x.item() == x[(0,) * 40] == 0
    x[(0,) * 39] = 5
    assert x.item() == 5


@pytest.mark.parametrize("name", ["persist", "items", "step", "closed", "_hidden", "__len__"])
def test_reserved_attributes(shelf: ts.Shelf, name: str) -> None:
    said = "starts with an underscore" if name.startswith("_") else "attribute of the shelf"
    with pytest.raises(ValueError, match=said) as caught:
        setattr(shelf, name, 1.0)
    error = check(caught, ts.BadName, "bad_name", ValueError)
    assert f"shelf['{name}']" in error.remedy
    assert ("persist(step=)" in error.remedy) == (name == "step")
    with pytest.raises(ts.BadName):
        delattr(shelf, name)
    shelf[name] = 2.0
    assert shelf[name].item() == 2.0
    assert not isinstance(getattr(shelf, name, None), ts.Tensor)


def test_name_taken(shelf: ts.Shelf) -> None:
    shelf.w = 1.0
    with pytest.raises(ValueError, match="'w'") as caught:
        shelf.create("w", 3)
    check(caught, ts.NameTaken, "name_taken", ValueError)


@pytest.mark.parametrize(
    "shape", [-1, (3, -1), (1 << 62, 4), (1 << 70,), 2.5, (2.5,), "ab", None, [[1]]], ids=str
)
def test_bad_shapes(shelf: ts.Shelf, shape: object) -> None:
    with pytest.raises(ts.LayoutError) as caught:
        shelf.create("w", shape, "float64")  # type: ignore[arg-type]
    assert caught.value.remedy


@pytest.mark.parametrize("step", [-1, 1 << 64, 1.5, "3", True, False, np.True_])
def test_bad_steps(shelf: ts.Shelf, step: Any) -> None:
    with pytest.raises(ts.BadArgument) as caught:
        shelf.persist(step)
    check(caught, ts.BadArgument, "bad_argument", ValueError, TypeError)
    assert shelf.version == 0


def test_a_boolean_is_no_step(shelf: ts.Shelf) -> None:
    """Meant as wait=False, it would end the loop that resumes at shelf.step."""
    with pytest.raises(TypeError, match=r"persist\(wait=False\)"):
        shelf.persist(False)
    assert (shelf.version, shelf.step) == (0, None)


def test_damaged_chunk(made: pathlib.Path, place: Place) -> None:
    """Version 2 of big is damaged: which tensor, which version, and what is intact."""
    at = made.read_bytes().index((0x1122334455667788).to_bytes(8, "little") * 4096)
    with made.open("r+b") as file:
        file.seek(at + 12_345)
        byte = file.read(1)[0]
        file.seek(at + 12_345)
        file.write(bytes([byte ^ 1]))
    with ts.open(made, mode="r", tier=place[1]) as shelf:
        for read in (shelf.big.numpy, lambda: shelf.big[3000], lambda: shelf.big + 1):
            with pytest.raises(ts.ShelfError) as caught:
                read()
            error = check(caught, ts.CorruptError, "corrupt", ts.ShelfError)
            assert "'big'" in str(error)
            assert "2" in str(error)
        assert (shelf.w.numpy() == 1).all()
        report = shelf.verify()
        assert not report
        (damage,) = report.damage
        assert (damage.tensor, damage.version, damage.chunk) == ("big", 2, 0)
        assert damage.offset <= at + 12_345 < damage.offset + damage.nbytes
    with ts.open(made, mode="r", verify="none", tier=place[1]) as shelf:
        assert shelf.big.numpy()[12_345 // 8] != 0x1122334455667788


def test_closed(shelf: ts.Shelf) -> None:
    shelf.x = 1.0
    shelf.persist()
    handle, durable = shelf.x, shelf.x.committed
    shelf.close()
    shelf.close()
    uses: list[Callable[[], object]] = [
        lambda: shelf.x,
        lambda: shelf["x"],
        lambda: setattr(shelf, "x", 2.0),
        lambda: shelf.create("y", 3),
        lambda: shelf.persist(),
        lambda: shelf.version,
        lambda: list(shelf),
        lambda: shelf.__enter__(),
        lambda: shelf.verify(),
        lambda: handle.item(),
        lambda: handle.fill_(1),
        lambda: durable.numpy(),
    ]
    for use in uses:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            use()
        check(caught, ts.ClosedError, "shelf_closed", ValueError)
    assert shelf.closed
    assert repr(shelf).endswith("run.shelf': closed>")
    assert repr(handle) == "<Tensor 'x' float64[], closed>"


def test_a_forked_child_that_lets_a_shelf_go_keeps_its_own_memory(place: Place) -> None:
    shelves = [ts.open(place[0], mode="w", tier=place[1])]
    shelves[0].x = np.ones(1 << 20)
    shelves[0].persist()

    def body() -> None:
        own = [np.full(8 << 20, 42, np.uint8) for _ in range(8)]  # where its parent's is, it may be
        shelves.clear()
        gc.collect()
        assert all((array == 42).all() for array in own)

    assert in_child(body) == 0
    shelves[0].x = np.zeros(1 << 20)
    assert shelves[0].persist().version == 2
    shelves[0].close()


def test_forked_child(shelf: ts.Shelf) -> None:
    shelf.x = np.arange(5)
    shelf.persist()
    handle = shelf.x

    def body() -> None:
        uses: list[Callable[[], object]] = [
            lambda: shelf.persist(),
            lambda: handle.fill_(1),
            lambda: handle.__setitem__(..., np.arange(5)),
            lambda: handle.numpy(),
            lambda: shelf.create("y", 3),
            lambda: list(shelf),
        ]
        for use in uses:
            with pytest.raises(RuntimeError) as caught:
                use()
            check(caught, ts.ForkedError, "used_after_fork", RuntimeError)

    assert in_child(body) == 0
    with handle._writing():  # nobody will leave it in the child, which must not wait for that
        assert in_child(body) == 0
    shelf.x[0] = 9
    assert shelf.persist().version == 2


def test_stale_reader(place: Place, reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.x = np.zeros(300_000)
    shelf.persist(1)
    with ts.open(place[0], mode="r", tier=place[1]) as reader:
        for step in (2, 3, 4):
            shelf.x[...] = step
            shelf.persist(step)
        with pytest.raises(RuntimeError) as caught:
            reader.x.numpy(copy=True)
        check(caught, ts.StaleError, "version_overwritten", RuntimeError)


def test_the_progress_callback_may_stop_the_work(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(1 << 20)
    shelf.persist()

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shelf.verify(progress=stop)
    assert shelf.verify()


def test_every_code_of_the_store_has_a_class() -> None:
    source = pathlib.Path(__file__).parents[2] / "src" / "base" / "error.cpp"
    if not source.exists():
        pytest.skip("installed without the sources")
    codes = [line.split('"')[1] for line in source.read_text().splitlines() if 'return "' in line]
    of_python_alone = {"not_storable", "key_mismatch", "group_aborted"}
    assert {code for code in codes if code != "unknown"} == set(ts.errors.BY_CODE) - of_python_alone


def test_full_says_that_erased_room_comes_with_persist(reopen: OpenShelf) -> None:
    shelf = reopen(size="8MiB")
    shelf.x = np.zeros(3 << 20, np.uint8)
    shelf.persist()
    del shelf.x
    with pytest.raises(ts.ShelfFull, match=r"persist\(\) first: what was erased"):
        shelf.y = np.zeros(3 << 20, np.uint8)
    shelf.persist()
    shelf.y = np.zeros(3 << 20, np.uint8)


def test_a_commit_of_the_parent_cannot_be_waited_for(shelf: ts.Shelf) -> None:
    shelf.x = np.arange(5)
    commit = shelf.persist(wait=False)

    def body() -> None:
        for use in (commit.wait, commit.done, lambda: commit.version):
            with pytest.raises(RuntimeError) as caught:
                use()
            check(caught, ts.ForkedError, "used_after_fork", RuntimeError)

    assert in_child(body) == 0
    assert commit.wait().version == 1


def test_a_shelf_whose_file_is_gone_can_be_copied(place: Place) -> None:
    path, tier = place
    with ts.open(path, tier=tier) as shelf:
        shelf.x = [1.0, 2.0]
        shelf.persist(1)
        shelf.x = [3.0, 4.0]
        path.unlink()
        with pytest.raises(FileNotFoundError, match="was deleted") as caught:
            shelf.persist(2)
        error = check(caught, ts.ShelfGone, "shelf_gone", FileNotFoundError)
        assert isinstance(error, OSError)
        assert error.errno == errno.ENOENT
        assert "copy the tensors" in error.remedy
        with pytest.raises(ts.ShelfGone):
            shelf.persist(2, wait=False)
        with ts.open(path.with_name("rescued.shelf"), "x", tier=tier) as rescued:
            rescued.update(shelf)
            assert rescued.persist(step=shelf.step).step == 1
            assert np.array_equal(rescued.x, [3.0, 4.0])
