"""A small stand-in for a vendor's library: Python around a kernel that torch cannot trace."""

import ctypes
from typing import Any

import torch


def _kernel(x: Any, weight: Any, eps: float) -> Any:
    """Like a C++ binding: takes addresses and computes without torch operators."""
    assert ctypes.sizeof(ctypes.c_void_p) == 8
    if x.is_cuda:
        with torch.no_grad():
            return norm_reference(x, weight, eps)
    source = x.detach().contiguous().double().numpy()
    scale = 1 / ((source**2).mean(-1, keepdims=True) + eps) ** 0.5
    return torch.from_numpy(source * scale * weight.detach().double().numpy()).to(x.dtype)


@torch.compiler.disable
def rms_norm(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    return _kernel(x, weight, eps)


def norm_reference(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def scale_in_place(x: Any, factor: float) -> None:
    x.detach().mul_(factor)
