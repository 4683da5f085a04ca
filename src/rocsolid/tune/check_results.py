"""Check a variant's results before it is timed: compare them with eager, and with the workload in higher precision."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rocsolid.model.verify_report import Accuracy
from rocsolid.model.workload import Workload
from rocsolid.numerics import detached_copy, result_leaves, spread_between
from rocsolid.reference import Referee, has_drawn, random_state, reference_of, worst_error
from rocsolid.torchapi.pytree import Leaf, flatten
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
    """Compares a variant with eager, on the user's inputs and on a second set with the same shapes.

    Where they differ, both are compared with the workload in higher precision.
    """

    def __init__(self, workload: Workload) -> None:
        self.user_inputs = CallInputs(workload.args, workload.kwargs)
        # Only floating-point tensors are changed: an integer may be an index, and a bool may select a code path.
        second = self.user_inputs.map_tensors(lambda t: t.roll(1, -1) if t.is_floating_point() and t.dim() else t)
        self._input_sets = [self.user_inputs, second]
        self._eager = [self._run(workload.callable, inputs) for inputs in self._input_sets]
        # Eager once more: a variant may differ from eager as much as two eager runs differ.
        self._spread = [
            spread_between(first, self._run(workload.callable, inputs))
            for first, inputs in zip(self._eager, self._input_sets, strict=True)
        ]
        generators = random_state()
        other_seed = spread_between(self._eager[0], self._run(workload.callable, self.user_inputs, seed=1))
        self.is_random = has_drawn(generators) and any(error.mismatched or error.special for error in other_seed)
        references = [
            self._seeded(reference_of(workload.callable, inputs.args, inputs.kwargs)) for inputs in self._input_sets
        ]
        self._referees = [Referee(run, run_rounded=run) for run in references]

    @staticmethod
    def _run(function: Callable[..., Any], inputs: CallInputs, seed: int = 0) -> tuple[Leaf, ...]:
        return result_leaves(detached_copy(inputs.call(function, seed=seed)))

    @staticmethod
    def _seeded(run: Callable[..., Any]) -> Callable[..., Any]:
        def seeded(*rounding: Any) -> Any:
            torch.manual_seed(0)
            return run(*rounding)

        return seeded

    def check(self, function: Callable[..., Any], times: int = 1) -> tuple[str, float | None]:
        """Return what was compared, with the errors against higher precision, and the largest relative error compared with eager.

        Raises WrongResultError when the variant is less accurate than eager.
        """
        if self.is_random:
            return "not checked: the workload draws random numbers", None
        calls = max(times, len(self._input_sets))
        largest_error, accuracy = 0.0, ""
        for call in range(calls):
            index = call % len(self._input_sets)
            result = self._run(function, self._input_sets[index])
            checks = self._referees[index].judge(result, self._eager[index], self._spread[index])
            verdict = Accuracy.worst([check.verdict for check in checks])
            if not verdict.passes:
                worst = next(check for check in checks if check.verdict is verdict)
                msg = f"{verdict.value} on input set {index + 1}: {worst.path}: {worst.why}"
                raise WrongResultError(msg)
            error, reference_error, eager_error = worst_error(checks)
            largest_error = max(largest_error, error)
            if reference_error is not None and not accuracy:
                accuracy = f"; error {reference_error:.1e} against higher precision, eager {eager_error:.1e}"
        spread = max((error.relative_l2 for errors in self._spread for error in errors), default=0.0)
        noise = f"; eager differs from itself by {spread:.1e}, the limits are widened by that" if spread else ""
        return (
            f"{calls} calls with {len(self._input_sets)} input sets, compared with eager{accuracy}{noise}",
            largest_error,
        )
