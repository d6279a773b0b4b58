"""Shelves that have pieces of what all ranks hold alike, as one."""

import pathlib

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from partition_ranks import Job, Parted, bits, expected, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402
from tensorshelf._group import pieced  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


@pytest.fixture
def three(tmp_path: pathlib.Path) -> Parted:
    return Parted(tmp_path, 3)


def test_merged_shelves_have_whole_tensors(three):
    three.run(lambda rank: trained(rank, 2))
    merged = ts.merge([three.path(rank) for rank in range(3)], three.folder / "whole.shelf")
    assert merged.step == 2
    with ts.open(three.folder / "whole.shelf", "r") as shelf:
        assert not [name for name in shelf if "[" in name]
        state = shelf.load("model")["model"]
        assert state["weight"].data_ptr() == state["tied"].data_ptr()
        assert state["turned"].stride() == (1, 90)
        job = Job().forget()
        shelf.load_into(job.state(), strict=False)  # it has autosave's loaders
        assert job.values() == expected(2)


def test_a_merged_file_has_whole_tensors(three):
    safetensors = pytest.importorskip("safetensors.torch")
    three.run(lambda rank: trained(rank, 1))
    ts.merge([three.path(rank) for rank in range(3)], three.folder / "whole.safetensors")
    found = bits(safetensors.load_file(three.folder / "whole.safetensors"))
    job = Job()
    job.train(1)
    assert found[".model.weight"] == bits({"model.weight": job.model.weight})[".model.weight"]
    assert found[".model.turned"] == bits({"model.turned": job.model.turned})[".model.turned"]


def test_any_number_of_ranks_has_whole_tensors(three):
    three.run(lambda rank: trained(rank, 2))
    job = Job().forget()
    with ts.open_merged([three.path(rank) for rank in range(3)]) as saved:
        saved.load_into({"model": job.model, "optimizer": job.optimizer})
        with pytest.raises(ts.errors.LayoutError, match="'group' is of each rank alone"):
            saved.load_into({"group": {}})
    assert job.values() == expected(2)


@pytest.mark.parametrize("lacks", [0, 1])
def test_what_one_rank_has_no_piece_of_is_told(lacks):
    trees = [["dict"], ["dict"]]
    trees[1 - lacks] += ["a", ["piece", "torch", "float32", [2], ["a", 1, 0, 8, "a[0:8]"], None]]
    with pytest.raises(ts.errors.CorruptError, match="0 and 1 have not both a piece of 'a'"):
        pieced.runs_of(trees)


@pytest.mark.parametrize(
    ("first", "second"),
    [((4, 6), (6, 8)), ((0, 4), (6, 8)), ((0, 6), (4, 8)), ((0, 4), (4, 6)), ((0, 8), (8, 12))],
)
def test_pieces_that_are_not_the_whole_are_refused(first, second):
    trees = [
        ["dict", "a", ["piece", "torch", "float32", [2], ["a", 2, *run, f"a[{run[0]}]"], None]]
        for run in (first, second)
    ]
    with pytest.raises(ts.errors.CorruptError, match="have not all of 'a' together"):
        pieced.runs_of(trees)


def test_without_all_pieces_nothing_is_merged(three, monkeypatch):
    three.run(lambda rank: trained(rank, 1))
    runs = pieced._runs

    def one_less(name, nodes):
        for node in nodes[:1]:
            node[4] = [*node[4][:3], node[4][2], None]
        return runs(name, nodes)

    monkeypatch.setattr(pieced, "_runs", one_less)
    with pytest.raises(ts.errors.CorruptError, match="have not all of 'model"):
        ts.merge([three.path(rank) for rank in range(3)], three.folder / "whole.shelf")
