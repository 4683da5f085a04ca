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


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    causal: bool = False,  # noqa: FBT001, FBT002 - operators take positional arguments
    mask: Tensor | None = None,
    more_k: Tensor | None = None,
    more_v: Tensor | None = None,
) -> Tensor:
    """Softmax attention over [batch, heads, tokens, head_dim]; keys and values may have fewer heads (grouped-query attention).

    `mask` is boolean (true: visible) or added to the scores. `more_k` and `more_v` follow after `k` and `v`. A query that sees no key
    gets zeros.
    """
    if more_k is not None and more_v is not None:
        k, v = torch.cat([k, more_k], 2), torch.cat([v, more_v], 2)
    heads_per_kv_head = q.shape[1] // k.shape[1]
    if heads_per_kv_head > 1:
        k, v = k.repeat_interleave(heads_per_kv_head, 1), v.repeat_interleave(heads_per_kv_head, 1)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(q.float(), k.float().transpose(-1, -2)) * factor
    if causal:
        visible = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~visible, float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask.float()
    weights = torch.softmax(scores, -1)
    if mask is not None:
        weights = weights.masked_fill((scores == float("-inf")).all(-1, keepdim=True), 0.0)
    return torch.matmul(weights, v.float()).to(q.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`."""
    return torch.nn.functional.linear(x, weight, bias)


def like_first(x: Tensor, *_: object) -> Tensor:
    """A fake result: contiguous, with the shape and dtype of the first input."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def like_queries(q: Tensor, *_: object) -> Tensor:
    """A fake result of attention: the heads of a token are next to each other, as with torch's flash attention."""
    batch, heads, queries, head_dim = q.shape
    return torch.empty((batch, queries, heads, head_dim), dtype=q.dtype, device=q.device).transpose(1, 2)


def like_first_twice(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    """Two fake results like `like_first`."""
    return like_first(x), like_first(x)
