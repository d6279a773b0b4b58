"""What groups, and what reads their shelves, refuse to take: BadArgument, whatever its type."""

import fractions
import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")

from group_ranks import Ranks, trained  # noqa: E402

import tensorshelf as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")

WRONG: list[tuple[str, Any]] = [
    *[("rank", given) for given in ("0", 0.0, True, [])],
    *[("members", given) for given in ("2", 2.0, True, 0, -1)],
    *[("timeout", given) for given in ("9", float("nan"), -1, 1e9, True, [], 1j)],
    *[("replicate", given) for given in ("1", 1.0, True, None, -1, 2)],
    *[("replicas", given) for given in (3, ["a"], "a\0b")],
    *[("replica_rate", given) for given in (1.5, "much", 0, [])],
    *[("node", given) for given in (3, b"a", [])],
    *[("rack", given) for given in (3, b"a", [])],
    *[("partition", given) for given in (None, "some", 3, 0, 1.0, [])],
    *[("socket", given) for given in ("0", 1.0, True, -1, [])],
    *[("store", given) for given in (3, "store", SimpleNamespace(add=len))],
]


def group(**given: Any) -> ts.Group:
    return ts.Group(
        **{"store": torch.distributed.HashStore(), "rank": 0, "members": 2, "timeout": 1} | given
    )


@pytest.mark.parametrize(("name", "given"), WRONG, ids=[f"{n}={g!r:.20}" for n, g in WRONG])
def test_a_group_takes_nothing_of_another_type(name: str, given: Any) -> None:
    with pytest.raises(ts.BadArgument, match="path" if given == "a\0b" else f"{name}="):
        group(**{name: given})


def test_numbers_may_be_numpys() -> None:
    found = group(rank=np.int64(1), members=np.int32(2), timeout=np.float32(2), socket=np.int8(1))
    assert (type(found.rank), found.rank, found.members) == (int, 1, 2)
    assert (type(found.timeout), found.timeout) == (float, 2.0)
    assert group(timeout=fractions.Fraction(1, 2)).timeout == 0.5
    assert group(replicate=np.int64(1))._replicas.replicate == 1


@pytest.mark.parametrize("path", [3, None, [], b"run.shelf", "a\0{part}"])
def test_open_part_takes_a_path(path: Any) -> None:
    with pytest.raises(ts.BadArgument):
        ts.open_part(path, group(members=1))


def test_open_part_takes_a_group_and_options_of_open(tmp_path: pathlib.Path) -> None:
    for other in (3, None, torch.distributed.HashStore()):
        with pytest.raises(ts.BadArgument, match="no group"):
            ts.open_part(tmp_path / "run.{part}.shelf", other)
    with pytest.raises(ts.BadArgument, match="sise= is no option of open"):
        ts.open_part(tmp_path / "run.{part}.shelf", group(), sise="1MiB")
    options: Any = {"size": "16MiB", "keep": 1, "block": ts.BlockOptions()}
    with ts.open_part(
        str(tmp_path / "run.{part}.shelf").encode(),  # type: ignore[arg-type]
        group(members=1),
        **options,
    ) as shelf:
        assert shelf.info().keep == 1


@pytest.mark.parametrize("paths", [3, None, [3], [None], "run.0.shelf", b"run.0.shelf", 1.5])
def test_shelves_are_paths(tmp_path: pathlib.Path, paths: Any) -> None:
    for call in (ts.open_merged, ts.MergedView, lambda paths: ts.merge(paths, tmp_path / "a")):
        with pytest.raises(ts.BadArgument, match="path"):
            call(paths)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", [3, None, [], "a\0b"])
def test_the_new_shelf_is_a_path(tmp_path: pathlib.Path, to: Any) -> None:
    with pytest.raises(ts.BadArgument, match="path"):
        ts.merge([tmp_path / "run.0.shelf"], to)


def test_options_of_merge_are_checked(tmp_path: pathlib.Path) -> None:
    one = Ranks(tmp_path, 1)
    one.run(trained(1))
    for options in ({"size": 1.5}, {"size": "much"}, {"progress": 3}):
        with pytest.raises(ts.BadArgument):
            ts.merge([one.path(0)], tmp_path / "whole.shelf", **options)
    assert not (tmp_path / "whole.shelf").exists()


def test_a_view_is_loaded_by_a_group_or_none(tmp_path: pathlib.Path) -> None:
    one = Ranks(tmp_path, 1)
    one.run(trained(1))
    state = {"values": np.zeros(1000)}
    with ts.open_merged([one.path(0)]) as view:
        with pytest.raises(ts.BadArgument, match="no group"):
            view.load_into(state, group=3)  # type: ignore[arg-type]
        assert not state["values"].any()
