"""AMD's own kernels (AITER) as operators, where the package is there. None of this has been run on an AMD GPU yet."""

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rocsolid.ops.shipped import references
from rocsolid.ops.vendor import VendorOp, vendor_op


@cache
def present() -> bool:
    """Whether this is ROCm and AITER is installed."""
    return torch.version.hip is not None and importlib.util.find_spec("aiter") is not None


def takes(x: Tensor, *others: Tensor) -> bool:
    """Whether AITER's kernels take these: half precision, all of one dtype, on the device."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    return bool(x.is_cuda and half and all(o.dtype == x.dtype for o in others) and present())


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    import aiter  # noqa: A004 - the package is called so

    made: Tensor = aiter.rmsnorm2d_fwd(x.reshape(-1, x.shape[-1]), weight, eps)
    return made.reshape(x.shape)


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    import aiter  # noqa: A004 - the package is called so

    out, total = torch.empty_like(x), torch.empty_like(x)
    flat = (t.reshape(-1, x.shape[-1]) for t in (out, x, residual, total))
    aiter.rmsnorm2d_fwd_with_add(*flat, weight, eps)
    return out, total


def _attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None, causal: bool) -> Tensor:  # noqa: FBT001 - as a schema has it
    import aiter  # noqa: A004 - the package is called so

    turned = (t.transpose(1, 2) for t in (q, k, v))  # its layout is [batch, tokens, heads, width]
    made: Tensor = aiter.flash_attn_func(*turned, softmax_scale=scale, causal=causal)
    return made.transpose(1, 2).contiguous()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from aiter.tuned_gemm import tgemm

    made: Tensor = tgemm.mm(x.reshape(-1, x.shape[-1]), weight, bias, otype=x.dtype)
    return made.reshape(*x.shape[:-1], weight.shape[0])


@cache
def operators() -> dict[str, VendorOp]:
    """Every operator that stands on AITER, registered on the first call."""
    made: dict[str, Any] = {
        "rms_norm": (_rms_norm, references.rms_norm),
        "add_rms_norm": (_add_rms_norm, references.add_rms_norm),
        "attention": (_attention, references.attention),
        "linear": (_linear, references.linear),
    }
    return {name: vendor_op(f"rocsolid::aiter_{name}", fn, reference=plain) for name, (fn, plain) in made.items()}
