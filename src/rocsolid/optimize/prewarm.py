"""Wakes the libraries that a model will call on its device, in a thread, while the process imports torch's compiler.

The first product of matrices in a process loads cuBLAS or hipBLASLt, the first convolution cuDNN or MIOpen, and the first comparison
of two answers a dozen kernels: a third of a second and more each, in which the interpreter has nothing to do.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch

from rocsolid.numerics import Tolerance, compare, relative_error, result_leaves
from rocsolid.runtime.background_thread import beside

_SMALL: Final = 8
_CONVOLUTIONS: Final = {
    torch.nn.Conv1d: torch.nn.functional.conv1d,
    torch.nn.Conv2d: torch.nn.functional.conv2d,
    torch.nn.Conv3d: torch.nn.functional.conv3d,
}


def wake_libraries(model: Callable[..., Any]) -> threading.Thread | None:
    """Begin; None where the model has nothing on a device."""
    calls = list(first_calls(model))
    if not calls:
        return None
    return beside(partial(_make, calls), "waking")


def first_calls(model: Callable[..., Any], kind: str = "cuda") -> Iterator[Callable[[], Any]]:
    """A small call for each library, device and element type that the model's layers ask for, and one to compare answers."""
    seen = set()
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        weight = getattr(module, "weight", None)
        if not isinstance(weight, torch.nn.Parameter) or weight.device.type != kind or not weight.is_floating_point():
            continue
        layer = next((known for known in (torch.nn.Linear, *_CONVOLUTIONS) if isinstance(module, known)), None)
        if layer is not None and (layer, weight.device, weight.dtype) not in seen:
            seen.add((layer, weight.device, weight.dtype))
            yield _product(weight) if layer is torch.nn.Linear else _convolution(layer, weight)
            yield _comparison(weight)


def _product(weight: Any) -> Callable[[], Any]:
    def call() -> Any:
        few = torch.zeros(_SMALL, _SMALL, device=weight.device, dtype=weight.dtype)
        return torch.addmm(few[0], few @ few, few)  # with and without a bias, which go to different libraries

    return call


def _convolution(layer: Any, weight: Any) -> Callable[[], Any]:
    def call() -> Any:
        few = torch.zeros([_SMALL] * weight.dim(), device=weight.device, dtype=weight.dtype)
        return _CONVOLUTIONS[layer](few, few)

    return call


def _comparison(weight: Any) -> Callable[[], Any]:
    def call() -> Any:
        few = torch.ones(_SMALL, device=weight.device, dtype=weight.dtype)
        other = few * 2
        return compare(result_leaves(few), result_leaves(other), Tolerance()), relative_error(few, other)

    return call


def _make(calls: list[Callable[[], Any]]) -> None:
    with torch.no_grad():
        for call in calls:
            with contextlib.suppress(RuntimeError):  # what cannot be had will be said when the model asks for it
                call()
