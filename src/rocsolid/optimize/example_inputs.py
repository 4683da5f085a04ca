"""Converts the example inputs that users pass to `rs.optimize` into calls."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from rocsolid.errors import UsageError, first_line
from rocsolid.numerics import detached_copy, result_leaves
from rocsolid.optimize.argument_state import ArgumentState
from rocsolid.reference import NoReference, run_in_higher_precision
from rocsolid.runtime.capture.call import Parameters
from rocsolid.torchapi.pytree import Leaf, flatten


@dataclass(frozen=True)
class Example:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @cached_property
    def _state(self) -> ArgumentState:
        return ArgumentState((self.args, dict(self.kwargs)))

    def run(self, function: Callable[..., Any]) -> "ExampleRun":
        """Call the function, and restore the arguments that it changed."""
        state = self._state
        try:
            result = function(*self.args, **self.kwargs)
            written = state.written_values()
            return ExampleRun(*detached_copy((result, written)))
        finally:
            state.restore()

    def run_reference(
        self, function: Callable[..., Any], written: Iterable[int], round_to: torch.dtype | None = None, seed: int = 0
    ) -> Sequence[Leaf] | NoReference:
        """Run the function in higher precision. Returns its results, and the arguments at the positions that eager has written to."""
        state = self._state
        try:
            ran = run_in_higher_precision(
                function, self.args, self.kwargs, round_to=round_to, seed=seed, on_run=state.restore
            )
            if isinstance(ran, NoReference):
                return ran
            return [*ran.leaves, *(Leaf("", ran.value_of(tensor)) for tensor in state.tensors_at(written))]
        finally:
            state.restore()

    def call(self, function: Callable[..., Any]) -> None:
        """Call the function to measure it; arguments are restored only if a run has changed them before."""
        function(*self.args, **self.kwargs)
        if self._state.changes_seen:
            self._state.restore()

    def private_copy(self, model: Callable[..., Any]) -> "Example":
        """Return the same call with copies of the arguments, for another thread. The model itself is not copied.

        Raises a UsageError that names an argument which cannot be copied.
        """
        leaves = flatten((self.args, dict(self.kwargs)), "").leaves
        # Torch cannot copy the result of a differentiable operation.
        results = [x.value for x in leaves if isinstance(x.value, torch.Tensor) and not x.value.is_leaf]
        shared = {id(value): value for value in (model, *_parts(model), *results)}
        arguments = {}
        for name, expression, value in Parameters.of(model).bind(self.args, self.kwargs):
            try:
                arguments[expression] = copy.deepcopy(value, shared)
            except Exception as error:
                kind = type(value)
                msg = (
                    f"argument `{name}` ({kind.__module__}.{kind.__qualname__}) cannot be copied: {first_line(error)}\n"
                    "rs.optimize(progressive=True) runs the model on a copy of the example in another thread.\n"
                    f"fix: use progressive=False, or pass the tensors of `{name}` instead"
                )
                raise UsageError(msg) from error
        args = tuple(arguments[f"args[{position}]"] for position in range(len(self.args)))
        return Example(args, {name: arguments[f"kwargs[{name!r}]"] for name in self.kwargs})


@dataclass(frozen=True)
class ExampleRun:
    """The result of one run, and the argument tensors that it changed, by their position. Both are copies."""

    result: Any
    written: Mapping[int, Any]

    @property
    def leaves(self) -> list[Leaf]:
        """The tensors and constants of the result, and the changed arguments."""
        return [
            *result_leaves(self.result),
            *(Leaf(f"argument {index}", value) for index, value in self.written.items()),
        ]


def _parts(model: Callable[..., Any]) -> list[Any]:
    """Return the modules, parameters and buffers of a model; nothing for a function."""
    if not isinstance(model, torch.nn.Module):
        return []
    return [*model.modules(), *model.parameters(), *model.buffers()]


def to_examples(example_inputs: Any) -> list[Example]:
    """Convert a tensor, a tuple of arguments, a dict of named arguments, `(args, kwargs)`, or a list of these to calls.

    A list always means several examples; the arguments of one call are a tuple.
    """
    if isinstance(example_inputs, list):
        if not example_inputs:
            msg = "example_inputs is an empty list; pass at least one example"
            raise UsageError(msg)
        return [_to_example(inputs) for inputs in example_inputs]
    return [_to_example(example_inputs)]


def _to_example(inputs: Any) -> Example:
    if isinstance(inputs, torch.Tensor):
        return Example((inputs,), {})
    if isinstance(inputs, Mapping):
        return Example((), inputs)
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        pair = 2
        if len(inputs) == pair and isinstance(inputs[0], (tuple, list)) and isinstance(inputs[1], Mapping):
            return Example(tuple(inputs[0]), inputs[1])
        return Example(tuple(inputs), {})
    msg = (
        f"example_inputs has the unsupported type {type(inputs).__name__}.\n"
        "Pass a tensor, a tuple of arguments, a dict of named arguments, (args, kwargs), or a list of these."
    )
    raise UsageError(msg)
