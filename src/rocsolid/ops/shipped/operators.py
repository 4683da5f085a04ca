"""Registers the ready-made operators, and chooses the kernel for each call."""

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from rocsolid.ops.shipped import aiter_kernels, references
from rocsolid.ops.shipped.device import gpu
from rocsolid.ops.vendor_op import register_gradients

_HEAD_DIMS: Final = (16, 32, 64, 128, 256)
_MAX_ON_RDNA, _MAX_MASKED_ON_RDNA = 128, 64
HAS_TRITON: Final = importlib.util.find_spec("triton") is not None


def triton_supports(x: Tensor, *others: Tensor) -> bool:
    """Whether our Triton kernels support these tensors: on the GPU, in a supported dtype, with Triton installed."""
    supported = x.dtype in (torch.float16, torch.bfloat16, torch.float32)
    return bool(x.is_cuda and supported and all(o.is_cuda for o in others) and HAS_TRITON)


def attention_supports(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> bool:
    """Whether our attention kernel supports these tensors. RDNA GPUs have too few registers for it if heads are wide."""
    wide = q.shape[-1] > (_MAX_ON_RDNA if mask is None else _MAX_MASKED_ON_RDNA) and gpu(q.device).is_rdna
    return (
        triton_supports(q, k, v, *([] if mask is None else [mask]))
        and q.dtype == k.dtype == v.dtype
        and q.shape[-1] in _HEAD_DIMS
        and k.shape[-1] == v.shape[-1] == q.shape[-1]
        and not wide
    )


def _row_fits_in_block(x: Tensor) -> bool:
    from rocsolid.ops.shipped.launch import MAX_COLUMNS

    return bool(x.shape[-1] <= MAX_COLUMNS and x.numel() > 0)


def _rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    if triton_supports(x, weight) and _row_fits_in_block(x):
        from rocsolid.ops.shipped.launch import launch_rms_norm

        return launch_rms_norm(x, weight.contiguous(), eps, torch.library.wrap_triton)
    return references.rms_norm(x, weight, eps).contiguous()


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    if triton_supports(x, residual, weight) and _row_fits_in_block(x) and x.shape == residual.shape:
        from rocsolid.ops.shipped.launch import launch_add_rms_norm

        return launch_add_rms_norm(x, residual, weight.contiguous(), eps, torch.library.wrap_triton)
    normed, total = references.add_rms_norm(x, residual, weight, eps)
    return normed.contiguous(), total.contiguous()


def _silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    if triton_supports(gate, up) and gate.shape == up.shape and gate.numel() > 0:
        from rocsolid.ops.shipped.launch import launch_gate_mul

        return launch_gate_mul(gate, up, "silu", torch.library.wrap_triton)
    return references.silu_mul(gate, up).contiguous()


def _gelu_mul(gate: Tensor, up: Tensor, tanh: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - operators take positional arguments
    if triton_supports(gate, up) and gate.shape == up.shape and gate.numel() > 0:
        from rocsolid.ops.shipped.launch import launch_gate_mul

        return launch_gate_mul(gate, up, "gelu_tanh" if tanh else "gelu", torch.library.wrap_triton)
    return references.gelu_mul(gate, up, tanh).contiguous()


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    causal: bool = False,  # noqa: FBT001, FBT002 - operators take positional arguments
    mask: Tensor | None = None,
    more_k: Tensor | None = None,
    more_v: Tensor | None = None,
) -> Tensor:
    more = (more_k, more_v) if more_k is not None and more_v is not None else None
    given = [t for t in (q, k, v, more_k, more_v) if t is not None]
    if attention_supports(q, k, v, mask) and all(t.numel() > 0 and t.dtype == q.dtype for t in given):
        from rocsolid.ops.shipped.launch import launch_attention

        rows = None if mask is None else mask[(None,) * (q.dim() - mask.dim())]
        return launch_attention(q, k, v, scale, causal=causal, mask=rows, more=more)
    result = references.attention(q, k, v, scale, causal, mask, more_k, more_v)
    return result.transpose(1, 2).contiguous().transpose(1, 2)


def _register(
    name: str,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    fake: Callable[..., Any] = references.like_first,
    register: Callable[..., Any] = torch.library.triton_op,
) -> Any:
    """Register the operator, its fake and its gradients. With `triton_op`, Inductor puts the Triton kernel into its generated code."""
    op = register(f"rocsolid::{name}", function, mutates_args=())
    op.register_fake(fake)
    overload = getattr(torch.ops.rocsolid, name).default
    register_gradients(f"rocsolid::{name}", overload, reference)
    return overload


# Attention is called, and reads tensors of any strides. As a `triton_op` it would be compiled for the strides that they had when the
# graph was traced, so that Inductor copied those that a graph pass has changed; and Inductor launches no kernel of others with PDL.
_called = partial(torch.library.custom_op, tags=(torch.Tag.flexible_layout,))

_RMS_NORM = _register("rms_norm", _rms_norm, references.rms_norm)
_ADD_RMS_NORM = _register("add_rms_norm", _add_rms_norm, references.add_rms_norm, references.like_first_twice)
_SILU_MUL = _register("silu_mul", _silu_mul, references.silu_mul)
_GELU_MUL = _register("gelu_mul", _gelu_mul, references.gelu_mul)
ATTENTION: Final = _register("attention", _attention, references.attention, references.like_queries, _called)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Divide each row by its root mean square, then scale the columns by the weight."""
    if aiter_kernels.supports(x, weight):
        return aiter_kernels.OPERATORS["rms_norm"](x, weight, eps)
    return _RMS_NORM(x, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """RMS norm of `x + residual`; returns the norm and the sum, which is the next residual."""
    if aiter_kernels.supports(x, residual, weight):
        normed, total = aiter_kernels.OPERATORS["add_rms_norm"](x, residual, weight, eps)
    elif torch.compiler.is_compiling():  # Inductor's own kernel was 2 per cent faster (docs/background/kernels.md)
        normed, total = references.add_rms_norm(x, residual, weight, eps)
    else:
        normed, total = _ADD_RMS_NORM(x, residual, weight, eps)
    return normed, total


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """`silu(gate) * up`; views of one tensor, such as its halves, are read without a copy."""
    if torch.compiler.is_compiling():  # Inductor's own kernel was 1 per cent faster (docs/background/kernels.md)
        return references.silu_mul(gate, up)
    return _SILU_MUL(gate, up)


def gelu_mul(gate: Tensor, up: Tensor, *, tanh: bool = False) -> Tensor:
    """`gelu(gate) * up`; `tanh` selects the tanh approximation."""
    return _GELU_MUL(gate, up, tanh)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    mask: Tensor | None = None,
    more: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Softmax attention over [batch, heads, tokens, head_dim]; keys and values may have fewer heads (grouped-query attention).

    `mask` is boolean (true: visible) or added to the scores, with any size that is repeated. `more` are further keys and values,
    which follow after `k` and `v` without being copied next to them.
    """
    if mask is None and more is None and aiter_kernels.supports(q, k, v):
        return aiter_kernels.OPERATORS["attention"](q, k, v, scale, causal)
    return ATTENTION(q, k, v, scale, causal, mask, *(more or (None, None)))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`, with AITER's tuned GEMM where it is installed."""
    if aiter_kernels.supports(x, weight):
        return aiter_kernels.OPERATORS["linear"](x, weight, bias)
    return references.linear(x, weight, bias)
