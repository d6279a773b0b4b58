"""Gradients that several backwards add up: saved, or refused in the middle."""

import weakref
from typing import Any, NamedTuple

from tensorshelf._state import objects
from tensorshelf.errors import UnsupportedError


class Gradients:
    """Those of all models of a state, by the parameters' names, as a state of their own."""

    def __init__(self, state: Any) -> None:
        names = objects.parameter_names(state)
        self._parameters = {names[id(each)]: each for each in objects.parameters(state)}

    def state_dict(self) -> dict[str, Any]:
        return {name: p.grad for name, p in self._parameters.items() if p.grad is not None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, parameter in self._parameters.items():
            grad = state.get(name)
            parameter.grad = None if grad is None else grad.to(parameter.device)


class Accumulation:
    """Tells whether a step() comes in the middle of adding up. For one thread.

    It does where a gradient changed since an optimizer's last step, or, where none has stepped,
    since the call before: nobody has used it. Zeroed ones do not count, nor, on a device, those
    that were changed in place: to look would be to wait. Only the first and the last parameter of
    each group are looked at: a backward reaches most.
    """

    def __init__(self, state: Any) -> None:
        self._stepped = False
        self._sample = [
            group["params"][at]
            for optimizer in objects.optimizers(state)
            for group in optimizer.param_groups
            for at in {0, len(group["params"]) - 1}
            if group["params"]
        ]
        # A GradScaler leaves steps out, and nobody hears of it.
        self._known = not objects.has_scaler(state)
        self._before = self._seen()

    def optimizer_stepped(self) -> None:
        self._stepped = True
        self._before = self._seen()

    def step_is_in_the_middle(self) -> bool:
        """Whether this call of step() comes in the middle."""
        stepped, self._stepped = self._stepped, False
        before, self._before = self._before, self._seen()
        if not stepped and not self._known:
            return False
        return any(map(_added, self._sample, before))

    def _seen(self) -> "list[_Seen | None]":
        grads = (parameter.grad for parameter in self._sample)
        return [None if grad is None else _Seen(weakref.ref(grad), grad._version) for grad in grads]


class _Seen(NamedTuple):
    """A gradient as it was: another may come to lie where it lay."""

    grad: "weakref.ref[Any]"
    changes: int

    def is_of(self, grad: Any) -> bool:
        return self.grad() is grad


def _added(parameter: Any, before: _Seen | None) -> bool:
    grad = parameter.grad
    if grad is None:
        return False
    if before is None or not before.is_of(grad):
        return True
    return grad._version != before.changes and bool(grad.is_cpu and grad.any())


def error_in_the_middle(number: int) -> UnsupportedError:
    """The error of a save there."""
    return UnsupportedError(
        f"step {number} is in the middle of adding up gradients, which would not be saved: a run "
        "that resumes there would lose them",
        "Call step() behind the optimizer's step, and zero_grad() where that is left out, as "
        "behind a bad batch; autosave(grads=True) saves gradients, too; grads=False where what was "
        "added up is dropped.",
    )


def refuse_in_backward(state: Any) -> None:
    """Raises UnsupportedError where a parameter may be stepped before the backward has ended."""
    for module in objects.modules(state):
        for name, parameter in module.named_parameters():
            if getattr(parameter, "_post_accumulate_grad_hooks", None):
                raise UnsupportedError(
                    f"{name} has a hook that runs within backward, as optimizers in backward do: "
                    "what it changes may not be copied yet",
                    "Use autosave(overlap=False): step() returns when everything is copied.",
                )
