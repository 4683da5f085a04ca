"""The way into `torch.compile` and back out of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rocsolid.torchapi.private_api import door

_ORIGINAL = door("torch._dynamo.eval_frame", "OptimizedModule", "2.4..")
_RESET = door("torch._dynamo", "reset", "2.0..")


def is_compiled(function: Any) -> bool:
    """Whether `torch.compile` has been here already."""
    return hasattr(function, "_torchdynamo_orig_callable") or "_orig_mod" in getattr(function, "_modules", {})


def plain_function(function: Any) -> Any:
    """What was given to `torch.compile`, for what came out of it; anything else as it is."""
    modules = getattr(function, "_modules", {})
    if "_orig_mod" in modules:
        return modules["_orig_mod"]
    return getattr(function, "_torchdynamo_orig_callable", function)


@contextmanager
def compiled_afresh(function: Callable[..., Any], backend: str) -> Iterator[Callable[..., Any]]:
    """The function under `torch.compile` with everything compiled before forgotten; forgotten again at the end."""
    import torch

    reset = _RESET.reach()
    reset()
    try:
        yield torch.compile(function, backend=backend)
    finally:
        reset()
