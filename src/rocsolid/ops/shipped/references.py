"""What each shipped operator computes, in plain torch. Sums and transcendental functions in float32, results in the input's dtype."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Divide each row by its root mean square, and scale the columns."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed * weight.float()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Add, then norm: returns the norm and the sum, which is the next residual."""
    total = x + residual
    return rms_norm(total, weight, eps), total


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """The gate of a SwiGLU layer."""
    wide = gate.float()
    return (wide * torch.sigmoid(wide) * up.float()).to(gate.dtype)


def gelu_mul(gate: Tensor, up: Tensor, tanh: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - as a schema has it
    """The gate of a GeGLU layer; `tanh` for the approximation."""
    made = torch.nn.functional.gelu(gate.float(), approximate="tanh" if tanh else "none")
    return (made * up.float()).to(gate.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, causal: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - as a schema has it
    """Softmax attention over [batch, heads, tokens, width]; fewer heads of keys and values are shared among those of queries."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(q.float(), k.float().transpose(-1, -2)) * factor
    if causal:
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.matmul(torch.softmax(scores, -1), v.float()).to(q.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A matrix product with the weight's transpose."""
    return torch.nn.functional.linear(x, weight, bias)


def like_first(x: Tensor, *_: object) -> Tensor:
    """The shape of a result that is that of the first input, lying side by side."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def like_first_twice(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    """The same, for an operator with two results."""
    return like_first(x), like_first(x)
