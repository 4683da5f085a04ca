"""Recognises compiled functions, returns their original function, and compiles from a clean state."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rocsolid.torchapi.private_api import private_name

_ORIGINAL = private_name("torch._dynamo.eval_frame", "OptimizedModule", "2.4..")
_RESET = private_name("torch._dynamo", "reset", "2.0..")


def is_compiled(function: Any) -> bool:
    """Return whether a function or module was returned by `torch.compile`."""
    return hasattr(function, "_torchdynamo_orig_callable") or "_orig_mod" in getattr(function, "_modules", {})


def original_function(function: Any) -> Any:
    """Return the function or module that was passed to `torch.compile`; an uncompiled one is returned unchanged."""
    modules = getattr(function, "_modules", {})
    if "_orig_mod" in modules:
        return modules["_orig_mod"]
    return getattr(function, "_torchdynamo_orig_callable", function)


@contextmanager
def freshly_compiled(function: Callable[..., Any], backend: str) -> Iterator[Callable[..., Any]]:
    """Yield `torch.compile(function)` with all of Dynamo's compiled code reset before and after."""
    import torch

    reset = _RESET.get()
    reset()
    try:
        yield torch.compile(function, backend=backend)
    finally:
        reset()
