"""Registers kernels of AITER, AMD's library, as operators. They are used if AITER is installed. Not yet run on an AMD GPU."""

import importlib.util
from typing import Any, Final

import torch
from torch import Tensor

from rocsolid.ops.shipped import references
from rocsolid.ops.vendor_op import VendorOp, vendor_op

# A constant, because torch.compile traces `supports` and cannot trace find_spec.
AITER_INSTALLED: Final = torch.version.hip is not None and importlib.util.find_spec("aiter") is not None


def supports(x: Tensor, *others: Tensor) -> bool:
    """Whether AITER's kernels support these tensors: on the GPU, in half precision, all of one dtype."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    return bool(x.is_cuda and half and all(o.dtype == x.dtype for o in others) and AITER_INSTALLED)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    import aiter  # noqa: A004 - the package's name

    out: Tensor = aiter.rmsnorm2d_fwd(x.reshape(-1, x.shape[-1]), weight, eps)
    return out.reshape(x.shape)


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    import aiter  # noqa: A004 - the package's name

    out, total = references.like_first_twice(x)
    rows = (t.reshape(-1, x.shape[-1]) for t in (out, x, residual, total))
    aiter.rmsnorm2d_fwd_with_add(*rows, weight, eps)
    return out, total


def _attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None, causal: bool) -> Tensor:  # noqa: FBT001 - operators take positional arguments
    import aiter  # noqa: A004 - the package's name

    transposed = (t.transpose(1, 2) for t in (q, k, v))  # AITER's layout is [batch, tokens, heads, head_dim]
    out: Tensor = aiter.flash_attn_func(*transposed, softmax_scale=scale, causal=causal)
    return out.transpose(1, 2).contiguous()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from aiter.tuned_gemm import tgemm

    out: Tensor = tgemm.mm(x.reshape(-1, x.shape[-1]), weight, bias, otype=x.dtype)
    return out.reshape(*x.shape[:-1], weight.shape[0])


def _operators() -> dict[str, VendorOp]:
    """All operators that use AITER; the package is imported when one is called."""
    functions: dict[str, Any] = {
        "rms_norm": (_rms_norm, references.rms_norm, references.like_first),
        "add_rms_norm": (_add_rms_norm, references.add_rms_norm, references.like_first_twice),
        "attention": (_attention, references.attention, references.like_first),
        "linear": (_linear, references.linear, references.linear),
    }
    return {
        name: vendor_op(f"rocsolid::aiter_{name}", fn, reference=reference, fake=fake)
        for name, (fn, reference, fake) in functions.items()
    }


OPERATORS: Final = _operators()
