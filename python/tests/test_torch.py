"""torch tensors as sources and results."""

import gc
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from conftest import OpenShelf

import tensorshelf as ts
from tensorshelf._values import _dtypes, _sources

torch = pytest.importorskip("torch")

NAMES = [n for n in _dtypes._CARRIER if hasattr(torch, n)]


def same(a: "torch.Tensor", b: "torch.Tensor") -> bool:
    """Bit for bit, NaNs among them."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (t.detach().resolve_conj().resolve_neg().contiguous() for t in (a, b))
    return not a.numel() or torch.equal(
        a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)
    )


def sample(name: str) -> "torch.Tensor":
    dtype = getattr(torch, name)
    generator = torch.Generator().manual_seed(4)
    high = 2 if name == "bool" else 256
    raw = torch.randint(0, high, (5, 3 * dtype.itemsize), dtype=torch.uint8, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return raw.view(dtype)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("name", NAMES)
def test_round_trip(reopen: OpenShelf, name: str) -> None:
    value = sample(name)
    shelf = reopen()
    cases = {"x": value, "t": value.t(), "zero": value[:0], "one": value[0, 0], "part": value[::2]}
    for key, source in cases.items():
        shelf[key] = source
    shelf.persist()
    shelf = reopen()
    for key, source in cases.items():
        assert shelf[key].dtype_name == name
        assert shelf[key].shape == tuple(source.shape)
        assert same(shelf[key].torch(), source.contiguous())
        assert same(shelf[key].torch(copy=None), source.contiguous())
        assert same(shelf[key].committed.torch(), source.contiguous())
    shelf.x[1:3] = value[2:4]
    shelf.x[[0]] = value[[4]]
    shelf.x[:, 0] = value[:, 1]
    expected = value.clone()
    expected[1:3] = value[2:4]
    expected[0] = value[4]
    expected[:, 0] = value[:, 1]
    assert same(shelf.x.torch(), expected)
    shelf.x = value
    assert same(shelf.x.torch(), value)


def test_what_torch_asks_of_a_tensor_names_the_value(shelf: ts.Shelf) -> None:
    shelf.w = torch.ones(3)
    with pytest.raises(AttributeError, match=r"change it by \+=, \.fill_\(\)"):
        shelf.w.add_(1)
    for name in ("cpu", "to", "clone", "detach", "cuda", "float"):
        with pytest.raises(AttributeError, match=rf"take \.torch\(\), a copy, for .*\.{name}"):
            getattr(shelf.w, name)
        assert not hasattr(shelf.w, name)
    with pytest.raises(AttributeError, match=r"take \.torch\(\)"):
        torch.nn.Parameter(shelf.w)
    assert torch.nn.Parameter(shelf.w.torch()).tolist() == [1, 1, 1]


def test_a_shelf_is_a_state_dict(shelf: ts.Shelf) -> None:
    saved, found = (
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)) for _ in range(2)
    )
    shelf.update(saved.state_dict())
    shelf.persist()
    found.load_state_dict(shelf)
    assert all(same(found.state_dict()[k], v) for k, v in saved.state_dict().items())
    with torch.no_grad():
        next(iter(found.parameters())).add_(1)
    assert same(shelf["0.weight"].torch(), saved[0].weight)
    shelf["more"] = 1.0
    with pytest.raises(RuntimeError, match="Unexpected key"):
        found.load_state_dict(shelf)


def test_a_copy_is_the_callers(shelf: ts.Shelf) -> None:
    shelf.x = torch.arange(4.0)
    mine = shelf.x.torch()
    mine += 1
    assert shelf.x.torch().tolist() == [0, 1, 2, 3]


def test_autograd_and_lazy_bits_are_resolved(shelf: ts.Shelf) -> None:
    shelf.p = torch.nn.Parameter(torch.ones(3))
    assert not shelf.p.torch().requires_grad
    value = torch.tensor([1 + 2j, 3 - 4j])
    shelf.c = value.conj()
    assert same(shelf.c.torch(), value.conj().resolve_conj())
    shelf.n = value.conj().imag
    assert shelf.n.torch().tolist() == [-2, 4]
    assert value.conj().imag.is_neg()


def test_large_strided_sources_go_in_blocks(shelf: ts.Shelf) -> None:
    value = torch.randn(1100, 3000, dtype=torch.float64)
    shelf.x = value.t()
    assert same(shelf.x.torch(), value.t().contiguous())
    shelf.y = value.reshape(2, -1).flip(1)[:, ::2]
    assert same(shelf.y.torch(), value.reshape(2, -1).flip(1)[:, ::2].contiguous())
    shelf.c = torch.complex(value, value).conj()
    assert same(shelf.c.torch(), torch.complex(value, -value))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:The PyTorch API of nested")
def test_layouts_that_cannot_be_stored(shelf: ts.Shelf) -> None:
    cases = [
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    ]
    for value in cases:
        with pytest.raises(ts.NotStorable, match=r"state\['x'\]: a "):
            shelf.save({"x": value})
        with pytest.raises(ts.LayoutError) as caught:
            shelf.x = value
        assert caught.value.remedy
        assert "x" not in shelf


def test_torch_dtypes_name_element_types(shelf: ts.Shelf) -> None:
    for name in NAMES:
        assert shelf.create(name, (2,), getattr(torch, name)).dtype_name == name
    with pytest.raises(ts.LayoutError):
        shelf.create("q", (2,), torch.quint8)


def test_casting_from_torch(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros((2, 3))
    shelf.x[...] = torch.ones(3, dtype=torch.float32)
    shelf.x += torch.ones(3, dtype=torch.bfloat16)
    assert shelf.x.numpy().sum() == 12
    shelf.x *= torch.ones(3)
    np.testing.assert_array_equal(shelf.x.numpy(), np.full((2, 3), 2))
    shelf.x[...] = torch.ones(3)
    with pytest.raises(ts.LayoutError, match="float64"):
        shelf.x = torch.ones(2, 3)
    with pytest.raises(ts.LayoutError):
        shelf.x[...] = torch.ones(3, dtype=torch.complex64)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_dlpack_to_torch_is_a_copy(shelf: ts.Shelf, name: str) -> None:
    value = sample(name)
    shelf.x = value
    taken = torch.from_dlpack(shelf.x)
    assert same(taken, value)
    taken.zero_()
    assert same(shelf.x.torch(), value)


def test_dlpack_sources(shelf: ts.Shelf) -> None:
    class OnlyDLPack:
        def __init__(self) -> None:
            self.tensor = torch.arange(6).reshape(2, 3)

        def __dlpack__(self, **options: object) -> object:
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> object:
            return self.tensor.__dlpack_device__()

    shelf.x = OnlyDLPack()
    np.testing.assert_array_equal(shelf.x, np.arange(6).reshape(2, 3))


def test_copy_from_torch(shelf: ts.Shelf) -> None:
    shelf.x = torch.zeros(3)
    shelf.x.copy_(torch.tensor([1.0, 2, 3]), non_blocking=True)
    assert shelf.x.torch().tolist() == [1, 2, 3]


def test_writes_under_a_torch_lease(shelf: ts.Shelf) -> None:
    shelf.x = torch.zeros(3)
    shelf.persist()
    lent = shelf.x.torch(copy=not shelf.info().promises.mapped)
    shelf.x = torch.ones(3)
    shelf.persist()
    if shelf.info().promises.mapped:
        with pytest.raises(ts.LeasedError):
            shelf.x = torch.ones(3)
    assert lent.tolist() == [0, 0, 0]
    del lent
    shelf.x = torch.ones(3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_sources(shelf: ts.Shelf) -> None:
    for value in (torch.arange(24.0).reshape(4, 6), torch.randn(3000, 1100, dtype=torch.float64)):
        shelf["x" + str(value.numel())] = value.cuda()
        assert same(shelf["x" + str(value.numel())].torch(), value)
        shelf["t" + str(value.numel())] = value.cuda().t()
        assert same(shelf["t" + str(value.numel())].torch(), value.t().contiguous())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_another_shape_of_as_many_elements(shelf: ts.Shelf, dtype: "torch.dtype") -> None:
    shelf.x = torch.arange(6).reshape(2, 3).to(dtype)
    for index in (..., slice(None)):
        with pytest.raises(ts.LayoutError):
            shelf.x[index] = torch.zeros(3, 2, dtype=dtype)
    with pytest.raises(ts.LayoutError):
        shelf.x = torch.zeros(3, 2, dtype=dtype)
    assert same(shelf.x.torch(), torch.arange(6).reshape(2, 3).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_one_element_of_any_stride(shelf: ts.Shelf, dtype: "torch.dtype") -> None:
    value = torch.arange(3, 11).to(dtype).reshape(1, 8)[:, 2]
    assert value.stride() == (8,)
    shelf.x = value
    shelf.x[...] = value
    assert same(shelf.x.torch(), torch.tensor([5], dtype=dtype))


def test_one_lazily_negated_element(shelf: ts.Shelf) -> None:
    value = torch.tensor([1 + 2j]).conj().imag
    shelf.x = value
    assert shelf.x.numpy().tolist() == [-2]


def test_copy_false_lends_or_refuses(shelf: ts.Shelf) -> None:
    shelf.x = torch.zeros(3)
    shelf.empty = torch.zeros(0)
    shelf.persist()
    if shelf.info().promises.mapped:
        assert shelf.x.torch(copy=False).tolist() == [0, 0, 0]
    else:
        with pytest.raises(ts.UnsupportedError, match="cannot be lent") as caught:
            shelf.x.torch(copy=False)
        assert "torch(copy=True)" in caught.value.remedy
    assert shelf.x.torch(copy=None).tolist() == [0, 0, 0]
    assert shelf.empty.torch(copy=False).tolist() == []


def test_torch_functions_are_given_values_not_handles(shelf: ts.Shelf) -> None:
    shelf["layer.w"] = torch.ones(2, 3)
    handle = shelf["layer.w"]
    calls = [
        lambda: torch.relu(handle),
        lambda: torch.nn.functional.linear(torch.ones(4, 3), handle),
        lambda: torch.stack([handle, handle]),
        lambda: torch.add(torch.ones(2, 3), 1, out=handle),
        lambda: torch.relu_(handle),
        lambda: torch.ones(3, requires_grad=True) + handle,  # as NumPy's, without its gradient?
        lambda: handle * torch.ones(3),
        lambda: torch.ones(2, 3) == handle,
        lambda: torch.ones(3, 2) @ handle,
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"shelf\['layer.w'\]\.torch\(\)"):
            call()
    assert handle.torch().tolist() == [[1, 1, 1], [1, 1, 1]]
    for made in (torch.tensor(handle), torch.as_tensor(handle), torch.from_dlpack(handle)):
        assert same(made, torch.ones(2, 3))


def test_tensors_take_values_from_handles(shelf: ts.Shelf) -> None:
    model = torch.nn.Linear(3, 2)
    shelf.update(model.state_dict())
    mine = torch.zeros(2, 3)
    mine.copy_(shelf.weight)
    assert same(mine, model.weight)
    row = torch.zeros(4, 2)
    row[1] = shelf.bias
    assert same(row[1], model.bias)
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(dict(shelf))
    assert same(other.weight, model.weight)
    assert same(other.bias, model.bias)
    with pytest.raises(RuntimeError, match="size mismatch"):
        torch.nn.Linear(2, 2).load_state_dict(dict(shelf))


@pytest.mark.parametrize("name", NAMES)
def test_plain_tensors_take_the_short_way(
    shelf: ts.Shelf, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of small ones cost what arrays do; the rest goes the long way, as it did."""
    if name == "complex32":
        pytest.skip("goes the long way")
    value = sample(name)
    shelf.update(x=torch.zeros_like(value), y=torch.zeros(2, 3, dtype=torch.float64))
    with monkeypatch.context() as patched:
        patched.setattr(_sources, "source_of", None)
        patched.setattr(ts.Tensor, "_put", None)
        shelf.update({"x": value})
        shelf.y = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.float64))
        shelf.x = value
    assert same(shelf.x.torch(), value)
    assert shelf.y.numpy().sum() == 6
    shelf.x = value.flip(0).t().contiguous().t()  # lies in another order
    assert same(shelf.x.torch(), value.flip(0))
    for other in (value[:2], sample("int32" if name != "int32" else "float32")[:5, :1]):
        with pytest.raises(ts.LayoutError, match="'x' is"):
            shelf.x = other
    assert same(shelf.x.torch(), value.flip(0))


def dirtied(shelf: ts.Shelf, value: "torch.Tensor") -> list[ts.Tensor]:
    """Handles of one value: just created, persisted, assigned again, assigned in part."""
    for name in ("fresh", "clean", "dirty", "part"):
        shelf[name] = value
        if name != "fresh":
            shelf.persist()
    shelf.dirty = value
    shelf.part[0] = value[0]
    shelf.fresh = value
    return [shelf[name] for name in ("fresh", "clean", "dirty", "part")]


def refused_as_bare_bytes(call: Callable[[], object]) -> None:
    """torch would read them as float32, after it gave them back. The remedy comes as a warning."""
    with (
        pytest.warns(RuntimeWarning, match=r"\.torch\(\)"),
        pytest.raises((RuntimeError, ValueError, BufferError)),
    ):
        call()


@pytest.mark.parametrize("name", ["int64", "float32", "float64", "bfloat16", "bool", "uint8"])
def test_torch_gets_values_that_live(shelf: ts.Shelf, name: str) -> None:
    """torch gives a buffer back at once and keeps the object: what it holds must stay valid."""
    value = sample(name)
    handles = dirtied(shelf, value)
    handles += [handle.committed for handle in handles[1:]]
    made = []
    for handle in handles:
        for convert in (torch.as_tensor, torch.tensor, torch.from_dlpack):
            made.append(convert(handle))
        if isinstance(handle, ts.Tensor):
            refused_as_bare_bytes(lambda x=handle: torch.asarray(x))
            refused_as_bare_bytes(lambda x=handle: torch.frombuffer(x, dtype=getattr(torch, name)))
        else:
            made.append(torch.asarray(handle))
    del handle, handles
    for key in list(shelf):
        shelf[key].fill_(False)
    shelf.persist()
    for key in list(shelf):
        shelf[key].fill_(False)
        del shelf[key]
    shelf.persist()
    shelf.noise = np.full(100_000, 0x55, np.uint8)
    shelf.close()
    gc.collect()
    noise = [np.full(value.nbytes, 0xAA, np.uint8) for _ in range(100)]
    assert len(noise) == 100
    for tensor in made:
        assert same(tensor, value)


def test_a_buffer_that_is_held_is_lent_to_torch(shelf: ts.Shelf) -> None:
    shelf.x = torch.arange(6).reshape(2, 3)
    taken = torch.frombuffer(memoryview(shelf.x), dtype=torch.int64)
    shelf.x = torch.zeros(2, 3, dtype=torch.int64)
    shelf.close()
    gc.collect()
    assert taken.tolist() == [0, 1, 2, 3, 4, 5]


def test_torch_gives_a_copy_that_is_not_the_shelfs(shelf: ts.Shelf) -> None:
    """torch has no read-only tensors, and models are restored from these: the docs say it."""
    shelf.w = torch.zeros(2, 2)
    for copy in (True, None):
        mine = shelf.w.torch(copy=copy)
        mine.add_(1)
        assert (mine.sum(), shelf.w.torch().sum()) == (4, 0)
    assert "CHANGING IT, as with ``add_``, DOES NOT CHANGE" in (ts.Tensor.torch.__doc__ or "")
