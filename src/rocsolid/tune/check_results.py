"""Right before fast: a variant's answers beside eager's, and both beside the same in double precision."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from rocsolid.model.workload import Workload
from rocsolid.numerics import detached_copy, error_limit, relative_error
from rocsolid.torchapi.pytree import flatten
from rocsolid.tune.isolate.trial_process import WrongAnswerError

_SLACK: Final = 2.0  # how much further from the exact answer than eager itself a variant may be


@dataclass(frozen=True)
class Inputs:
    """One call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def call(self, function: Callable[..., Any], seed: int | None = None) -> Any:
        """Make it, from a known state of the random numbers if a seed is given."""
        if seed is not None:
            torch.manual_seed(seed)
        return function(*self.args, **self.kwargs)

    @property
    def on_device(self) -> bool:
        """Whether there is anything that can be captured."""
        return flatten((self.args, dict(self.kwargs)), "call").on_device

    def changed(self, change: Callable[[Any], Any]) -> "Inputs":
        """The same call with its tensors changed."""
        tree = flatten((self.args, dict(self.kwargs)), "call")
        leaves = [change(leaf.value) if isinstance(leaf.value, torch.Tensor) else leaf.value for leaf in tree.leaves]
        args, kwargs = tree.unflatten(leaves)
        return Inputs(args, kwargs)


class Checker:
    """Knows what eager answers to the user's call, and to another of the same shapes."""

    def __init__(self, work: Workload) -> None:
        self.first = Inputs(work.args, work.kwargs)
        # Only floats may be changed: an integer may be an index, and a flag a structure.
        moved = self.first.changed(lambda t: t.roll(1, -1) if t.is_floating_point() and t.dim() else t)
        self._inputs = [self.first, moved]
        self._truth = [detached_copy(one.call(work.callable, seed=0)) for one in self._inputs]
        again = self.first.call(work.callable, seed=1)
        self.random = relative_error(again, self._truth[0]) > error_limit(self._truth[0])
        self._exact = [] if self.random else _exact(work, self._inputs)

    def check(self, function: Callable[..., Any], times: int = 1) -> tuple[str, float | None]:
        """What was compared, and the largest difference from eager; raises WrongAnswerError when it is too large."""
        if self.random:
            return "not checked, because the workload draws random numbers", None
        calls = max(times, len(self._inputs))
        worst = 0.0
        for number in range(calls):
            which = number % len(self._inputs)
            got, truth = detached_copy(self._inputs[which].call(function, seed=0)), self._truth[which]
            error, limit = relative_error(got, truth), error_limit(truth)
            if not error <= limit and not self._as_good_as_eager(got, which):
                msg = f"its answer to input {which + 1} is {error:.2%} of its size away from eager's ({limit:.0%} is allowed)"
                raise WrongAnswerError(msg)
            worst = max(worst, error)
        beside = " and double precision" if self._exact else ""
        return f"{calls} calls with {len(self._inputs)} inputs, against eager{beside}", worst

    def _as_good_as_eager(self, got: Any, which: int) -> bool:
        """A variant may be far from eager because eager is far from the truth."""
        if not self._exact:
            return False
        own = relative_error(self._truth[which], self._exact[which])
        return relative_error(got, self._exact[which]) <= _SLACK * own


def _exact(work: Workload, inputs: list[Inputs]) -> list[Any]:
    """The answers in double precision, for a module that can be copied and takes doubles; nothing otherwise."""
    if not isinstance(work.callable, torch.nn.Module):
        return []
    try:
        model = copy.deepcopy(work.callable).double()
        return [detached_copy(one.changed(_doubled).call(model, seed=0)) for one in inputs]
    except Exception:  # noqa: BLE001 - a model may refuse in any way; eager remains as the reference
        return []


def _doubled(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor
