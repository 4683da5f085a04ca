"""Runs a form on the CPU in bfloat16: under `torch.autocast`, with its results in float32 again."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from rocsolid.optimize.race import MakeForm
from rocsolid.torchapi.pytree import flatten_result

AUTOCAST: Final = "cpu.autocast"


def has_bfloat16_instructions() -> bool:
    """Whether this CPU computes in bfloat16 (AMX, AVX-512, SVE); without such instructions torch only imitates it, slowly."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # not in older releases
    return any(has_it is True for name, has_it in capabilities.items() if "bf16" in name)


def with_autocast(make: MakeForm) -> MakeForm:
    """Return how to make a form that runs in bfloat16."""
    return lambda: partial(_call, make())


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        result = flatten_result(function(*args, **kwargs), "")
    return result.unflatten([_as_float32(leaf.value) for leaf in result.leaves])


def _as_float32(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16 else value
