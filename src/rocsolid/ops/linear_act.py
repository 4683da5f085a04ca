"""`rocsolid::linear_act`: a linear layer with few rows and the activation of its result, as one operator.

For the `_mul` activations the weight has the rows of the gate, then those of the layer that is multiplied with it ("up"), and the
result is `activation(gate) * up`. All is computed in float32, and the result is rounded once.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from rocsolid.ops.shipped.device import gpu
from rocsolid.ops.shipped.operators import triton_supports

_MAX_ROWS: Final = 256
_ALIGNMENT: Final = 8  # elements of a row, so that it is read 16 bytes at a time
_DTYPES: Final = (torch.float16, torch.bfloat16)
_GATED: Final = "_mul"
_ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "none": lambda x: x,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def reference(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Return the activation of `x @ weight.T + bias` for the matrix `x`, in plain torch."""
    result = torch.nn.functional.linear(x.float(), weight.float(), None if bias is None else bias.float())
    function = _ACTIVATIONS[activation.removesuffix(_GATED)]
    if activation.endswith(_GATED):
        gate, up = result.chunk(2, 1)
        return (function(gate) * up).to(x.dtype)
    return function(result).to(x.dtype, copy=True)


def _linear_act(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    if triton_supports(x, weight) and x.dtype == weight.dtype and x.numel() and weight.numel():
        from rocsolid.ops.shipped.launch import launch_linear_act

        return launch_linear_act(x, weight, bias, activation)
    return reference(x, weight, bias, activation)


def _fake(x: Tensor, weight: Tensor, _: Tensor | None, activation: str) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[0] // 2 if activation.endswith(_GATED) else weight.shape[0]))


# The kernel reads matrices of any strides, so that Inductor need not copy them.
_op: Any = torch.library.custom_op(
    "rocsolid::linear_act", _linear_act, mutates_args=(), tags=(torch.Tag.flexible_layout,)
)
_op.register_fake(_fake)
LINEAR_ACT: Final = torch.ops.rocsolid.linear_act.default


def suits(x: Tensor, weight: Tensor, activation: str) -> bool:
    """Return whether the operator is likely to be faster than a product and the activation as separate kernels."""
    if not (
        triton_supports(x, weight)
        and x.dtype in _DTYPES
        and x.dtype == weight.dtype
        and all(isinstance(size, int) for size in (*x.shape, *weight.shape))
        and 0 < x.shape[0] <= _MAX_ROWS
        and 0 not in weight.shape
        and x.shape[1] % _ALIGNMENT == 0
    ):
        return False
    from rocsolid.ops.shipped import tiles

    gated = activation.endswith(_GATED)
    kind, columns = ("linear_act gated", weight.shape[0] // 2) if gated else ("linear_act", weight.shape[0])
    key = tiles.product_key(kind, x.shape[0], x.shape[1], columns, x.dtype)
    measured = tiles.known_tile(gpu(x.device).name, key)
    return measured is None or measured.splits > 0  # 0: torch was faster
