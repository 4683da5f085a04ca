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


def examples_of(given: Any) -> list[Example]:
    """Convert a tensor, a tuple of arguments, a dict of named arguments, `(args, kwargs)`, or a list of these.

    A list always means several examples; the arguments of one call are a tuple.
    """
    if isinstance(given, list):
        if not given:
            msg = "example_inputs is an empty list; pass at least one example"
            raise UsageError(msg)
        return [_one(example) for example in given]
    return [_one(given)]


def _one(given: Any) -> Example:
    import torch

    if isinstance(given, torch.Tensor):
        return Example((given,), {})
    if isinstance(given, Mapping):
        return Example((), given)
    if isinstance(given, Sequence) and not isinstance(given, str):
        pair = 2
        if len(given) == pair and isinstance(given[0], (tuple, list)) and isinstance(given[1], Mapping):
            return Example(tuple(given[0]), given[1])
        return Example(tuple(given), {})
    msg = (
        f"example_inputs has the unsupported type {type(given).__name__}.\n"
        "Pass a tensor, a tuple of arguments, a dict of named arguments, (args, kwargs), or a list of these."
    )
    raise UsageError(msg)
