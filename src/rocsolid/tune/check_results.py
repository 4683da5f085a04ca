"""Check a variant's results before it is timed: compare them with eager, and with the workload in double precision."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rocsolid.model.workload import Workload
from rocsolid.numerics import MAX_ERROR_RATIO, detached_copy, error_limit, relative_error
from rocsolid.torchapi.pytree import flatten
from rocsolid.tune.isolate.trial_process import WrongResultError


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
        """The same inputs, with `change` applied to every tensor."""
        tree = flatten((self.args, dict(self.kwargs)), "call")
        leaves = [change(leaf.value) if isinstance(leaf.value, torch.Tensor) else leaf.value for leaf in tree.leaves]
        args, kwargs = tree.unflatten(leaves)
        return CallInputs(args, kwargs)


class ResultChecker:
    """Compares a variant with eager, on the user's inputs and on a second set with the same shapes."""

    def __init__(self, workload: Workload) -> None:
        self.user_inputs = CallInputs(workload.args, workload.kwargs)
        # Only floating-point tensors are changed: an integer may be an index, and a bool may select a code path.
        second = self.user_inputs.map_tensors(lambda t: t.roll(1, -1) if t.is_floating_point() and t.dim() else t)
        self._input_sets = [self.user_inputs, second]
        self._eager_results = [detached_copy(inputs.call(workload.callable, seed=0)) for inputs in self._input_sets]
        other_seed = self.user_inputs.call(workload.callable, seed=1)
        first = self._eager_results[0]
        self.is_random = relative_error(other_seed, first) > error_limit(first)
        self._double_results = [] if self.is_random else _double_precision(workload, self._input_sets)

    def check(self, function: Callable[..., Any], times: int = 1) -> tuple[str, float | None]:
        """Return what was compared, and the largest relative error compared with eager.

        Raises WrongResultError when the error is too large.
        """
        if self.is_random:
            return "not checked: the workload draws random numbers", None
        calls = max(times, len(self._input_sets))
        largest_error = 0.0
        for call in range(calls):
            index = call % len(self._input_sets)
            result, eager = detached_copy(self._input_sets[index].call(function, seed=0)), self._eager_results[index]
            error, limit = relative_error(result, eager), error_limit(eager)
            if not error <= limit and not self._as_accurate_as_eager(result, index):
                msg = (
                    f"relative error {error:.2%} compared with eager on input set {index + 1}, the limit is {limit:.0%}"
                )
                raise WrongResultError(msg)
            largest_error = max(largest_error, error)
        reference = "eager and double precision" if self._double_results else "eager"
        return f"{calls} calls with {len(self._input_sets)} input sets, compared with {reference}", largest_error

    def _as_accurate_as_eager(self, result: Any, index: int) -> bool:
        """Compare with double precision: a result may differ from eager because eager itself is inaccurate."""
        if not self._double_results:
            return False
        exact = self._double_results[index]
        return relative_error(result, exact) <= MAX_ERROR_RATIO * relative_error(self._eager_results[index], exact)


def _double_precision(workload: Workload, input_sets: list[CallInputs]) -> list[Any]:
    """The results in double precision; empty if the workload is not a module, or cannot be copied or run in it."""
    if not isinstance(workload.callable, torch.nn.Module):
        return []
    try:
        model = copy.deepcopy(workload.callable).double()
        return [detached_copy(inputs.map_tensors(_to_double).call(model, seed=0)) for inputs in input_sets]
    except Exception:  # noqa: BLE001 - a model may fail in any way; then eager is the only reference
        return []


def _to_double(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor
