"""Example inputs in any of the forms a user may give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocsolid.errors import UsageError


@dataclass(frozen=True)
class Example:
    """One call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def call(self, function: Any) -> Any:
        """Make it."""
        return function(*self.args, **self.kwargs)


def examples_of(given: Any) -> list[Example]:
    """One example or several: a tensor, a tuple of arguments, a dict of named ones, `(args, kwargs)`, or a list of these.

    A list is a list of examples; the arguments of one call are a tuple.
    """
    if isinstance(given, list):
        if not given:
            msg = "the list of example inputs is empty"
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
    msg = f"example inputs are a tensor, a tuple, a dict, (args, kwargs), or a list of these; got a {type(given).__name__}"
    raise UsageError(msg)
