"""What autosave saved, loaded under other names."""

from typing import Any

import pytest
from conftest import OpenShelf

import tensorshelf as ts

pytest.importorskip("msgpack")


# ---- objects


def trained(kind: str) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def with_model(shelf: ts.Shelf, model: Any, optimizer: Any) -> ts.Autosave:
    return shelf.autosave(model=model, optimizer=optimizer)


def test_a_run_is_loaded_under_other_names(reopen: OpenShelf) -> None:
    torch = pytest.importorskip("torch")
    model, optimizer = trained("AdamW")
    with with_model(reopen(mode="w"), model, optimizer) as auto:
        auto.step(5)
    other, its = trained("AdamW")
    its.state.clear()
    shelf = reopen()
    with pytest.raises(ts.BadArgument, match=r"makes 'one' of 'model\.\w+' and of 'model"):
        shelf.load("optimizer", rename=lambda name: name if name[0] == "o" else "one")
    parts = {"net": other, "optimizer": its}
    shelf.load_into(parts, rename={"model": "net"}, strict=False)
    assert torch.equal(other.weight, model.weight)
    for parameter, its_own in zip(other.parameters(), model.parameters(), strict=True):
        kept = its.state[parameter]
        assert torch.equal(kept["exp_avg"], optimizer.state[its_own]["exp_avg"])
