"""`rocsolid::split_matmul`: a matrix product with few rows, computed in parts that are added where the product is used.

A product of 64 rows has few blocks, so most of the GPU is idle while each block reads the whole inner dimension. Split into parts,
all of the GPU works. The sum of the parts needs no kernel of its own: Inductor computes it in the kernel that uses the product, such
as a residual and a norm.
"""

from typing import Any, Final

import torch
from torch import Tensor

from rocsolid.ops.shipped.device import gpu
from rocsolid.ops.shipped.operators import HAS_TRITON, triton_supports

_MAX_ROWS: Final = 256


def _split_matmul(a: Tensor, b: Tensor, splits: int) -> Tensor:
    """Return the products of `splits` parts of the inner dimension, in float32."""
    if triton_supports(a, b) and a.numel() and b.numel():
        from rocsolid.ops.shipped.launch import launch_split_matmul

        return launch_split_matmul(a, b, splits)
    size = -(-a.shape[1] // splits)
    parts = zip(a.float().split(size, 1), b.float().split(size, 0), strict=True) if size else ()
    products = [left @ right for left, right in parts]
    missing = [a.new_zeros((a.shape[0], b.shape[1]), dtype=torch.float32)] * (splits - len(products))
    return torch.stack([*products, *missing])


def _fake(a: Tensor, b: Tensor, splits: int) -> Tensor:
    return a.new_empty((splits, a.shape[0], b.shape[1]), dtype=torch.float32)


# The kernel reads matrices of any strides, so that Inductor need not copy them.
_op: Any = torch.library.custom_op(
    "rocsolid::split_matmul", _split_matmul, mutates_args=(), tags=(torch.Tag.flexible_layout,)
)
_op.register_fake(_fake)
SPLIT_MATMUL: Final = torch.ops.rocsolid.split_matmul.default


def best_splits(rows: int, inner: int, columns: int, device: torch.device) -> int:
    """Into how many parts the inner dimension is split so that the product fills the GPU; 1: it fills it without."""
    if not (0 < rows <= _MAX_ROWS and columns and HAS_TRITON):
        return 1
    from rocsolid.ops.shipped import tiles

    chip = gpu(device)
    known = tiles.known_tile(chip.name, tiles.product_key("split_matmul", rows, inner, columns, torch.bfloat16))
    return max(1, (known or tiles.product_tiles(rows, inner, columns, chip)[0]).splits)
