"""References in plain torch. Sums and transcendental functions are computed in float32, results have the input's dtype."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Divide each row by its root mean square, then scale the columns by the weight."""
    x32 = x.float()
    normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return (normed * weight.float()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """RMS norm of `x + residual`; returns the norm and the sum, which is the next residual."""
    total = x + residual
    return rms_norm(total, weight, eps), total


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """Return `silu(gate) * up`, the gate of a SwiGLU layer."""
    gate32 = gate.float()
    return (gate32 * torch.sigmoid(gate32) * up.float()).to(gate.dtype)


def gelu_mul(gate: Tensor, up: Tensor, tanh: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - operators take positional arguments
    """Return `gelu(gate) * up`, the gate of a GeGLU layer; `tanh` selects the tanh approximation."""
    gated = torch.nn.functional.gelu(gate.float(), approximate="tanh" if tanh else "none")
    return (gated * up.float()).to(gate.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, causal: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - operators take positional arguments
    """Softmax attention over [batch, heads, tokens, head_dim]; keys and values may have fewer heads (grouped-query attention)."""
    heads_per_kv_head = q.shape[1] // k.shape[1]
    if heads_per_kv_head > 1:
        k, v = k.repeat_interleave(heads_per_kv_head, 1), v.repeat_interleave(heads_per_kv_head, 1)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(q.float(), k.float().transpose(-1, -2)) * factor
    if causal:
        visible = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~visible, float("-inf"))
    return torch.matmul(torch.softmax(scores, -1), v.float()).to(q.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`."""
    return torch.nn.functional.linear(x, weight, bias)


def like_first(x: Tensor, *_: object) -> Tensor:
    """A fake result: contiguous, with the shape and dtype of the first input."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def like_first_twice(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    """Two fake results like `like_first`."""
    return like_first(x), like_first(x)
