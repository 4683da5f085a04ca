"""AMD's own kernels (AITER) as operators, where the package is there. None of this has been run on an AMD GPU yet."""

import importlib.util
from typing import Any, Final

import torch
from torch import Tensor

from rocsolid.ops.shipped import references
from rocsolid.ops.vendor_op import VendorOp, vendor_op

# Asked once: the compiler traces through `takes`, and a plain value is all it can keep.
PRESENT: Final = torch.version.hip is not None and importlib.util.find_spec("aiter") is not None


def takes(x: Tensor, *others: Tensor) -> bool:
    """Whether AITER's kernels take these: half precision, all of one dtype, on the device."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    return bool(x.is_cuda and half and all(o.dtype == x.dtype for o in others) and PRESENT)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    import aiter  # noqa: A004 - the package is called so

    made: Tensor = aiter.rmsnorm2d_fwd(x.reshape(-1, x.shape[-1]), weight, eps)
    return made.reshape(x.shape)


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    import aiter  # noqa: A004 - the package is called so

    out, total = references.like_first_twice(x)
    made, given, held, summed = (t.reshape(-1, x.shape[-1]) for t in (out, x, residual, total))
    aiter.rmsnorm2d_fwd_with_add(made, given, held, summed, weight, eps)
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


def _operators() -> dict[str, VendorOp]:
    """Every operator that stands on AITER; the package itself is imported when one is called."""
    one, two = references.like_first, references.like_first_twice
    made: dict[str, Any] = {
        "rms_norm": (_rms_norm, references.rms_norm, one),
        "add_rms_norm": (_add_rms_norm, references.add_rms_norm, two),
        "attention": (_attention, references.attention, one),
        "linear": (_linear, references.linear, references.linear),
    }
    return {
        name: vendor_op(f"rocsolid::aiter_{name}", fn, reference=plain, fake=fake)
        for name, (fn, plain, fake) in made.items()
    }


OPERATORS: Final = _operators()
