"""Recognises compiled functions, returns their original function, and compiles from a clean state."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rocsolid.torchapi.graphs.replay_checks import MODULE_CHILDREN
from rocsolid.torchapi.private_api import private_name

_NOT_RECOGNISED = "rs.capture, rocsolid compiles: a compiled {} is treated like an uncompiled one"
_MODULE = private_name(
    "torch._dynamo.eval_frame",
    "OptimizedModule._orig_mod",
    "2.4..",
    of_instances=True,
    without=_NOT_RECOGNISED.format("module"),
)
ORIGINAL_FUNCTION = private_name(
    "torch._dynamo.eval_frame",
    "OptimizeContext._torchdynamo_orig_callable",
    "2.4..",
    of_instances=True,
    without=_NOT_RECOGNISED.format("function"),
)
_RESET = private_name(
    "torch._dynamo",
    "reset",
    "2.0..",
    without="rocsolid breaks: breaks of functions that are compiled already are not listed",
)


def is_compiled(function: Any) -> bool:
    """Return whether a function or module was returned by `torch.compile`."""
    return original_function(function) is not function


def original_function(function: Any) -> Any:
    """Return the function or module that was passed to `torch.compile`; an uncompiled one is returned unchanged."""
    # Not `getattr`, which a wrapper of the user's may pass on to a compiled module.
    modules = MODULE_CHILDREN.of(function) or {}
    if _MODULE.attribute in modules and not _MODULE.is_closed():
        return modules[_MODULE.attribute]
    return ORIGINAL_FUNCTION.of(function, function)


@contextmanager
def freshly_compiled(function: Callable[..., Any], backend: str | None) -> Iterator[Callable[..., Any]]:
    """Yield `torch.compile(function)`, or the function if `backend` is None, with all of Dynamo's compiled code reset before and after."""
    import torch

    reset = _RESET.find() or (lambda: None)
    reset()
    try:
        yield torch.compile(function, backend=backend) if backend else function
    finally:
        reset()
