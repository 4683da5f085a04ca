"""The state of torch and of the modules that a graph was captured in, besides the arguments."""

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import torch


def situation(modules: Sequence["weakref.ref[Any]"]) -> tuple[tuple[str, Hashable], ...]:
    """What else decides what a call computes, by name."""
    training = tuple(module.training for reference in modules if (module := reference()) is not None)
    state: list[tuple[str, Hashable]] = [
        ("gradients", torch.is_grad_enabled()),
        ("inference mode", torch.is_inference_mode_enabled()),
        ("training", training[0] if len(set(training)) == 1 else training),
        ("deterministic", torch.are_deterministic_algorithms_enabled()),
        ("matrix product precision", torch.get_float32_matmul_precision()),
        ("default type", torch.get_default_dtype()),
    ]
    for kind in ("cpu", "cuda"):
        on = torch.is_autocast_enabled(kind)
        state.append((f"autocast on {kind}", torch.get_autocast_dtype(kind) if on else "off"))
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state.append(("device", torch.cuda.current_device()))
    return tuple(state)
