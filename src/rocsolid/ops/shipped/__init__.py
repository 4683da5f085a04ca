"""Ready-made operators: each has a reference in plain torch, a Triton kernel, and AITER's kernel (AMD) if there is one.

Each function uses AITER's kernel if AITER is installed on ROCm, our Triton kernel on other GPUs, and plain torch on the CPU.
All of them work in compiled graphs and captures, and have the gradients of the reference. Importing this package registers the
operators under `torch.ops.rocsolid`.
"""

from rocsolid.ops.shipped.operators import add_rms_norm, attention, gelu_mul, linear, rms_norm, silu_mul

__all__ = ["add_rms_norm", "attention", "gelu_mul", "linear", "rms_norm", "silu_mul"]
