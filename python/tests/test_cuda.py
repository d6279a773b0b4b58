"""CUDA memory as a source: what any machine can show, and (marked gpu) what takes a device."""

from typing import Any

import numpy as np
import pytest
from device_memory import gathered

import tensorshelf as ts
from tensorshelf import _core
from tensorshelf._values import _cuda


class Exposed:
    """A NumPy array that says it lies on a device, as CuPy's and Numba's do."""

    def __init__(self, array: "np.ndarray[Any, Any]", **changes: Any) -> None:
        self.array = array
        interface = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "version": 3,
        }
        interface.update(changes)
        self.__cuda_array_interface__ = {k: v for k, v in interface.items() if v is not ...}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> "list[dict[str, Any]]":
    """A device of host memory in place of the native half's; gives the list of calls to it."""
    calls: list[dict[str, Any]] = []

    def write(tensor: Any, **given: Any) -> None:
        calls.append(given)
        tensor._write(np.frombuffer(gathered(given), np.uint8), given["offset"])

    def copy(target: Any, **given: Any) -> None:
        calls.append(given)
        target[:] = np.frombuffer(gathered({**given, "nbytes": target.nbytes}), np.uint8)

    monkeypatch.setattr(_core.Assignment, "_write_from_device", write)
    monkeypatch.setattr(_core, "copy_from_device", copy)
    monkeypatch.setattr(_cuda, "usable", lambda: True)
    return calls


def test_what_the_build_has() -> None:
    build = ts.build_info()
    assert build.version == ts.__version__
    assert len(build.lacks) == list(build.libraries.values()).count(False)
    cuda = build.libraries["cuda"]
    assert cuda or build.cuda_devices() == 0
    assert f"cuda      {'yes' if cuda else 'no'}" in str(build)
    for sentence in build.lacks:
        assert sentence in str(build)


def test_without_a_device_the_error_says_so(shelf: ts.Shelf) -> None:
    if _cuda.usable():
        pytest.skip("there is a CUDA device")
    with pytest.raises(ts.UnsupportedError, match="no CUDA") as caught:
        shelf.x = Exposed(np.ones(3))
    assert caught.value.code == "unsupported"
    assert "host memory" in caught.value.remedy
    assert ("TENSORSHELF_CUDA=ON" in caught.value.remedy) == (not ts.build_info().libraries["cuda"])
    assert "x" not in shelf


def test_another_way_to_the_host_is_taken(shelf: ts.Shelf) -> None:
    if _cuda.usable():
        pytest.skip("there is a CUDA device")

    class Numbas(Exposed):
        def __array__(self, *_: Any, **__: Any) -> "np.ndarray[Any, Any]":
            return self.array

    shelf.x = Numbas(np.arange(3.0))
    assert shelf.x.numpy().tolist() == [0, 1, 2]


def test_straight_from_the_device(shelf: ts.Shelf, device: "list[dict[str, Any]]") -> None:
    value = np.arange(24, dtype=np.float32).reshape(4, 6)
    shelf.x = Exposed(value)
    np.testing.assert_array_equal(shelf.x, value)
    shelf.x[1:3] = Exposed(-value[1:3])
    np.testing.assert_array_equal(shelf.x[1:3], -value[1:3])
    shelf.x = Exposed(value, strides=value.strides, stream=77)
    np.testing.assert_array_equal(shelf.x, value)
    address = value.ctypes.data
    assert device[0] == {
        "address": address, "nbytes": 96, "offset": 0, "stream": 1, "device": -1, "axes": ()
    }  # fmt: skip
    assert (device[1]["nbytes"], device[1]["offset"]) == (48, 24)
    assert (device[2]["address"], device[2]["stream"]) == (address, 77)


def test_what_has_to_be_converted_goes_by_the_host(
    shelf: ts.Shelf, device: "list[dict[str, Any]]"
) -> None:
    shelf.x = np.zeros((2, 3))
    shelf.x[...] = Exposed(np.ones(3, np.float32))  # cast and broadcast
    shelf.x[:, 1] = Exposed(np.array([5.0, 6.0]))  # strided
    assert shelf.x.numpy().tolist() == [[1, 5, 1], [1, 6, 1]]
    shelf.big_endian = Exposed(np.arange(5, dtype=">i4"))
    assert shelf.big_endian.numpy().tolist() == [0, 1, 2, 3, 4]
    shelf.x.fill_(Exposed(np.array(9.0)))
    assert shelf.x.numpy().min() == 9
    assert all("offset" not in call for call in device)


def test_with_gaps_straight_from_the_device(
    shelf: ts.Shelf, device: "list[dict[str, Any]]"
) -> None:
    whole = np.arange(12000, dtype=np.float32).reshape(60, 200)
    views = {
        "columns": (whole[:, 10:60], ((60, 800),)),
        "rows": (whole[::3], ((20, 2400),)),
        "backwards": (whole[10::-1], ((11, -800),)),
        "heads": (whole[:, :192].reshape(60, 3, 64).transpose(1, 0, 2), ((3, 256), (60, 800))),
        "turned": (whole[:10, :9].T, ((9, 4), (10, 800))),
        "spread": (np.broadcast_to(whole[0], (5, 200)), ((5, 0),)),
        "gaps of one axis alone": (whole[:2, 64:].reshape(2, 136)[:, :64], ((2, 800),)),
    }
    for name, (value, axes) in views.items():
        device.clear()
        shelf[name] = Exposed(value, strides=value.strides)
        np.testing.assert_array_equal(shelf[name], value, name)
        (call,) = device
        assert (call["address"], call["nbytes"]) == (value.ctypes.data, value.nbytes), name
        assert call["axes"] == axes, name
    shelf.x = np.zeros((60, 50), np.float64)
    shelf.x[:] = Exposed(views["columns"][0], strides=views["columns"][0].strides)  # converted
    np.testing.assert_array_equal(shelf.x, views["columns"][0])


@pytest.mark.parametrize("seed", range(60))
def test_any_view_is_told_as_indexing_would(seed: int) -> None:
    random = np.random.default_rng(seed)
    dtype = random.choice(["u1", "<f2", "<f4", "<c16"])
    shape = tuple(random.integers(1, 6, random.integers(1, 5)))
    whole = random.integers(0, 100, shape).astype(dtype)
    slices = []
    for length in shape:
        begin = int(random.integers(0, length))
        step = int(random.choice([1, 1, 2, -1]))
        slices.append(slice(begin, None, step) if random.random() < 0.6 else slice(None))
    view = whole[tuple(slices)]
    view = view.transpose(random.permutation(view.ndim))
    axes = _cuda.axes_of(view.shape, view.strides, view.itemsize)
    assert axes is not None or view.size > 16
    if axes is None:
        return
    where = {"address": view.ctypes.data, "nbytes": view.nbytes, "axes": axes}
    assert gathered(where) == view.tobytes()
    assert (axes == ()) == view.flags.c_contiguous
    assert all(count > 1 for count, _ in axes)


def test_what_is_scattered_too_widely_is_left_to_its_library() -> None:
    rows, mib = 100_000, 1 << 20
    assert _cuda.axes_of((rows, 32), (512, 4), 4) == ((rows, 512),)
    assert _cuda.axes_of((rows, 31), (512, 4), 4) is None  # too short
    assert _cuda.axes_of((256,), (512,), 4) == ((256, 512),)
    assert _cuda.axes_of((257,), (512,), 4) is None
    # A copy for each row that is before the last, over it, or too far from it.
    for step in (-4096, 100, 1 << 31):
        assert _cuda.axes_of((rows, 4096), (step, 1), 1) == ((rows, step),)
        assert _cuda.axes_of((rows, 4095), (step, 1), 1) is None
        assert _cuda.axes_of((16, 200), (step, 1), 1) == ((16, step),)
    # One for all rows of the last axis.
    assert _cuda.axes_of((rows, 16, 256), (mib, 512, 1), 1) == ((rows, mib), (16, 512))
    assert _cuda.axes_of((rows, 15, 256), (mib, 512, 1), 1) is None


def test_nothing_is_asked_of_the_device_for_no_bytes(
    shelf: ts.Shelf, device: "list[dict[str, Any]]"
) -> None:
    shelf.x = Exposed(np.zeros((0, 3)), data=(0, False))
    assert shelf.x.shape == (0, 3)
    assert device == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shape": ...}, "cannot be read"),
        ({"typestr": ...}, "cannot be read"),
        ({"typestr": "<q99"}, "cannot be read"),
        ({"data": None}, "cannot be read"),
        ({"shape": ("a",)}, "cannot be read"),
        ({"typestr": "<U4"}, "cannot be stored"),
        ({"mask": "a mask"}, "masked"),
        ({"shape": (300, 2), "strides": (32, 8)}, "strides .32, 8.: .* too many"),
        ({"strides": (8,)}, "cannot be read"),
    ],
    ids=str,
)
def test_interfaces_that_cannot_be_used(
    shelf: ts.Shelf, device: "list[dict[str, Any]]", changes: Any, text: str
) -> None:
    with pytest.raises(ts.LayoutError, match=text) as caught:
        shelf.x = Exposed(np.ones((2, 3)), **changes)
    assert caught.value.remedy
    assert "x" not in shelf
    assert device == []


def test_arrays_that_may_lie_on_the_host(shelf: ts.Shelf) -> None:
    class Jaxs:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError("on the host just now")

        def __array__(self, *_: Any, **__: Any) -> "np.ndarray[Any, Any]":
            return np.arange(2.0)

    shelf.x = Jaxs()
    assert shelf.x.numpy().tolist() == [0, 1]


@pytest.mark.gpu
def test_a_torch_tensor_on_a_device(shelf: ts.Shelf) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if not _cuda.usable():
        pytest.skip("this build cannot use the CUDA device")
    value = torch.randn(3000, 1100)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        shelf.x = torch.zeros(3000, 1100, device="cuda")
        busy = torch.randn(4096, 4096, device="cuda")
        for _ in range(50):  # work that the copy has to come after
            busy = busy @ busy / 4096
        on_device = value.cuda(non_blocking=True) + 0 * busy.nan_to_num().sum()
        shelf.x = on_device
        on_device.zero_()
    assert torch.equal(shelf.x.torch(), value)
    shelf.half = value.to(torch.bfloat16).cuda()
    assert torch.equal(shelf.half.torch(), value.to(torch.bfloat16))
    part = value.cuda()[10:20]
    shelf.x[5:15] = part
    assert torch.equal(shelf.x.torch()[5:15], value[10:20])


@pytest.mark.gpu
def test_views_on_a_device_without_memory_of_its(shelf: ts.Shelf) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if not _cuda.usable():
        pytest.skip("this build cannot use the CUDA device")
    host = torch.randn(3000, 1100)
    views = (
        lambda whole: whole[:, 100:900],
        lambda whole: whole[::7],
        lambda whole: whole[:, :1088].unflatten(1, (17, 64)).transpose(0, 1),
    )
    for name, view_of in zip("abc", views, strict=True):
        view, expected = view_of(host.cuda()), view_of(host)
        allocated = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        shelf[name] = view
        assert torch.equal(shelf[name].torch(), expected)
        shelf.save({"saved": view})
        view.zero_()
        shelf.load_into({"saved": view})
        assert torch.cuda.max_memory_allocated() == allocated
        assert torch.equal(view.cpu(), expected)
