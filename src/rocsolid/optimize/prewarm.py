"""Loads the GPU libraries that a model will use, in a background thread, while the process imports torch's compiler.

The first matrix product in a process loads cuBLAS or hipBLASLt, the first convolution cuDNN or MIOpen, and the first comparison of
two results a dozen kernels. Each takes a third of a second or more, and Python code can run meanwhile.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch

from rocsolid.numerics import Tolerance, compare, relative_error, result_leaves
from rocsolid.runtime.background_thread import run_in_background

_SIZE: Final = 8  # of each dimension of the small tensors
_CONVOLUTIONS: Final = {
    torch.nn.Conv1d: torch.nn.functional.conv1d,
    torch.nn.Conv2d: torch.nn.functional.conv2d,
    torch.nn.Conv3d: torch.nn.functional.conv3d,
}


def prewarm_libraries(model: Callable[..., Any]) -> threading.Thread | None:
    """Start the thread and return it; return None if the model has no layers on a GPU."""
    calls = list(first_calls(model))
    if not calls:
        return None
    return run_in_background(partial(_run_all, calls), "prewarm")


def first_calls(model: Callable[..., Any], device_type: str = "cuda") -> Iterator[Callable[[], Any]]:
    """Yield small calls for each layer type, device and dtype in the model: the operation of the layer, and a comparison of two results."""
    seen = set()
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        weight = getattr(module, "weight", None)
        if (
            not isinstance(weight, torch.nn.Parameter)
            or weight.device.type != device_type
            or not weight.is_floating_point()
        ):
            continue
        layer = next((known for known in (torch.nn.Linear, *_CONVOLUTIONS) if isinstance(module, known)), None)
        if layer is not None and (layer, weight.device, weight.dtype) not in seen:
            seen.add((layer, weight.device, weight.dtype))
            yield _matrix_product(weight) if layer is torch.nn.Linear else _convolution(layer, weight)
            yield _comparison(weight)


def _matrix_product(weight: Any) -> Callable[[], Any]:
    def call() -> Any:
        small = torch.zeros(_SIZE, _SIZE, device=weight.device, dtype=weight.dtype)
        return torch.addmm(small[0], small @ small, small)  # with and without a bias: they use different libraries

    return call


def _convolution(layer: Any, weight: Any) -> Callable[[], Any]:
    def call() -> Any:
        small = torch.zeros([_SIZE] * weight.dim(), device=weight.device, dtype=weight.dtype)
        return _CONVOLUTIONS[layer](small, small)

    return call


def _comparison(weight: Any) -> Callable[[], Any]:
    def call() -> Any:
        small = torch.ones(_SIZE, device=weight.device, dtype=weight.dtype)
        other = small * 2
        return compare(result_leaves(small), result_leaves(other), Tolerance()), relative_error(small, other)

    return call


def _run_all(calls: list[Callable[[], Any]]) -> None:
    with torch.no_grad():
        for call in calls:
            with contextlib.suppress(RuntimeError):  # the error is reported when the model needs the library
                call()
