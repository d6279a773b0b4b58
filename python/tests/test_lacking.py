"""What works where torch or ml_dtypes are missing, and what says that they are."""

import pathlib
import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest
from support import check

import tensorshelf as ts
from tensorshelf._values import _dtypes

ml_dtypes = pytest.importorskip("ml_dtypes")
torch = pytest.importorskip("torch")
CARRIED = [name for name in _dtypes._CARRIED if name != "complex32"]


@pytest.fixture
def no_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    _dtypes.public.cache_clear()
    yield
    monkeypatch.undo()
    _dtypes.public.cache_clear()


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.parametrize("name", CARRIED)
def test_without_ml_dtypes(shelf: ts.Shelf, no_ml_dtypes: None, name: str) -> None:
    values = torch.tensor([0.5, 1.0, 2.0, 4.0]).to(getattr(torch, name))
    shelf.x = values
    x = shelf.x
    wide = _dtypes.carrier(name).itemsize
    assert (x.dtype.name, x.dtype.itemsize, x.itemsize, x.nbytes) == (name, wide, wide, 4 * wide)
    assert (repr(x.dtype), x.size) == (f"dtype({name})", 4)
    assert repr(x).startswith(f"<Tensor 'x' {name}[4]")
    assert torch.equal(x.torch().view(torch.uint8), values.view(torch.uint8))
    shelf.create("same", 4, x.dtype).copy_(x)
    shelf.same[1:3] = values[2:]
    assert shelf.same.torch().float().tolist() == [0.5, 2, 4, 4]
    shelf.same[::-2] = values[:2]  # bytes move without knowing what they mean
    shelf.same[[0, 2]] = values[2:]
    assert shelf.same.torch().float().tolist() == [2, 1, 4, 0.5]
    shelf.replace("same", x)
    assert shelf.same.dtype_name == name
    for use in (
        x.numpy,
        lambda: x.numpy(copy=True),
        lambda: x[0],
        shelf.create("one", (), name).item,
        lambda: np.asarray(x),
        lambda: x.__array__(copy=True),
        lambda: x + 1,
        lambda: x.fill_(2.0),
        lambda: x.edit().__enter__(),
    ):
        with pytest.raises(ts.UnsupportedError, match=name) as caught:
            use()
        check(caught, ts.UnsupportedError, "unsupported", RuntimeError)
        assert "pip install ml_dtypes" in caught.value.remedy
    with pytest.raises(ValueError, match=name):  # as NumPy's protocol has it
        x.__array__(copy=False)
    shelf.x = values  # no edit was left under way
    assert torch.equal(shelf.x.torch().view(torch.uint8), values.view(torch.uint8))


def test_dlpack_of_what_numpy_lacks(shelf: ts.Shelf, no_ml_dtypes: None) -> None:
    shelf.x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    assert torch.from_dlpack(shelf.x).tolist() == [1, 2]


def test_without_torch(shelf: ts.Shelf, no_torch: None) -> None:
    shelf.x = np.arange(4.0)
    np.testing.assert_array_equal(np.from_dlpack(shelf.x), np.arange(4.0))
    for copy in (True, None, False):
        with pytest.raises(ts.UnsupportedError, match="torch is not installed") as caught:
            shelf.x.torch(copy=copy)
        check(caught, ts.UnsupportedError, "unsupported", RuntimeError)
    shelf.create("b", 2, "bfloat16")
    assert shelf.b.numpy().dtype == ml_dtypes.bfloat16
    with pytest.raises(AttributeError, match=r"no attribute 'cuda'$"):
        shelf.x.cuda()
    with pytest.raises(AttributeError, match=r"no attribute 'unsqueeze_'$"):
        shelf.x.unsqueeze_(0)
    with pytest.raises(AttributeError, match=r"no attribute 'cuda'$"):
        shelf.x[0:1].cuda()
    assert shelf.x + 1 == pytest.approx(np.arange(1.0, 5.0))
    shelf.update(x=np.zeros(4), y=[1, 2])
    assert not shelf.x.numpy().any()


def test_a_type_that_this_torch_lacks(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("uint64", "float8_e8m0fnu"):
        shelf.create(name, 2, name)
        monkeypatch.delattr(torch, name)
        with pytest.raises(ts.UnsupportedError, match=f"has no {name}") as caught:
            shelf[name].torch()
        assert "later torch" in caught.value.remedy
    with pytest.raises(BufferError):
        shelf["float8_e8m0fnu"].__dlpack__()


def test_text_that_is_no_type_of_torch(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute of that name is not enough."""
    shelf.create("x", 2, "float8_e5m2")
    monkeypatch.setattr(torch, "float8_e5m2", types.SimpleNamespace())
    with pytest.raises(ts.UnsupportedError, match="has no float8_e5m2"):
        shelf.x.torch()


def test_other_words_for_types(shelf: ts.Shelf, disk: pathlib.Path) -> None:
    for wrong in ([("a", "f4")], {"names": ["a"], "formats": ["f4"]}, [], disk, torch, "torch.f4"):
        with pytest.raises(ts.LayoutError) as caught:
            shelf.create("x", 2, wrong)
        check(caught, ts.LayoutError, "layout_mismatch", ValueError, TypeError)
    assert len(shelf) == 0
