"""How things look, and progress."""

import functools
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from conftest import OpenShelf
from support import in_child

import tensorshelf as ts
from tensorshelf._values import _write


def test_lines(shelf: ts.Shelf) -> None:
    shelf.w = np.zeros((4, 3), np.float32)
    assert "version 0, 1 tensor, 48 B" in repr(shelf)
    assert repr(shelf.w) == "<Tensor 'w' float32[4, 3], not persisted, dirty>"
    shelf.persist(3)
    assert "version 1 (step 3), 1 tensor, 48 B" in repr(shelf)
    assert repr(shelf.w) == "<Tensor 'w' float32[4, 3], version 1>"
    assert repr(shelf.w.committed) == "<Committed 'w' float32[4, 3]>"


def test_a_line_says_whose_the_value_is(shelf: ts.Shelf) -> None:
    shelf.x, shelf.y = 1.5, 2.5
    shelf.persist(1)
    shelf.x = 3.5
    shelf.z = 4.5
    shelf.prepare(2)
    assert repr(shelf.x) == "<Tensor 'x' float64[] 3.5, version 2, prepared>"
    assert repr(shelf.y) == "<Tensor 'y' float64[] 2.5, version 1>"
    assert repr(shelf.z) == "<Tensor 'z' float64[] 4.5, version 2, prepared>"
    shelf.y = 5.5
    assert repr(shelf.y) == "<Tensor 'y' float64[] 5.5, version 1, dirty>"
    shelf.resolve("commit")
    assert repr(shelf.x) == "<Tensor 'x' float64[] 3.5, version 2>"


def test_a_line_of_what_has_no_value(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.x = np.zeros(5)
    monkeypatch.setattr(_write, "blocks", functools.partial(_write.blocks, limit=8))
    shelf.w = np.zeros(2, "f4")
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        shelf.w[...] = np.array([1, 1e300])
    assert repr(shelf.w) == "<Tensor 'w' float32[2], not persisted, dirty, spoiled>"
    assert repr(shelf.x).endswith("not persisted, dirty>")


def test_what_info_and_versions_show_at_a_prompt(shelf: ts.Shelf) -> None:
    shelf.x = np.zeros(3)
    shelf.persist(7)
    assert repr(shelf.info()) == str(shelf.info())
    assert "version   1 (step 7)" in repr(shelf.info())
    (version,) = shelf.versions
    time = version.time.strftime("%Y-%m-%d %H:%M:%S")  # type: ignore[union-attr]
    assert repr(version) == f"<VersionInfo 1 (step 7), {time} UTC, 24 B assigned>"
    assert repr(ts.VersionInfo(0, None, None, 0)) == "<VersionInfo 0, 0 B assigned>"


def test_small_tensors_show_their_value(shelf: ts.Shelf) -> None:
    shelf.lr, shelf.seed, shelf.ok = 0.001, [1, 2, 3], True
    assert repr(shelf.lr) == "<Tensor 'lr' float64[] 0.001, not persisted, dirty>"
    shelf.persist()
    assert repr(shelf.seed) == "<Tensor 'seed' int64[3] [1, 2, 3], version 1>"
    assert repr(shelf.ok) == "<Tensor 'ok' bool[] True, version 1>"
    for name, shape in [("long", 7), ("flat", (2, 2)), ("none", 0)]:
        shelf.create(name, shape)
        assert repr(shelf[name]).count("[") == 1


def test_a_line_of_what_cannot_be_asked(shelf: ts.Shelf) -> None:
    shelf.x = 1.0
    handle = shelf.x

    def body() -> None:
        assert repr(shelf).endswith("run.shelf': belongs to the parent of this process>")

    assert in_child(body) == 0
    del shelf.x
    assert repr(handle).startswith("<Tensor 'x' float64[], ")
    shelf.close()
    assert repr(shelf).endswith("run.shelf': closed>")
    assert repr(handle) == "<Tensor 'x' float64[], closed>"


def test_tree(shelf: ts.Shelf) -> None:
    shelf["layers.0.weight"] = np.zeros((2, 2))
    shelf["layers.0"] = 1
    shelf["layers.1/bias"] = np.zeros(2)
    shelf["z"] = True
    assert shelf.tree().split("\n")[1:] == [
        "├── layers",
        "│   ├── 0  int64[] 8 B",
        "│   │   └── weight  float64[2, 2] 32 B",
        "│   └── 1",
        "│       └── bias  float64[2] 16 B",
        "└── z  bool[] 1 B",
    ]


def test_html_is_escaped_and_bounded(shelf: ts.Shelf) -> None:
    shelf["<script>&"] = 1.0
    html = shelf._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;&amp;" in html
    for i in range(250):
        shelf[f"t{i:03d}"] = 1.0
    assert "and 51 more" in shelf._repr_html_()
    shelf.close()
    assert shelf._repr_html_().endswith("run.shelf&#x27;: closed&gt;")


def test_the_title_of_the_table_is_escaped(tmp_path: pathlib.Path) -> None:
    with ts.open(tmp_path / "<b>&.shelf", size="8MiB") as shelf:
        shelf.w = 1.0
        html = shelf._repr_html_()
    assert "<b>&.shelf" not in html
    assert "&lt;b&gt;&amp;.shelf" in html


def test_completion_offers_names(shelf: ts.Shelf) -> None:
    shelf.weights, shelf["not an identifier"] = 1.0, 1.0
    assert "weights" in dir(shelf)
    assert "persist" in dir(shelf)
    assert "not an identifier" not in dir(shelf)
    assert shelf._ipython_key_completions_() == ["not an identifier", "weights"]
    shelf.close()
    assert shelf._ipython_key_completions_() == []


def test_progress_reports_bytes(reopen: OpenShelf) -> None:
    shelf = reopen()
    shelf.x = np.zeros(1 << 20)
    shelf.persist()
    calls: list[tuple[int, int]] = []
    assert shelf.verify(progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (8 << 20, 8 << 20)
    assert sorted(calls) == calls
    calls.clear()
    reopen(verify="open", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (8 << 20, 8 << 20)


@pytest.mark.parametrize("without", ["", "tqdm"])
def test_bars_go_to_stderr(shelf: ts.Shelf, without: str) -> None:
    path = shelf.info().path
    shelf.x = np.zeros(1 << 20)
    shelf.persist()
    shelf.close()
    code = f"""
import importlib.util, sys
if {without!r}:
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name: None if name == {without!r} else find(name)
import tensorshelf as ts
assert ts.open({path!r}, mode="r", tier="auto").verify(progress=True)
"""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == ""
    assert "verifying" in result.stderr
    assert "100%" in result.stderr or not without


def test_fallbacks_are_warned_of_once(tmp_path: object) -> None:
    code = f"""
import warnings, tensorshelf as ts
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for i in range(2):
        with ts.open({str(tmp_path)!r} + f"/{{i}}.shelf", tier="block",
                     block=ts.BlockOptions(direct=False, io_uring=False)) as shelf:
            notes = shelf.info().promises.notes
assert notes
assert sorted(str(w.message) for w in seen) == sorted(notes), (seen, notes)
assert all(w.category is ts.TierWarning for w in seen)
assert all(w.filename == "<string>" for w in seen), seen
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.filterwarnings("ignore::tensorshelf.TierWarning")
def test_block_options_reach_the_medium(tmp_path: object) -> None:
    options = ts.BlockOptions(buffer="1MiB", queue_depth=2, io_uring=False)
    with ts.open(f"{tmp_path}/run.shelf", tier="block", block=options) as shelf:
        shelf.x = np.arange(1 << 20)
        shelf.persist()
        np.testing.assert_array_equal(shelf.x, np.arange(1 << 20))
        assert "io_uring" not in shelf.info().promises.detail
        assert "pwrite" in shelf.info().promises.detail


def test_tree_keeps_odd_names_on_their_line(shelf: ts.Shelf) -> None:
    shelf["a\nb"] = 1
    assert shelf.tree().split("\n")[1:] == ["└── 'a\\nb'  int64[] 8 B"]


def test_a_transaction_says_what_became_of_it(shelf: ts.Shelf) -> None:
    with shelf.transaction() as t:
        shelf.w = np.ones(3)
        assert repr(t) == "<Transaction>"
    assert repr(t) == f"<Transaction of version {shelf.version}>"
    with pytest.raises(ZeroDivisionError), shelf.transaction() as t:
        1 / 0  # noqa: B018
    assert repr(t) == "<Transaction, ended without a version>"
