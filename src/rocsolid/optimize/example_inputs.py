"""Converts the example inputs that users pass to `rs.optimize` into calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocsolid.errors import UsageError


@dataclass(frozen=True)
class Example:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def call(self, function: Any) -> Any:
        """Call the function with these arguments."""
        return function(*self.args, **self.kwargs)


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
    import torch

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
