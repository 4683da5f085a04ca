"""Check a variant's results before it is timed: against eager, and against the same in double precision."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from rocsolid.model.workload import Workload
from rocsolid.numerics import detached_copy, error_limit, relative_error
from rocsolid.torchapi.pytree import flatten
from rocsolid.tune.isolate.trial_process import WrongResultError

_MAX_ERROR_RATIO: Final = 2.0  # how much larger than eager's a variant's error against double precision may be


@dataclass(frozen=True)
class CallInputs:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def call(self, function: Callable[..., Any], seed: int | None = None) -> Any:
        """Call the function; with a seed, the random number generators are seeded first."""
        if seed is not None:
            torch.manual_seed(seed)
        return function(*self.args, **self.kwargs)

    @property
    def on_device(self) -> bool:
        """Whether any tensor is on a GPU, so that the call can be captured."""
        return flatten((self.args, dict(self.kwargs)), "call").on_device

    def map_tensors(self, change: Callable[[Any], Any]) -> "CallInputs":
        """The same call with changed tensors."""
        tree = flatten((self.args, dict(self.kwargs)), "call")
        leaves = [change(leaf.value) if isinstance(leaf.value, torch.Tensor) else leaf.value for leaf in tree.leaves]
        args, kwargs = tree.unflatten(leaves)
        return CallInputs(args, kwargs)


class ResultChecker:
    """Compares a variant with eager, on the user's inputs and on a second set with the same shapes."""

    def __init__(self, work: Workload) -> None:
        self.first = CallInputs(work.args, work.kwargs)
        # Only floating-point tensors are changed: an integer may be an index, and a bool may select a code path.
        second = self.first.map_tensors(lambda t: t.roll(1, -1) if t.is_floating_point() and t.dim() else t)
        self._inputs = [self.first, second]
        self._eager = [detached_copy(one.call(work.callable, seed=0)) for one in self._inputs]
        other_seed = self.first.call(work.callable, seed=1)
        self.random = relative_error(other_seed, self._eager[0]) > error_limit(self._eager[0])
        self._double = [] if self.random else _double_precision(work, self._inputs)

    def check(self, function: Callable[..., Any], times: int = 1) -> tuple[str, float | None]:
        """What was compared, and the largest relative error against eager; raises WrongResultError when it is too large."""
        if self.random:
            return "not checked: the workload draws random numbers", None
        calls = max(times, len(self._inputs))
        worst = 0.0
        for number in range(calls):
            which = number % len(self._inputs)
            result, eager = detached_copy(self._inputs[which].call(function, seed=0)), self._eager[which]
            error, limit = relative_error(result, eager), error_limit(eager)
            if not error <= limit and not self._as_accurate_as_eager(result, which):
                msg = f"relative error {error:.2%} against eager on input set {which + 1}, the limit is {limit:.0%}"
                raise WrongResultError(msg)
            worst = max(worst, error)
        reference = "eager and double precision" if self._double else "eager"
        return f"{calls} calls with {len(self._inputs)} input sets, compared with {reference}", worst

    def _as_accurate_as_eager(self, result: Any, which: int) -> bool:
        """A variant may differ from eager because eager itself is far from the exact result."""
        if not self._double:
            return False
        eager_error = relative_error(self._eager[which], self._double[which])
        return relative_error(result, self._double[which]) <= _MAX_ERROR_RATIO * eager_error


def _double_precision(work: Workload, inputs: list[CallInputs]) -> list[Any]:
    """The results in double precision, for a module that can be copied and runs in it; empty otherwise."""
    if not isinstance(work.callable, torch.nn.Module):
        return []
    try:
        model = copy.deepcopy(work.callable).double()
        return [detached_copy(one.map_tensors(_to_double).call(model, seed=0)) for one in inputs]
    except Exception:  # noqa: BLE001 - a model may fail in any way; then eager is the only reference
        return []


def _to_double(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor
