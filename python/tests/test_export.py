"""Shelves of a group's ranks as one file of safetensors."""

import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from group_ranks import Rank, Ranks
from support import check

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
safe = pytest.importorskip("safetensors")

import safetensors.torch  # noqa: E402
from safetensors import SafetensorError  # noqa: E402

import tensorshelf as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

WHOLE = torch.arange(24.0).reshape(4, 6)


@pytest.fixture
def saved(tmp_path: pathlib.Path) -> Callable[[Callable[[int], Any]], list[pathlib.Path]]:
    """Saves what each of two ranks has; the paths."""

    def save(state_of: Callable[[int], Any]) -> list[pathlib.Path]:
        ranks = Ranks(tmp_path, 2)

        def one(rank: Rank) -> None:
            with rank.open() as shelf:
                state = state_of(rank.rank)
                auto = shelf.autosave(group=rank.group, signals=(), state=state)
                auto.resume()
                auto.step(3)
                auto.close()

        assert ranks.run(one) == [None] * 2
        return [ranks.path(rank) for rank in range(2)]

    return save


def half(rank: int, whole: Any = WHOLE) -> ts.Shard:
    return ts.Shard(whole[2 * rank : 2 * rank + 2].clone(), "w", (4, 6), (2 * rank, 0))


def test_tensors_by_their_names(saved: Any, tmp_path: pathlib.Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    bucket = torch.arange(6.0)

    def state(rank: int) -> Any:
        return {
            "part": half(rank),
            "model": model,
            "optimizer": optimizer,
            "tied": model.weight,
            "columns": WHOLE.t(),
            "array": np.arange(3, dtype=">u2"),
            "views": [bucket[:4], bucket[2:]],
            "empty": torch.zeros(0, 2),
            "epoch": 7,
            "words": ["a"],
        }

    shown: list[tuple[int, int]] = []
    path = tmp_path / "whole.safetensors"
    merged = saved(state)
    usual = os.umask(0o077)
    try:
        made = ts.merge(merged, path, progress=lambda *of: shown.append(of))
    finally:
        os.umask(usual)
    assert path.stat().st_mode & 0o777 == 0o600
    found = safetensors.torch.load_file(path)
    kept = optimizer.state[model.weight]
    expected = {
        "w": WHOLE,
        "state.model.weight": model.weight,
        "state.model.bias": model.bias,
        "state.optimizer.state.state.model.weight.exp_avg": kept["exp_avg"],
        "state.optimizer.state.state.model.weight.step": kept["step"],
        "state.columns": WHOLE.t(),
        "state.views.0": bucket[:4],
        "state.views.1": bucket[2:],
        "state.empty": torch.zeros(0, 2),
    }
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value.detach())
    assert found["state.array"].tolist() == [0, 1, 2]
    assert "state.tied" not in found
    assert made.tensors == len(found)
    assert made.nbytes == sum(each.nbytes for each in found.values())
    assert {"state.epoch", "state.words.0"} <= set(made.left_out)
    assert not any(name in made.left_out for name in found)
    assert made.step == 3
    with safe.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt", "step": "3"}
    assert shown
    assert shown[-1][0] == shown[-1][1]
    assert sorted(each.name for each in tmp_path.iterdir() if each.suffix != ".shelf") == [
        path.name
    ]


def test_a_path_that_is_anothers_name_is_told_apart(saved: Any, tmp_path: pathlib.Path) -> None:
    paths = saved(lambda rank: {"a": {"b": torch.tensor(5.0)}, "a.b": WHOLE})
    made = ts.merge(paths, tmp_path / "whole.safetensors")
    found = safetensors.torch.load_file(tmp_path / "whole.safetensors")
    assert torch.equal(found["state.a.b"], WHOLE)
    assert found["state.a.b~2"].item() == 5
    assert made.tensors == len(found)


@pytest.mark.parametrize("element", ["bfloat16", "float8_e4m3fn"])
def test_types_that_numpy_lacks(saved: Any, tmp_path: pathlib.Path, element: str) -> None:
    dtype = getattr(torch, element)
    paths = saved(
        lambda rank: {"w": half(rank, WHOLE.to(dtype)), "one": torch.ones((), dtype=dtype)}
    )
    ts.merge(paths, tmp_path / "whole.safetensors")
    found = safetensors.torch.load_file(tmp_path / "whole.safetensors")
    assert found["w"].dtype == dtype
    assert torch.equal(found["w"].float(), WHOLE.to(dtype).float())
    assert found["state.one"].item() == 1


@pytest.mark.parametrize("value", [np.array(["a"]), torch.ones(2, dtype=torch.complex128)])
def test_types_that_safetensors_lacks(saved: Any, tmp_path: pathlib.Path, value: Any) -> None:
    paths = saved(lambda rank: {"odd": value})
    with pytest.raises(ts.LayoutError, match=r"'state\.odd'.*which safetensors has not") as caught:
        ts.merge(paths, tmp_path / "whole.safetensors")
    check(caught, ts.LayoutError, "layout_mismatch", ValueError, TypeError)
    assert not (tmp_path / "whole.safetensors").exists()


def test_what_is_there_stays(saved: Any, tmp_path: pathlib.Path) -> None:
    paths = saved(lambda rank: {"w": half(rank)})
    path = tmp_path / "whole.safetensors"
    path.write_text("mine")
    with pytest.raises(ts.ShelfExists, match="already"):
        ts.merge(paths, path)
    assert path.read_text() == "mine"


def test_a_file_is_durable_before_it_has_its_name(
    saved: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its name when merge() returns."""
    paths = saved(lambda rank: {"w": half(rank)})
    path, made = tmp_path / "whole.safetensors", []
    fsync, link = os.fsync, os.link

    def syncs(handle: int) -> None:
        made.append(("fsync", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def links(source: Any, target: Any) -> None:
        assert not path.exists()  # nor an empty one: a crash may come at any time
        made.append(("link", os.fspath(source)))
        link(source, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(os, "link", links)
    beside = tmp_path / "whole.safetensors.part"
    beside.write_text("mine")
    ts.merge(paths, path)
    (_, hidden), linked, last = made
    assert os.path.dirname(hidden) == str(tmp_path)
    assert linked == ("link", hidden)
    assert last == ("fsync", str(tmp_path))
    assert not os.path.exists(hidden)
    assert beside.read_text() == "mine"


def test_a_size_is_of_a_shelf(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ts.BadArgument, match="size='1GiB' is of a shelf"):
        ts.merge([], tmp_path / "whole.safetensors", size="1GiB")


def test_where_it_fails_nothing_is_left(
    saved: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = saved(lambda rank: {"w": half(rank)})
    with pytest.raises(ts.IoError, match="cannot be written") as caught:
        ts.merge(paths, tmp_path / "nowhere" / "whole.safetensors")
    check(caught, ts.IoError, "io_error", OSError)

    def full(_: Any, path: str, __: Any) -> None:
        pathlib.Path(path).write_text("half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(ts.IoError, match="No space left") as caught:
        ts.merge(paths, tmp_path / "whole.safetensors")
    assert caught.value.errno == 28

    def full_of_safetensors(_: Any, path: str, __: Any) -> None:
        pathlib.Path(path).write_text("half of it")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.numpy.save_file", full_of_safetensors)
    with pytest.raises(ts.IoError, match="No space left") as caught:
        ts.merge(paths, tmp_path / "whole.safetensors")
    assert {each.suffix for each in tmp_path.iterdir()} == {".shelf"}


def test_without_the_package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ts.UnsupportedError, match="pip install safetensors"):
        ts.merge([], tmp_path / "whole.safetensors")
