"""Reading a save of torch.distributed.checkpoint by several ranks: which parts are committed first,
and what is told of those that lack.
"""

import errno
import pathlib
import threading
from typing import Any

import pytest
from dcp_ranks import alone, run_ranks

import tensorshelf as ts

torch = pytest.importorskip("torch")
pytest.importorskip("msgpack")
dcp = pytest.importorskip("torch.distributed.checkpoint")

from test_dcp_group import check_whole, load_here, save, save_unheard  # noqa: E402

from tensorshelf.dcp import ShelfReader  # noqa: E402
from tensorshelf.dcp._home import Options, home_of  # noqa: E402
from tensorshelf.dcp._opening import Access  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")


def test_the_record_is_committed_before_a_part_that_waits(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss could leave the part of a save that is none."""
    run_ranks(save_unheard, 2, tmp_path, [1.0])
    opened = opened_to_write(monkeypatch)
    check_whole(tmp_path, 1.0)
    assert opened == ["run.0.shelf", "run.1.shelf"]


def test_the_record_is_committed_before_a_part_that_waits_in_this_process(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_ranks(save_unheard, 2, tmp_path, [1.0])
    home = home_of(str(tmp_path / "run.1.shelf"), 1)
    with home.whole(Options()) as shelf:
        assert shelf.prepared is not None
    opened = opened_to_write(monkeypatch)
    check_whole(tmp_path, 1.0)
    assert opened == ["run.0.shelf"]
    assert shelf.prepared is None
    home.close()


def test_a_record_that_a_power_loss_took_back_commits_no_part(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read behind its flip, and that was not durable."""
    run_ranks(save, 2, tmp_path, 2, [1.0])
    head = tmp_path / "run.0.shelf"
    before = head.read_bytes()
    run_ranks(save_unheard, 2, tmp_path, [2.0])
    home = home_of(str(tmp_path / "run.1.shelf"), 1)
    with home.whole(Options()) as shelf:
        assert shelf.prepared is not None
    set_up = ShelfReader.set_up_storage_reader

    def lost(self: ShelfReader, *args: Any, **options: Any) -> None:
        head.write_bytes(before)
        set_up(self, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(ShelfReader, "set_up_storage_reader", lost)
        with pytest.raises(dcp.CheckpointException):
            load_here(tmp_path)
    assert shelf.prepared is not None
    home.close()
    check_whole(tmp_path, 1.0)


def test_waiting_for_a_part_that_another_process_holds_ends(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has to be committed before it is read."""
    run_ranks(save_unheard, 2, tmp_path, [1.0])
    open_ = Access.open
    told: list[str] = []

    def held(self: Access, path: str, mode: Any = "r") -> ts.Shelf:
        if mode == "r+" and path.endswith("run.1.shelf"):
            raise ts.ShelfBusy("another process has it open", "Wait for it.", errno.EAGAIN)
        return open_(self, path, mode)

    def load() -> None:
        reader = ShelfReader(tmp_path / "run.shelf", lock_wait=0.5)
        with pytest.raises(dcp.CheckpointException) as caught:
            dcp.load({"w": torch.zeros(8, 3)}, storage_reader=reader, no_dist=True)
        told.append(str(caught.value))

    monkeypatch.setattr(Access, "open", held)
    loading = threading.Thread(target=load, daemon=True)
    with alone():
        loading.start()
        loading.join(20)
    assert not loading.is_alive()
    assert "cannot be committed for loading: another process has it open" in told[0]


def opened_to_write(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of shelves that readers open to write from here on."""
    opened: list[str] = []
    open_ = Access.open

    def noted(self: Access, path: str, mode: Any = "r") -> ts.Shelf:
        if mode == "r+":
            opened.append(pathlib.Path(path).name)
        return open_(self, path, mode)

    monkeypatch.setattr(Access, "open", noted)
    return opened


def test_a_version_of_that_number_without_the_part_is_damage(tmp_path: pathlib.Path) -> None:
    """A newer one says that a save went on, and loading again helps: this one does not."""
    run_ranks(save, 2, tmp_path, 2, [1.0])
    path = tmp_path / "run.1.shelf"
    kept = path.read_bytes()
    run_ranks(save, 2, tmp_path, 2, [2.0])
    path.write_bytes(kept)
    with ts.open(path) as shelf:
        shelf.w = [1.0]
        shelf.persist()
        assert shelf.version == 2
    with pytest.raises(dcp.CheckpointException, match=r"CorruptError: .*Put run\.1\.shelf"):
        load_here(tmp_path)
