"""The judge of bench/demo: it has to see every kind of damage, else the demo proves nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

DEMO = Path(__file__).resolve().parents[2] / "bench" / "demo"
LAST = 5


@pytest.fixture(scope="module")
def demo() -> Any:
    if not DEMO.exists():
        pytest.skip("not in the source tree")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DEMO))
        import judge
        import stores

        yield judge, stores
    for name in ("judge", "stores", "model"):
        sys.modules.pop(name, None)


def state(a: int, b: int) -> dict[str, np.ndarray]:
    return {"a": np.full(100, float(a)), "b": np.full(7, b)}


@pytest.mark.parametrize(
    ("step", "a", "b", "acknowledged", "expected"),
    [
        # step  a  b  ack
        (3, 3, 3, 3, "LAST"),
        (4, 4, 4, 3, "NEXT"),
        (2, 2, 2, 3, "OLDER"),
        (5, 5, 5, 3, "TORN"),  # ahead of the one in flight: not of this run
        (3, 4, 3, 3, "MIXED"),
        (3, 4, 4, 3, "MIXED"),  # new arrays, old step
        (4, 3, 3, 3, "MIXED"),
        (3, 3, 99, 3, "TORN"),
    ],
)
def test_verdict(
    demo: tuple[ModuleType, ModuleType], step: int, a: int, b: int, acknowledged: int, expected: str
) -> None:
    judge, stores = demo
    reference = judge.Reference([judge.digest(state(k, k)) for k in range(LAST + 1)])
    verdict = reference.judge(stores.Saved(step, state(a, b)), acknowledged)
    assert verdict is judge.Verdict[expected]
    assert verdict.good == (expected in ("LAST", "NEXT"))


def test_nothing_saved_is_right_only_before_the_first_save(demo: Any) -> None:
    judge, _ = demo
    reference = judge.Reference([judge.digest(state(0, 0))])
    assert reference.judge(None, 0) is judge.Verdict.LAST
    assert reference.judge(None, 1) is judge.Verdict.OLDER


def test_one_changed_bit_is_not_the_final_state(demo: Any) -> None:
    judge, stores = demo
    reference = judge.Reference([judge.digest(state(k, k)) for k in range(LAST + 1)])
    final = stores.Saved(LAST, state(LAST, LAST))
    assert reference.is_final(final)
    final.state["a"].view(np.uint8)[0] ^= 1
    assert not reference.is_final(final)
    assert not reference.is_final(stores.Saved(LAST - 1, state(LAST - 1, LAST - 1)))


def test_every_store_loads_what_it_saved(demo: Any, tmp_path: Path) -> None:
    _, stores = demo
    for name, kind in stores.STORES.items():
        store = kind(tmp_path / name)
        assert store.resume() is None
        store.save(1, state(1, 1))
        store.save(2, state(2, 2))
        store.close()
        found = kind(tmp_path / name).load()
        assert found.step == 2, name
        assert found.state.keys() == {"a", "b"}
        for key, array in state(2, 2).items():
            assert found.state[key].dtype == array.dtype
            assert np.array_equal(found.state[key], array)
