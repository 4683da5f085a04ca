"""Operators with a plain reference, a Triton kernel, and the vendor's own kernel where there is one.

Each function takes the vendor's kernel where AITER is installed on ROCm, ours in Triton on any other GPU, and plain torch elsewhere.
All of them stay in a compiled graph, have gradients (those of the reference), and can be captured. Importing this package
registers the operators under `torch.ops.rocsolid`.
"""

from rocsolid.ops.shipped.operators import add_rms_norm, attention, gelu_mul, linear, rms_norm, silu_mul

__all__ = ["add_rms_norm", "attention", "gelu_mul", "linear", "rms_norm", "silu_mul"]
