"""`rocsolid::split_matmul`: a matrix product with few rows, computed in parts that are added where the product is used.

A product of 64 rows has few blocks, so most of the GPU is idle while each block reads the whole inner dimension. Split into parts,
all of the GPU works. The sum of the parts needs no kernel of its own: Inductor computes it in the kernel that uses the product, such
as a residual and a norm.
"""

from typing import Any, Final

import torch
from torch import Tensor

from rocsolid.ops.shipped.device import gpu
from rocsolid.ops.shipped.operators import triton_supports

_MAX_ROWS: Final = 128
_MAX_SPLITS: Final = 8
_MIN_INNER: Final = 256  # of a part


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


_op: Any = torch.library.custom_op("rocsolid::split_matmul", _split_matmul, mutates_args=())
_op.register_fake(_fake)
SPLIT_MATMUL: Final = torch.ops.rocsolid.split_matmul.default


def blocks(rows: int) -> tuple[int, int, int]:
    """Rows and columns of the block that one program computes, and how much of the inner dimension it reads at a time."""
    return min(64, max(16, 1 << (rows - 1).bit_length())), 32, 64


def best_splits(rows: int, inner: int, columns: int, device: torch.device) -> int:
    """Into how many parts the inner dimension is split so that the product fills the GPU; 1: it fills it without."""
    if not 0 < rows <= _MAX_ROWS or columns == 0:
        return 1
    block_rows, block_columns, _ = blocks(rows)
    programs = -(-rows // block_rows) * -(-columns // block_columns)
    return max(1, min(_MAX_SPLITS, gpu(device).compute_units // programs, inner // _MIN_INNER))
