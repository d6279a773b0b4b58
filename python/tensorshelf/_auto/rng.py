"""The generators that a program uses without naming them: Python's, NumPy's, torch's and CUDA's."""

import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np


class RNG:
    """Their states as one: ``shelf.autosave(rng=ts.RNG(), ...)``, or in any state that is saved.

    torch's are in it where torch was imported when it was saved. A Generator of your own goes into
    the state by itself.
    """

    def state_dict(self) -> dict[str, Any]:
        """As arrays, so that saving costs next to nothing."""
        version, words, gauss = random.getstate()
        state: dict[str, Any] = {
            "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
            "numpy": np.random.get_state(legacy=False),
        }
        torch = sys.modules.get("torch")
        if torch is not None:
            state["torch"] = torch.get_rng_state()
            if torch.cuda.is_initialized():  # who asks whether there is a device asks the driver
                state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts every generator back that is in it."""
        python = state["python"]
        random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
        np.random.set_state(state["numpy"])
        if "torch" in state:
            import torch

            torch.set_rng_state(state["torch"])
            if "cuda" in state:
                torch.cuda.set_rng_state_all(state["cuda"])

    def _fits_state(self, state: Any) -> bool:
        """Whether it is one of these, and not that of some other object."""
        return isinstance(state, Mapping) and {"python", "numpy"} <= state.keys()

    def __repr__(self) -> str:
        return "RNG()"
